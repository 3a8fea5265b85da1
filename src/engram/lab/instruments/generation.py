"""Writing: text as a model writes it, each token with the probabilities that it was drawn from.

Tokens are drawn as `engram sample` draws them: one uniform number for each, turned through the cumulative distribution
(layers/decoding). The number of the n-th token depends on the seed and on n alone, so that a text which is stopped and
goes on is the text that would have been written without stopping, and a setting can change amid it.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.seeding import aside, generator
from engram.data.corpus import Corpus
from engram.data.tokeniser import Tokeniser
from engram.lab.desk import Answer, Models, ask
from engram.lab.passages import passage
from engram.layers.decoding import Choice, Stops, draw, probabilities, window_start
from engram.models.writing import Writer, check
from engram.recipes.continuing import end_of

LONGEST = 2000
"""characters of a prompt"""
MOST = 1000
"""tokens of a text, without the prompt"""
AT_ONCE = 400
"""tokens that one ask may write"""
SHOWN = 10
"""alternatives that are told"""
PROMPT = 12
"""tokens of the data that a text begins with where no prompt was given"""
USUAL = "Once upon a time"
"""the beginning where there is neither a prompt nor data"""
TOGETHER = 16
"""tokens that are read at once, where they are known"""
PATIENCE = 0.03
"""seconds after which the tokens that are there are told"""
HOTTEST = 5.0
LARGEST_SEED = 1 << 31


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text so far."""

    run: str = ""
    step: int = -1
    prompt: str = ""
    """without one, the beginning of some of the model's own data"""
    tokens: tuple[Any, ...] = ()
    """what was written after it; numbers, because a text may be cut into tokens in several ways"""

    def __post_init__(self) -> None:
        if len(self.prompt) > LONGEST:
            raise EngramError(f"prompt may have {LONGEST} characters, and has {len(self.prompt)}.")
        if len(self.tokens) > MOST:
            raise EngramError(f"tokens may be {MOST}, and there are {len(self.tokens)}.")
        if not all(type(token) is int for token in self.tokens):
            raise EngramError("tokens are whole numbers.")


@dataclass(frozen=True, kw_only=True)
class Writing(Text, Choice):
    """How a text goes on."""

    seed: int = 0
    length: int = 200
    """tokens to write"""

    def __post_init__(self) -> None:
        Text.__post_init__(self)
        Choice.__post_init__(self)
        if self.temperature > HOTTEST:
            raise EngramError(f"temperature may be {HOTTEST:g} at most, and is {self.temperature}.")
        if not 0 <= self.seed < LARGEST_SEED:
            raise EngramError(f"seed is a number from 0 to {LARGEST_SEED - 1}, not {self.seed}.")
        if not 1 <= self.length <= AT_ONCE:
            raise EngramError(f"length is a number of tokens from 1 to {AT_ONCE}, not {self.length}.")


class Stroke(NamedTuple):
    """So many tokens that were written with the same settings."""

    length: int
    choice: Choice


