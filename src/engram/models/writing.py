"""Text from a model that says what comes next, token by token (the rules of choice are in layers/decoding).

B rows, T tokens. Every such model is a `Writer`, whose reader gives the logits after some rows. That of a Transformer,
`Reader`, gives the logits after some rows of tokens and remembers what it has read, so that rows which grew cost
only what is new, and rows which were taken back cost nothing. Rows of unequal length are padded on the left, where
nobody sees it: each token keeps its own place, and all rows end together. One token after one row goes through all
blocks in a kernel of their own (layers/round).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.tap import watching
from engram.layers.attention import KeyValues, causal_mask
from engram.layers.decoding import Beam, Choice, accept, beam_search, choose, probabilities, window_start
from engram.layers.round import pass_through, rounds

if TYPE_CHECKING:
    from engram.models.gpt import GPT


class Reads(Protocol):
    """What gives the logits after rows of tokens."""

    def __call__(self, rows: Sequence[Sequence[int]], last: int = 1) -> Tensor:
        """Logits of the token after each of the last `last` tokens of each row, B × last × V."""

    def reorder(self, row_B: Tensor) -> None:
        """Let row i go on from row `row_B[i]`."""


class Writer(ABC):
    """A model that says what comes next, and can therefore write."""

    config: Any

    @abstractmethod
    def reader(self, *, cached: bool = True) -> Reads:
        """What reads for it; without a cache, everything anew each time."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        most: int = 100,
        choice: Choice = Choice(),  # noqa: B008 (frozen)
        **options: Any,
    ) -> list[list[int]]:
        """What follows each prompt, up to its end or `most` tokens; `options` are those of `together`."""
        end = options.get("end")
        rows: list[list[int]] = [[] for _ in prompts]
        for new in together(self, prompts, most, choice, **options):
            for row, token in zip(rows, new, strict=True):
                row.append(token)
        return [row[: row.index(end)] if end in row else row for row in rows]

    def beams(self, prompt: Sequence[int], most: int = 100, count: int = 4, **options: Any) -> list[Beam]:
        """The most probable continuations that beam search finds, best first."""
        return beams(self, prompt, most, count, **options)


class Reader:
    """Logits after rows of tokens, of which it remembers keys and values."""

    def __init__(self, model: "GPT", *, cached: bool = True) -> None:
        self.model, self.cached = model, cached
        self.rounds = rounds(model.blocks) if cached else None
        self.forget()

    def forget(self) -> None:
        self.cache: list[KeyValues] = []
        self.x_BT, self.padding_B = torch.empty(0, 0, dtype=torch.long), torch.empty(0, dtype=torch.long)

    @torch.no_grad()
    def __call__(self, rows: Sequence[Sequence[int]], last: int = 1) -> Tensor:
        """Logits of the token after each of the last `last` tokens of each row, B × last × V."""
        context = self.model.config.context
        windows = [row[window_start(len(row), context) :] for row in rows]
        width = max(map(len, windows))
        padding_B = torch.tensor([width - len(window) for window in windows])
        x_BT = torch.tensor([[0] * (width - len(window)) + list(window) for window in windows])
        known = min(self._known(x_BT, padding_B), width - last)
        if known <= 0 or not self.cached:
            known, self.cache = 0, [KeyValues(context) for _ in self.model.blocks]
        for layer in self.cache:
            layer.length = known
        self.x_BT, self.padding_B = x_BT, padding_B
        if self.rounds is not None and x_BT[:, known:].shape == (1, 1) and known and not watching():
            h_BTE = self.model.embed(x_BT[:, known:], known)
            pass_through(self.rounds, h_BTE[0, 0], self.cache)
            return self.model.logits(h_BTE)
        cache = self.cache if self.cached else None
        return self.model(x_BT[:, known:], cache=cache, last=last, **self._padded(known, width))

    def _known(self, x_BT: Tensor, padding_B: Tensor) -> int:
        """How many columns are the same as last time."""
        if not self.cache or not torch.equal(padding_B, self.padding_B):
            return 0
        width = min(x_BT.shape[1], self.x_BT.shape[1])
        same_T = (x_BT[:, :width] == self.x_BT[:, :width]).all(0)
        return width if same_T.all() else int(same_T.int().argmin())

    def _padded(self, known: int, width: int) -> dict[str, Tensor]:
        """Mask and places of rows that begin with padding; without any, nothing is needed. Padding sees itself."""
        if not self.padding_B.any():
            return {}
        place_BT = torch.arange(width) - self.padding_B[:, None]
        mask_BTS = (place_BT >= 0)[:, None] & causal_mask(width, width)
        mask_BTS = mask_BTS | torch.eye(width, dtype=torch.bool)
        return {"mask": mask_BTS[:, None, known:], "place_BT": place_BT[:, known:].clamp(min=0)}

    def reorder(self, row_B: Tensor) -> None:
        """Let row i go on from row `row_B[i]`."""
        for layer in self.cache:
            layer.reorder(row_B)
        self.x_BT, self.padding_B = self.x_BT[row_B], self.padding_B[row_B]


