"""From things to codes and back: what autoencoders, VAEs and GANs are made of.   B batch, C H W picture, Z code

    dense          h <- sigma(h W + b), the last layer without sigma                                              (1)
    downwards      h <- sigma(n(h * k)), stride 2: half the height and width, then h W + b to the code            (2)
    upwards        z W + b to a small picture, then h <- sigma(n(h *' k)), each pixel spread over a square of 4   (3)

n is batch normalisation where it is asked for, *' the transpose of a convolution with stride 2 (Radford et al. 2016).
A side that is odd is padded before it is halved, and cut after it is doubled.
"""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from engram.layers.activation import ACTIVATIONS
from engram.layers.space import Space

LEAK = 0.2
"""slope below zero of a discriminator's units, through which a gradient comes to the generator in any case"""


class Dense(nn.Module):
    """(1) from `sizes[0]` numbers to `sizes[-1]`."""

    def __init__(self, sizes: Sequence[int], activation: str, shape: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False))
        self.activation, self.shape = activation, shape or (sizes[-1],)

    def forward(self, x: Tensor) -> Tensor:
        h_BD = x.flatten(1)
        for layer in self.layers[:-1]:
            h_BD = sigma(self.activation, layer(h_BD))
        return self.layers[-1](h_BD).view(len(x), *self.shape)  # (1)


class Down(nn.Module):
    """(2) from a picture to `outputs` numbers."""

    def __init__(self, space: Space, channels: Sequence[int], outputs: int, activation: str, norm: bool) -> None:
        super().__init__()
        sides = halved(space, len(channels))
        widths = [space.shape[0], *channels]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, 4, stride=2, padding=1, bias=not norm) for a, b in zip(widths, widths[1:], strict=False)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) if norm else nn.Identity() for width in channels)
        self.out = nn.Linear(channels[-1] * sides[-1][0] * sides[-1][1], outputs)
        self.activation = activation

    def forward(self, x_BCHW: Tensor) -> Tensor:
        h_BCHW = x_BCHW
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            h_BCHW = F.pad(h_BCHW, (0, h_BCHW.shape[3] % 2, 0, h_BCHW.shape[2] % 2))
            h_BCHW = sigma(self.activation, norm(convolution(h_BCHW)))
        return self.out(h_BCHW.flatten(1))  # (2)


class Up(nn.Module):
    """(3) from `inputs` numbers to a picture; `channels` as (2) has them, from the large picture to the small one."""

    def __init__(self, space: Space, channels: Sequence[int], inputs: int, activation: str, norm: bool) -> None:
        super().__init__()
        *self.sides, self.smallest = halved(space, len(channels))
        widths = [*channels[::-1], space.shape[0]]
        self.into = nn.Linear(inputs, widths[0] * self.smallest[0] * self.smallest[1])
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) if norm else nn.Identity() for width in widths[:-1])
        self.convolutions = nn.ModuleList(
            nn.ConvTranspose2d(a, b, 4, stride=2, padding=1) for a, b in zip(widths, widths[1:], strict=False)
        )
        self.activation = activation

    def forward(self, z_BZ: Tensor) -> Tensor:
        h_BCHW = self.into(z_BZ).view(len(z_BZ), -1, *self.smallest)
        for convolution, norm, (height, width) in zip(self.convolutions, self.norms, self.sides[::-1], strict=True):
            h_BCHW = convolution(sigma(self.activation, norm(h_BCHW)))[..., :height, :width]
        return h_BCHW  # (3)


def halved(space: Space, times: int) -> list[tuple[int, int]]:
    """Height and width of a picture, and after each halving, rounded up."""
    sides = [(space.shape[1], space.shape[2])]
    for _ in range(times):
        sides.append((-(-sides[-1][0] // 2), -(-sides[-1][1] // 2)))
    return sides


def sigma(name: str, z: Tensor) -> Tensor:
    return F.leaky_relu(z, LEAK) if name == "leaky" else ACTIVATIONS[name].f(z)
