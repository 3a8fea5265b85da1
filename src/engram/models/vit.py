"""Vision Transformer: patches of a picture as tokens (note 002 «Divide observation into patches», note 004; Dosovitskiy
et al. 2021).   B batch, C H W picture, S side of a patch, T tokens, E width, K classes

    z = patches of x, each S × S × C, as rows W_z + b_z         a convolution with stride S                       (1)
    h_0 = [class token, z_1, ..., z_M] + P                                                                        (2)
    h_l = block_l(h_{l-1})                                      pre-norm, every patch sees every other            (3)
    y = norm(h_L)[0] W + b                                      what the class token has gathered                 (4)
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.tap import tap
from engram.layers.block import Block, BlockConfig, norm
from engram.layers.pictures import Pictures


class Patches(nn.Module):
    """A picture as tokens: its patches and the class token in front, each told where it stands."""

    def __init__(self, shape: tuple[int, ...], patch: int, width: int, bias: bool = True) -> None:
        super().__init__()
        channels, height, breadth = shape
        self.grid = (height // patch, breadth // patch)
        self.project = nn.Conv2d(channels, width, patch, patch, bias=bias)
        self.first = nn.Parameter(torch.zeros(width))
        self.position = nn.Parameter(torch.zeros(1 + self.grid[0] * self.grid[1], width))

    def place(self) -> None:
        """Positions that can be told apart from the start, beside patches of size one."""
        nn.init.normal_(self.position, std=0.3)
        nn.init.normal_(self.first, std=0.02)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        z_BME = self.project(x_BCHW).flatten(2).transpose(1, 2)  # (1)
        return torch.cat([self.first.expand(z_BME.shape[0], 1, -1), z_BME], 1) + self.position  # (2)


class ViT(nn.Module):
    """A Transformer encoder on the patches of a picture."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Pictures, BlockConfig):
        patch: int = 4
        """side of a patch in pixels (S)"""

        def __post_init__(self) -> None:
            Pictures.__post_init__(self)
            BlockConfig.__post_init__(self)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        config.must_divide(config.patch)
        self.patches = Patches(config.shape, config.patch, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = norm(config)
        self.head = nn.Linear(config.width, config.classes)
        self.initialise()

    def initialise(self) -> None:
        self.patches.place()
        nn.init.trunc_normal_(self.patches.project.weight, std=self.patches.project.weight[0].numel() ** -0.5)
        nn.init.zeros_(self.patches.project.bias)  # type: ignore[arg-type]
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def encode(self, x_BCHW: Tensor) -> Tensor:
        """A vector for the class token and for each patch, B × T × E."""
        h_BTE = self.patches(self.config.standardise(x_BCHW))
        h_BTE = F.dropout(tap("embedding", h_BTE), self.config.dropout, self.training)
        for block in self.blocks:
            h_BTE = block(h_BTE)  # (3)
        return self.norm(h_BTE)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Logits of the classes, B × K, for pixels from 0 to 1."""
        return tap("logits", self.head(self.encode(x_BCHW)[:, 0]))  # (4)
