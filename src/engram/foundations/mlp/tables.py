r"""Evaluation of a perceptron on tables.

Metrics of regression and of two classes, permutation importance.

\text{RMSE} = \sqrt{\frac{1}{N} \sum_n (\hat{t}_n - t_n)^2}                    root mean squared error       (1)
\text{MAE} = \frac{1}{N} \sum_n |\hat{t}_n - t_n|                              mean absolute error           (2)
R^2 = 1 - \sum_n (\hat{t}_n - t_n)^2 / \sum_n (t_n - \bar{t})^2                share of variance explained   (3)
\text{AUC} = P(p_+ > p_-) + \frac{1}{2} P(p_+ = p_-)                           area under the ROC curve      (4)

Symbols:
    t, \hat{t}     true and predicted target
    p_+, p_-       predicted probability of the positive class, for a positive and for a negative sample
    N, F, K        samples, columns of the table, classes
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engram.core.seeding import generator
from engram.data.dataset import Split
from engram.data.table import TableEncoder
from engram.hub.predict import predict_split

Array = npt.NDArray[np.float64]
REPEATS = 5
"""permutations of each column, over which its importance is averaged"""


def regression_metrics(predicted_N: Tensor, target_N: Tensor) -> dict[str, float]:
    """RMSE (1), MAE (2) and R² (3)."""
    error_N = predicted_N.double() - target_N.double()
    spread = (target_N.double() - target_N.double().mean()).square().sum().clamp(min=1e-12)
    return {
        "rmse": error_N.square().mean().sqrt().item(),  # (1)
        "mae": error_N.abs().mean().item(),  # (2)
        "r2": (1 - error_N.square().sum() / spread).item(),  # (3)
    }


def roc_curve(p_N: Tensor, positive_N: Tensor) -> tuple[Array, Array, float]:
    """False and true positive rates at every threshold, and the area under the curve (4)."""
    threshold, inverse = np.unique(-p_N.double().numpy(), return_inverse=True)
    positive = positive_N.double().numpy()
    hits = np.bincount(inverse, positive, len(threshold)).cumsum()
    alarms = np.bincount(inverse, 1 - positive, len(threshold)).cumsum()
    tpr = np.concatenate([[0.0], hits / max(hits[-1], 1)])
    fpr = np.concatenate([[0.0], alarms / max(alarms[-1], 1)])
    return fpr, tpr, float(np.trapezoid(tpr, fpr))  # (4)


def auc(logits_NK: Tensor, label_N: Tensor) -> float:
    """Area under the ROC curve of the second of two classes (4)."""
    return roc_curve(logits_NK.softmax(1)[:, 1], label_N == 1)[2]


def precision_recall_curve(p_N: Tensor, positive_N: Tensor) -> tuple[Array, Array, float]:
    """Recall and precision at every threshold, and the average precision."""
    threshold, inverse = np.unique(-p_N.double().numpy(), return_inverse=True)
    positive = positive_N.double().numpy()
    hits = np.bincount(inverse, positive, len(threshold)).cumsum()
    recall = hits / max(hits[-1], 1)
    precision = hits / np.bincount(inverse, minlength=len(threshold)).cumsum()
    return recall, precision, float((np.diff(recall, prepend=0.0) * precision).sum())


def calibration(p_N: Tensor, right_N: Tensor, bins: int = 10) -> tuple[Array, Array, Array]:
    """Mean confidence, accuracy and number of samples in bins of equal width of the confidence."""
    p, right = p_N.double().numpy(), right_N.double().numpy()
    place = np.minimum((p * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins)
    filled = count > 0
    confidence = np.bincount(place, p, bins)[filled] / count[filled]
    return confidence, np.bincount(place, right, bins)[filled] / count[filled], count[filled].astype(float)


def permutation_importance(
    model: nn.Module, split: Split, encoder: TableEncoder, score: Callable[[Tensor], float], seed: int
) -> dict[str, float]:
    """How much the score falls if a column is permuted over the samples (Breiman 2001), for every column."""
    base, random, start, found = score(predict_split(model, split)), generator(seed, "permutation"), 0, {}
    for feature in encoder.features:
        columns, falls = slice(start, start + len(feature.names)), []
        for _ in range(REPEATS):
            point_NF = split["point"].clone()
            point_NF[:, columns] = point_NF[torch.randperm(len(split), generator=random), columns]
            falls.append(base - score(predict_split(model, Split({"point": point_NF}))))
        found[feature.name] = sum(falls) / REPEATS
        start += len(feature.names)
    return found
