"""What tyro says of a command line that it cannot read, as one sentence in our words."""

import ast
import contextlib
import re
from collections.abc import Callable

KINDS = {"INT": "a whole number", "FLOAT": "a number"}


def explain(box: str, prog: str) -> str:
    """Return the text inside tyro's box as one sentence: the flag, what it takes and what was found."""
    text = unbox(box)
    for pattern, sentence in SENTENCES.items():
        if found := re.search(pattern, text):
            return sentence(found, prog)
    return text


def unbox(box: str) -> str:
    """Return the text inside a box of the terminal as one line, without the advice to ask for help."""
    inside = re.sub(r"\x1b\[[0-9;]*m", "", box)
    text = " ".join(re.sub(r"╭.*╮|[╰╯│─]", " ", inside).split())
    return text.partition(" Argument helptext")[0].partition(" For full helptext")[0].rstrip(".") + "."


def _choice(found: re.Match[str], prog: str) -> str:
    value, flag, options = found.groups()
    *others, last = ast.literal_eval(options)
    return f'{flag} must be {" or ".join(filter(None, [", ".join(others), last]))}, not "{value}".'


def _number(kind: str) -> Callable[[re.Match[str], str], str]:
    return lambda found, prog: f'{found[1]} must be {kind}, not "{_value(found[2])}".'


def _optional(found: re.Match[str], prog: str) -> str:
    return f'{found[1]} must be {KINDS.get(found[2], found[2].lower())}, not "{_value(found[3])}".'


def _value(text: str) -> str:
    """Return what a person has written: tyro shows it as Python does."""
    with contextlib.suppress(ValueError, SyntaxError):
        value = ast.literal_eval(text)
        return " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text


def _needed(found: re.Match[str], prog: str) -> str:
    return f"{prog} needs {found[1]}: {found[2]}."


SENTENCES: dict[str, Callable[[re.Match[str], str], str]] = {
    r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)\.$": _number("a whole number"),
    r"Error parsing (\S+): could not convert string to float: (.*)\.$": _number("a number"),
    r"Error parsing (\S+): Could not find valid parse for arguments: (\[.*\])\.$": _number("one or several numbers"),
    r"Error parsing (\S+): no type matching \{None\}\|(\S+) could be instantiated from (\[.*?\])\. Got": _optional,
    r"invalid choice '(.*)' for argument '(\S+)'\. Expected one of (\(.*\))": _choice,
    r"Missing value for argument '(\S+)'": lambda found, prog: f"{found[1]} needs a value.",
    r"^Missing from .*?: (?:required argument )?(\S+) (.*?) \(required\)": _needed,
    r"^Unrecognized options: (\S+) Perhaps you meant: (\S+)": (
        lambda found, prog: f'{prog} has no flag {found[1]}. Did you mean "{found[2]}"?'
    ),
    r"^Unrecognized options: (-.*)\.$": lambda found, prog: f"{prog} has no flag {found[1]}.",
    r"^Unrecognized options: (.*)\.$": (
        lambda found, prog: f'{prog} has no place for "{found[1]}": a flag begins with --, and has its value behind it.'
    ),
}
"""patterns of what tyro says, and the sentence for each"""
