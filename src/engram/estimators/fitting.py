"""What the estimators share: seeds, data in memory, and a training loop without a run folder."""

import math
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Learner, M
from engram.core.recipe import BatchIterator, Recipe
from engram.data.dataset import Data, Info, Split

try:
    from sklearn.utils import check_random_state
except ImportError:
    raise ImportError("engram.estimators needs scikit-learn: pip install 'engram[estimators]'") from None

Array = npt.NDArray[Any]


def draw_seed(random_state: Any) -> int:
    """Return a seed for scikit-learn's `random_state`: None, a number or a generator."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def in_memory(columns: Mapping[str, Tensor], classes: tuple[str, ...] = ()) -> Data:
    """Return a data set whose rows are all for training."""
    split = Split(columns)
    info = Info(
        name="arrays", title="arrays in memory", kind="table", license="", source="given from Python", columns={},
        sizes={"train": len(split)},
    )  # fmt: skip
    return Data(info, {"train": split}, classes)


def steps_of(epochs: int, rows: int, batch: int) -> int:
    """Return the number of training steps of so many epochs."""
    if epochs < 1 or batch < 1:
        raise EngramError(f"epochs and batch must be at least 1, not {epochs} and {batch}.")
    return epochs * math.ceil(rows / min(batch, rows))


def fit_recipe(recipe: Recipe[M, Data], data: Data) -> M:
    """Train a recipe's model on data in memory, in 64 bits, as scikit-learn computes.

    Return it in evaluation mode.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        learner = recipe.learner(data)
        learner.model.double()
        return train(learner, recipe.batches(data), recipe.steps)


def train(learner: Learner[M], batches: BatchIterator, steps: int) -> M:
    """Take training steps; return the model in evaluation mode."""
    for _ in range(steps):
        learner.step(next(batches))
    for name, weight in learner.model.named_parameters():
        if not weight.isfinite().all():
            raise EngramError(f"Training diverged: {name} is not finite; try a lower lr.")
    return learner.model.eval()


@torch.no_grad()
def compute(model: nn.Module, method: str, X: Array, rows: int = 4096) -> Array:
    """Call a method of a model on rows of numbers, some at a time; return its result as an array."""
    parts = torch.tensor(X, dtype=torch.float64).split(rows)
    return torch.cat([getattr(model, method)(part) for part in parts]).numpy()
