"""Tasks of memory and translation on generated sequences: what recurrent networks are traditionally examined on.

In `copy`, `reverse` and `selective-copy` the symbols are numbers from 1; 0 is a blank, and the last number is a cue.
`source` ends with as many cues as there are symbols to be remembered, and `target` is the answer to these cues, one
each: a network that reads step by step answers at the last steps, an encoder-decoder reads the part before them.
N sequences, T steps, L symbols.
"""

from datetime import date, timedelta

import numpy as np
import numpy.typing as npt
import torch

from engram.core.errors import EngramError
from engram.data.catalogue import generated
from engram.data.columns import Strings
from engram.data.dataset import Parts, Split
from engram.data.division import counts

Ints = npt.NDArray[np.int64]


def _checked(**options: int) -> None:
    for name, value in options.items():
        if not isinstance(value, int) or value < 1:
            raise EngramError(f"{name} is a whole number from 1, not {value}.")


def _recalled(symbol_NL: Ints, blank: int, symbols: int, answer_NL: Ints) -> Split:
    """The symbols, a wait of `blank` steps, and the cues; with the answer that is wanted."""
    count, length = symbol_NL.shape
    wait, cue = np.zeros((count, blank), np.int64), np.full((count, length), symbols + 1)
    source_NT = np.concatenate([symbol_NL, wait, cue], axis=1)
    return Split({"source": torch.from_numpy(source_NT), "target": torch.from_numpy(answer_NL.copy())})


@generated(
    "copy",
    title="remember symbols over a wait and write them down",
    kind="sequences",
    columns={"source": "int64 40", "target": "int64 10"},
    sizes={"train": 10_000, "valid": 1000, "test": 1000},
)
def copy(*, length: int = 10, wait: int = 20, symbols: int = 8, count: int = 10_000, seed: int = 0) -> Parts:
    _checked(length=length, symbols=symbols, wait=wait)
    rng = np.random.default_rng(seed)

    def split(size: int) -> Split:
        symbol_NL = rng.integers(1, symbols + 1, (size, length))
        return _recalled(symbol_NL, wait, symbols, symbol_NL)

    return Parts({name: split(size) for name, size in counts(count).items()})


@generated(
    "reverse",
    title="read symbols and write them down backwards",
    kind="sequences",
    columns={"source": "int64 20", "target": "int64 10"},
    sizes={"train": 10_000, "valid": 1000, "test": 1000},
)
def reverse(*, length: int = 10, symbols: int = 8, count: int = 10_000, seed: int = 0) -> Parts:
    _checked(length=length, symbols=symbols)
    rng = np.random.default_rng(seed)

    def split(size: int) -> Split:
        symbol_NL = rng.integers(1, symbols + 1, (size, length))
        return _recalled(symbol_NL, 0, symbols, symbol_NL[:, ::-1])

    return Parts({name: split(size) for name, size in counts(count).items()})


@generated(
    "selective-copy",
    title="remember the symbols that lie scattered among blanks (Gu & Dao 2023)",
    kind="sequences",
    columns={"source": "int64 74", "target": "int64 10"},
    sizes={"train": 10_000, "valid": 1000, "test": 1000},
)
def selective_copy(*, length: int = 10, among: int = 64, symbols: int = 8, count: int = 10_000, seed: int = 0) -> Parts:
    _checked(length=length, symbols=symbols)
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

    return Parts({name: split(size) for name, size in counts(count).items()})


@generated(
    "adding",
    title="add the two marked numbers of a long sequence (Hochreiter & Schmidhuber 1997)",
    kind="sequences",
    columns={"source": "float32 50×2", "target": "float32"},
    sizes={"train": 10_000, "valid": 1000, "test": 1000},
)
def adding(*, length: int = 50, count: int = 10_000, seed: int = 0) -> Parts:
    """Each step has a number between 0 and 1 and a mark; one mark is in the first half, one in the second."""
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

    return Parts({name: split(size) for name, size in counts(count).items()})


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
"""with dots the day comes first, with slashes the month: so every form has one meaning"""


def written(day: date, form: str) -> str:
    """A date in one of the forms."""
    ending = "th" if day.day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    month = MONTHS[day.month - 1]
    return form.format(
        day=day.day, nth=f"{day.day}{ending}", month=month, short=month[:3], number=day.month, year=day.year,
        weekday=DAYS[day.weekday()],
    )  # fmt: skip


@generated(
    "dates",
    title="dates in many written forms, to be translated into the ISO form",
    kind="pairs",
    columns={"source": "str", "target": "str"},
    sizes={"train": 10_000, "valid": 1000, "test": 1000},
)
def dates(*, count: int = 10_000, seed: int = 0) -> Parts:
    """No day occurs twice, so a day of the test was never learnt."""
    sizes, span = counts(count), (LAST - FIRST).days + 1
    if sum(sizes.values()) > span:
        raise EngramError(f"There are {span} days in the data set dates: ask for a count up to {span * 10 // 12}.")
    rng = np.random.default_rng(seed)
    days = [FIRST + timedelta(days=int(i)) for i in rng.permutation(span)[: sum(sizes.values())]]
    forms = rng.integers(len(FORMS), size=len(days))
    source = [written(day, FORMS[form]) for day, form in zip(days, forms, strict=True)]
    target = [day.isoformat() for day in days]
    splits, start = {}, 0
    for name, size in sizes.items():
        rows = slice(start, start + size)
        splits[name] = Split({"source": Strings.of(source[rows]), "target": Strings.of(target[rows])})
        start += size
    return Parts(splits)
