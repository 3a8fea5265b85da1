"""Sample quality against scipy, closed forms and brute force; and the classifier that extracts features."""

import numpy as np
import pytest
import safetensors.torch
import torch
from scipy import linalg
from torch import Tensor

from engram import data as datasets
from engram.core.seeding import generator
from engram.data import cache
from engram.generative import feature_extractor
from engram.generative.feature_extractor import SampleQuality
from engram.metrics.generative import frechet_distance, nearest_neighbors, novelty, precision_recall


def test_frechet_distance_is_that_of_scipys_root():
    x, y = torch.randn(300, 6, generator=generator(0)), 2 * torch.randn(200, 6, generator=generator(1)) + 0.5
    S, C = np.cov(x.numpy().T), np.cov(y.numpy().T)
    away = x.numpy().mean(0) - y.numpy().mean(0)
    expected = away @ away + np.trace(S + C - 2 * linalg.sqrtm(S @ C).real)
    assert frechet_distance(x, y) == pytest.approx(expected, rel=1e-4)
    assert frechet_distance(x, y) == pytest.approx(frechet_distance(y, x), rel=1e-6)
    assert frechet_distance(x, x) == pytest.approx(0, abs=1e-6)


def test_frechet_distance_of_gaussians_with_diagonal_spread_is_known():
    """|mu - m|^2 + sum (s - c)^2"""
    x = torch.randn(100_000, 3, generator=generator(0)) * torch.tensor([1.0, 2.0, 3.0])
    y = torch.randn(100_000, 3, generator=generator(1)) * torch.tensor([2.0, 2.0, 1.0]) + torch.tensor([0.0, 1.0, 0.0])
    assert frechet_distance(x, y) == pytest.approx(1 + 1 + 0 + 4, rel=0.03)


def test_frechet_distance_of_fewer_samples_than_features_is_finite():
    assert 0 <= frechet_distance(torch.randn(5, 20), torch.randn(6, 20)) < 1000


def brute(points: Tensor, centers: Tensor) -> float:
    inside = 0
    for p in points:
        for c in centers:
            distances = sorted((c - other).norm().item() for other in centers)
            if (p - c).norm().item() <= distances[3]:
                inside += 1
                break
    return inside / len(points)


def test_precision_and_recall_by_brute_force():
    real, made = torch.randn(40, 3, generator=generator(0)), 0.5 * torch.randn(30, 3, generator=generator(1)) + 0.5
    precision, recall = precision_recall(real.double(), made.double())
    assert precision == pytest.approx(brute(made.double(), real.double()))
    assert recall == pytest.approx(brute(real.double(), made.double()))
    assert precision > recall  # it keeps to a part of what there is


def test_far_away_has_neither_precision_nor_recall():
    assert precision_recall(torch.randn(50, 2), torch.randn(50, 2) + 100) == (0, 0)


def test_nearest_neighbor_is_found_across_parts():
    trained = torch.randn(25_000, 2, generator=generator(0))
    x = trained[[3, 12_345, 24_999]] + 1e-4
    distance, index = nearest_neighbors(x, trained)
    assert index.tolist() == [3, 12_345, 24_999]
    assert distance.max() < 1e-2


def test_copies_are_not_new():
    trained, unseen = torch.randn(500, 4, generator=generator(0)), torch.randn(300, 4, generator=generator(1))
    assert novelty(trained[:100], unseen, trained) == pytest.approx(0, abs=1e-2)
    fresh = torch.randn(300, 4, generator=generator(2))
    assert novelty(fresh, unseen, trained) == pytest.approx(1, rel=0.15)


@pytest.fixture
def digits():
    return datasets.load("digits")


def test_the_classifier_is_accurate_and_cached(digits, monkeypatch):
    extract = feature_extractor.build_feature_extractor(digits, "image")
    x = feature_extractor.take_samples(digits.test, "image", 100)
    assert extract(x).shape == (100, 128)
    monkeypatch.setattr(feature_extractor, "train_classifier", lambda *_: pytest.fail("it was trained again"))
    assert torch.equal(feature_extractor.build_feature_extractor(digits, "image")(x), extract(x))
    accuracy = (feature_extractor.load_classifier(digits)(x).argmax(1) == digits.test["label"][:100]).float().mean()
    assert accuracy > 0.9


def test_a_damaged_classifier_is_trained_again(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    trained = []

    def train_classifier(recipe, data):
        trained.append(data.info.name)
        return {name: value.contiguous() for name, value in recipe.learner(data).model.state_dict().items()}

    monkeypatch.setattr(feature_extractor, "train_classifier", train_classifier)
    feature_extractor.load_classifier(digits)
    (file,) = tmp_path.glob("feature-extractor-*.safetensors")
    file.write_bytes(file.read_bytes()[:1000])
    model = feature_extractor.load_classifier(digits)
    assert trained == ["digits", "digits"]
    assert safetensors.torch.load_file(file).keys() == model.state_dict().keys()


def test_training_the_classifier_leaves_the_random_state(digits):
    torch.manual_seed(3)
    feature_extractor.train_classifier(feature_extractor.CNNRecipe(data="digits", steps=2), digits)
    after = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(3))


def test_features_of_unlabeled_images_are_principal_components():
    x = torch.rand(100, 1, 8, 8)
    features = feature_extractor.principal_components(x)(x)
    assert features.shape == (100, 64)
    direct = torch.linalg.svd(x.flatten(1) - x.flatten(1).mean(0), full_matrices=False)
    torch.testing.assert_close(features.abs(), (direct.U * direct.S)[:, :64].abs(), rtol=1e-3, atol=1e-4)


def test_real_samples_have_good_metrics():
    data = datasets.load("points", shape="gaussians", count=4000)
    quality = SampleQuality.of(data, "test", "point", 1000)
    metrics = quality.compute(data.valid["point"][: quality.size])
    assert quality.size == len(data.test) // 2
    assert metrics["frechet_distance"] < 0.05
    assert metrics["precision"] > 0.8
    assert metrics["recall"] > 0.8
    assert metrics["novelty"] == pytest.approx(1, abs=0.2)
    copied = quality.compute(data.train["point"][: quality.size])
    assert copied["novelty"] < 0.01
