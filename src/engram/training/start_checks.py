"""Checks of a run before it starts: classes of the data, batch size, memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from engram.core.config import flatten
from engram.core.errors import EngramError
from engram.core.memory import check_memory
from engram.core.model_size import limit_to_memory
from engram.core.recipe import AnyRecipe
from engram.data.loaders import BatchLoader
from engram.data.progress import announce
from engram.training import distributed

COPIES = {"sgd": 2, "momentum": 3, "muon": 3}
"""weights, gradients and moments of an optimizer; the others keep two moments"""


@contextmanager
def check_start(recipe: AnyRecipe, data: Any) -> Iterator[None]:
    """Refuse data that cannot be classified, and models that do not fit into the memory.

    They are built within.
    """
    check_classes(recipe, data)
    if size := recipe.activation_bytes(data):
        check_memory(size / distributed.world_size(), "A training step", "take a smaller --batch or --context")
    with limit_to_memory(weight_copies(recipe)):
        yield


def check_classes(recipe: AnyRecipe, data: Any) -> None:
    """Refuse data of a single class for a recipe whose result is its accuracy."""
    classes: Sequence[str] = getattr(data, "classes", ())
    if len(classes) == 1 and "accuracy" in recipe.best[0]:
        raise EngramError(
            f'{recipe.data} has only one class, "{classes[0]}": {recipe.name} tells classes apart and needs two.'
        )


def weight_copies(recipe: AnyRecipe) -> int:
    """Return how many tensors of the size of the weights training keeps; frozen weights (LoRA) have one."""
    settings = flatten(recipe)
    if "optimizer" not in settings or settings.get("lora"):
        return 1
    return COPIES.get(settings["optimizer"].lower(), 4)


def check_batch(recipe: AnyRecipe, data: Any, batches: Any) -> None:
    """Refuse a batch size that the user chose and the data do not fill; say so if it is the default."""
    if not isinstance(batches, BatchLoader) or recipe_batch(recipe) <= len(batches.split):
        return
    size, found, unit = recipe_batch(recipe), len(batches.split), recipe.unit_of(data)
    if size != recipe_batch(type(recipe).from_preset(recipe.preset)):
        raise EngramError(
            f"A batch has {size:,} {unit}, and the training set of {recipe.data} only {found:,}: "
            f"lower --batch to {found} or less."
        )
    if distributed.is_main():
        announce(f"the training set has only {found:,} {unit}: each batch has all of them, not {size:,}")


def recipe_batch(recipe: AnyRecipe) -> int:
    """Return the batch size of a recipe; 0 if it has none."""
    return int(getattr(recipe, "batch", 0))
