r"""Sampling of the next token, beam search and speculative decoding, from logits alone.

    p = \text{softmax}(z / \tau)                                 temperature; at 0 the most probable token          (1)
    z_i = -\infty\ \text{unless among the}\ k\ \text{largest}    top-k sampling                                     (2)
    p_i = 0\ \text{beyond the fewest that sum to}\ p_0           nucleus (top-p) sampling (Holtzman et al. 2020)    (3)
    p_i = 0\ \text{where}\ p_i < m \max_j p_j                    min-p sampling (Nguyen et al. 2024)                (4)
    z_i \leftarrow z_i / r\ \text{or}\ z_i r                     repetition penalty (Keskar et al. 2019)            (5)
    \text{score} = \sum_t \log p(x_t) / T^a                      beam search with length penalty a                  (6)
    P(\text{accept}\ x) = \min(1, p(x) / q(x))                   speculative decoding (Leviathan et al. 2023)       (7)

    Symbols:
        z, p          logits and probabilities of the next token
        \tau          temperature
        q             probabilities of the draft model
        B, V, T       rows, vocabulary, tokens

(5) divides positive logits and multiplies negative ones, of tokens that occurred. A draft token that (7) rejects is
replaced by one from max(0, p - q), so that the text is distributed as if p alone had generated it. Text that outgrows
the context continues from its second half: the window moves by half a context at a time, with and without a KV cache.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from engram.core.config import Settings


@dataclass(frozen=True, kw_only=True)
class SamplingParams(Settings):
    """Sampling parameters: temperature, top-k, nucleus (top-p), min-p and repetition penalty."""

    temperature: Annotated[float, Ge(0), Lt(math.inf)] = 0.8
    """softmax temperature: 0 always takes the most probable token, 1 samples from the model's probabilities"""
    top_k: Annotated[int, Ge(0)] = 0
    """sample from this many most probable tokens; 0 means all"""
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    """nucleus sampling: sample from the fewest tokens whose probabilities reach this sum; 1 means all"""
    min_p: Annotated[float, Ge(0), Le(1)] = 0.0
    """sample from tokens of at least this fraction of the largest probability; 0 means all"""
    repetition_penalty: Annotated[float, Gt(0)] = 1.0
    """above 1, tokens that occurred become less likely; 1 disables"""


GREEDY = SamplingParams(temperature=0.0)


def probabilities(logits_BV: Tensor, params: SamplingParams, seen_BT: Tensor | None = None) -> Tensor:
    """Probabilities that the next token is sampled from, B × V; `seen` are the tokens that occurred."""
    z_BV, penalty = logits_BV.float(), params.repetition_penalty
    if penalty != 1 and seen_BT is not None:
        seen_BV = torch.zeros_like(z_BV, dtype=torch.bool).scatter(1, seen_BT, True)
        z_BV = torch.where(seen_BV, torch.where(z_BV > 0, z_BV / penalty, z_BV * penalty), z_BV)  # (5)
    if params.temperature == 0:
        return torch.zeros_like(z_BV).scatter(1, z_BV.argmax(1, keepdim=True), 1.0)  # (1)
    z_BV = z_BV / params.temperature
    if 0 < params.top_k < z_BV.shape[1]:
        z_BV = z_BV.masked_fill(z_BV < z_BV.topk(params.top_k).values[:, -1:], -math.inf)  # (2)
    p_BV = z_BV.softmax(1)
    if params.min_p:
        p_BV = p_BV.masked_fill(p_BV < params.min_p * p_BV.amax(1, keepdim=True), 0.0)  # (4)
    if params.top_p < 1:
        sorted_BV, order_BV = p_BV.sort(descending=True, stable=True)
        beyond = sorted_BV.cumsum(1) - sorted_BV >= params.top_p * p_BV.sum(1, keepdim=True)
        p_BV = p_BV.masked_fill(beyond.scatter(1, order_BV, beyond), 0.0)  # (3)
    return p_BV / p_BV.sum(1, keepdim=True)  # (1)


def sample_token(
    logits_BV: Tensor, params: SamplingParams, generator: torch.Generator | None, seen_BT: Tensor | None = None
) -> Tensor:
    """Sample the next token of each row."""
    if params.temperature == 0 and params.repetition_penalty == 1:
        return logits_BV.argmax(1)  # (1)
    p_BV = probabilities(logits_BV, params, seen_BT)
    return p_BV.argmax(1) if params.temperature == 0 else multinomial(p_BV, generator)


def multinomial(p_BV: Tensor, generator: torch.Generator | None) -> Tensor:
    """Sample one token per row by inverting the cumulative distribution at one uniform number per row.

    One number for a row, whatever the vocabulary: rounding in the last digit of a logit hardly ever changes a token.
    """
    u_B1 = torch.rand(len(p_BV), 1, generator=generator, dtype=torch.float64)
    sum_BV = p_BV.double().cumsum(1)
    return (sum_BV <= u_B1 * sum_BV[:, -1:]).sum(1).clamp(max=p_BV.shape[1] - 1)


