"""engram evaluate: the metrics of the run on the same data, intervals beside scipy's, and wrong data refused."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch

import engram as library
from engram import data
from engram.core.errors import EngramError
from engram.hub.evaluate import evaluate, interval, resampled
from tests.conftest import tiny


def final(folder, name):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return rows[-1][f"test_{name}"]


@pytest.mark.parametrize("name", ["cnn", "mlp", "gpt", "translate", "rbm"])
def test_the_test_split_gives_the_metrics_of_the_run(name, finished):
    folder = finished(name)
    source = json.loads((folder / "recipe.json").read_text())["fields"]["data"]
    found = evaluate(folder, source, resamples=10)
    for metric, one in found.metrics.items():
        assert one.value == pytest.approx(final(folder, metric), rel=1e-6)


def test_intervals_are_those_of_scipy():
    right = np.random.default_rng(0).random(200) < 0.8
    samples = [right[index.numpy()].mean() for index in resampled(200, 2000)]
    found = interval(right.mean(), samples)
    expected = scipy.stats.bootstrap((right,), np.mean, n_resamples=2000, method="percentile", rng=0)
    assert found.low == pytest.approx(expected.confidence_interval.low, abs=0.01)
    assert found.high == pytest.approx(expected.confidence_interval.high, abs=0.01)
    assert found.low < right.mean() < found.high


def test_files_of_ones_own_are_used_whole_and_classes_are_matched_by_name(finished, engram, tmp_path):
    split = data.load("digits").test
    seven_or_three = (split["label"] == 7) | (split["label"] == 3)
    image, label = split["image"][seven_or_three], split["label"][seven_or_three]
    np.savez(tmp_path / "own.npz", x=image.numpy()[:, 0], y=label.numpy())
    answer = engram("evaluate", finished("cnn"), "--data", tmp_path / "own.npz", "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert found["size"] == len(label)
    with torch.no_grad():
        own = (library.load(finished("cnn"))(image.float() / 255).argmax(1) == label).double().mean().item()
    assert {row["metric"]: row["value"] for row in found["metrics"]}["accuracy"] == pytest.approx(own)


def test_rows_are_encoded_as_in_training(tmp_path):
    lines = [
        "size,color,kind",
        *(f"{i % 7},{'red' if i % 2 else 'blue'},{'b' if i % 7 > 3 else 's'}" for i in range(80)),
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    tiny("mlp", tmp_path / "run", data=str(tmp_path / "t.csv"), target="kind")
    (tmp_path / "one.csv").write_text("\n".join([*lines[:1], *lines[4:9]]))
    found = evaluate(tmp_path / "run", tmp_path / "one.csv")
    assert (found.size, found.unit) == (5, "rows")
    predicted = library.load(tmp_path / "run").predict(pd.read_csv(tmp_path / "one.csv"))
    truth = [line.split(",")[2] for line in lines[4:9]]
    assert found.metrics["accuracy"].value == pytest.approx(np.mean(predicted == np.array(truth)))
    (tmp_path / "other.csv").write_text("size,color,kind\n1,red,huge\n")
    with pytest.raises(EngramError, match='have the class "huge"'):
        evaluate(tmp_path / "run", tmp_path / "other.csv")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "needs data"),
        (("--data", "nothing"), "nothing"),
        (("--data", "points"), "labeled images"),
        (("--data", "digits", "--resamples", "-1"), "--resamples must be"),
    ],
)
def test_wrong_commands_are_one_sentence(words, sentence, finished, refused):
    assert sentence in refused("evaluate", finished("cnn"), *words)
