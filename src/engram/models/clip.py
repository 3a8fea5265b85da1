"""CLIP: pictures and texts in one space (note 000 «Multimodal models»; Radford et al. 2021).

B batch, C H W picture, T tokens, E width of an encoder, D width of the space they share, K labels

    u = norm(ViT(picture)[0]) W_u                         the class token, projected                              (1)
    w = norm(causal Transformer(text)[end]) W_w           the token that ends the text, projected                 (2)
    L = e^s  u w' / (|u| |w|)                             cosine of each picture with each text, B × B            (3)
    loss = (cross-entropy of L's rows + of its columns) / 2, each picture belonging to its own text               (4)
    zero-shot: p(k | picture) = softmax over label texts k of (3)                                                 (5)
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core import together
from engram.core.registry import FromData
from engram.core.tap import tap
from engram.layers.block import Block, BlockConfig, Function
from engram.layers.pictures import Pixels
from engram.models.vit import Patches

WARMEST = math.log(100.0)
"""the paper's limit of s: beyond it learning becomes unstable"""


class PictureEncoder(nn.Module):
    """A ViT without a classifier, with a norm before the first block as well."""

    def __init__(self, config: "CLIP.Config", blocks: BlockConfig) -> None:
        super().__init__()
        self.patches = Patches(config.shape, config.patch, blocks.width, bias=False)
        self.first_norm = nn.LayerNorm(blocks.width, blocks.eps)
        self.blocks = nn.ModuleList(Block(blocks) for _ in range(blocks.layers))
        self.norm = nn.LayerNorm(blocks.width, blocks.eps)
        self.project = nn.Linear(blocks.width, config.space, bias=False)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        h_BTE = tap("embedding", self.first_norm(self.patches(x_BCHW)))
        for block in self.blocks:
            h_BTE = block(h_BTE)
        return self.project(self.norm(h_BTE[:, 0]))  # (1)


class TextEncoder(nn.Module):
    """A causal Transformer that is read off at the token which ends the text."""

    def __init__(self, config: "CLIP.Config", blocks: BlockConfig) -> None:
        super().__init__()
        self.end = config.end
        self.embedding = nn.Embedding(config.vocabulary, blocks.width)
        self.position = nn.Parameter(torch.zeros(config.context, blocks.width))
        self.blocks = nn.ModuleList(Block(blocks, causal=True) for _ in range(blocks.layers))
        self.norm = nn.LayerNorm(blocks.width, blocks.eps)
        self.project = nn.Linear(blocks.width, config.space, bias=False)

    def forward(self, x_BT: Tensor) -> Tensor:
        h_BTE = tap("embedding", self.embedding(x_BT) + self.position[: x_BT.shape[1]])
        for block in self.blocks:
            h_BTE = block(h_BTE)
        end_B = (x_BT == self.end).int().argmax(1)  # the first one; what follows is padding, which nobody before sees
        return self.project(self.norm(h_BTE[torch.arange(x_BT.shape[0], device=x_BT.device), end_B]))  # (2)


class CLIP(nn.Module):
    """Two encoders that learn to agree about which picture belongs to which text."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Pixels):
        width: int = 128
        """width of the encoder of pictures (E)"""
        layers: int = 4
        """rounds of the encoder of pictures"""
        heads: int = 4
        """heads of the encoder of pictures"""
        inside: int = 0
        """units of its feed-forward part; 0 means four times the width"""
        patch: int = 4
        """side of a patch in pixels"""
        text_width: int = 128
        """width of the encoder of texts (E)"""
        text_layers: int = 2
        """rounds of the encoder of texts"""
        text_heads: int = 4
        """heads of the encoder of texts"""
        text_inside: int = 0
        """units of its feed-forward part; 0 means four times the width"""
        vocabulary: FromData[int] = 1000
        """different tokens of the texts"""
        end: FromData[int] = 0
        """the token that ends a text"""
        context: int = 32
        """tokens of a text at most (T)"""
        space: int = 64
        """width of the space that pictures and texts share (D)"""
        function: Function = "gelu"
        """function of the units of the feed-forward parts"""
        eps: FromData[float] = 1e-5
        """smallest variance of a norm"""

        def __post_init__(self) -> None:
            super().__post_init__()
            _ = self.pictures, self.texts  # each checks itself

        @property
        def pictures(self) -> BlockConfig:
            return BlockConfig(
                width=self.width, layers=self.layers, heads=self.heads, inside=self.inside, function=self.function,
                eps=self.eps,
            )  # fmt: skip

        @property
        def texts(self) -> BlockConfig:
            return BlockConfig(
                width=self.text_width, layers=self.text_layers, heads=self.text_heads, inside=self.text_inside,
                function=self.function, eps=self.eps,
            )  # fmt: skip

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        config.must_divide(config.patch)
        self.picture = PictureEncoder(config, config.pictures)
        self.text = TextEncoder(config, config.texts)
        self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        self.initialise()

    def initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        self.picture.patches.place()
        nn.init.normal_(self.text.position, std=0.02)
        for encoder in (self.picture, self.text):
            for block in encoder.blocks:
                for last in (block.attention.o, block.ff.down):  # type: ignore[union-attr]
                    last.weight.data.mul_((2 * len(encoder.blocks)) ** -0.5)  # type: ignore[union-attr, operator]

    def pictures(self, x_BCHW: Tensor) -> Tensor:
        """A unit vector for each picture of pixels from 0 to 1, B × D."""
        return tap("picture", F.normalize(self.picture(self.config.standardise(x_BCHW)), dim=-1))

    def texts(self, x_BT: Tensor) -> Tensor:
        """A unit vector for each text, B × D."""
        return tap("text", F.normalize(self.text(x_BT), dim=-1))

    def forward(self, x_BCHW: Tensor, x_KT: Tensor) -> Tensor:
        """How well each picture goes with each text, B × K."""
        return tap("logits", self.compare(self.pictures(x_BCHW), self.texts(x_KT)))

    def compare(self, u_BD: Tensor, w_KD: Tensor) -> Tensor:
        return self.scale.clamp(max=WARMEST).exp() * u_BD @ w_KD.T  # (3)

    def loss(self, x_BCHW: Tensor, x_BT: Tensor, same_BN: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The loss, and the share of pictures that find their text."""
        return self.match(self.pictures(x_BCHW), self.texts(x_BT), same_BN)

    def match(self, u_BD: Tensor, w_BD: Tensor, same_BN: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(4); where texts of the batch are the `same`, a picture belongs to each of them in equal parts.

        N is the whole batch, of which this process has B: each picture is compared with all texts, and the other way.
        """
        size = len(u_BD) if same_BN is None else same_BN.shape[1]
        own_BN = torch.eye(size, dtype=torch.bool, device=u_BD.device) if same_BN is None else same_BN
        target_BN = own_BN / own_BN.sum(1, keepdim=True)
        logits_BN = tap("logits", self.compare(u_BD, together.everyone(w_BD, size)))
        texts_BN = logits_BN.T if len(u_BD) == size else self.compare(w_BD, together.everyone(u_BD, size))
        loss = (F.cross_entropy(logits_BN, target_BN) + F.cross_entropy(texts_BN, target_BN)) / 2  # (4)
        found_B = own_BN.gather(1, logits_BN.argmax(1, keepdim=True))
        return loss, found_B.float().mean()

    def classify(self, x_BCHW: Tensor, label_KT: Tensor) -> Tensor:
        """Probability of each label text for each picture, B × K: a classifier that was never trained as one."""
        return self(x_BCHW, label_KT).softmax(1)  # (5)
