"""Associative memory: a Hopfield network that completes rows of +1 and -1."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from engram.core.seeding import generator
from engram.estimators.fitting import Array, draw_seed
from engram.memory.hopfield.model import Hopfield, HopfieldLearner, Rule, sign


class HopfieldMemory(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Hopfield network: `fit` stores rows, `transform` recalls the stored row that a cue leads to.

    A value of 0 or more counts as +1, a negative one as -1.

    Parameters
    ----------
    rule : "hebb", "gradient", "pseudo-inverse" or "storkey"
    synchronous : update all units at once instead of one at a time
    random_state : seed of the order in which units are updated

    Attributes
    ----------
    model_ : the `engram.Hopfield`
    """

    def __init__(self, *, rule: Rule = "hebb", synchronous: bool = False, random_state: Any = None) -> None:
        self.rule = rule
        self.synchronous = synchronous
        self.random_state = random_state

    def fit(self, X: Any, y: None = None) -> Self:
        """Store rows X, M × N, and nothing else."""
        X = validate_data(self, X, dtype=np.float32)
        self.model_ = Hopfield(Hopfield.Config(units=X.shape[1]))
        self._state: dict[str, Any] = {}
        return self._store(X)

    def partial_fit(self, X: Any, y: None = None) -> Self:
        """Store rows beside those stored before."""
        if not hasattr(self, "model_"):
            return self.fit(X)
        return self._store(validate_data(self, X, dtype=np.float32, reset=False))

    def _store(self, X: Array) -> Self:
        learner = HopfieldLearner(self.model_, self.rule)
        if self._state:
            learner.load_state_dict(self._state)
        learner.step({"pattern": sign(torch.tensor(X))})
        self._state = learner.state_dict()
        return self

    def transform(self, X: Any) -> Array:
        """Recall from cues: the states in which the network comes to rest, N × units, of +1 and -1."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        cue = sign(torch.tensor(X))
        seed = draw_seed(self.random_state)
        found = [  # each row in the same random order, whatever rows come with it
            self.model_.recall(row, generator(seed, "order"), synchronous=self.synchronous).x for row in cue.split(1)
        ]
        return torch.cat(found).numpy().astype(X.dtype)

    def energy(self, X: Any) -> Array:
        """Energy of each state, N."""
        check_is_fitted(self)
        state = sign(torch.tensor(validate_data(self, X, dtype=np.float32, reset=False)))
        return self.model_.energy(state).numpy()