def stream(
    model: Writer,
    tokens: Sequence[int],
    most: int,
    choice: Choice,
    *,
    generator: torch.Generator | None = None,
    end: int | None = None,
    cached: bool = True,
) -> Iterator[int]:
    """What follows `tokens`, one token at a time."""
    for new in together(model, [tokens], most, choice, generator=generator, end=end, cached=cached):
        yield new[0]


def together(
    model: Writer,
    prompts: Sequence[Sequence[int]],
    most: int,
    choice: Choice,
    *,
    generator: torch.Generator | None = None,
    end: int | None = None,
    cached: bool = True,
) -> Iterator[list[int]]:
    """What follows each of several prompts, of any lengths: the next token of each, until all have ended."""
    check(model, prompts)
    rows, read, ended = [list(prompt) for prompt in prompts], model.reader(cached=cached), [False] * len(prompts)
    for _ in range(most):
        logits_BV = read(rows)[:, -1]
        seen_BT = occurred(rows) if choice.repetition != 1 else None
        new = choose(logits_BV, choice, generator, seen_BT).tolist()
        ended = [was or token == end for was, token in zip(ended, new, strict=True)]
        if all(ended):
            return
        for row, token in zip(rows, new, strict=True):
            row.append(token)
        yield new


def occurred(rows: Sequence[Sequence[int]]) -> Tensor:
    """Tokens that occurred in each row; shorter rows name their last one again."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows])


def check(model: Writer, prompts: Sequence[Sequence[int]]) -> None:
    vocabulary = model.config.vocabulary
    for prompt in prompts:
        if not prompt:
            raise EngramError("A prompt must have at least one token.")
        if min(prompt) < 0 or max(prompt) >= vocabulary:
            raise EngramError(f"Tokens go from 0 to {vocabulary - 1}, and {max(prompt)} is in the prompt.")


def beams(
    model: Writer, tokens: Sequence[int], most: int, count: int, *, end: int | None = None, length_penalty: float = 1.0
) -> list[Beam]:
    """The `count` most probable continuations that beam search finds, best first."""
    check(model, [tokens])
    read, rows = model.reader(), [list(tokens)]

    def step(token_BT: Tensor, row_B: Tensor | None) -> Tensor:
        if row_B is not None:
            read.reorder(row_B)
            rows[:] = [[*rows[i], int(token)] for i, token in zip(row_B.tolist(), token_BT[:, 0], strict=True)]
        return read(rows)[:, -1]

    return beam_search(step, tokens, beams=count, most=most, end=end, length_penalty=length_penalty)


def speculate(
    model: "GPT",
    draft: "GPT",
    tokens: Sequence[int],
    most: int,
    choice: Choice,
    *,
    ahead: int = 4,
    generator: torch.Generator | None = None,
    end: int | None = None,
) -> Iterator[int]:
    """What `model` would write, guessed `ahead` tokens at a time by a smaller one that it only has to check."""
    if draft.config.vocabulary != model.config.vocabulary:
        sizes = f"{draft.config.vocabulary} and {model.config.vocabulary}"
        raise EngramError(f"The draft must have the model's own vocabulary, and they have {sizes} tokens.")
    check(model, [tokens])
    ahead = min(ahead, model.config.context // 2, draft.config.context // 2)
    row, left, read, guess = list(tokens), most, Reader(model), Reader(draft)
    while left > 0:
        guesses, q = list[int](), list[Tensor]()
        for _ in range(min(ahead, left - 1)):
            q.append(probabilities(guess([row + guesses])[:, -1], choice, occurred([row + guesses])))
            guesses.append(int(torch.multinomial(q[-1], 1, generator=generator)))
        p_TV = expected(read, row, guesses, choice)
        new = accept(guesses, p_TV, torch.cat(q) if q else p_TV[:0], generator)
        for token in new[:left]:
            if token == end:
                return
            yield token
            row.append(token)
        left -= len(new)


def expected(read: Reader, row: list[int], guesses: list[int], choice: Choice) -> Tensor:
    """The probabilities that the model gives after the row and after each guess, T × V."""
    context = read.model.config.context
    if window_start(len(row) + len(guesses), context) != window_start(len(row), context):  # the window moves amid them
        rows = [row + guesses[:i] for i in range(len(guesses) + 1)]
        return torch.cat([probabilities(read([one])[:, -1], choice, occurred([one])) for one in rows])
    logits_TV = read([row + guesses], last=len(guesses) + 1)[0]
    if choice.repetition == 1:
        return probabilities(logits_TV, choice)
    each = [occurred([row + guesses[:i]]) for i in range(len(guesses) + 1)]
    return torch.cat([probabilities(z[None], choice, seen) for z, seen in zip(logits_TV, each, strict=True)])
