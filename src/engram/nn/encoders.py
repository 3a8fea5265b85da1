r"""Encoders and decoders of latent-variable models.

Multilayer perceptrons and strided convolutions (DCGAN).

    h \leftarrow \phi(h W + b)              MLP; the last layer has no activation                       (1)
    h \leftarrow \phi(n(h * k))             convolution with stride 2, then linear to the latent        (2)
    h \leftarrow \phi(n(h)) *' k            linear from the latent, then transposed convolutions        (3)

    Symbols:
        h, W, b       hidden units, weights and biases
        k             kernel of 4 × 4 pixels
        *, *'         convolution and transposed convolution with stride 2
        \phi          activation function
        n             batch normalization, or the identity
        B, Z          batch, latent dimensions
        C, H, W       channels, height and width of an image

The convolutional form is that of Radford et al. (2016). An odd side is padded before it is halved, and cropped after it
is doubled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram.nn.activation import ACTIVATIONS
from engram.nn.batch_norm import BatchNorm2d
from engram.nn.sample_space import SampleSpace

NEGATIVE_SLOPE = 0.2
"""of the leaky ReLU"""


@dataclass(frozen=True, kw_only=True)
class LatentConfig(SampleSpace):
    """Latent size and layers of an encoder and a decoder."""

    latent_dim: Annotated[int, Ge(1)] = 32
    """dimensions of the latent (Z)"""
    hidden: Annotated[tuple[int, ...], Ge(1)] = (512, 256)
    """units of the encoder's dense layers; the decoder has them in reverse order"""
    channels: Annotated[tuple[int, ...], Ge(1)] = ()
    """output channels of each convolution; if given, encoder and decoder are convolutional (strides of 2)"""

    @property
    def convolutional(self) -> bool:
        return bool(self.channels) and self.is_image


def build_encoder_decoder(
    config: LatentConfig, encoder_outputs: int, decoder_inputs: int, activation: str
) -> tuple[nn.Module, nn.Module]:
    """Build an encoder and a decoder, both convolutional or both dense."""
    if config.convolutional:
        encoder = ConvEncoder(config, encoder_outputs, activation, norm=True)
        return encoder, ConvDecoder(config, decoder_inputs, activation, norm=True)
    dense = MLP([config.numel, *config.hidden, encoder_outputs], activation)
    return dense, MLP([decoder_inputs, *config.hidden[::-1], config.numel], activation, config.shape)


def initialize(model: nn.Module) -> None:
    """Initialize weights by Glorot's uniform rule and biases with zeros."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


class MLP(nn.Module):
    """Multilayer perceptron from `sizes[0]` inputs to `sizes[-1]` outputs, reshaped to `shape`."""

    def __init__(self, sizes: Sequence[int], activation: str, shape: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False))
        self.activation, self.shape = activation, shape or (sizes[-1],)

    def forward(self, x: Tensor) -> Tensor:
        h_BD = x.flatten(1)
        for layer in self.layers[:-1]:
            h_BD = activate(self.activation, layer(h_BD))
        return self.layers[-1](h_BD).view(x.shape[0], *self.shape)  # (1)


class ConvEncoder(nn.Module):
    """Strided convolutions from an image to `outputs` numbers."""

    def __init__(self, config: LatentConfig, outputs: int, activation: str, norm: bool) -> None:
        super().__init__()
        channels, (*_, smallest) = config.channels, feature_map_sizes(config)
        widths = [config.shape[0], *channels]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, 4, stride=2, padding=1, bias=not norm) for a, b in zip(widths, widths[1:], strict=False)
        )
        self.norms = nn.ModuleList(BatchNorm2d(width) if norm else nn.Identity() for width in channels)
        self.output = nn.Linear(channels[-1] * smallest[0] * smallest[1], outputs)
        self.activation = activation

    def forward(self, x_BCHW: Tensor) -> Tensor:
        h_BCHW = x_BCHW
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            h_BCHW = F.pad(h_BCHW, (0, h_BCHW.shape[3] % 2, 0, h_BCHW.shape[2] % 2))
            h_BCHW = activate(self.activation, norm(convolution(h_BCHW)))  # (2)
        return self.output(h_BCHW.flatten(1))


class ConvDecoder(nn.Module):
    """Transposed convolutions from `inputs` numbers to an image."""

    def __init__(self, config: LatentConfig, inputs: int, activation: str, norm: bool) -> None:
        super().__init__()
        *self.sizes, self.smallest = feature_map_sizes(config)
        widths = [*config.channels[::-1], config.shape[0]]
        self.input = nn.Linear(inputs, widths[0] * self.smallest[0] * self.smallest[1])
        self.norms = nn.ModuleList(BatchNorm2d(width) if norm else nn.Identity() for width in widths[:-1])
        self.convolutions = nn.ModuleList(
            nn.ConvTranspose2d(a, b, 4, stride=2, padding=1) for a, b in zip(widths, widths[1:], strict=False)
        )
        self.activation = activation

    def forward(self, z_BZ: Tensor) -> Tensor:
        h_BCHW = self.input(z_BZ).view(z_BZ.shape[0], -1, *self.smallest)
        for convolution, norm, (height, width) in zip(self.convolutions, self.norms, self.sizes[::-1], strict=True):
            h_BCHW = convolution(activate(self.activation, norm(h_BCHW)))[..., :height, :width]  # (3)
        return h_BCHW


def feature_map_sizes(config: LatentConfig) -> list[tuple[int, int]]:
    """Height and width of the image, and of the feature map after each convolution, rounded up."""
    sizes = [(config.shape[1], config.shape[2])]
    for _ in config.channels:
        sizes.append((-(-sizes[-1][0] // 2), -(-sizes[-1][1] // 2)))
    return sizes


def activate(name: str, z: Tensor) -> Tensor:
    """Apply the activation function `name`; "leaky" is the leaky ReLU."""
    return F.leaky_relu(z, NEGATIVE_SLOPE) if name == "leaky" else ACTIVATIONS[name].f(z)
