"""What pages know of the systems: the catalogue as a map of the course, equations, and the code that computes them."""

import ast
import inspect
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engram.core.errors import EngramError
from engram.core.registry import Recipe, catalogue
from engram.lab.equations import equations, sources
from engram.lab.instruments import INSTRUMENTS

COURSE = ("foundations", "neurons", "memory", "sequences", "generation", "robustness", "transformers")


def systems() -> list[dict[str, Any]]:
    """Every recipe in a line, in the order of the course."""
    rows = [
        {
            "name": name, "title": cls.title, "kind": cls.kind, "notes": cls.notes, "said": said(cls),
            "instruments": [one for one, about in INSTRUMENTS.items() if name in about.recipes],
        }
        for name, cls in catalogue().items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: COURSE.index(str(row["kind"])))


def said(cls: type[Recipe]) -> str:
    return " ".join((inspect.getdoc(cls) or "").split())


def system(cls: type[Recipe]) -> dict[str, Any]:
    """A recipe with its equations, each with the lines of code that compute it."""
    modules = []
    for module in sources(cls.Model.__module__):
        found = [equation._asdict() for equation in equations(module)]
        modules.append({"module": module, "title": heading(module), "equations": found})
    (row,) = (row for row in systems() if row["name"] == cls.name)
    return {**row, "modules": modules, "learns": cls.learns, "unit": cls.unit, "model": cls.Model.__module__}


def heading(module: str) -> str:
    """What a module is, without the letters of its shapes."""
    doc = ast.get_docstring(ast.parse(file_of(module).read_text("utf-8"))) or module
    return " ".join(doc.split("\n\n")[0].partition("   ")[0].split())


def source(module: str) -> dict[str, Any]:
    """The code of a module of engram."""
    return {"module": module, "code": file_of(module).read_text("utf-8")}


def file_of(module: str) -> Path:
    words = module.split(".")
    if words[0] != "engram" or not all(word.isidentifier() for word in words):
        raise EngramError(f"«{module[:80]}» is no module of engram.")
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise EngramError(f"There is no module {module[:80]}.")
    return Path(spec.origin)
