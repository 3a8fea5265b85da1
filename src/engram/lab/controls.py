"""Recipes from what a page sends, and the settings of presets for its controls."""

from typing import Any

from engram.core.config import flatten, free_fields
from engram.core.errors import EngramError
from engram.core.recipe import AnyRecipe


def recipe_from(cls: type[AnyRecipe], preset: str, changes: dict[str, Any]) -> AnyRecipe:
    """Build a recipe from the settings of a page, where lists stand for tuples."""
    default = cls.from_preset(preset)
    free = {field.name for _, _, field in free_fields(default)}
    for name in changes:
        if name not in free:
            raise EngramError(f'{cls.name} has no setting "{str(name)[:80]}".')
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}
    return cls.from_preset(preset, **values)


def preset_values(cls: type[AnyRecipe]) -> dict[str, dict[str, Any]]:
    """The free settings of every preset, by name."""
    free = {field.name for _, _, field in free_fields(cls())}
    return {
        preset: {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in flatten(cls.from_preset(preset)).items()
            if name in free
        }
        for preset in cls.all_presets()
    }
