r"""Metrics of generated samples: Fréchet distance (FID), precision and recall, novelty.

    F = ||\mu - m||^2 + \text{tr}(S + C - 2 (S C)^{1/2})       Fréchet distance of two Gaussians            (1)
    \text{precision} = 1/N \sum_i [g_i \in R]                  generated within the real distribution       (2)
    \text{recall} = 1/N \sum_i [r_i \in G]                     real within the generated distribution       (3)
    \text{novelty} = \text{median}(d(g)) / \text{median}(d(u))    distance to the training data            (4)

    Symbols:
        \mu, S      mean and covariance of the generated samples' features
        m, C        mean and covariance of the real samples' features
        r, g        features of real and of generated samples
        R, G        union of balls around them that reach to the third nearest neighbor
        d           distance to the nearest training sample
        u           real samples that were not trained on
        N, D        samples, features

(1): Heusel et al. 2017; (2) and (3): Kynkäänniemi et al. 2019. Novelty is 0 for copies of the training data and 1 for
samples as new as the test split.
"""

import torch
from torch import Tensor

NEIGHBORS = 3
CHUNK = 500
"""rows whose distances to all others are computed at a time"""
TRAIN_CHUNK = 10_000


def frechet_distance(x_ND: Tensor, y_ND: Tensor) -> float:
    """Fréchet distance of two Gaussians with the moments of two sets of features."""
    x, y = x_ND.double(), y_ND.double()
    S, C = (torch.atleast_2d(torch.cov(one.T)) for one in (x, y))
    values, vectors = torch.linalg.eigh(S)
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    between = torch.linalg.eigvalsh(root @ C @ root).clamp(min=0).sqrt().sum()  # tr (S C)^1/2, of a symmetric matrix
    return ((x.mean(0) - y.mean(0)).square().sum() + S.trace() + C.trace() - 2 * between).clamp(min=0).item()  # (1)


def precision_recall(real_ND: Tensor, fake_ND: Tensor) -> tuple[float, float]:
    """Fraction of generated samples within the real distribution, and the other way round."""

    def coverage(points_ND: Tensor, centers_ND: Tensor) -> float:
        k = min(NEIGHBORS + 1, len(centers_ND))  # each is its own nearest neighbor
        radius_N = torch.cat([torch.cdist(part, centers_ND).kthvalue(k).values for part in centers_ND.split(CHUNK)])
        inside = [(torch.cdist(part, centers_ND) <= radius_N).any(1) for part in points_ND.split(CHUNK)]
        return torch.cat(inside).float().mean().item()

    return coverage(fake_ND, real_ND), coverage(real_ND, fake_ND)  # (2), (3)


def nearest_neighbors(x: Tensor, train: Tensor) -> tuple[Tensor, Tensor]:
    """Distance from each sample to the nearest training sample, and its index."""
    found = [torch.cdist(x.flatten(1), part.flatten(1)).min(1) for part in train.split(TRAIN_CHUNK)]
    distance = torch.stack([one.values for one in found])
    index = torch.stack([one.indices + TRAIN_CHUNK * i for i, one in enumerate(found)])
    best = distance.argmin(0, keepdim=True)
    return distance.gather(0, best)[0], index.gather(0, best)[0]


def novelty(fake: Tensor, unseen: Tensor, train: Tensor) -> float:
    """Median distance of generated samples to the training data, relative to that of unseen real samples."""
    reference = nearest_neighbors(unseen, train)[0].median().clamp(min=1e-12)
    return (nearest_neighbors(fake, train)[0].median() / reference).item()  # (4)
