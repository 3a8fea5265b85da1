"""Systems for the pages: the registry by parts of the course, equations, and their source code."""

import ast
import inspect
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engram import PARTS
from engram.core.errors import EngramError
from engram.core.recipe import AnyRecipe
from engram.core.registry import registry
from engram.plots.equations import equations, sources
from engram.plots.instrument import INSTRUMENTS


def systems() -> list[dict[str, Any]]:
    """Name, title, part, summary and instruments of every recipe, in the order of the course."""
    rows = [
        {
            "name": name, "title": cls.title, "part": cls.part(), "summary": summary(cls),
            "instruments": [one for one, about in INSTRUMENTS.items() if name in about.recipes],
        }
        for name, cls in registry().items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: PARTS.index(str(row["part"])))


def summary(cls: type[AnyRecipe]) -> str:
    """The docstring of a recipe in one line."""
    return " ".join((inspect.getdoc(cls) or "").split())


def system(cls: type[AnyRecipe]) -> dict[str, Any]:
    """A recipe with the equations of its modules, each with the lines of code that compute it."""
    modules = []
    for module in sources(cls.Model.__module__):
        found = [equation._asdict() for equation in equations(module)]
        modules.append({"module": module, "title": title_of(module), "equations": found})
    (row,) = (row for row in systems() if row["name"] == cls.name)
    return {**row, "modules": modules, "learns": cls.learns, "unit": cls.unit, "model": cls.Model.__module__}


def title_of(module: str) -> str:
    """First sentence of a module's docstring, without the letters of its shapes."""
    doc = ast.get_docstring(ast.parse(path_of(module).read_text("utf-8"))) or module
    return " ".join(doc.split("\n\n")[0].partition("   ")[0].split())


def source(module: str) -> dict[str, Any]:
    """Source code of a module of engram."""
    return {"module": module, "code": path_of(module).read_text("utf-8")}


def path_of(module: str) -> Path:
    """Source file of a module of engram; refuses any other module."""
    names = module.split(".")
    if names[0] != "engram" or not all(name.isidentifier() for name in names):
        raise EngramError(f'"{module[:80]}" is no module of engram.')
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise EngramError(f"There is no module {module[:80]}.")
    return Path(spec.origin)
