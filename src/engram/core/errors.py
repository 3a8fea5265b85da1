"""Errors that a person can act on: one sentence that says what was wrong, what was found and what to do."""

import difflib
from collections.abc import Iterable


class EngramError(Exception):
    """A problem of the user's making or of the machine's, not a bug: shown as one sentence, exit code 2."""


def nearest(name: str, options: Iterable[str]) -> str:
    """' Did you mean «cnn»?' if an option is close to `name`, otherwise the options themselves."""
    options = sorted(options)
    close = difflib.get_close_matches(name, options, n=1)
    return f" Did you mean «{close[0]}»?" if close else f" There are: {', '.join(options)}."


def unknown(kind: str, name: str, options: Iterable[str]) -> EngramError:
    """The error for a name that is not among the options."""
    return EngramError(f"There is no {kind} «{name}».{nearest(name, options)}")
