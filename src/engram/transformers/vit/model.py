r"""Vision Transformer (ViT): a Transformer encoder on image patches (Dosovitskiy et al. 2021).

z = \text{patches}(x) W_z + b_z                   patch embedding: a convolution with stride S      (1)
h_0 = [c, z_1, ..., z_M] + P                      class token, patches, position embedding          (2)
h_l = \text{block}_l(h_{l-1})                     every patch attends to every other                (3)
y = \text{norm}(h_L)_0 W + b                      classifier on the class token                     (4)
h_0 = [c, d, z_1, ..., z_M] + P                   with a distillation token (DeiT)                  (5)
y = (\text{norm}(h_L)_0 W + b + \text{norm}(h_L)_1 V + a) / 2     mean of two classifiers (DeiT)    (6)

Symbols:
    x            image
    c, d, P      class token, distillation token, position embedding
    h_l          residual stream after layer l
    M, S         number of patches, side of a patch in pixels
    B, T, E      batch, tokens, model width
    C, H, W      channels, height, width
    K            classes

The second classifier of DeiT (Touvron et al. 2021) is the one that learned from a teacher's predictions.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.config import FromData
from engram.core.fit import FitMixin
from engram.core.tap import tap
from engram.nn.image_input import ImageClassifierConfig
from engram.nn.transformer_block import Block, BlockConfig, make_norm

CLASS_TOKEN = ("cls_token",)
"""learned token before the patches"""


class PatchEmbedding(nn.Module):
    """Patch embedding: learned tokens, such as a class token, and patches of an image, with position embedding."""

    def __init__(
        self,
        shape: tuple[int, ...],
        patch: int,
        width: int,
        *,
        bias: bool = True,
        tokens: tuple[str, ...] = CLASS_TOKEN,
    ) -> None:
        super().__init__()
        channels, height, image_width = shape
        self.grid = (height // patch, image_width // patch)
        self.project = nn.Conv2d(channels, width, patch, patch, bias=bias)
        self.tokens = tokens
        for name in tokens:
            self.register_parameter(name, nn.Parameter(torch.zeros(width)))
        self.position = nn.Parameter(torch.zeros(len(tokens) + self.grid[0] * self.grid[1], width))

    def initialize(self) -> None:
        """Initialize positions to a size that is comparable to the patches."""
        nn.init.normal_(self.position, std=0.3)
        for name in self.tokens:
            nn.init.normal_(self.get_parameter(name), std=0.02)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Learned tokens and patches as tokens, B × T × E."""
        z_BME = self.project(x_BCHW).flatten(2).transpose(1, 2)  # (1)
        learned = [self.get_parameter(name).expand(z_BME.shape[0], 1, -1) for name in self.tokens]
        return torch.cat([*learned, z_BME], 1) + self.position  # (2), (5)


class ViT(FitMixin, nn.Module):
    """Vision Transformer: classifies images by their patches."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ImageClassifierConfig, BlockConfig):
        patch: Annotated[int, Ge(1)] = 4
        """side of a patch in pixels (S); must divide height and width"""
        distillation: FromData[Literal["none", "token", "classifier"]] = "none"
        """distillation token of DeiT: none, a token, or a token with a classifier of its own"""

        def __post_init__(self) -> None:
            ImageClassifierConfig.__post_init__(self)
            BlockConfig.__post_init__(self)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        config.check_patch(config.patch)
        tokens = CLASS_TOKEN if config.distillation == "none" else (*CLASS_TOKEN, "distillation_token")
        self.patches = PatchEmbedding(config.shape, config.patch, config.width, tokens=tokens)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = make_norm(config)
        self.head = nn.Linear(config.width, config.classes)
        if config.distillation == "classifier":
            self.distillation_head = nn.Linear(config.width, config.classes)
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

    def reset_classifier(self, classes: int) -> None:
        """Replace the classifier by one of so many classes, with weights of zero."""
        self.config = replace(self.config, classes=classes)
        for name in ("head", "distillation_head"):
            if hasattr(self, name):
                head = nn.Linear(self.config.width, classes)
                nn.init.zeros_(head.weight)
                nn.init.zeros_(head.bias)
                setattr(self, name, head)

    def encode(self, x_BCHW: Tensor) -> Tensor:
        """Encode the class token, a distillation token and each patch as a vector, B × T × E."""
        h_BTE = self.patches(self.config.standardize(x_BCHW))
        h_BTE = F.dropout(tap("embedding", h_BTE), self.config.dropout, self.training)
        for block in self.blocks:
            h_BTE = block(h_BTE)  # (3)
        return self.norm(h_BTE)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Logits of the classes, B × K, for pixels from 0 to 1."""
        h_BTE = self.encode(x_BCHW)
        logits_BK = self.head(h_BTE[:, 0])  # (4)
        if self.config.distillation == "classifier":
            logits_BK = (logits_BK + self.distillation_head(h_BTE[:, 1])) / 2  # (6)
        return tap("logits", logits_BK)
