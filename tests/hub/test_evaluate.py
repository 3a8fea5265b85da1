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


@pytest.mark.parametrize("name", ["cnn", "mlp", "gpt", "translate", "rbm", "vanishing-gradients", "regularization"])
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


@pytest.mark.parametrize("name", ["gru", "predictive-coding"])
def test_classifiers_with_metrics_of_their_own_have_an_interval_of_accuracy(name, tmp_path):
    tiny(name, tmp_path / "run", data="digits")
    one = evaluate(tmp_path / "run", "digits", 300).metrics["accuracy"]
    split = data.load("digits").test
    right = library.load(tmp_path / "run").predict(split["image"]) == split["label"].numpy().astype(str)
    found = scipy.stats.bootstrap((right,), np.mean, n_resamples=300, method="percentile", rng=0).confidence_interval
    assert one.value == pytest.approx(right.mean())
    assert (one.low, one.high) == (pytest.approx(found.low, abs=0.015), pytest.approx(found.high, abs=0.015))


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


TABLES = ["autoencoder", "dbn", "diffusion", "gan", "mlp", "predictive-coding", "rbm", "vae"]
ROWS = [(3.0 * (i % 2) + i % 5, 5.0 - i % 2 - i % 3, "ab"[i % 2]) for i in range(60)]


def write_rows(path, rows, names=("u", "v", "kind")):
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]))
    return path


def values(found):
    return {name: one.value for name, one in found.metrics.items()}


@pytest.mark.parametrize("name", TABLES)
def test_all_rows_are_encoded_as_in_training(name, tmp_path):
    table = write_rows(tmp_path / "t.csv", ROWS)
    run = tiny(name, tmp_path / "run", data=str(table), target="kind", steps=2, eval_every=2)
    found = evaluate(tmp_path / "run", table, 3)
    assert (found.size, found.unit) == (60, "rows")
    swapped = write_rows(tmp_path / "swapped.csv", [(v, u, kind) for u, v, kind in ROWS], ("v", "u", "kind"))
    assert values(evaluate(tmp_path / "run", swapped, 3)) == values(found)
    scaled = write_rows(tmp_path / "scaled.csv", [(10 * u + 100, 10 * v + 100, kind) for u, v, kind in ROWS])
    assert values(evaluate(tmp_path / "run", scaled, 3)) != values(found)
    if {"accuracy"} <= set(found.metrics):
        own = library.load(run.folder.path).predict(pd.read_csv(table))
        assert found.metrics["accuracy"].value == pytest.approx(np.mean(own == np.array([row[2] for row in ROWS])))
        unknown = write_rows(tmp_path / "unknown.csv", [*ROWS, (1, 1, "huge")])
        with pytest.raises(EngramError, match='have the class "huge"'):
            evaluate(tmp_path / "run", unknown)


def test_generated_rows_are_compared_with_four_rows_at_least(tmp_path):
    table = write_rows(tmp_path / "t.csv", ROWS)
    tiny("vae", tmp_path / "run", data=str(table), target="kind", steps=2, eval_every=2)
    with pytest.raises(EngramError, match="4 are needed"):
        evaluate(tmp_path / "run", write_rows(tmp_path / "few.csv", ROWS[:3]))


@pytest.mark.parametrize("target", ["kind", "size"])
def test_rows_without_a_target_are_left_out_and_counted(target, engram, refused, tmp_path):
    rows = [(u, v, kind if target == "kind" else 0.5 * u - v) for u, v, kind in ROWS]
    table = write_rows(tmp_path / "t.csv", rows, ("u", "v", target))
    tiny("mlp", tmp_path / "run", data=str(table), target=target)
    full = evaluate(tmp_path / "run", table, 3)
    gaps = write_rows(tmp_path / "gaps.csv", [*rows, (1, 1, ""), (2, 2, "?")], ("u", "v", target))
    found = evaluate(tmp_path / "run", gaps, 3)
    assert (values(found), found.size, found.dropped) == (values(full), 60, 2)
    answer = engram("evaluate", tmp_path / "run", "--data", gaps, "--resamples", 3)
    assert "on 60 rows" in answer.out
    assert "rows without a target are left out: 2" in answer.out
    nothing = write_rows(tmp_path / "nothing.csv", [(1, 1, "")], ("u", "v", target))
    assert f'target "{target}" has no value' in refused("evaluate", tmp_path / "run", "--data", nothing)


@pytest.mark.parametrize(("name", "table"), [("mlp", "iris"), ("mlp", "diabetes"), ("vae", "iris"), ("rbm", "iris")])
def test_table_data_sets_are_evaluated_by_name(name, table, tmp_path):
    tiny(name, tmp_path / "run", data=table, steps=2, eval_every=2)
    found = evaluate(tmp_path / "run", table, 3)
    assert found.size == len(data.load(table).test)
    for metric, one in found.metrics.items():
        assert one.value == pytest.approx(final(tmp_path / "run", metric), rel=1e-5)