def window_start(length: int, context: int) -> int:
    """First token of the context window from which the token after `length` tokens is predicted."""
    if length <= context:
        return 0
    hop = max(1, context // 2)
    return -(-(length - context) // hop) * hop


@dataclass
class Beam:
    """A hypothesis of beam search: its tokens, their log-probability, and whether it has ended."""

    tokens: list[int]
    score: float
    ended: bool = False

    def normalized_score(self, length_penalty: float) -> float:
        """Score divided by length ** length_penalty; the token that ends a text counts."""
        return self.score / max(1, len(self.tokens) + self.ended) ** length_penalty


def beam_search(
    step: Callable[[Tensor, Tensor | None], Tensor],
    prompt: Sequence[int],
    *,
    num_beams: int,
    max_new_tokens: int,
    eos_id: int | None,
    length_penalty: float = 1.0,
) -> list[Beam]:
    """Return the best hypotheses found by beam search, best first.

    `step(token_BT, row_B)` returns the logits after each row's tokens, once row i continues row `row_B[i]`; the first
    call has the whole prompt in one row.
    """
    log_p_BV = step(torch.tensor([list(prompt)]), None).log_softmax(-1)
    active, finished = [Beam([], 0.0)], list[Beam]()
    for _ in range(max_new_tokens):
        total_BV = log_p_BV + torch.tensor([beam.score for beam in active])[:, None]
        best = total_BV.flatten().topk(min(2 * num_beams, total_BV.numel()))
        extended, rows = list[Beam](), list[int]()
        for rank, (score, index) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            row, token = divmod(index, total_BV.shape[1])
            if token == eos_id and rank < num_beams:
                finished.append(Beam(active[row].tokens, score, ended=True))
            elif token != eos_id and len(extended) < num_beams:
                extended.append(Beam([*active[row].tokens, token], score))
                rows.append(row)
        active = extended
        finished = sorted(finished, key=lambda beam: -beam.normalized_score(length_penalty))[:num_beams]  # (6)
        if len(finished) == num_beams:
            worst_finished, best_active = finished[-1], active[0]
            if worst_finished.normalized_score(length_penalty) >= best_active.normalized_score(length_penalty):
                break
        log_p_BV = step(torch.tensor([[beam.tokens[-1]] for beam in active]), torch.tensor(rows)).log_softmax(-1)
    return sorted(finished + active, key=lambda beam: -beam.normalized_score(length_penalty))[:num_beams]


def accept_draft(draft_T: Sequence[int], p_TV: Tensor, q_TV: Tensor, generator: torch.Generator | None) -> list[int]:
    """Return the accepted tokens of a draft and one more; `p` has a row more than `q`, for that one."""
    for i, token in enumerate(draft_T):
        ratio = (p_TV[i, token] / q_TV[i, token]).item()
        if torch.rand((), generator=generator, dtype=torch.float64).item() < ratio:  # (7)
            continue
        residual_V = (p_TV[i] - q_TV[i]).clamp(min=0)
        return [*draft_T[:i], int(multinomial(residual_V[None], generator))]
    return [*draft_T, int(multinomial(p_TV[-1:], generator))]


class StopStrings:
    """Watches a growing text for stop strings, and releases only what can no longer be part of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = [stop for stop in stops if stop]
        self.text, self.released = "", 0

    def update(self, text: str) -> tuple[str, bool]:
        """Return the new part of the text that is safe to emit, and whether a stop string was found."""
        self.text = text
        found = [index for index in (text.find(stop) for stop in self.stops) if index >= 0]
        if found:
            return self._release(min(found)), True
        pending = max((n for stop in self.stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        complete = len(text.rstrip("�"))  # an incomplete UTF-8 character waits for its other bytes
        return self._release(min(len(text) - pending, complete)), False

    def flush(self) -> str:
        """Return the rest of the text."""
        return self._release(len(self.text))

    def _release(self, end: int) -> str:
        piece, self.released = self.text[self.released : max(self.released, end)], max(self.released, end)
        return piece


def decode_stream(
    decode: Callable[[list[int]], str], tokens: Iterator[int], stops: Sequence[str] = ()
) -> Iterator[str]:
    """Yield pieces of text as tokens arrive, up to a stop string."""
    watcher, ids = StopStrings(stops), list[int]()
    for token in tokens:
        ids.append(token)
        piece, ended = watcher.update(decode(ids))
        if piece:
            yield piece
        if ended:
            return
    if rest := watcher.flush():
        yield rest
