"""The registry: every recipe, by name.

A recipe is the file `recipe.py` in the folder of its system, and the folder has its name: `word2vec`,
`hodgkin_huxley` for `hodgkin-huxley`. What else a system brings is found in the same way: `instrument.py`,
`huggingface`, `onnx.py`.
The packages that hold systems are listed in `packages`, to which other projects add theirs.
"""

import functools
import importlib
import importlib.util
from pathlib import Path
from typing import TypeVar

from engram import PARTS
from engram.core.errors import unknown
from engram.core.recipe import AnyRecipe

packages = [f"engram.{part}" for part in PARTS]
"""dotted names of the packages in which systems are looked for"""
R = TypeVar("R", bound=type[AnyRecipe])
_recipes: dict[str, type[AnyRecipe]] = {}


def register(cls: R) -> R:
    """Decorator: enter a recipe into the registry."""
    if cls.name in _recipes:
        raise ValueError(f"two recipes are called {cls.name}")
    _recipes[cls.name] = cls
    return cls


def registry() -> dict[str, type[AnyRecipe]]:
    """All recipes by name."""
    discover("recipe")
    return dict(sorted(_recipes.items()))


def get_recipe(name: str) -> type[AnyRecipe]:
    """The recipe of that name."""
    recipes = registry()
    if name not in recipes:
        raise unknown("recipe", name, recipes)
    return recipes[name]


@functools.cache
def discover(kind: str) -> list[str]:
    """Import every module or package `kind` of every system, once; returns their dotted names."""
    found = [name for package in packages for name in modules(package, kind)]
    for name in found:
        importlib.import_module(name)
    return found


def modules(package: str, kind: str) -> list[str]:
    """Dotted names of the modules called `kind`, or inside a package called so, anywhere below a package."""
    spec = importlib.util.find_spec(package)
    names = []
    for home in (spec.submodule_search_locations or ()) if spec else ():
        for path in (*Path(home).rglob(f"{kind}.py"), *Path(home).rglob(f"{kind}/*.py")):
            parts = path.relative_to(home).with_suffix("").parts
            if parts[-1] != "__init__":
                names.append(".".join((package, *parts)))
    return sorted(names)