def test_arrays_of_rows_are_evaluated_as_a_file_and_from_python(tmp_path):
    x, y = np.array([row[:2] for row in ROWS]), np.array([row[2] for row in ROWS])
    np.savez(tmp_path / "t.npz", x=x, y=y)
    tiny("mlp", tmp_path / "run", data=str(tmp_path / "t.npz"))
    assert values(evaluate(tmp_path / "run", tmp_path / "t.npz", 3)) == values(evaluate(tmp_path / "run", (x, y), 3))


@pytest.mark.parametrize(
    "name", ["autoencoder", "cnn", "dbn", "diffusion", "gan", "modern-hopfield", "predictive-coding", "rbm", "vae"]
)
def test_images_of_another_shape_are_refused(name, finished, refused, tmp_path):
    run = finished(name)
    if name == "modern-hopfield":
        run = tmp_path / "run"
        tiny(name, run, data="digits")
    np.savez(tmp_path / "big.npz", x=np.zeros((20, 3, 24, 24), np.uint8), y=np.arange(20) % 2)
    said = refused("evaluate", run, "--data", tmp_path / "big.npz")
    assert "images of 1×8×8" in said
    assert "have the shape 3×24×24" in said


def test_fewer_classes_are_matched_by_name(finished, engram, tmp_path):
    split = data.load("digits").test
    chosen = split["label"] > 7
    np.savez(tmp_path / "two.npz", x=split["image"][chosen].numpy()[:, 0], y=split["label"][chosen].numpy())
    found = evaluate(finished("predictive-coding"), tmp_path / "two.npz")
    own = library.load(finished("predictive-coding")).predict(split["image"][chosen])
    assert found.metrics["accuracy"].value == pytest.approx(np.mean(own == split["label"][chosen].numpy().astype(str)))


@pytest.mark.parametrize("name", ["gru", "lstm", "mingru", "rnn"])
def test_runs_on_text_are_evaluated_on_text_alone(name, finished, refused, tmp_path):
    np.savez(tmp_path / "images.npz", x=np.zeros((20, 8, 8), np.uint8), y=np.arange(20) % 2)
    assert "data of another kind" in refused("evaluate", finished(name), "--data", tmp_path / "images.npz")
    assert "data of another kind" in refused("evaluate", finished(name), "--data", "digits")


@pytest.mark.parametrize(
    ("name", "own", "other", "sentence"),
    [
        ("gru", "copy", "adding", "other inputs or targets"),
        ("gru", "adding", "copy", "other inputs or targets"),
        ("vae", "points", "iris", "is no table, and iris is one"),
        ("vae", "points", "digits", "trained on a column point, and digits has none"),
    ],
)
def test_sequences_and_points_of_another_kind_are_refused(name, own, other, sentence, refused, tmp_path):
    tiny(name, tmp_path / "run", data=own, steps=2, eval_every=2)
    assert sentence in refused("evaluate", tmp_path / "run", "--data", other)


def test_a_series_is_scaled_as_in_training(refused, tmp_path):
    t = np.arange(400)
    np.savetxt(tmp_path / "s.csv", np.sin(t / 7), delimiter=",")
    np.savetxt(tmp_path / "far.csv", 100 + 20 * np.sin(t / 7), delimiter=",")
    np.savetxt(tmp_path / "two.csv", np.stack([t, t % 9], 1), delimiter=",")
    tiny("gru", tmp_path / "run", data=str(tmp_path / "s.csv"))
    found = evaluate(tmp_path / "run", tmp_path / "s.csv")
    assert found.metrics["rmse"].value == pytest.approx(final(tmp_path / "run", "rmse"))
    assert evaluate(tmp_path / "run", tmp_path / "far.csv").metrics["loss"].value > 100
    assert "takes 1 values" in refused("evaluate", tmp_path / "run", "--data", tmp_path / "two.csv")


@pytest.mark.parametrize(
    ("name", "unit"), [("gpt", "tokens"), ("bert", "tokens"), ("word2vec", "words"), ("rnn", "tokens")]
)
def test_texts_say_how_much_they_are(name, unit, finished, engram, tmp_path):
    (tmp_path / "t.txt").write_text("to be or not to be that is the question\n" * 60)
    run = finished(name) if name != "word2vec" else tmp_path / "run"
    if name == "word2vec":
        tiny(name, run, data=str(tmp_path / "t.txt"), benchmarks=False)
    answer = engram("evaluate", run, "--data", tmp_path / "t.txt")
    assert answer.code == 0, answer.err
    assert f" {unit} of" in answer.out
    assert "on 0 " not in answer.out
    assert "low" not in answer.out.split()


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
