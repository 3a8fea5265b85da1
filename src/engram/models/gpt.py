"""GPT: a Transformer that reads from left to right and says what comes next (note 001 «Generative pre-training»;
Radford et al. 2018, 2019).   B batch, T tokens, E width, V vocabulary

    h_0 = E[x] + P                                        embedding and position; rotary turns q and k instead    (1)
    h_l = block_l(h_{l-1})                                causal: a token sees only those before it               (2)
    p(x_{t+1} | x_{<=t}) = softmax(norm(h_L) W)           W is E' where they are tied                             (3)
    loss = -sum_t log p(x_{t+1} | x_{<=t})                                                                        (4)

The defaults are what learns quickest on a CPU: rotary positions, plain norms, normed queries and keys, ReLU², output
projections that begin at zero. `gpt2` gives the classic: learned positions, biases, GELU, gains, a tied head.
"""

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.registry import FromData
from engram.core.tap import tap
from engram.layers.attention import KeyValues
from engram.layers.block import Block, BlockConfig, Function, norm
from engram.layers.linear import Linear
from engram.layers.position import Rotary, sinusoidal
from engram.models import writing


class GPT(nn.Module, writing.Writer):
    """A causal Transformer."""

    @dataclass(frozen=True, kw_only=True)
    class Config(BlockConfig):
        vocabulary: FromData[int] = 65
        """different tokens (V)"""
        context: int = 64
        """tokens that can be seen at once (T)"""
        position: Literal["rotary", "learned", "sinusoidal"] = "rotary"
        """how a token knows where it stands"""
        tied: bool = False
        """let the embedding be the output matrix too"""
        function: Function = "relu2"
        norm: Literal["layer", "plain"] = "plain"
        bias: bool = False
        qk_norm: bool = True

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.context < 1:
                raise EngramError(f"context must be at least 1, not {self.context}.")
            if self.position == "rotary" and self.width // self.heads % 2:
                raise EngramError(f"Rotary positions need heads of even width, not {self.width // self.heads}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        if config.position == "learned":
            self.position = nn.Embedding(config.context, config.width)
        elif config.position == "sinusoidal":
            self.register_buffer("sinusoid_TE", sinusoidal(config.context, config.width), persistent=False)
        rotary = Rotary(config.width // config.heads, config.context) if config.position == "rotary" else None
        self.blocks = nn.ModuleList(Block(config, causal=True, rotary=rotary) for _ in range(config.layers))
        self.norm = norm(config)
        self.head = Linear(config.width, config.vocabulary, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight
        self.initialise()

    def initialise(self) -> None:
        """What adds to the stream begins at zero, so that at first every block passes on what it gets."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.5 * module.in_features**-0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02 if self.config.norm == "layer" else 1.0)
        for block in self.blocks:
            nn.init.zeros_(block.attention.o.weight)  # type: ignore[union-attr, arg-type]
            nn.init.zeros_(block.ff.down.weight)  # type: ignore[union-attr, arg-type]
        if not self.config.tied:
            nn.init.zeros_(self.head.weight)

    def forward(
        self,
        x_BT: Tensor,
        *,
        cache: list[KeyValues] | None = None,
        mask: Tensor | None = None,
        place_BT: Tensor | None = None,
        last: int = 0,
    ) -> Tensor:
        """Logits of the next token after each, B × T × V, or after the `last` ones only.

        With a cache, x goes on where the cache ends. `mask` and `place` are for rows that begin with padding.
        """
        h_BTE = self.embed(x_BT, cache[0].length if cache else 0, place_BT)  # (1)
        for i, block in enumerate(self.blocks):
            h_BTE = block(h_BTE, mask=mask, place_BT=place_BT, cache=cache[i] if cache else None)  # (2)
        return self.logits(h_BTE[:, -last:] if last else h_BTE)

    def embed(self, x_BT: Tensor, start: int = 0, place_BT: Tensor | None = None) -> Tensor:
        h_BTE = self.embedding(x_BT)
        where = slice(start, start + x_BT.shape[1]) if place_BT is None else place_BT
        if self.config.position == "learned":
            h_BTE = h_BTE + self.position.weight[where]
        elif self.config.position == "sinusoidal":
            h_BTE = h_BTE + self.sinusoid_TE[where]  # type: ignore[index]
        if self.config.norm == "plain":
            h_BTE = F.layer_norm(h_BTE, (self.config.width,), eps=self.config.eps)
        return tap("embedding", h_BTE)

    def logits(self, h_BTE: Tensor) -> Tensor:
        """What a stream says of the next token; of any layer's stream, for those who look (the logit lens)."""
        return tap("logits", self.head(self.norm(h_BTE)))  # (3)

    def loss(self, x_BT: Tensor, y_BT: Tensor) -> Tensor:
        logits_BTV = self(x_BT)
        return F.cross_entropy(logits_BTV.flatten(0, 1), y_BT.flatten())  # (4)

    def reader(self, *, cached: bool = True) -> writing.Reader:
        return writing.Reader(self, cached=cached)


def gpt2(**changes: Any) -> GPT.Config:
    """The configuration of GPT-2, by default the small one."""
    classic: dict[str, Any] = {
        "vocabulary": 50257, "context": 1024, "width": 768, "layers": 12, "heads": 12, "position": "learned",
        "norm": "layer", "function": "gelu_tanh", "bias": True, "qk_norm": False, "tied": True,
    }  # fmt: skip
    return GPT.Config(**(classic | changes))
