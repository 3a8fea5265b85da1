r"""Vision Transformer (ViT): a Transformer encoder on image patches (Dosovitskiy et al. 2021).

z = \text{patches}(x) W_z + b_z                   patch embedding: a convolution with stride S      (1)
h_0 = [c, z_1, ..., z_M] + P                      class token, patches, position embedding          (2)
h_l = \text{block}_l(h_{l-1})                     every patch attends to every other                (3)
y = \text{norm}(h_L)_0 W + b                      classifier on the class token                     (4)
h_0 = [c, d, z_1, ..., z_M] + P                   with a distillation token (DeiT)                  (5)
y = (\text{norm}(h_L)_0 W + b + \text{norm}(h_L)_1 V + a) / 2     mean of two classifiers (DeiT)    (6)
y = [\text{norm}(h_L)_0, \overline{\text{norm}(h_L)}] W + b   with the mean of the patches (DINOv2)  (7)

Symbols:
    x            image
    c, d, P      class token, distillation token, position embedding
    h_l          residual stream after layer l
    M, S         number of patches, side of a patch in pixels
    B, T, E      batch, tokens, model width
    C, H, W      channels, height, width
    K            classes

The second classifier of DeiT (Touvron et al. 2021) is the one that learned from a teacher's predictions. DINOv2 (Oquab
et al. 2024) takes images of any size: P is interpolated.
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
    """Patch embedding: learned tokens, as a class token, and patches, with position embedding."""

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
        z_BERS = self.project(x_BCHW)  # (1)
        z_BME = z_BERS.flatten(2).transpose(1, 2)
        learned = [self.get_parameter(name).expand(z_BME.shape[0], 1, -1) for name in self.tokens]
        return torch.cat([*learned, z_BME], 1) + self.position_of((z_BERS.shape[2], z_BERS.shape[3]))  # (2), (5)

    def position_of(self, grid: tuple[int, int]) -> Tensor:
        """Position embedding of an image of so many rows and columns of patches, T × E.

        Interpolated if they differ.
        """
        if grid == self.grid:
            return self.position
        learned_TE, patch_ME = self.position.tensor_split([len(self.tokens)])
        patch_1ERS = patch_ME.T.unflatten(1, self.grid)[None]
        patch_1ERS = F.interpolate(patch_1ERS, grid, mode="bicubic", align_corners=False)
        return torch.cat([learned_TE, patch_1ERS[0].flatten(1).T])


class ViT(FitMixin, nn.Module):
    """Vision Transformer: classifies images by their patches."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ImageClassifierConfig, BlockConfig):
        patch: Annotated[int, Ge(1)] = 4
        """side of a patch in pixels (S); must divide height and width"""
        distillation: FromData[Literal["none", "token", "classifier"]] = "none"
        """distillation token of DeiT: none, a token, or a token with a classifier of its own"""
        pooling: Literal["cls", "cls-mean"] = "cls"
        """what the classifier reads: the class token, or it and the mean of the patches (DINOv2)"""
        layer_scale: Annotated[float, Ge(0)] = 0.0
        """initial gain of LayerScale on the output of attention and feed-forward; 0 disables"""
        sizes: FromData[Literal["one", "any"]] = "one"
        """sizes of images: that of `shape` alone, or any, to which the position embedding is interpolated (DINOv2)"""

        def __post_init__(self) -> None:
            ImageClassifierConfig.__post_init__(self)
            BlockConfig.__post_init__(self)

        @property
        def pooled_width(self) -> int:
            """Inputs of the classifier."""
            return self.width * (2 if self.pooling == "cls-mean" else 1)

        def standardize(self, x_BCHW: Tensor) -> Tensor:
            """Normalize pixels from 0 to 1; refuse images of a size that the model does not take."""
            found = tuple(x_BCHW.shape[1:])
            fits = len(found) == 3 and found[0] == self.shape[0] and min(found[1:]) >= self.patch
            taken = replace(self, shape=found) if fits and self.sizes == "any" else self
            return ImageClassifierConfig.standardize(taken, x_BCHW)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        config.check_patch(config.patch)
        tokens = CLASS_TOKEN if config.distillation == "none" else (*CLASS_TOKEN, "distillation_token")
        self.patches = PatchEmbedding(config.shape, config.patch, config.width, tokens=tokens)
        self.blocks = nn.ModuleList(Block(config, layer_scale=config.layer_scale) for _ in range(config.layers))
        self.norm = make_norm(config)
        self.head = nn.Linear(config.pooled_width, config.classes)
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
                head = nn.Linear(getattr(self, name).in_features, classes)
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

    def pool(self, h_BTE: Tensor) -> Tensor:
        """Return what the classifier reads of encoded tokens."""
        if self.config.pooling == "cls":
            return h_BTE[:, 0]
        return torch.cat([h_BTE[:, 0], h_BTE[:, len(self.patches.tokens) :].mean(1)], 1)  # (7)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Logits of the classes, B × K, for pixels from 0 to 1."""
        h_BTE = self.encode(x_BCHW)
        logits_BK = self.head(self.pool(h_BTE))  # (4)
        if self.config.distillation == "classifier":
            logits_BK = (logits_BK + self.distillation_head(h_BTE[:, 1])) / 2  # (6)
        return tap("logits", logits_BK)
