"""Synthetic sequence tasks for recurrent networks.

Copy, reverse, selective copy, adding, and dates to translate.

In `copy`, `reverse` and `selective-copy` the symbols are numbers from 1; 0 is a blank, and the last number is a cue.
`source` ends with as many cues as there are symbols to recall, and `target` has one symbol for each cue: a recurrent
network answers at the last steps, an encoder-decoder reads the part before them.
N sequences, T steps, L symbols.
"""

from datetime import date, timedelta

import numpy as np
import numpy.typing as npt
import torch

from engram.core.errors import EngramError
from engram.data.columns import Strings
from engram.data.dataset import Parts, Split
from engram.data.registry import register_generated
from engram.data.splits import split_sizes

Ints = npt.NDArray[np.int64]


def _check_positive(**options: int) -> None:
    for name, value in options.items():
        if not isinstance(value, int) or value < 1:
            raise EngramError(f"{name} is a whole number from 1, not {value}.")


def _make_recall_split(symbol_NL: Ints, blank: int, symbols: int, answer_NL: Ints) -> Split:
    """Return sequences of symbols, `blank` blanks and cues, with the target symbols."""
    count, length = symbol_NL.shape
    wait, cue = np.zeros((count, blank), np.int64), np.full((count, length), symbols + 1)
    source_NT = np.concatenate([symbol_NL, wait, cue], axis=1)
    return Split({"source": torch.from_numpy(source_NT), "target": torch.from_numpy(answer_NL.copy())})


@register_generated(
    "copy",
    title="copy task: recall symbols after a delay (Hochreiter & Schmidhuber 1997)",
    kind="sequences",
    columns={"source": "int64 40", "target": "int64 10"},
    sizes={"train": 10_000, "valid": 1000, "test": 1000},
)
def copy(*, length: int = 10, wait: int = 20, symbols: int = 8, count: int = 10_000, seed: int = 0) -> Parts:
    _check_positive(length=length, symbols=symbols, wait=wait)
    rng = np.random.default_rng(seed)

    def split(size: int) -> Split:
        symbol_NL = rng.integers(1, symbols + 1, (size, length))
        return _make_recall_split(symbol_NL, wait, symbols, symbol_NL)

    return Parts({name: split(size) for name, size in split_sizes(count).items()})


@register_generated(
    "reverse",
    title="reverse task: recall symbols in reverse order",
    kind="sequences",
    columns={"source": "int64 20", "target": "int64 10"},
    sizes={"train": 10_000, "valid": 1000, "test": 1000},
)
def reverse(*, length: int = 10, symbols: int = 8, count: int = 10_000, seed: int = 0) -> Parts:
    _check_positive(length=length, symbols=symbols)
    rng = np.random.default_rng(seed)

    def split(size: int) -> Split:
        symbol_NL = rng.integers(1, symbols + 1, (size, length))
        return _make_recall_split(symbol_NL, 0, symbols, symbol_NL[:, ::-1])

    return Parts({name: split(size) for name, size in split_sizes(count).items()})


@register_generated(
    "selective-copy",
    title="selective copy: recall symbols scattered among blanks (Gu & Dao 2023)",
    kind="sequences",
    columns={"source": "int64 74", "target": "int64 10"},
    sizes={"train": 10_000, "valid": 1000, "test": 1000},
)
def selective_copy(*, length: int = 10, among: int = 64, symbols: int = 8, count: int = 10_000, seed: int = 0) -> Parts:
    _check_positive(length=length, symbols=symbols)
    if among < length:
        raise EngramError(f"{length} symbols do not fit into {among} places: let `among` be at least `length`.")
    rng = np.random.default_rng(seed)

    def split(size: int) -> Split:
        symbol_NL = rng.integers(1, symbols + 1, (size, length))
        place_NL = np.sort(rng.random((size, among)).argsort(axis=1)[:, :length], axis=1)
        scattered = np.zeros((size, among), np.int64)
        np.put_along_axis(scattered, place_NL, symbol_NL, axis=1)
        cues = np.full((size, length), symbols + 1)
        source_NT = np.concatenate([scattered, cues], axis=1)
        return Split({"source": torch.from_numpy(source_NT), "target": torch.from_numpy(symbol_NL)})

    return Parts({name: split(size) for name, size in split_sizes(count).items()})


@register_generated(
    "adding",
    title="adding problem: add the two marked numbers of a long sequence (Hochreiter & Schmidhuber 1997)",
    kind="sequences",
    columns={"source": "float32 50×2", "target": "float32"},
    sizes={"train": 10_000, "valid": 1000, "test": 1000},
)
def adding(*, length: int = 50, count: int = 10_000, seed: int = 0) -> Parts:
    """Generate the adding problem: a number from 0 to 1 and a mark per step; one mark in each half."""
    if length < 2:
        raise EngramError(f"length is at least 2, so that two numbers can be marked, not {length}.")
    rng = np.random.default_rng(seed)

    def split(size: int) -> Split:
        number_NT = rng.random((size, length), np.float32)
        mark_NT = np.zeros((size, length), np.float32)
        half = length // 2
        mark_NT[np.arange(size), rng.integers(0, half, size)] = 1
        mark_NT[np.arange(size), rng.integers(half, length, size)] = 1
        total = (number_NT * mark_NT).sum(1)
        return Split({"source": torch.from_numpy(np.stack([number_NT, mark_NT], 2)), "target": torch.from_numpy(total)})

    return Parts({name: split(size) for name, size in split_sizes(count).items()})


FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
FORMS = (
    "{day} {month} {year}", "{month} {day}, {year}", "{day} {short} {year}", "{short} {day} {year}",
    "{weekday}, {day} {month} {year}", "{weekday} {month} {day}, {year}", "the {nth} of {month} {year}",
    "{month} {nth}, {year}", "{nth} {short} {year}", "{day}.{number}.{year}", "{number}/{day}/{year}",
    "{year}, {month} {day}", "{day}-{short}-{year}", "{year}{number:02}{day:02}",
)  # fmt: skip
"""with dots the day comes first, with slashes the month, so that no form is ambiguous"""


def format_date(day: date, form: str) -> str:
    """Format a date in one of the forms."""
    ending = "th" if day.day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    month = MONTHS[day.month - 1]
    return form.format(
        day=day.day, nth=f"{day.day}{ending}", month=month, short=month[:3], number=day.month, year=day.year,
        weekday=DAYS[day.weekday()],
    )  # fmt: skip


@register_generated(
    "dates",
    title="dates in many written forms, to translate into ISO format",
    kind="pairs",
    columns={"source": "str", "target": "str"},
    sizes={"train": 10_000, "valid": 1000, "test": 1000},
)
def dates(*, count: int = 10_000, seed: int = 0) -> Parts:
    """Generate dates in many forms with their ISO form; no day occurs twice, so test days are unseen."""
    sizes, span = split_sizes(count), (LAST - FIRST).days + 1
    if sum(sizes.values()) > span:
        raise EngramError(f"There are {span} days in the data set dates: ask for a count up to {span * 10 // 12}.")
    rng = np.random.default_rng(seed)
    days = [FIRST + timedelta(days=int(i)) for i in rng.permutation(span)[: sum(sizes.values())]]
    forms = rng.integers(len(FORMS), size=len(days))
    source = [format_date(day, FORMS[form]) for day, form in zip(days, forms, strict=True)]
    target = [day.isoformat() for day in days]
    splits, start = {}, 0
    for name, size in sizes.items():
        rows = slice(start, start + size)
        splits[name] = Split({"source": Strings.from_texts(source[rows]), "target": Strings.from_texts(target[rows])})
        start += size
    return Parts(splits)
