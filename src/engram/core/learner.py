"""Interface of learners, which the training loop calls."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from torch import Tensor, nn

Batch = Mapping[str, Any]
"""named columns with the same number of rows"""
Metrics = dict[str, Tensor]
Model_co = TypeVar("Model_co", bound=nn.Module, covariant=True)
M = TypeVar("M", bound=nn.Module)
Loss = Callable[[M, Batch], tuple[Tensor, Metrics]]
"""the loss of a model on a batch, a mean over it, and what else is measured on the way"""


class Learner(Protocol[Model_co]):
    """Changes a model by batches: by gradients, by contrastive divergence, or by simulating it."""

    @property
    def model(self) -> Model_co:
        """The model that is trained."""

    def step(self, batch: Batch) -> Metrics:
        """Train on a batch; return scalar metrics."""

    def state_dict(self) -> dict[str, Any]:
        """Return what the next step depends on beside the model: tensors, numbers, strings."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
