"""What recipes share whose models learn to continue a text and then write: what they are asked, what they answer."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.registry import Item, Request, Sample
from engram.data.corpus import Corpus, rows
from engram.layers.decoding import Choice, Stops, texts_of
from engram.models.writing import Writer, stream

EVALUATED, EXAMINED = 1 << 15, 1 << 18
"""tokens that an evaluation goes through on the way, and at the end"""
EVALUATION_TOKENS = 1 << 13
"""tokens that are passed at once"""
SPECIALS = {"bpe": ("<|endoftext|>",), "wordpiece": ("[UNK]",), "words": ("[UNK]",)}
"""special tokens of each kind of tokeniser, for texts that are continued"""
LOOKED_AT = 48
"""tokens of the validation text that are looked at where no text is given"""


@dataclass(frozen=True, kw_only=True)
class Writing(Choice):
    """What a model may be asked to write."""

    prompt: str = "\n"
    """the beginning of the text"""
    length: int = 400
    """tokens to write at most"""
    stop: tuple[str, ...] = ()
    """strings that end the text"""
    beams: int = 0
    """look for the most probable text with so many beams, instead of drawing; 0 draws"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 1:
            raise EngramError(f"length must be at least 1, not {self.length}.")
        if self.beams < 0:
            raise EngramError(f"beams must not be negative, and is {self.beams}.")


@dataclass(frozen=True, kw_only=True)
class Reading(Item):
    """What is looked at."""

    text: str = ""
    """a text of your own, instead of one from the data"""


Tokens = Callable[[list[int]], Iterator[int]]
"""what follows a prompt, one token at a time"""


def continued(model: Writer, data: Corpus, request: Request, tokens: Tokens | None = None) -> Sample:
    """As many texts as are asked for: one is told as it is written, several are written side by side.

    `tokens` is another way to write than the model's own.
    """
    ask: Writing = request.ask
    decode, end, prompt = data.tokeniser.decode, end_of(data), data.tokeniser.encode(ask.prompt, special=False)
    if ask.beams:
        found = model.beams(prompt, ask.length, max(ask.beams, request.count), end=end)[: request.count]
        ids = [beam.tokens for beam in found]
    elif request.count > 1 and tokens is None:
        ids = model.generate([prompt] * request.count, ask.length, ask, generator=request.generator, end=end)
    else:

        def own(prompt: list[int]) -> Iterator[int]:
            return stream(model, prompt, ask.length, ask, generator=request.generator, end=end)

        ids = [told((tokens or own)(prompt), data, request) for _ in range(request.count)]
    texts = [stopped(decode(row), ask.stop) for row in ids]
    lines = [f"{ask.prompt}{text}" if ask.prompt.strip() else text for text in texts]
    length = max(map(len, ids))
    padded = torch.tensor([row + [-1] * (length - len(row)) for row in ids])
    return Sample({"tokens": padded}, "\n———\n".join(lines), aloud=True)


def told(tokens: Iterator[int], data: Corpus, request: Request) -> list[int]:
    """All tokens, after each was told as text."""
    ask: Writing = request.ask
    row: list[int] = []

    def kept() -> Iterator[int]:
        for token in tokens:
            row.append(token)
            yield token

    request.say(ask.prompt if ask.prompt.strip() else "")
    for piece in texts_of(data.tokeniser.decode, kept(), ask.stop):
        request.say(piece)
    request.say("\n")
    return row


def how_well(model: Callable[[Tensor], Tensor], data: Corpus, split: str, context: int) -> dict[str, float]:
    """Loss and perplexity on stretches of `context` tokens."""
    x_NT, y_NT = rows(data[split], context, EXAMINED if split == "test" else EVALUATED)
    loss = mean_loss(model, x_NT, y_NT)
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}


def mean_loss(model: Callable[[Tensor], Tensor], x_NT: Tensor, y_NT: Tensor) -> float:
    """Mean of -log p over all tokens."""
    part = max(1, EVALUATION_TOKENS // x_NT.shape[1])
    total = sum(
        F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").double()
        for x, y in zip(x_NT.split(part), y_NT.split(part), strict=True)
    )
    return float(total) / y_NT.numel()


def end_of(data: Corpus) -> int | None:
    """The token that ends a text, where the tokeniser has one."""
    return data.tokeniser.inner.token_to_id("<|endoftext|>")


def stopped(text: str, stops: tuple[str, ...]) -> str:
    return Stops(stops).more(text)[0] if stops else text


def excerpt(data: Corpus, context: int, item: int = 0) -> list[int]:
    """Some tokens of the text that validates, from place `item` on."""
    ids = data["valid"].ids
    length = min(context, LOOKED_AT, len(ids))
    if not 0 <= item <= len(ids) - length:
        raise EngramError(f"item must be a place in the text from 0 to {len(ids) - length}, not {item}.")
    return ids[item : item + length].long().tolist()


def read_along(data: Corpus, subject: Reading, context: int) -> list[int]:
    """The tokens that are looked at: those of a text that was given, or of the data."""
    if not subject.text:
        return excerpt(data, context, subject.item)
    ids = data.tokeniser.encode(subject.text)
    if not ids:
        raise EngramError("There is nothing to look at in an empty text.")
    return ids[-context:]
