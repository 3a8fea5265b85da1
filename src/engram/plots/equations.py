r"""The numbered equations of a module.

Read from its docstring, converted to MathML, linked to the lines of code.

Equations stand in an indented block of the module's docstring, one to a line, in columns that are two or
more spaces apart: simple LaTeX that also reads as text, words if there are any, and a number:

    h_t = (1 - z_t) \odot n_t + z_t \odot h_{t-1}     new state     (1)

A line without a number below an equation is a further row of it. The legend follows: symbols, and what they mean:

    Symbols:
        h_t   state at time t

A line of code that computes an equation ends with a comment of its number. latex2mathml converts LaTeX to MathML.
"""

import ast
import io
import re
import textwrap
import tokenize
from collections import defaultdict
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from latex2mathml.converter import convert

from engram import PARTS

FOLDERS = tuple(f"engram.{folder}." for folder in (*PARTS, "nn", "generation", "training.learner", "training.muon"))
EQUATION = re.compile(r"^ {4}(?P<latex>\S.*?)(?: {2,}(?P<words>(?!\(\d+\)$)\S.*?))?(?: {2,}\((?P<number>\d+)\))?$")
DEDENTED = re.compile(r"\n\S.* {2,}\(\d+\)$", re.MULTILINE)
COMMENT = re.compile(r"#\s*(\(\d+\)(?:, \(\d+\))*)")


class Equation(NamedTuple):
    """One equation of a docstring."""

    number: int
    text: str
    """LaTeX, row by row"""
    words: str
    """what is said beside it, row by row, or nothing"""
    mathml: str
    lines: list[int]
    """line numbers of the source file that end with its number"""


class Symbol(NamedTuple):
    """One line of the legend."""

    text: str
    """LaTeX"""
    mathml: str
    meaning: str


def equations(module_name: str) -> list[Equation]:
    """The numbered equations of a module's docstring, in order."""
    source = read(module_name)
    computed, found = computing_lines(source), []
    for number, rows in numbered_rows(docstring(source)):
        text, words = ("\n".join(column) for column in zip(*rows, strict=True))
        found.append(Equation(number, text, words.strip(), mathml([latex for latex, _ in rows]), computed[number]))
    return found


def numbered_rows(doc: str) -> list[tuple[int, list[tuple[str, str]]]]:
    """Number and rows (LaTeX, words) of every equation of a docstring."""
    found: list[tuple[int, list[tuple[str, str]]]] = []
    inside = False
    for line in doc.splitlines():
        match = EQUATION.match(line)
        inside = bool(match) and (inside or bool(match and match["number"]))
        if match and match["number"]:
            found.append((int(match["number"]), [(match["latex"], match["words"] or "")]))
        elif match and inside:
            found[-1][1].append((match["latex"], match["words"] or ""))
    return found


def symbols(module_name: str) -> list[Symbol]:
    """Return the legend of a module's docstring: the lines below "Symbols:"."""
    _, _, legend = re.split(r"\n( *)Symbols:\n", docstring(read(module_name)) + "\n Symbols:\n", maxsplit=1)
    legend = legend.partition("\n\n")[0]
    rows = [re.split(r" {2,}", line.strip(), maxsplit=1) for line in legend.splitlines()]
    return [Symbol(row[0], mathml([row[0]]), row[1]) for row in rows if len(row) == 2]


def mathml(rows: Sequence[str]) -> str:
    """LaTeX as `<math>…</math>`, several rows below each other."""
    return convert(rows[0] if len(rows) == 1 else r"\begin{array}{l}" + r" \\ ".join(rows) + r"\end{array}")


def sources(module_name: str) -> list[str]:
    """The module, its learner and what they import and build on, as far as they have equations."""
    beside = [module_name, f"{module_name.rpartition('.')[0]}.learner"]
    named = dict.fromkeys([*beside, *(name for module in beside for name in imported(module))])
    return [name for name in named if numbered_rows(docstring(read(name)))]


def imported(module_name: str) -> list[str]:
    """What a module imports from the folders that have equations, in order."""
    found: dict[str, None] = {}
    for node in ast.walk(ast.parse(read(module_name))):
        if isinstance(node, ast.Import):
            found |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= dict.fromkeys([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    return [name for name in found if f"{name}.".startswith(FOLDERS) and name != module_name]


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
    """The docstring of a source, with its equations indented also where a formatter has dedented it."""
    doc = ast.get_docstring(ast.parse(source)) or ""
    if DEDENTED.search(doc):
        title, _, body = doc.partition("\n")
        doc = f"{title}\n{textwrap.indent(body, ' ' * 4)}"
    return doc


def computing_lines(source: str) -> defaultdict[int, list[int]]:
    """For every number, the lines whose comment begins with it or with a list in which it is."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and (match := COMMENT.search(token.string)):
            for number in re.findall(r"\d+", match[1]):
                found[int(number)].append(token.start[0])
    return found
