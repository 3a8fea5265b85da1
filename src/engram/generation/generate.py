"""Autoregressive text generation with a KV cache: sampling and beam search.

B rows (sequences), T tokens. A `LanguageModel` makes a decoder, which returns next-token logits for rows of tokens. The
decoder of a Transformer keeps a KV cache and computes only the tokens after the cached prefix. Shorter rows are
left-padded and masked; position ids count from the first real token. One fused kernel computes the next token of all
rows (`generation/fused_decode`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.tap import is_watching
from engram.generation import sampling
from engram.generation.fused_decode import FusedDecoder
from engram.generation.sampling import (
    Beam,
    SamplingParams,
    sample_token,
    window_start,
)
from engram.nn.attention import CacheBits, KVCache, causal_mask


class Decoder(Protocol):
    """Returns the logits after rows of tokens, and may cache what it has computed."""

    def __call__(self, rows: Sequence[Sequence[int]], last: int = 1) -> Tensor:
        """Logits of the token after each of the last `last` tokens of each row, B × last × V."""

    def reorder(self, row_B: Tensor) -> None:
        """Reorder the cache: row i becomes a copy of row `row_B[i]` (beam search)."""


class LanguageModel(ABC):
    """A model of the next token, which can therefore generate text."""

    config: Any

    @abstractmethod
    def make_decoder(self, *, cached: bool = True) -> Decoder:
        """Make a decoder; without a cache it reads all tokens anew at each step."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int = 100,
        params: SamplingParams = SamplingParams(),  # noqa: B008 (frozen)
        **options: Any,
    ) -> list[list[int]]:
        """Continue each prompt up to its end or `max_new_tokens`; `options` are those of `stream_batch`."""
        eos_id = options.get("eos_id")
        rows: list[list[int]] = [[] for _ in prompts]
        for tokens in stream_batch(self, prompts, max_new_tokens, params, **options):
            for row, token in zip(rows, tokens, strict=True):
                row.append(token)
        return [row[: row.index(eos_id)] if eos_id in row else row for row in rows]

    def beam_search(
        self,
        prompt: Sequence[int],
        max_new_tokens: int = 100,
        num_beams: int = 4,
        *,
        eos_id: int | None = None,
        length_penalty: float = 1.0,
    ) -> list[Beam]:
        """Return the most probable continuations that beam search finds, best first."""
        check_prompts(self, [prompt])
        decoder, rows = self.make_decoder(), [list(prompt)]

        def step(token_BT: Tensor, row_B: Tensor | None) -> Tensor:
            if row_B is not None:
                decoder.reorder(row_B)
                rows[:] = [[*rows[i], int(token)] for i, token in zip(row_B.tolist(), token_BT[:, 0], strict=True)]
            return decoder(rows)[:, -1]

        return sampling.beam_search(
            step, prompt, num_beams=num_beams, max_new_tokens=max_new_tokens, eos_id=eos_id,
            length_penalty=length_penalty,
        )  # fmt: skip


