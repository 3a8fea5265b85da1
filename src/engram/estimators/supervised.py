"""Classifiers and a regressor: multi-layer perceptron and predictive coding."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.nn import functional as F

from engram.core.seeding import generator
from engram.data.dataset import Split
from engram.data.loaders import BatchLoader
from engram.estimators.fitting import Array, compute, draw_seed, fit_recipe, in_memory, steps_of, train
from engram.foundations.mlp.model import MLP
from engram.foundations.mlp.recipe import MLPRecipe
from engram.memory.predictive_coding.learner import InferenceConfig, PredictiveCodingLearner
from engram.memory.predictive_coding.model import PredictiveCoding
from engram.training.optimizer import OptimizerConfig


def encode_classes(estimator: Any, y: Array) -> Array:
    """Set `classes_` and return the index of each target in it."""
    check_classification_targets(y)
    estimator.classes_, label = np.unique(y, return_inverse=True)
    if len(estimator.classes_) < 2:
        name = type(estimator).__name__
        raise ValueError(f"{name} needs targets of two classes or more, and there is one class: {y[0]!r}.")
    return label


class _Perceptron(BaseEstimator):
    """Parameters and training that both perceptrons share; inputs are standardized inside of the model."""

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (100,),
        activation: str = "relu",
        dropout: float = 0.0,
        epochs: int = 40,
        batch: int = 64,
        lr: float = 5e-3,
        weight_decay: float = 1.0,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.dropout = dropout
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.weight_decay = weight_decay
        self.random_state = random_state

    def _fit(self, X: Array, column: str, target: Array, classes: tuple[str, ...] = ()) -> Self:
        settings: Any = {"hidden": tuple(self.hidden), "activation": self.activation, "dropout": self.dropout}
        recipe = MLPRecipe(
            steps=steps_of(self.epochs, len(X), self.batch),
            batch=self.batch,
            seed=draw_seed(self.random_state),
            model=MLP.Config(**settings),
            optimization=OptimizerConfig(lr=self.lr, weight_decay=self.weight_decay, warmup=0.0),
        )
        columns = {"point": torch.tensor(X), column: torch.tensor(target)}
        self.model_ = fit_recipe(recipe, in_memory(columns, classes))
        return self

    def _outputs(self, X: Any) -> Array:
        check_is_fitted(self)
        return compute(self.model_, "forward", validate_data(self, X, dtype=np.float64, reset=False))


class MLPClassifier(ClassifierMixin, _Perceptron):
    """Multi-layer perceptron, trained by the cross-entropy of its logits with AdamW and a cosine schedule.

    Parameters
    ----------
    hidden : units of each hidden layer
    activation : "relu", "tanh", "logistic", "softplus", "arctan" or "identity"
    dropout : probability that a hidden unit is dropped
    epochs : passes over the training rows
    batch : rows per training step
    lr : initial learning rate, which falls to 0
    weight_decay : decoupled weight decay of the matrices
    random_state : seed of weights and batches

    Attributes
    ----------
    model_ : the `engram.MLP`, in 64 bits; it standardizes its inputs by the training rows
    classes_ : the classes, in the order of the probabilities
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows X (N × F) and classes y (N)."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        label = encode_classes(self, y)
        return self._fit(X, "label", label, tuple(map(str, self.classes_)))

    def decision_function(self, X: Any) -> Array:
        """Logits of the classes, N × K; of two classes, the log-odds of the second, N."""
        logits_NK = self._outputs(X)
        return logits_NK[:, 1] - logits_NK[:, 0] if len(self.classes_) == 2 else logits_NK

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, N × K."""
        return torch.tensor(self._outputs(X)).softmax(1).numpy()

    def predict(self, X: Any) -> Array:
        """The most probable class of each row, N."""
        best_N = self._outputs(X).argmax(1)
        return self.classes_[best_N]


class MLPRegressor(RegressorMixin, _Perceptron):
    """Multi-layer perceptron that predicts a number: squared error, AdamW and a cosine schedule.

    Parameters and `model_` are those of `MLPClassifier`; the target is standardized inside of the model too.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows X (N × F) and numbers y (N)."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        return self._fit(X, "target", y.astype(np.float64))

    def predict(self, X: Any) -> Array:
        """The prediction for each row, N."""
        return self._outputs(X)


class PredictiveCodingClassifier(ClassifierMixin, BaseEstimator):
    """Predictive coding network: inference of the hidden layers, then local updates from errors.

    Parameters
    ----------
    hidden : units of each hidden layer, from the classes to the inputs
    activation : activation function of the hidden layers
    inference_steps : steps of inference in each training step
    bottom_variance : variance of the layer of the classes; the larger, the closer to backpropagation
    epochs, batch, lr, weight_decay, random_state : as of `MLPClassifier`

    Attributes
    ----------
    model_ : the `engram.memory.PredictiveCoding`, which takes rows that `scaler_` has standardized
    classes_ : the classes, in the order of the scores
    """

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (100,),
        activation: str = "tanh",
        inference_steps: int = 20,
        bottom_variance: float = 30.0,
        epochs: int = 60,
        batch: int = 64,
        lr: float = 3e-3,
        weight_decay: float = 0.01,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.inference_steps = inference_steps
        self.bottom_variance = bottom_variance
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.weight_decay = weight_decay
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows X (N × F) and classes y (N)."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        label = torch.tensor(encode_classes(self, y))
        self.scaler_ = StandardScaler().fit(X)
        seed, steps = draw_seed(self.random_state), steps_of(self.epochs, len(X), self.batch)
        settings: Any = {"activation": self.activation, "bottom_variance": self.bottom_variance}
        optimization = OptimizerConfig(lr=self.lr, weight_decay=self.weight_decay)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            sizes = (len(self.classes_), *self.hidden, X.shape[1])
            model = PredictiveCoding(PredictiveCoding.Config(sizes=sizes, **settings)).double()
            inference = InferenceConfig(inference_steps=self.inference_steps)
            learner = PredictiveCodingLearner(model, inference, optimization, steps)
        columns = {"top": torch.tensor(self.scaler_.transform(X)), "bottom": F.one_hot(label).double()}
        self.model_ = train(learner, BatchLoader(Split(columns), self.batch, generator(seed, "batches")), steps)
        return self

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return compute(self.model_, "forward", self.scaler_.transform(X))

    def decision_function(self, X: Any) -> Array:
        """Predicted values of the layer of the classes, N × K; of two classes, their difference, N."""
        score_NK = self._scores(X)
        return score_NK[:, 1] - score_NK[:, 0] if len(self.classes_) == 2 else score_NK

    def predict(self, X: Any) -> Array:
        """The class of the highest score, N."""
        best_N = self._scores(X).argmax(1)
        return self.classes_[best_N]
