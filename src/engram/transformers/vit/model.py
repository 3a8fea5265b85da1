r"""Vision Transformer (ViT): a Transformer encoder on image patches (Dosovitskiy et al. 2021).

z = \text{patches}(x) W_z + b_z                   patch embedding: a convolution with stride S      (1)
h_0 = [c, z_1, ..., z_M] + P                      class token, patches, position embedding          (2)
h_l = \text{block}_l(h_{l-1})                     every patch attends to every other                (3)
y = \text{norm}(h_L)_0 W + b                      classifier on the class token                     (4)

Symbols:
    x            image
    c, P         class token, position embedding
    h_l          residual stream after layer l
    M, S         number of patches, side of a patch in pixels
    B, T, E      batch, tokens, model width
    C, H, W      channels, height, width
    K            classes
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.fit import FitMixin
from engram.core.tap import tap
from engram.nn.image_input import ImageClassifierConfig
from engram.nn.transformer_block import Block, BlockConfig, make_norm


class PatchEmbedding(nn.Module):
    """Patch embedding: class token and patches of an image, with position embedding."""

    def __init__(self, shape: tuple[int, ...], patch: int, width: int, bias: bool = True) -> None:
        super().__init__()
        channels, height, image_width = shape
        self.grid = (height // patch, image_width // patch)
        self.project = nn.Conv2d(channels, width, patch, patch, bias=bias)
        self.cls_token = nn.Parameter(torch.zeros(width))
        self.position = nn.Parameter(torch.zeros(1 + self.grid[0] * self.grid[1], width))

    def initialize(self) -> None:
        """Initialize positions to a size that is comparable to the patches."""
        nn.init.normal_(self.position, std=0.3)
        nn.init.normal_(self.cls_token, std=0.02)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Class token and patches as tokens, B × T × E."""
        z_BME = self.project(x_BCHW).flatten(2).transpose(1, 2)  # (1)
        return torch.cat([self.cls_token.expand(z_BME.shape[0], 1, -1), z_BME], 1) + self.position  # (2)


class ViT(FitMixin, nn.Module):
    """Vision Transformer: classifies images by their patches."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ImageClassifierConfig, BlockConfig):
        patch: Annotated[int, Ge(1)] = 4
        """side of a patch in pixels (S); must divide height and width"""

        def __post_init__(self) -> None:
            ImageClassifierConfig.__post_init__(self)
            BlockConfig.__post_init__(self)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        config.check_patch(config.patch)
        self.patches = PatchEmbedding(config.shape, config.patch, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = make_norm(config)
        self.head = nn.Linear(config.width, config.classes)
        self.initialize()

    def initialize(self) -> None:
        """Initialize weights to truncated normal distributions, biases to zero."""
        self.patches.initialize()
        nn.init.trunc_normal_(self.patches.project.weight, std=self.patches.project.weight[0].numel() ** -0.5)
        nn.init.zeros_(self.patches.project.bias)  # type: ignore[arg-type]
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def encode(self, x_BCHW: Tensor) -> Tensor:
        """Encode the class token and each patch as a vector, B × T × E."""
        h_BTE = self.patches(self.config.standardize(x_BCHW))
        h_BTE = F.dropout(tap("embedding", h_BTE), self.config.dropout, self.training)
        for block in self.blocks:
            h_BTE = block(h_BTE)  # (3)
        return self.norm(h_BTE)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Logits of the classes, B × K, for pixels from 0 to 1."""
        return tap("logits", self.head(self.encode(x_BCHW)[:, 0]))  # (4)
