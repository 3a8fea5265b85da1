"""Errors of users: one sentence that says what is wrong, what was found and what to do."""

import difflib
from collections.abc import Iterable
from typing import Any

LONGEST = 2000
"""characters of a sentence: what a file or a message puts into one may be longer than anybody reads"""
PRONOUNCED = ("LIF", "NEF")
"""abbreviations that are read as words"""
QUOTED = 80
"""characters of a value that is quoted in a sentence"""


class EngramError(Exception):
    """A problem of the user's making or of the machine's, not a bug: shown as one sentence, exit code 2.

    The message stays on one line: quoted text is stripped of control characters and truncated.
    """

    def __init__(self, message: str) -> None:
        line = "".join(letter if letter.isprintable() else " " for letter in message)
        half = LONGEST // 2
        super().__init__(line if len(line) <= LONGEST else f"{line[:half]} … {line[-half:]}")


def nearest(name: str, options: Iterable[str]) -> str:
    """' Did you mean "cnn"?' if an option is close to `name`, otherwise the options, if there are any."""
    name, options = shorten(name), sorted(options)
    if not options:
        return ""
    close = difflib.get_close_matches(name, options, n=1)
    return f' Did you mean "{close[0]}"?' if close else f" There are: {', '.join(options)}."


def shorten(value: Any) -> str:
    """Return a value as it is quoted in a sentence: a long one abbreviated in its middle."""
    text = str(value)
    return text if len(text) <= QUOTED else f"{text[: QUOTED // 2]}…{text[-QUOTED // 4 :]}"


class RemoteError(EngramError):
    """An error in another process of the same run, which reports it."""


def with_article(name: str) -> str:
    """Return the name of a class behind its article, by its sound: "a GAN", "an MLP"."""
    spelled = name[1:2].isupper() and name not in PRONOUNCED
    return f"{'an' if name[0] in ('AEFHILMNORSX' if spelled else 'AEIOU') else 'a'} {name}"


def unknown(kind: str, name: str, options: Iterable[str]) -> EngramError:
    """Return the error for a name that is not among the options."""
    return EngramError(f'There is no {kind} "{shorten(name)}".{nearest(name, options)}')