@dataclass(frozen=True, kw_only=True)
class Known(Text):
    """A text that is read again."""

    strokes: tuple[Any, ...] = ()
    """how it was written: lists of a number of tokens and temperature, top_k, top_p, min_p, repetition"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.strokes) > MOST:
            raise EngramError(f"strokes may be {MOST}, and there are {len(self.strokes)}.")
        object.__setattr__(self, "strokes", tuple(map(stroke, self.strokes)))
        count = sum(one.length for one in self.strokes)
        if count != len(self.tokens):
            raise EngramError(f"strokes are of {count} tokens, and there are {len(self.tokens)}.")


def stroke(value: Any) -> Stroke:
    """A list as a stroke."""
    fitting = isinstance(value, list) and len(value) == 6 and all(type(part) in (int, float) for part in value)
    if not fitting or not (type(value[0]) is type(value[2]) is int) or value[0] < 1:
        raise EngramError("strokes are lists of length, temperature, top_k, top_p, min_p and repetition.")
    length, temperature, top_k, top_p, min_p, repetition = value
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "repetition": repetition}
    return Stroke(length, Choice(**settings))


# ---------------------------------------------------------------------- a model that writes


class Pen(NamedTuple):
    """A model, what its tokens mean, and the prompt."""

    model: Any
    data: Corpus
    prompt: str
    ids: list[int]


def taken_up(asked: Text, models: Models) -> Pen:
    run = models.open(asked.run, asked.step)
    model, data = run.learner.model, run.data
    if not isinstance(model, Writer) or not isinstance(data, Corpus):
        raise EngramError(f"{asked.run} does not write: this instrument opens what has learnt to continue a text.")
    prompt = asked.prompt or beginning(model, data)
    ids = data.tokeniser.encode(prompt, special=False)
    check(model, [[*ids, *asked.tokens]])
    return Pen(model, data, prompt, ids)


def beginning(model: Any, data: Corpus) -> str:
    """Some of the text that validates the model, up to the end of a word; a checkpoint has none."""
    if not data.splits:
        return USUAL
    text = passage(data, getattr(model.config, "context", LONGEST), PROMPT)
    return text.rpartition(" ")[0] or text or "\n"


class Pieces:
    """What each token adds to the text; half a character of several bytes waits for its other half."""

    def __init__(self, tokeniser: Tokeniser) -> None:
        self.tokeniser, self.ids, self.stops = tokeniser, list[int](), Stops(())

    def next(self, *tokens: int) -> str:
        self.ids += tokens
        return self.stops.more(self.tokeniser.decode(self.ids))[0]


def told(token: int, z_V: Tensor, p_V: Tensor, tokeniser: Tokeniser, piece: str) -> Answer:
    """A token, and what it was drawn from: `p` after all settings, `log_p` of the model itself."""
    among = int((p_V > 0).sum())
    top = p_V.topk(min(SHOWN, among))
    return {
        "id": token, "piece": piece, "name": tokeniser.token(token), "p": p_V[token].item(),
        "log_p": z_V.float().log_softmax(0)[token].item(), "rank": int((p_V > p_V[token]).sum()) + 1, "among": among,
        "top": [
            [i, tokeniser.token(i), p] for i, p in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        ],
    }  # fmt: skip


# ---------------------------------------------------------------------- writing


@ask("generation")
def write(asked: Writing, models: Models) -> Generator[Answer, None, Answer]:
    """The tokens that follow, some at a time, and the seconds that each part took."""
    pen = taken_up(asked, models)
    entries, since, ended = list[Answer](), time.perf_counter(), True
    most = min(asked.length, MOST - len(asked.tokens))
    for number, entry in enumerate(entries_of(asked, pen, most), 1):
        entries.append(entry)
        ended = number < most
        if time.perf_counter() - since >= PATIENCE or not ended:
            yield {"written": entries, "seconds": time.perf_counter() - since}
            entries, since = [], time.perf_counter()
    if entries:
        yield {"written": entries, "seconds": time.perf_counter() - since}
    return {"ended": ended and most > 0, "full": len(asked.tokens) + most >= MOST}


def entries_of(asked: Writing, pen: Pen, most: int) -> Iterator[Answer]:
    """What is drawn, until the model ends the text."""
    model, tokeniser, end = pen.model, pen.data.tokeniser, end_of(pen.data)
    read, row, random, pieces = model.reader(), [*pen.ids, *asked.tokens], chance(asked), Pieces(tokeniser)
    pieces.next(*row)
    for _ in range(most):
        with aside(model, 0):  # closed before anybody else is served
            z_1V = read([row])[:, -1]
            p_1V = probabilities(z_1V, asked, torch.tensor([row]))
        token = int(p_1V.argmax(1) if asked.temperature == 0 else draw(p_1V, random))
        if token == end:
            return
        row.append(token)
        yield told(token, z_1V[0], p_1V[0], tokeniser, pieces.next(token))


def chance(asked: Writing) -> torch.Generator:
    """Where the numbers of `engram sample` stand after as many tokens as there are."""
    random = generator(asked.seed, "sample")
    for _ in asked.tokens:
        draw(torch.ones(1, 1), random)
    return random


# ---------------------------------------------------------------------- reading again


@ask("generation.read")
def read_again(asked: Known, models: Models) -> Generator[Answer, None, Answer]:
    """The same of a text that is there: its prompt as the model itself would have said it, the rest as it was drawn."""
    pen = taken_up(asked, models)
    own = Choice(temperature=1.0)
    choices = [own] * len(pen.ids) + [one.choice for one in asked.strokes for _ in range(one.length)]
    row, pieces = [*pen.ids, *asked.tokens], Pieces(pen.data.tokeniser)
    first = {"id": row[0], "piece": pieces.next(row[0]), "name": pen.data.tokeniser.token(row[0])}
    yield {"prompt": pen.prompt, "given": len(pen.ids), "read": [first]}
    read = pen.model.reader()
    for start, end in stretches(row, getattr(pen.model.config, "context", len(row))):
        with aside(pen.model, 0):
            z_TV = read([row[: end - 1]], last=end - start)[0]
            entries = [
                told(row[i], z_V, settled(z_V, choices[i], row[:i]), pen.data.tokeniser, pieces.next(row[i]))
                for i, z_V in zip(range(start, end), z_TV, strict=True)
            ]
        yield {"read": entries}
    return {}


def settled(z_V: Tensor, choice: Choice, before: Sequence[int]) -> Tensor:
    return probabilities(z_V[None], choice, torch.tensor([before]))[0]


def stretches(row: Sequence[int], context: int) -> Iterator[tuple[int, int]]:
    """Tokens, from the second on, that can be read at once: the window of what comes before them does not move."""
    start = 1
    while start < len(row):
        end = start + 1
        while end < min(len(row), start + TOGETHER) and window_start(end, context) == window_start(start, context):
            end += 1
        yield start, end
        start = end
