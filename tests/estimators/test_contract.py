"""scikit-learn's own suite for estimators, which nobody here wrote, and its pipelines and searches."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import SkipTestWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.neural_network import BernoulliRBM
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import engram
from engram import estimators
from engram.estimators import (
    RBM,
    VAE,
    Autoencoder,
    HopfieldMemory,
    MLPClassifier,
    MLPRegressor,
    PredictiveCodingClassifier,
    WordVectors,
)

QUICK = {
    "Autoencoder": Autoencoder(epochs=3),
    "HopfieldMemory": HopfieldMemory(),
    "MLPClassifier": MLPClassifier(),
    "MLPRegressor": MLPRegressor(),
    "PredictiveCodingClassifier": PredictiveCodingClassifier(epochs=20, inference_steps=5),
    "RBM": RBM(epochs=3),
    "VAE": VAE(epochs=3),
    "WordVectors": WordVectors(),
}


def test_every_estimator_is_here():
    assert set(QUICK) == set(estimators.__all__) - {"fitting", "memory", "supervised", "unsupervised", "words"}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_contract(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)  # texts are not tried; array API needs an opt-in
        results = check_estimator(QUICK[name], on_skip=None)
    assert {one["check_name"] for one in results if one["status"] == "skipped"} <= {"check_array_api_input"}
    assert all(one["status"] in ("passed", "skipped") for one in results)


@pytest.mark.parametrize("name", sorted(set(QUICK) - {"WordVectors"}))
def test_a_copy_by_pickle_computes_the_same(name):
    X, y = load_breast_cancer(return_X_y=True)
    fitted = clone(QUICK[name]).set_params(random_state=0).fit(X[:100], y[:100])
    again = pickle.loads(pickle.dumps(fitted))
    method = "predict" if hasattr(fitted, "predict") else "transform"
    np.testing.assert_array_equal(getattr(again, method)(X), getattr(fitted, method)(X))


def test_in_a_pipeline_and_a_grid_search():
    X, y = load_breast_cancer(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), MLPClassifier(random_state=0, epochs=10))
    search = GridSearchCV(
        pipeline, {"mlpclassifier__hidden": [(8,), (32, 16)], "mlpclassifier__lr": [1e-3, 1e-2]}, cv=3
    )
    search.fit(X, y)
    assert search.best_score_ > 0.95
    assert set(search.best_params_) == {"mlpclassifier__hidden", "mlpclassifier__lr"}


def test_a_regressor_beats_the_mean_by_far():
    X, y = load_diabetes(return_X_y=True)
    assert cross_val_score(MLPRegressor(random_state=0), X, y, cv=5).mean() > 0.4


def test_columns_of_any_scale_are_the_same_to_a_perceptron():
    X, y = load_breast_cancer(return_X_y=True)
    plain = MLPClassifier(random_state=0, epochs=5).fit(X, y)
    scaled = MLPClassifier(random_state=0, epochs=5).fit(1e6 * X - 1e9, y)
    np.testing.assert_allclose(scaled.predict_proba(1e6 * X - 1e9), plain.predict_proba(X), atol=1e-3)


def test_the_same_seed_gives_the_same_model_and_leaves_torchs_alone():
    X, y = load_diabetes(return_X_y=True)
    before = torch.random.get_rng_state()
    first, again = (MLPRegressor(random_state=3, epochs=2).fit(X, y).predict(X) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (torch.random.get_rng_state() == before).all()


def test_training_that_diverges_is_a_sentence():
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(engram.EngramError, match="Training diverged: .* try a lower lr"):
        MLPRegressor(random_state=0, lr=1e30, epochs=30).fit(X, y)


def test_features_of_an_rbm_are_as_good_as_those_of_scikit_learns():
    """Digits classified by a linear model of 150 hidden units, after as many epochs of equal batches."""
    X, y = load_digits(return_X_y=True)
    X = MinMaxScaler().fit_transform(X)
    train, test, t_train, t_test = train_test_split(X, y, random_state=0, test_size=0.3)

    def score(features):
        linear = LogisticRegression(C=100.0, max_iter=3000)
        return make_pipeline(features, linear).fit(train, t_train).score(test, t_test)

    theirs = score(BernoulliRBM(150, learning_rate=0.06, n_iter=30, batch_size=10, random_state=0))
    assert score(RBM(hidden=150, random_state=0)) >= max(0.94, theirs)


def test_an_rbm_tells_data_from_noise_of_the_same_means_and_learns_in_parts():
    X, random = MinMaxScaler().fit_transform(load_digits().data), np.random.default_rng(0)
    noise = np.column_stack([random.permutation(column) for column in X.T])

    def margin(rbm):
        return rbm.score_samples(X).mean() - rbm.score_samples(noise).mean()

    assert margin(RBM(random_state=0).fit(X)) > 5
    parts = RBM(random_state=0)
    margins = [margin(parts.partial_fit(X)) for _ in range(5)]
    assert margins == sorted(margins)
    assert margins[-1] > margins[0] + 2
    assert parts.sample(3).shape == (3, 64)


def test_latents_lead_back():
    """An autoencoder with as many latents as the data have dimensions loses next to nothing; PCA would lose nothing."""
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 2)) @ random.normal(size=(2, 8)) + 5
    found = Autoencoder(latent_dim=2, random_state=0).fit(X)
    assert np.mean((found.inverse_transform(found.transform(X)) - X) ** 2) < 0.02 * X.var()
    assert list(found.get_feature_names_out()) == ["autoencoder0", "autoencoder1"]


def test_a_vae_knows_the_density_of_a_gaussian():
    random = np.random.default_rng(0)
    X = 3 * random.normal(size=(1000, 1)) + 10
    vae = VAE(latent_dim=1, random_state=0, epochs=100).fit(X)
    exact = -0.5 * ((X[:, 0] - 10) / 3) ** 2 - np.log(3 * np.sqrt(2 * np.pi))
    assert abs(vae.score_samples(X).mean() - exact.mean()) < 0.1
    drawn = vae.sample(2000)
    assert abs(drawn.mean() - 10) < 0.5


def test_a_memory_completes_what_it_has_stored():
    X = np.sign(np.random.default_rng(0).normal(size=(5, 200)))
    cue = X.copy()
    cue[:, :40] *= -1
    memory = HopfieldMemory(random_state=0).fit(X[:3]).partial_fit(X[3:])
    np.testing.assert_array_equal(memory.transform(cue), X)
    assert (memory.energy(X) < memory.energy(cue)).all()
    one_by_one = HopfieldMemory(rule="pseudo-inverse", random_state=0)
    for row in X:
        one_by_one.partial_fit(row[None])
    at_once = HopfieldMemory(rule="pseudo-inverse", random_state=0).fit(X)
    np.testing.assert_allclose(one_by_one.model_.W, at_once.model_.W, atol=1e-6)


def test_predictive_coding_classifies():
    X, y = load_breast_cancer(return_X_y=True)
    assert cross_val_score(PredictiveCodingClassifier(random_state=0), X, y, cv=3).mean() > 0.95


def test_words_of_one_subject_come_together():
    random = np.random.default_rng(0)
    subjects = [["apple", "pear", "plum", "cherry"], ["iron", "copper", "zinc", "lead"]]
    texts = [" ".join(random.choice(subjects[i % 2], 8)) for i in range(600)]
    words = WordVectors(width=10, min_count=1, epochs=30, batch=1000, random_state=0).fit(texts)
    assert {name for name, _ in words.most_similar("apple", 3)} == {"pear", "plum", "cherry"}
    fruit, metal, unknown = words.transform(["pear plum", "zinc copper", "nothing known"])
    assert words.vectors_.similarity("pear", "plum") > words.vectors_.similarity("pear", "zinc")
    np.testing.assert_allclose(fruit, (words.vectors_["pear"] + words.vectors_["plum"]).numpy() / 2, rtol=1e-6)
    assert not unknown.any()
    assert metal.shape == (10,)
    with pytest.raises(ValueError, match="list of texts"):
        words.transform("pear plum")
