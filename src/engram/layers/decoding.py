"""From logits to text: how the next token is chosen, and how one choice follows another.

B rows, V vocabulary, T tokens, C context

    p = softmax(z / tau)                                   temperature; at 0 the largest is taken                 (1)
    top-k      keep the k largest                                                                                 (2)
    top-p      keep the fewest whose probabilities reach p (Holtzman et al. 2020)                                 (3)
    min-p      keep those with at least a part p of the largest (Nguyen et al. 2024)                              (4)
    repetition z <- z / r if z > 0 else z r, for tokens that occurred (Keskar et al. 2019)                        (5)
    beam       of all continuations of k texts keep the k with the largest sum of log p, at the end over length^a (6)
    speculate  draft x ~ q; keep x with probability min(1, p(x)/q(x)), else draw from max(0, p - q)
               (Leviathan et al. 2023): the text is distributed as if p alone had written it                      (7)

A decoder is anything that goes on with tokens: `logits_BV, state = step(token_BT, state)`. Text that outgrows the
context goes on from its second half: the window moves by half a context at a time, for cached and uncached alike.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engram.core.errors import EngramError


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How the next token is chosen."""

    temperature: float = 0.8
    """how boldly: 0 always takes the most probable token, 1 follows the model's own probabilities"""
    top_k: int = 0
    """choose among this many most probable tokens; 0 means all"""
    top_p: float = 1.0
    """choose among the fewest tokens whose probabilities reach this sum"""
    min_p: float = 0.0
    """choose among tokens with at least this part of the largest probability"""
    repetition: float = 1.0
    """above 1, tokens that occurred become less likely by this factor"""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise EngramError(f"temperature must not be negative, and is {self.temperature}.")
        if self.top_k < 0:
            raise EngramError(f"top_k must not be negative, and is {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise EngramError(f"top_p is a probability above 0 and up to 1, not {self.top_p}.")
        if not 0 <= self.min_p <= 1:
            raise EngramError(f"min_p is a part from 0 to 1, not {self.min_p}.")
        if not self.repetition > 0:
            raise EngramError(f"repetition must be above 0, not {self.repetition}.")


GREEDY = Choice(temperature=0.0)


def probabilities(logits_BV: Tensor, choice: Choice, seen_BT: Tensor | None = None) -> Tensor:
    """What the next token is drawn from, B × V."""
    z_BV = logits_BV.float()
    if choice.repetition != 1 and seen_BT is not None:
        occurred = torch.zeros_like(z_BV, dtype=torch.bool).scatter(1, seen_BT, True)
        z_BV = torch.where(
            occurred, torch.where(z_BV > 0, z_BV / choice.repetition, z_BV * choice.repetition), z_BV
        )  # (5)
    if choice.temperature == 0:
        return torch.zeros_like(z_BV).scatter(1, z_BV.argmax(1, keepdim=True), 1.0)  # (1)
    z_BV = z_BV / choice.temperature
    if 0 < choice.top_k < z_BV.shape[1]:
        z_BV = z_BV.masked_fill(z_BV < z_BV.topk(choice.top_k).values[:, -1:], -math.inf)  # (2)
    p_BV = z_BV.softmax(1)
    if choice.min_p:
        p_BV = p_BV.masked_fill(p_BV < choice.min_p * p_BV.amax(1, keepdim=True), 0.0)  # (4)
    if choice.top_p < 1:
        sorted_BV, order_BV = p_BV.sort(descending=True, stable=True)
        enough = sorted_BV.cumsum(1) - sorted_BV >= choice.top_p * p_BV.sum(1, keepdim=True)
        p_BV = p_BV.masked_fill(enough.scatter(1, order_BV, enough), 0.0)  # (3)
    return p_BV / p_BV.sum(1, keepdim=True)  # (1)


def choose(
    logits_BV: Tensor, choice: Choice, generator: torch.Generator | None, seen_BT: Tensor | None = None
) -> Tensor:
    """The next token of each row."""
    if choice.temperature == 0 and choice.repetition == 1:
        return logits_BV.argmax(1)  # (1)
    p_BV = probabilities(logits_BV, choice, seen_BT)
    return p_BV.argmax(1) if choice.temperature == 0 else draw(p_BV, generator)


def draw(p_BV: Tensor, generator: torch.Generator | None) -> Tensor:
    """One of each row's tokens, by turning one uniform number per row through the cumulative distribution.

    One number for a row, whatever the vocabulary: rounding in the last digit of a logit hardly ever changes a token.
    """
    u_B1 = torch.rand(len(p_BV), 1, generator=generator, dtype=torch.float64)
    sum_BV = p_BV.double().cumsum(1)
    return (sum_BV <= u_B1 * sum_BV[:, -1:]).sum(1).clamp(max=p_BV.shape[1] - 1)


def window_start(length: int, context: int) -> int:
    """Where the window begins that the token after `length` tokens is chosen from."""
    if length <= context:
        return 0
    hop = max(1, context // 2)
    return -(-(length - context) // hop) * hop


@dataclass
class Beam:
    """A text in the making: its tokens, the sum of their log-probabilities, and whether it has ended."""

    tokens: list[int]
    score: float
    ended: bool = False

    def worth(self, length_penalty: float) -> float:
        """Score over length, in which the token that ends a text counts."""
        return self.score / max(1, len(self.tokens) + self.ended) ** length_penalty


def beam_search(
    step: Callable[[Tensor, Tensor | None], Tensor],
    first: Sequence[int],
    *,
    beams: int,
    most: int,
    end: int | None,
    length_penalty: float = 1.0,
) -> list[Beam]:
    """The best texts found, best first.

    `step(token_BT, row_B)` gives the logits after each row's tokens, having first let row i go on from `row_B[i]`; the
    first call brings the whole beginning, in one row.
    """
    log_p_BV = step(torch.tensor([list(first)]), None).log_softmax(-1)
    living, finished = [Beam([], 0.0)], list[Beam]()
    for _ in range(most):
        total_BV = log_p_BV + torch.tensor([beam.score for beam in living])[:, None]
        best = total_BV.flatten().topk(min(2 * beams, total_BV.numel()))
        grown, rows = list[Beam](), list[int]()
        for rank, (score, place) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            row, token = divmod(place, total_BV.shape[1])
            if token == end and rank < beams:
                finished.append(Beam(living[row].tokens, score, ended=True))
            elif token != end and len(grown) < beams:
                grown.append(Beam([*living[row].tokens, token], score))
                rows.append(row)
        living = grown
        finished = sorted(finished, key=lambda beam: -beam.worth(length_penalty))[:beams]  # (6)
        if len(finished) == beams and finished[-1].worth(length_penalty) >= living[0].worth(length_penalty):
            break
        log_p_BV = step(torch.tensor([[beam.tokens[-1]] for beam in living]), torch.tensor(rows)).log_softmax(-1)
    return sorted(finished + living, key=lambda beam: -beam.worth(length_penalty))[:beams]


def accept(draft_T: Sequence[int], p_TV: Tensor, q_TV: Tensor, generator: torch.Generator | None) -> list[int]:
    """The tokens of a draft that are kept, and one more: `p` has a row more than `q`, for the token after the draft."""
    for i, token in enumerate(draft_T):
        keep = (p_TV[i, token] / q_TV[i, token]).item()
        if torch.rand((), generator=generator, dtype=torch.float64).item() < keep:  # (7)
            continue
        left_V = (p_TV[i] - q_TV[i]).clamp(min=0)
        return [*draft_T[:i], int(draw(left_V[None], generator))]
    return [*draft_T, int(draw(p_TV[-1:], generator))]


class Stops:
    """Watches a growing text for strings that end it, and lets through only what can no longer be part of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = [stop for stop in stops if stop]
        self.text, self.said = "", 0

    def more(self, text: str) -> tuple[str, bool]:
        """What may be said now that the whole text is `text`, and whether it has ended."""
        self.text = text
        places = [place for place in (text.find(stop) for stop in self.stops) if place >= 0]
        if places:
            return self._say(min(places)), True
        held = max((n for stop in self.stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        whole = len(text.rstrip("�"))  # half a character of several bytes waits for its other half
        return self._say(min(len(text) - held, whole)), False

    def rest(self) -> str:
        return self._say(len(self.text))

    def _say(self, end: int) -> str:
        said, self.said = self.text[self.said : max(self.said, end)], max(self.said, end)
        return said


def texts_of(decode: Callable[[list[int]], str], tokens: Iterator[int], stops: Sequence[str] = ()) -> Iterator[str]:
    """Pieces of text as tokens arrive, up to a stop."""
    watch, so_far = Stops(stops), list[int]()
    for token in tokens:
        so_far.append(token)
        piece, ended = watch.more(decode(so_far))
        if piece:
            yield piece
        if ended:
            return
    if rest := watch.rest():
        yield rest
