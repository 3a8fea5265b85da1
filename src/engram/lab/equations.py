"""The numbered equations of a module: what its docstring says, and the lines of its code that compute them.

A numbered line of a docstring holds up to three columns, two or more spaces apart:

    label     x <- f(x),   y = g(x)     what it means       (its number)

Columns after a comma, and those that hold nothing but mathematics, belong to the equation. A line without a number goes
with the equation before it, unless it comes first or the next is indented below it. What has more words than
mathematical signs is a sentence, which has no MathML: its text is shown as it is.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from engram.lab.mathematics import mathml, weigh

ROOMS = tuple(
    f"engram.{room}." for room in ("layers", "models", "neurons", "robustness", "core.learner", "core.muon", "autodiff")
)
NUMBER = re.compile(r"\s\((\d+)\)\s*$")
COMMENT = re.compile(r"#\s*(\(\d+\)(?:, \(\d+\))*)")
ALIGNED = re.compile(r"\s+(?=(?:<-|[+:<>]?=|~)\s)")
NAMES = re.compile(r"[^\W\d_]{2,}(?:-\w+)*:?|[^\W\d_]+(?: [^\W\d_]+)+:?")


class Equation(NamedTuple):
    number: int
    text: str
    """as the docstring writes it, row by row"""
    label: str
    """the name that stands before it, as in «momentum   v <- beta v + g», or nothing"""
    said: str
    """what is said beside it, row by row, or nothing"""
    mathml: str
    """`<math>…</math>`, or nothing where the text is a sentence"""
    lines: list[int]
    """of the source file, those that end with its number"""


class Row(NamedTuple):
    label: str
    text: str
    said: str


def equations(module_name: str) -> list[Equation]:
    """The numbered equations of a module's docstring, in order."""
    source = read(module_name)
    computed = computing_lines(source)
    found = enumerate(numbered(docstring(source)), start=1)
    return [equation(number, lines, computed[number]) for number, lines in found]


def sources(cls_module: str) -> list[str]:
    """The module and those that it imports and builds on, as far as they have equations."""
    return [name for name in [cls_module, *imported(cls_module)] if numbered(docstring(read(name)))]


def imported(module_name: str) -> list[str]:
    """What a module imports from the rooms that have equations, in order."""
    found: dict[str, None] = {}
    for node in ast.walk(ast.parse(read(module_name))):
        if isinstance(node, ast.Import):
            found |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= dict.fromkeys([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    return [name for name in found if f"{name}.".startswith(ROOMS) and name != module_name]


def read(module_name: str) -> str:
    """The source of a module, without importing anything; nothing if it has none."""
    top, *inner = module_name.split(".")
    try:
        spec = find_spec(top)
    except ValueError:  # the __main__ of a session
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ""
    path = Path(spec.origin)
    if inner:
        path = path.parent.joinpath(*inner)
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def docstring(source: str) -> str:
    return ast.get_docstring(ast.parse(source)) or ""


def computing_lines(source: str) -> defaultdict[int, list[int]]:
    """For every number, the lines whose comment begins with it or with a list in which it is."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and (match := COMMENT.search(token.string)):
            for number in re.findall(r"\d+", match[1]):
                found[int(number)].append(token.start[0])
    return found


def numbered(doc: str) -> list[list[str]]:
    """The lines of the equations (1), (2), … of a docstring, without their numbers."""
    found: list[list[str]] = []
    for paragraph in re.split(r"\n\s*\n", doc):
        waiting: list[str] = []
        inside = False
        lines = paragraph.splitlines()
        for line, following in zip(lines, [*lines[1:], ""], strict=False):
            match = NUMBER.search(line)
            if match and int(match[1]) == len(found) + 1:
                found.append([*waiting, line[: match.start()]])
                inside, waiting = True, []
            elif inside and not (NUMBER.search(following) and indent(following) > indent(line)):
                found[-1].append(line)
            else:
                waiting.append(line)
    return found


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def equation(number: int, lines: list[str], computed: list[int]) -> Equation:
    """Lines whose text is mathematics are the rows of the equation; the others go on with what is said, or with it."""
    first, *others = [columns(line) for line in lines]
    formulas, sentences = [first.text], [first.said]
    for row in others:
        words = " ".join(filter(None, [row.label, row.text, row.said]))
        if is_sentence(first.text):
            formulas[0] += f" {words}"
        elif is_sentence(row.text):
            sentences[-1] += f" {words}"
        else:
            formulas.append(row.text)
            sentences.append(row.said)
    rendered = "" if is_sentence(first.text) else mathml(formulas)
    return Equation(number, "\n".join(formulas), first.label, "\n".join(sentences).strip(), rendered, computed)


def columns(line: str) -> Row:
    """A line as its label, its equation and what is said beside it."""
    parts = re.split(r"(\s{2,})", ALIGNED.sub(" ", line.strip()))
    cells, gaps = parts[::2], [len(gap) for gap in ["", *parts[1::2]]]
    if match := re.match(r"([^\W\d_]{2,}(?:-\w+)*:) (?=\S)", cells[0]):
        cells, gaps = [match[1], cells[0][match.end() :], *cells[1:]], [0, *gaps]
    first = next((i for i, cell in enumerate(cells[:-1]) if not is_label(cell)), len(cells) - 1)
    first = min(first, 2 if cells[0].isdigit() else 1)
    text, rest = parted(cells[first])
    said = [rest]
    for i in range(first + 1, len(cells)):
        formula, rest = parted(cells[i])
        if any(said) or not continues(text, formula, last=i == len(cells) - 1):
            said.append("  ".join(cells[i:]))
            break
        near = gaps[i] == 2 and (weigh(cells[i - 1])[0] or not is_relation(formula))
        text += ("  " if near else "   ") + formula
        said = [rest]
    return Row(" ".join(cells[:first]), text, "; ".join(filter(None, said)))


def is_label(cell: str) -> bool:
    words, signs = weigh(cell)
    return (
        cell.isdigit()
        or (cell.endswith(":") and words >= signs)
        or bool(NAMES.fullmatch(cell) and (words or " " not in cell))
    )


def is_sentence(text: str) -> bool:
    words, signs = weigh(text)
    return words > 0 and words >= signs


def is_relation(text: str) -> bool:
    return bool(re.search(r"<-|=|~|->", text))


def continues(text: str, cell: str, last: bool) -> bool:
    """Whether a column goes on with the equation that stands before it."""
    if text.endswith((",", ";", ":")) or text.split()[-1] in ("and", "or", "then"):
        return True
    words, signs = weigh(re.sub(r"\b(if|else)\b", ",", cell))
    return (words == 0 and signs > 0) or (cell in ("and", "or", "then") and not last)


def parted(cell: str) -> tuple[str, str]:
    """An equation and the words that follow it after a comma or a colon, as in «h <- f(h), the last without f»."""
    depth = 0
    for i, sign in enumerate(cell):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0 and sign in ",:;" and cell[i + 1 : i + 2] == " ":
            words, signs = weigh(cell[i + 1 :])
            begins = weigh(cell[i + 1 :].split()[0])[0]
            sentence, pure = is_sentence(cell), weigh(cell[:i])[0] == 0
            if begins and words > max(1, signs) and (pure or not sentence) and weigh(cell[:i])[1] > 2:
                return cell[:i], cell[i + 1 :].strip()
    return cell, ""
