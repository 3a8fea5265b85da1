r"""CLIP: contrastive pretraining of an image encoder and a text encoder (Radford et al. 2021).

u = \text{norm}(\text{ViT}(\text{image})_0) W_u                   image embedding: the class token, projected    (1)
w = \text{norm}(\text{Transformer}(\text{text})_{eos}) W_w        text embedding: the last token, projected      (2)
Z = e^s u w^T / (|u| |w|)                                         logits: scaled cosine similarities             (3)
L = (\text{CE}(Z) + \text{CE}(Z^T)) / 2                           contrastive loss over images and over texts    (4)
p(k | \text{image}) = \text{softmax}_k(Z)                         zero-shot classification by label texts k      (5)
u = a + \text{ff}(\text{norm}(a)), a = \text{attention}(q, \text{norm}(h_L))   attention pooling of patches    (6)
w = \text{norm}(\text{Transformer}(\text{text})_T) W_w + b_w        text embedding: last token, padding or not     (7)
Z = e^s u w^T / (|u| |w|) + b                                     logits of independent pairs                    (8)
L = -\frac{1}{B} \sum_{ij} \log \sigma(\pm_{ij} Z_{ij})              sigmoid loss: + where i and j belong together  (9)

Symbols:
    u, w       image embedding, text embedding
    s          logarithm of the inverse temperature
    Z          logits of each image with each text
    B, T, E    batch, tokens, model width
    C, H, W    channels, height, width
    D, K       dimensions of the shared embedding space, label texts
    q, b       learned query, learned bias of the logits
    h_L        patches after the last layer

(6) to (9) are SigLIP (Zhai et al. 2023): each pair is judged by itself. Its image encoder has no class token, its text
encoder is not causal, and texts are padded to the context.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.config import FromData
from engram.core.errors import EngramError
from engram.core.fit import FitMixin
from engram.core.global_batch import gather_rows
from engram.core.tap import tap
from engram.nn.attention import Attention
from engram.nn.image_input import ImageConfig
from engram.nn.transformer_block import Block, BlockConfig, FeedForward, FFActivation
from engram.transformers.vit.model import PatchEmbedding

MAX_LOGIT_SCALE = math.log(100.0)
"""largest s, as in the paper: training is unstable beyond"""


class ImageEncoder(nn.Module):
    """ViT without a classifier, with LayerNorm before the first block too."""

    def __init__(self, config: "CLIP.Config", blocks: BlockConfig) -> None:
        super().__init__()
        self.patches = PatchEmbedding(config.shape, config.patch, blocks.width, bias=False)
        self.pre_norm = nn.LayerNorm(blocks.width, blocks.eps)
        self.blocks = nn.ModuleList(Block(blocks) for _ in range(blocks.layers))
        self.norm = nn.LayerNorm(blocks.width, blocks.eps)
        self.project = nn.Linear(blocks.width, config.projection_dim, bias=False)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        h_BTE = tap("embedding", self.pre_norm(self.patches(x_BCHW)))
        for block in self.blocks:
            h_BTE = block(h_BTE)
        return self.project(self.norm(h_BTE[:, 0]))  # (1)


class AttentionPooling(nn.Module):
    """Attention pooling: a learned query attends to all tokens, and a feed-forward network follows."""

    def __init__(self, blocks: BlockConfig) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(blocks.width))
        self.attention = Attention(blocks.width, blocks.heads)
        self.norm = nn.LayerNorm(blocks.width, blocks.eps)
        self.ff = FeedForward(blocks)

    def forward(self, h_BTE: Tensor) -> Tensor:
        pooled_BE: Tensor = self.attention(self.query.expand(h_BTE.shape[0], 1, -1), h_BTE)[:, 0]
        return pooled_BE + self.ff(self.norm(pooled_BE))  # type: ignore[no-any-return]  # (6)


class PooledImageEncoder(nn.Module):
    """ViT without a class token, read out by attention pooling."""

    def __init__(self, config: "CLIP.Config", blocks: BlockConfig) -> None:
        super().__init__()
        self.patches = PatchEmbedding(config.shape, config.patch, blocks.width, tokens=())
        self.blocks = nn.ModuleList(Block(blocks) for _ in range(blocks.layers))
        self.norm = nn.LayerNorm(blocks.width, blocks.eps)
        self.pool = AttentionPooling(blocks)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        h_BTE = tap("embedding", self.patches(x_BCHW))
        for block in self.blocks:
            h_BTE = block(h_BTE)
        return self.pool(self.norm(h_BTE))  # type: ignore[no-any-return]  # (6)


class TextEncoder(nn.Module):
    """Transformer, read out at the token that ends the text if it is causal, or else at the last token."""

    def __init__(self, config: "CLIP.Config", blocks: BlockConfig) -> None:
        super().__init__()
        self.eos_id, self.pooling = config.eos_id, config.text_pooling
        self.embedding = nn.Embedding(config.vocabulary, blocks.width)
        self.position = nn.Parameter(torch.zeros(config.context, blocks.width))
        causal = self.pooling == "eos"
        self.blocks = nn.ModuleList(Block(blocks, causal=causal) for _ in range(blocks.layers))
        self.norm = nn.LayerNorm(blocks.width, blocks.eps)
        self.project = nn.Linear(blocks.width, config.projection_dim, bias=not causal)

    def forward(self, x_BT: Tensor) -> Tensor:
        h_BTE = tap("embedding", self.embedding(x_BT) + self.position[: x_BT.shape[1]])
        for block in self.blocks:
            h_BTE = block(h_BTE)
        if self.pooling == "last":
            return self.project(self.norm(h_BTE[:, -1]))  # (7)
        eos_B = (x_BT == self.eos_id).int().argmax(1)  # the first; no earlier token attends to padding after it
        return self.project(self.norm(h_BTE[torch.arange(x_BT.shape[0], device=x_BT.device), eos_B]))  # (2)


class CLIP(FitMixin, nn.Module):
    """Image encoder and text encoder with a shared embedding space."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ImageConfig):
        width: Annotated[int, Ge(1)] = 128
        """model width of the image encoder (E)"""
        layers: Annotated[int, Ge(1)] = 4
        """number of Transformer layers of the image encoder"""
        heads: Annotated[int, Ge(1)] = 4
        """attention heads per layer of the image encoder; must divide the width"""
        ff_width: Annotated[int, Ge(0)] = 0
        """feed-forward width of the image encoder; 0 means 4 × width"""
        patch: Annotated[int, Ge(1)] = 4
        """side of a patch in pixels; must divide height and width"""
        text_width: Annotated[int, Ge(1)] = 128
        """model width of the text encoder (E)"""
        text_layers: Annotated[int, Ge(1)] = 2
        """number of Transformer layers of the text encoder"""
        text_heads: Annotated[int, Ge(1)] = 4
        """attention heads per layer of the text encoder; must divide its width"""
        text_ff_width: Annotated[int, Ge(0)] = 0
        """feed-forward width of the text encoder; 0 means 4 × its width"""
        vocabulary: FromData[int] = 1000
        """vocabulary size of the text encoder"""
        eos_id: FromData[int] = 0
        """id of the token that ends a text"""
        context: Annotated[int, Ge(1)] = 32
        """context length: largest number of tokens of a text (T)"""
        projection_dim: Annotated[int, Ge(1)] = 64
        """dimensions of the shared embedding space (D); with attention pooling, the width"""
        image_pooling: Literal["cls", "attention"] = "cls"
        """vector of an image: class token, projected, or attention pooling of the patches (SigLIP)"""
        text_pooling: Literal["eos", "last"] = "eos"
        """vector of a text: token that ends it, after causal attention, or last token or padding (SigLIP)"""
        loss: Literal["softmax", "sigmoid"] = "softmax"
        """contrastive loss: of a pair among all of the batch (softmax), or of each pair by itself (sigmoid, SigLIP)"""
        pad_id: FromData[int] = 0
        """token that fills a text up to the context, with text_pooling=last"""
        activation: FFActivation = "gelu"
        """activation function of the feed-forward networks"""
        eps: FromData[float] = 1e-5
        """constant added to the variance in LayerNorm"""

        def __post_init__(self) -> None:
            super().__post_init__()
            _ = self.image_blocks, self.text_blocks  # each checks itself
            if self.image_pooling == "attention" and self.projection_dim != self.width:
                raise EngramError(
                    f"With attention pooling projection_dim must be the width, {self.width}, not {self.projection_dim}."
                )

        @property
        def image_blocks(self) -> BlockConfig:
            """Architecture of the image encoder."""
            return BlockConfig(
                width=self.width, layers=self.layers, heads=self.heads, ff_width=self.ff_width,
                activation=self.activation, eps=self.eps,
            )  # fmt: skip

        @property
        def text_blocks(self) -> BlockConfig:
            """Architecture of the text encoder."""
            return BlockConfig(
                width=self.text_width, layers=self.text_layers, heads=self.text_heads, ff_width=self.text_ff_width,
                activation=self.activation, eps=self.eps,
            )  # fmt: skip

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        if config.image_pooling == "cls":
            config.check_patch(config.patch)
            self.image: ImageEncoder | PooledImageEncoder = ImageEncoder(config, config.image_blocks)
        elif config.patch > min(config.shape[1:]):
            raise EngramError(
                f"patch must be at most {min(config.shape[1:])}, the side of an image, not {config.patch}."
            )
        else:
            self.image = PooledImageEncoder(config, config.image_blocks)
        self.text = TextEncoder(config, config.text_blocks)
        if config.loss == "softmax":
            self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        else:
            self.scale = nn.Parameter(torch.tensor(math.log(10.0)))
            self.bias = nn.Parameter(torch.tensor(-10.0))
        self.initialize()

    def initialize(self) -> None:
        """Initialize weights to preserve variance, output projections smaller by depth."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        self.image.patches.initialize()
        nn.init.normal_(self.text.position, std=0.02)
        if isinstance(self.image, PooledImageEncoder):
            nn.init.normal_(self.image.pool.query, std=0.02)
        for encoder in (self.image, self.text):
            for block in encoder.blocks:
                for last in (block.attention.o, block.ff.down):  # type: ignore[union-attr]
                    last.weight.data.mul_((2 * len(encoder.blocks)) ** -0.5)  # type: ignore[union-attr, operator]

    def encode_images(self, x_BCHW: Tensor) -> Tensor:
        """Unit vector of each image of pixels from 0 to 1, B × D."""
        return tap("image_embedding", F.normalize(self.image(self.config.standardize(x_BCHW)), dim=-1))

    def encode_texts(self, x_BT: Tensor) -> Tensor:
        """Unit vector of each text, B × D."""
        return tap("text_embedding", F.normalize(self.text(x_BT), dim=-1))

    def forward(self, x_BCHW: Tensor, x_KT: Tensor) -> Tensor:
        """Logits of each image with each text, B × K."""
        return tap("logits", self.similarity(self.encode_images(x_BCHW), self.encode_texts(x_KT)))

    @property
    def logit_scale(self) -> Tensor:
        """Factor of cosine similarities: the inverse temperature."""
        return (self.scale if self.config.loss == "sigmoid" else self.scale.clamp(max=MAX_LOGIT_SCALE)).exp()

    def similarity(self, u_BD: Tensor, w_KD: Tensor) -> Tensor:
        """Logits (3), (8) of image and text embeddings, B × K."""
        logits_BK = self.logit_scale * u_BD @ w_KD.T  # (3)
        return logits_BK + self.bias if self.config.loss == "sigmoid" else logits_BK  # (8)

    def loss(self, x_BCHW: Tensor, x_BT: Tensor, same_BN: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Contrastive loss, and the fraction of images whose text has the largest logit."""
        return self.contrastive_loss(self.encode_images(x_BCHW), self.encode_texts(x_BT), same_BN)

    def contrastive_loss(self, u_BD: Tensor, w_BD: Tensor, same_BN: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Contrastive loss (4), (9) and accuracy; texts that are the `same` share the target of (4).

        N is the global batch, of which this process has B pairs: each image is compared with all texts, and vice versa.
        """
        size = len(u_BD) if same_BN is None else same_BN.shape[1]
        positive_BN = torch.eye(size, dtype=torch.bool, device=u_BD.device) if same_BN is None else same_BN
        logits_BN = tap("logits", self.similarity(u_BD, gather_rows(w_BD, size)))
        correct_B = positive_BN.gather(1, logits_BN.argmax(1, keepdim=True))
        if self.config.loss == "sigmoid":
            sign_BN = 2.0 * positive_BN - 1
            return -F.logsigmoid(sign_BN * logits_BN).sum(1).mean(), correct_B.float().mean()  # (9)
        target_BN = positive_BN / positive_BN.sum(1, keepdim=True)
        transposed_BN = logits_BN.T if len(u_BD) == size else self.similarity(w_BD, gather_rows(u_BD, size))
        loss = (F.cross_entropy(logits_BN, target_BN) + F.cross_entropy(transposed_BN, target_BN)) / 2  # (4)
        return loss, correct_B.float().mean()

    def classify(self, x_BCHW: Tensor, label_KT: Tensor) -> Tensor:
        """Zero-shot classification: probability of each label text for each image, B × K."""
        return self.probabilities(self(x_BCHW, label_KT))

    def probabilities(self, logits_BK: Tensor) -> Tensor:
        """Probability of each text: among all of them (5), or with the sigmoid loss each by itself."""
        return logits_BK.sigmoid() if self.config.loss == "sigmoid" else logits_BK.softmax(1)  # (5)
