"""From things to codes and back: what autoencoders, VAEs and GANs are made of.   B batch, C H W picture, Z code

    dense          h <- sigma(h W + b), the last layer without sigma                                              (1)
    downwards      h <- sigma(n(h * k)), stride 2: half the height and width, then h W + b to the code            (2)
    upwards        z W + b to a small picture, then h <- sigma(n(h *' k)), each pixel spread over a square of 4   (3)

n is batch normalisation where it is asked for, *' the transpose of a convolution with stride 2 (Radford et al. 2016).
A side that is odd is padded before it is halved, and cut after it is doubled.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.layers.activation import ACTIVATIONS
from engram.layers.batch_norm import BatchNorm2d
from engram.layers.space import Space

LEAK = 0.2
"""slope below zero of a discriminator's units, through which a gradient comes to the generator in any case"""


@dataclass(frozen=True, kw_only=True)
class Coding(Space):
    """A code, and the layers between it and a thing."""

    code: int = 32
    """size of the code (Z)"""
    hidden: tuple[int, ...] = (512, 256)
    """units of the dense layers before the code, and in the opposite order after it"""
    channels: tuple[int, ...] = ()
    """kernels of each convolutional stage instead, each of which halves height and width of a picture"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.code < 1:
            raise EngramError(f"code must be at least 1, not {self.code}.")
        for name in ("hidden", "channels"):
            if any(units < 1 for units in getattr(self, name)):
                raise EngramError(f"{name} must name layers of at least one unit, not {getattr(self, name)}.")

    @property
    def convolutional(self) -> bool:
        return bool(self.channels) and self.pictures


def coders(config: Coding, outputs: int, inputs: int, activation: str) -> tuple[nn.Module, nn.Module]:
    """An encoder to `outputs` numbers, and a decoder from `inputs`."""
    if config.convolutional:
        down = Down(config, outputs, activation, norm=True)
        return down, Up(config, inputs, activation, norm=True)
    encoder = Dense([config.numbers, *config.hidden, outputs], activation)
    return encoder, Dense([inputs, *config.hidden[::-1], config.numbers], activation, config.shape)


def initialise(model: nn.Module) -> None:
    """Variance that neither grows nor shrinks with depth, and no biases."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


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

    def __init__(self, config: Coding, outputs: int, activation: str, norm: bool) -> None:
        super().__init__()
        channels, sides = config.channels, halved(config)
        widths = [config.shape[0], *channels]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, 4, stride=2, padding=1, bias=not norm) for a, b in zip(widths, widths[1:], strict=False)
        )
        self.norms = nn.ModuleList(BatchNorm2d(width) if norm else nn.Identity() for width in channels)
        self.out = nn.Linear(channels[-1] * sides[-1][0] * sides[-1][1], outputs)
        self.activation = activation

    def forward(self, x_BCHW: Tensor) -> Tensor:
        h_BCHW = x_BCHW
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            h_BCHW = F.pad(h_BCHW, (0, h_BCHW.shape[3] % 2, 0, h_BCHW.shape[2] % 2))
            h_BCHW = sigma(self.activation, norm(convolution(h_BCHW)))
        return self.out(h_BCHW.flatten(1))  # (2)


class Up(nn.Module):
    """(3) from `inputs` numbers to a picture."""

    def __init__(self, config: Coding, inputs: int, activation: str, norm: bool) -> None:
        super().__init__()
        *self.sides, self.smallest = halved(config)
        widths = [*config.channels[::-1], config.shape[0]]
        self.into = nn.Linear(inputs, widths[0] * self.smallest[0] * self.smallest[1])
        self.norms = nn.ModuleList(BatchNorm2d(width) if norm else nn.Identity() for width in widths[:-1])
        self.convolutions = nn.ModuleList(
            nn.ConvTranspose2d(a, b, 4, stride=2, padding=1) for a, b in zip(widths, widths[1:], strict=False)
        )
        self.activation = activation

    def forward(self, z_BZ: Tensor) -> Tensor:
        h_BCHW = self.into(z_BZ).view(len(z_BZ), -1, *self.smallest)
        for convolution, norm, (height, width) in zip(self.convolutions, self.norms, self.sides[::-1], strict=True):
            h_BCHW = convolution(sigma(self.activation, norm(h_BCHW)))[..., :height, :width]
        return h_BCHW  # (3)


def halved(config: Coding) -> list[tuple[int, int]]:
    """Height and width of a picture, and after each halving, rounded up."""
    sides = [(config.shape[1], config.shape[2])]
    for _ in config.channels:
        sides.append((-(-sides[-1][0] // 2), -(-sides[-1][1] // 2)))
    return sides


def sigma(name: str, z: Tensor) -> Tensor:
    return F.leaky_relu(z, LEAK) if name == "leaky" else ACTIVATIONS[name].f(z)
