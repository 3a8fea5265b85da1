r"""Principal component analysis (PCA) by singular value decomposition (Pearson 1901; Hotelling 1933).

X - \mu = U S V                     rows of V are the principal components      (1)
P = U S                             scores: projections on the components       (2)
A = V S / \sqrt{N - 1}              components, one standard deviation long     (3)

Symbols:
    \mu     mean of the rows
    N, E    rows, columns
    K       components, min(N, E)
"""

from typing import NamedTuple

import torch
from torch import Tensor


class PCA(NamedTuple):
    """Principal components of rows, those of the largest variance first."""

    mean_E: Tensor
    U_NK: Tensor
    S_K: Tensor
    V_KE: Tensor

    def scores(self, count: int) -> Tensor:
        """Return the projections of the rows on the first components, N × count."""
        return self.U_NK[:, :count] * self.S_K[:count]  # (2)

    def axes(self, count: int) -> Tensor:
        """Return the first components, each one standard deviation long, count × E."""
        return self.V_KE[:count] * self.S_K[:count, None] / max(1, len(self.U_NK) - 1) ** 0.5  # (3)

    def explained(self, count: int) -> float:
        """Return the share of the variance along the first components."""
        return (self.S_K[:count].square().sum() / self.S_K.square().sum().clamp(min=1e-12)).item()


def pca(x_NE: Tensor) -> PCA:
    """Return the principal components of rows."""
    mean_E = x_NE.mean(0)
    return PCA(mean_E, *torch.linalg.svd(x_NE - mean_E, full_matrices=False))  # (1)