class TransformerDecoder:
    """Decoder of a causal Transformer with a KV cache of 32, 16 or 8 bits."""

    def __init__(self, model: Any, *, cached: bool = True, cache_bits: CacheBits = 32) -> None:
        self.model, self.cached, self.cache_bits = model, cached, cache_bits
        self.fused = FusedDecoder.of(model.blocks) if cached else None
        self.clear()

    def clear(self) -> None:
        """Empty the KV cache."""
        self.cache: list[KVCache] = []
        self.x_BT, self.padding_B = torch.empty(0, 0, dtype=torch.long), torch.empty(0, dtype=torch.long)

    @torch.no_grad()
    def __call__(self, rows: Sequence[Sequence[int]], last: int = 1) -> Tensor:
        """Logits of the token after each of the last `last` tokens of each row, B × last × V."""
        context = self.model.config.context
        windows = [row[window_start(len(row), context) :] for row in rows]
        width = max(map(len, windows))
        padding_B = torch.tensor([width - len(window) for window in windows])
        x_BT = torch.tensor([[0] * (width - len(window)) + list(window) for window in windows])
        cached = min(self._common_prefix(x_BT, padding_B), width - last)
        if cached <= 0 or not self.cached:
            cached, self.cache = 0, [KVCache(context, self.cache_bits) for _ in self.model.blocks]
        for layer in self.cache:
            layer.length = cached
        self.x_BT, self.padding_B = x_BT, padding_B
        padding = self._padding_arguments(cached, width)
        if self.fused is not None and cached == width - 1 and cached and not is_watching():
            h_BTE = self.model.embed_tokens(x_BT[:, cached:], cached, padding.get("position_ids_BT"))
            self.fused(h_BTE[:, 0], self.cache, padding_B)
            return self.model.logits(h_BTE)
        return self.model(x_BT[:, cached:], cache=self.cache if self.cached else None, last=last, **padding)

    def _common_prefix(self, x_BT: Tensor, padding_B: Tensor) -> int:
        """Number of leading columns that are in the KV cache already."""
        if not self.cache or not torch.equal(padding_B, self.padding_B):
            return 0
        width = min(x_BT.shape[1], self.x_BT.shape[1])
        same_T = (x_BT[:, :width] == self.x_BT[:, :width]).all(0)
        return width if same_T.all() else int(same_T.int().argmin())

    def _padding_arguments(self, cached: int, width: int) -> dict[str, Tensor]:
        """Mask and position ids of left-padded rows, {} without padding; padding attends to itself."""
        if not self.padding_B.any():
            return {}
        position_ids_BT = torch.arange(width) - self.padding_B[:, None]
        mask_BTS = (position_ids_BT >= 0)[:, None] & causal_mask(width, width)
        mask_BTS = mask_BTS | torch.eye(width, dtype=torch.bool)
        return {"mask": mask_BTS[:, None, cached:], "position_ids_BT": position_ids_BT[:, cached:].clamp(min=0)}

    def reorder(self, row_B: Tensor) -> None:
        """Reorder the cache: row i becomes a copy of row `row_B[i]` (beam search)."""
        for layer in self.cache:
            layer.reorder(row_B)
        self.x_BT, self.padding_B = self.x_BT[row_B], self.padding_B[row_B]


def stream(
    model: LanguageModel,
    prompt: Sequence[int],
    max_new_tokens: int,
    params: SamplingParams,
    *,
    generator: torch.Generator | None = None,
    eos_id: int | None = None,
    cached: bool = True,
    decoder: Decoder | None = None,
) -> Iterator[int]:
    """Yield the continuation of a prompt; a `decoder` of before has the start of it in its cache."""
    for tokens in stream_batch(
        model, [prompt], max_new_tokens, params, generator=generator, eos_id=eos_id, cached=cached, decoder=decoder
    ):
        yield tokens[0]


def stream_batch(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    params: SamplingParams,
    *,
    generator: torch.Generator | None = None,
    eos_id: int | None = None,
    cached: bool = True,
    decoder: Decoder | None = None,
) -> Iterator[list[int]]:
    """Yield the next token of each prompt, of any lengths, until all have ended."""
    check_prompts(model, prompts)
    rows, decoder = [list(prompt) for prompt in prompts], decoder or model.make_decoder(cached=cached)
    ended = [False] * len(prompts)
    for _ in range(max_new_tokens):
        logits_BV = decoder(rows)[:, -1]
        seen_BT = seen_tokens(rows) if params.repetition_penalty != 1 else None
        tokens = sample_token(logits_BV, params, generator, seen_BT).tolist()
        ended = [was or token == eos_id for was, token in zip(ended, tokens, strict=True)]
        if all(ended):
            return
        for row, token in zip(rows, tokens, strict=True):
            row.append(token)
        yield tokens


def seen_tokens(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return the tokens of each row, B × T, padded with the row's last token."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows])


def check_prompts(model: LanguageModel, prompts: Sequence[Sequence[int]]) -> None:
    """Refuse empty prompts and unknown tokens."""
    vocabulary = model.config.vocabulary
    for prompt in prompts:
        if not prompt:
            raise EngramError("A prompt must have at least one token.")
        if min(prompt) < 0 or max(prompt) >= vocabulary:
            raise EngramError(f"Tokens go from 0 to {vocabulary - 1}, and {max(prompt)} is in the prompt.")
