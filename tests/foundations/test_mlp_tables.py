"""The perceptron on tables, beside scikit-learn's metrics."""

import numpy as np
import pytest
import torch
from sklearn import metrics as theirs
from sklearn.calibration import calibration_curve

from engram.foundations.mlp import tables
from engram.foundations.mlp.model import MLP

RNG = np.random.default_rng(0)


def test_metrics_of_regression_are_those_of_scikit_learn():
    t, y = RNG.normal(size=50), RNG.normal(size=50)
    found = tables.regression_metrics(torch.from_numpy(y), torch.from_numpy(t))
    assert found["rmse"] == pytest.approx(theirs.root_mean_squared_error(t, y))
    assert found["mae"] == pytest.approx(theirs.mean_absolute_error(t, y))
    assert found["r2"] == pytest.approx(theirs.r2_score(t, y))


@pytest.mark.parametrize("ties", [False, True])
def test_curves_of_two_classes_are_those_of_scikit_learn(ties):
    positive = RNG.random(200) > 0.6
    p = RNG.random(200) * 0.5 + 0.3 * positive
    p = p.round(1) if ties else p
    score, truth = torch.from_numpy(p), torch.from_numpy(positive)
    fpr, tpr, area = tables.roc_curve(score, truth)
    assert area == pytest.approx(theirs.roc_auc_score(positive, p))
    expected = theirs.roc_curve(positive, p, drop_intermediate=False)
    np.testing.assert_allclose(fpr, expected[0])
    np.testing.assert_allclose(tpr, expected[1])
    assert tables.precision_recall_curve(score, truth)[2] == pytest.approx(theirs.average_precision_score(positive, p))


def test_calibration_is_that_of_scikit_learn():
    p = RNG.random(500)
    right = RNG.random(500) < p
    confidence, accuracy, count = tables.calibration(torch.from_numpy(p), torch.from_numpy(right))
    expected = calibration_curve(right, p, n_bins=10)
    np.testing.assert_allclose(accuracy, expected[0])
    np.testing.assert_allclose(confidence, expected[1])
    assert count.sum() == 500


def test_rows_are_standardized_feature_by_feature():
    model = MLP(MLP.Config(shape=(2,), mean=(1.0, 10.0), std=(2.0, 5.0), classes=1, output="number",
                           target_mean=100.0, target_std=10.0, hidden=()))  # fmt: skip
    weight, bias = model.layers[0].weight, model.layers[0].bias
    x = torch.tensor([[3.0, 5.0]])
    expected = 100 + 10 * (torch.tensor([1.0, -1.0]) @ weight[0] + bias[0])
    torch.testing.assert_close(model(x)[0], expected)
