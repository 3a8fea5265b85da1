r"""Metrics of classifiers.

P_k = \frac{n_{kk}}{\sum_j n_{jk}},\quad R_k = \frac{n_{kk}}{\sum_j n_{kj}}     precision and recall            (1)
F_k = \frac{2 P_k R_k}{P_k + R_k}                                     F1 score of a class                       (2)
F = \frac{1}{K} \sum_k F_k                                            macro F1: all classes count the same      (3)

Symbols:
    n_{jk}     samples of class j that are predicted as class k
    K          classes that occur
"""

import torch
from torch import Tensor


def f1_by_class(predicted_N: Tensor, label_N: Tensor, count: int) -> Tensor:
    """F1 score of each of `count` classes (2); NaN of a class that is neither true nor predicted anywhere."""
    correct_K = torch.bincount(label_N[predicted_N == label_N], minlength=count).double()
    predicted_K, true_K = (torch.bincount(one, minlength=count) for one in (predicted_N, label_N))
    return 2 * correct_K / (predicted_K + true_K)  # (1), (2)


def macro_f1(predicted_N: Tensor, label_N: Tensor, count: int) -> float:
    """F1 score averaged over the classes that occur (3)."""
    return f1_by_class(predicted_N, label_N, count).nanmean().item()  # (3)
