"""Principal components are those of scikit-learn."""

import numpy as np
import torch
from sklearn.decomposition import PCA

from engram.metrics.pca import pca


def test_components_scores_and_variance_are_those_of_scikit_learn():
    x = torch.randn(30, 6, generator=torch.Generator().manual_seed(0)).double() @ torch.randn(6, 6).double()
    ours, theirs = pca(x), PCA().fit(x.numpy())
    sign = np.sign((ours.V_KE.numpy() * theirs.components_).sum(1))
    np.testing.assert_allclose(ours.scores(3).numpy() * sign[:3], theirs.transform(x.numpy())[:, :3], atol=1e-10)
    axes = theirs.components_ * theirs.explained_variance_[:, None] ** 0.5
    np.testing.assert_allclose(ours.axes(6).numpy() * sign[:, None], axes, atol=1e-10)
    np.testing.assert_allclose(ours.explained(2), theirs.explained_variance_ratio_[:2].sum())
