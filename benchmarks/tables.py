"""The multi-layer perceptron on three tables, in ten folds, against scikit-learn's and gradient boosting."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from engram.cli.bench import Contestant, Score

FOLDS = 10
WORK = (
    f"{FOLDS} folds of breast cancer (569 rows), wine (178) and diabetes (442), every model with its defaults: "
    "fits per second; accuracy, accuracy and R²"
)
UNIT = "fits/s"
ROUNDS = 3


def contestants() -> dict[str, Contestant]:
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import KFold, StratifiedKFold
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from engram import estimators

    tables = [load(return_X_y=True) for load in (load_breast_cancer, load_wine, load_diabetes)]
    splits = [StratifiedKFold(FOLDS, shuffle=True, random_state=0)] * 2 + [KFold(FOLDS, shuffle=True, random_state=0)]

    def evaluated(classifier: Callable[[], Any], regressor: Callable[[], Any]) -> Callable[[], Score]:
        def work() -> Score:
            seconds, found = 0.0, []
            for (X, y), split, build in zip(tables, splits, (classifier, classifier, regressor), strict=True):
                scores = []
                for train, test in split.split(X, y):
                    model = build()
                    began = time.perf_counter()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", ConvergenceWarning)  # its 200 passes are its default
                        model.fit(X[train], y[train])
                    seconds += time.perf_counter() - began
                    scores.append(model.score(X[test], y[test]))
                found.append(f"{np.mean(scores):.3f} ± {np.std(scores) / FOLDS**0.5:.3f}")
            return Score(len(tables) * FOLDS / seconds, ", ".join(found))

        return work

    def scaled(build: Callable[..., Any], **settings: Any) -> Callable[[], Any]:
        return lambda: make_pipeline(StandardScaler(), build(random_state=0, **settings))

    return {
        "scikit-learn MLP, standardized": lambda: evaluated(scaled(MLPClassifier), scaled(MLPRegressor)),
        "scikit-learn MLP, standardized, until it converges": lambda: evaluated(
            scaled(MLPClassifier, max_iter=5000), scaled(MLPRegressor, max_iter=5000)
        ),
        "scikit-learn HistGradientBoosting": lambda: evaluated(
            lambda: HistGradientBoostingClassifier(random_state=0),
            lambda: HistGradientBoostingRegressor(random_state=0),
        ),
        "engram MLP": lambda: evaluated(
            lambda: estimators.MLPClassifier(random_state=0), lambda: estimators.MLPRegressor(random_state=0)
        ),
    }
