"""Training in one line: `RBM.fit(x)`, `VAE.fit(images)`, `GPT.fit("some text …")`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, cast

_runs: list[Callable[..., Any]] = []


def install(run: Callable[..., Any]) -> None:
    """Install the function that trains a recipe by its name, which `fit` calls: `engram.run`."""
    _runs[:] = [run]


class FitMixin:
    """Adds `fit` to a model: train the recipe in whose folder the model stands."""

    @classmethod
    def fit(cls, data: Any = None, *, out: str | Path | None = None, quiet: bool = False, **settings: Any) -> Self:
        """Train a new model on data and return it in eval mode.

        The run is kept in a folder, as by `engram.run`.

        Args:
            data: what `engram.run` takes: an array, (X, y), a data frame, texts, the name of a data set, a path
            out: run folder; by default runs/NAME-1, runs/NAME-2 …
            quiet: show no progress
            settings: settings of the recipe, as `engram run NAME --help` lists them (`steps=500`, `lr=1e-3`)
        """
        return cast(Self, _runs[0](cls.recipe_name(), data=data, out=out, quiet=quiet, **settings).model)

    @classmethod
    def recipe_name(cls) -> str:
        """Return the name of the recipe that trains this model, which is that of its folder."""
        return cls.__module__.split(".")[-2].replace("_", "-")
