"""Inputs that nobody means well with: bytes, JSON values and files like good ones, and wrong somewhere."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

DEEP = 10_000
"""levels of nesting"""
LONG = "1" + "0" * 400
RAW = {
    "@deep@": "[" * DEEP + "]" * DEEP,
    "@deeper@": '{"a":' * DEEP + "1" + "}" * DEEP,
    "@long@": LONG,
    "@1e400@": "1e400",
}
"""what json.dumps would not write, by the string that stands for it"""
NUMBERS = (0, -1, 1, 2, 255, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**18)
SCALARS = (
    None, True, False, *NUMBERS, 0.0, -0.5, 0.5, 1e-320, 1e38, 1e308, float("nan"), float("inf"), float("-inf"),
    "", "x", "0", "NaN", "../../elsewhere", "/etc/passwd", "a\0b", "é\ud800", "\n", "x" * 5000, *RAW,
    [], {}, [[]], [None], {"": None}, [0, 1], ["a"], [1e308] * 3,
)  # fmt: skip
"""values where others are expected; what begins with @ is in RAW"""

scalars = st.sampled_from(SCALARS).map(copy.deepcopy)
anything = st.recursive(
    scalars | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)


def written(value: Any) -> bytes:
    """As JSON, and what JSON has no words for as well."""
    text = json.dumps(value)
    for name, raw in RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text.encode()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every part of a JSON value."""
    yield path
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(part, (*path, key))


@st.composite
def changed(draw: st.DrawFn, good: Any, most: int = 3) -> Any:
    """A JSON value with some parts replaced, taken out, doubled or put elsewhere."""
    value = copy.deepcopy(good)
    for _ in range(draw(st.integers(1, most))):
        path = draw(st.sampled_from(list(places(value))))
        if not path:
            value = draw(anything) if draw(st.integers(0, 9)) == 0 else value
            continue
        owner = value
        for key in path[:-1]:
            owner = owner[key]
        match draw(st.sampled_from(("replace", "replace", "replace", "remove", "add"))):
            case "replace":
                owner[path[-1]] = draw(scalars | anything)
            case "remove":
                del owner[path[-1]]
            case "add" if isinstance(owner, dict):
                owner[draw(st.text(max_size=5) | st.just("steps"))] = draw(scalars)
            case "add":
                owner.insert(0, draw(scalars))
    return value


def spliced(content: bytes, start: int, end: int, new: bytes) -> bytes:
    return content[:start] + new + content[end:]


@st.composite
def damaged(draw: st.DrawFn, good: bytes, most: int = 4) -> bytes:
    """Bytes with some of them changed, left out, doubled, or replaced by large numbers."""
    content = good
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, len(content)))
        size = draw(st.sampled_from((1, 1, 2, 4, 8, 30, len(content) // 2)))
        match draw(st.sampled_from(("byte", "byte", "cut", "remove", "double", "number", "text"))):
            case "byte":
                content = spliced(content, at, at + 1, bytes([draw(st.integers(0, 255))]))
            case "cut":
                content = content[:at]
            case "remove":
                content = spliced(content, at, at + size, b"")
            case "double":
                content = spliced(content, at, at, content[at : at + size])
            case "number":
                width = draw(st.sampled_from((1, 2, 4, 8)))
                number = draw(st.sampled_from((0, 1, 2**7, 2**8 - 1, 2**15, 2**31 - 1, 2**32 - 1, 2**63, 2**64 - 1)))
                order = draw(st.sampled_from(("little", "big")))
                content = spliced(content, at, at + width, (number % 256**width).to_bytes(width, order))
            case "text":
                content = spliced(content, at, at, draw(st.binary(max_size=12)))
    return content
