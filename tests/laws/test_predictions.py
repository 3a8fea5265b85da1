"""Every recipe that predicts: from files and from Python the same, and the same as its model's own outputs."""

import csv
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

import engram as library
from engram import data
from engram.core.errors import EngramError
from engram.core.recipe import SampleRequest
from engram.hub.classify import ImageSampleArgs
from engram.hub.huggingface import save_checkpoint
from engram.hub.predict import INPUTS
from engram.hub.predictors import ImagePredictor
from engram.training.run import Run
from engram.transformers.vit.model import ViT
from tests.conftest import RECIPES, tiny

PREDICTING = [
    "autodiff",
    "backprop",
    "bert",
    "cnn",
    "mlp",
    "predictive-coding",
    "resnet",
    "rnn-attention",
    "spiking-classifier",
    "text-classifier",
    "trades",
    "translate",
    "vit",
]
OTHERS = {"bert", "predictive-coding", "rnn-attention", "text-classifier", "translate"}
CLASSIFIERS = [name for name in PREDICTING if name not in OTHERS]


@pytest.mark.parametrize("name", RECIPES)
def test_who_predicts_says_what_it_takes(name, finished):
    assert (finished(name) / INPUTS).exists() == (name in PREDICTING)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_predictions_are_the_models_own_outputs(name, finished, engram, tmp_path):
    model, image = library.load(finished(name)), data.load("digits").test["image"][:20]
    for i, pixels in enumerate(image):
        Image.fromarray(pixels[0].numpy()).save(tmp_path / f"{i:02}.png")
    torch.manual_seed(0)
    with torch.no_grad():
        p = model(image.float() / 255).softmax(1).numpy()
    torch.manual_seed(0)
    np.testing.assert_allclose(model.predict_proba(image), p, atol=1e-6)
    answer = engram("predict", finished(name), tmp_path)
    assert answer.code == 0, answer.err
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert [row["input"] for row in rows] == [str(tmp_path / f"{i:02}.png") for i in range(20)]
    found = np.array([[float(row[f"p({k})"]) for k in range(10)] for row in rows])
    np.testing.assert_allclose(found, p, atol=1e-5)
    assert [row["prediction"] for row in rows] == [str(k) for k in found.argmax(1)]


@pytest.mark.parametrize("top", ["image", "label"])
def test_scores_of_predictive_coding_are_the_models_own(top, engram, refused, tmp_path):
    out, image = tmp_path / "run", data.load("digits").test["image"][:20]
    words = ("run", "predictive-coding", "--preset", "tiny", "--top", top, "--steps", 2, "--out", out)
    assert engram(*words, "--eval-every", 2).code == 0
    np.save(tmp_path / "images.npy", image.numpy())
    answer = engram("predict", out, tmp_path / "images.npy")
    assert answer.code == 0, answer.err
    found = [[float(row[f"score({k})"]) for k in range(10)] for row in csv.DictReader(io.StringIO(answer.out))]
    model, x = library.load(out), image.flatten(1).float() / 255
    with torch.no_grad():
        own = model(x) if top == "image" else model.infer_top(x, 100)
    np.testing.assert_allclose(found, own.numpy(), atol=1e-5)
    with pytest.raises(EngramError, match="no probabilities"):
        model.predict_proba(image)


@pytest.mark.parametrize("name", ["rnn", "mingru"])
def test_recurrent_networks_classify_images_row_by_row(name, engram, tmp_path):
    words = ("run", name, "--preset", "tiny", "--data", "digits", "--out", tmp_path / "run")
    assert engram(*words).code == 0
    image = data.load("digits").test["image"][:20]
    np.save(tmp_path / "images.npy", image.numpy())
    rows = list(csv.DictReader(io.StringIO(engram("predict", tmp_path / "run", tmp_path / "images.npy").out)))
    model = library.load(tmp_path / "run")
    with torch.no_grad():
        p = model(image[:, 0].float() / 255)[:, -1].softmax(1).numpy()
    np.testing.assert_allclose([[float(row[f"p({k})"]) for k in range(10)] for row in rows], p, atol=1e-5)
    assert list(model.predict(image)) == [row["prediction"] for row in rows] == [str(k) for k in p.argmax(1)]


def test_recurrent_networks_classify_rows_of_numbers(engram, tmp_path):
    rng = np.random.default_rng(5)
    lines = [",".join([*(f"{v:.3f}" for v in rng.normal(3 * (i % 2), 1, 12)), "ab"[i % 2]]) for i in range(80)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    words = ("run", "gru", "--preset", "tiny", "--classify", "--data", tmp_path / "t.csv", "--out", tmp_path / "run")
    answer = engram(*words)
    assert answer.code == 0, answer.err
    answer = engram("predict", tmp_path / "run", tmp_path / "t.csv", "--json")
    rows, model = [json.loads(line) for line in answer.out.splitlines()], library.load(tmp_path / "run")
    values = np.array([[float(cell) for cell in line.split(",")[:-1]] for line in lines], dtype=np.float32)
    about = json.loads((tmp_path / "run" / INPUTS).read_text())["encoder"]
    assert len(set(about["center"])) == len(set(about["scale"])) == 1  # one sequence: all steps are scaled alike
    scaled = torch.from_numpy((values - about["center"][0]) / about["scale"][0]).float()
    with torch.no_grad():
        p = model(scaled[:, :, None])[:, -1].softmax(1)
    np.testing.assert_allclose([[row["p(a)"], row["p(b)"]] for row in rows], p.numpy(), atol=1e-5)


def test_a_series_is_predicted_step_by_step_in_its_own_units(engram, refused, tmp_path):
    t = np.arange(400)
    series = np.stack([100 + 20 * np.sin(t / 7), t / 100], 1)
    np.savetxt(tmp_path / "s.csv", series, delimiter=",")
    words = ("run", "gru", "--preset", "tiny", "--data", tmp_path / "s.csv", "--out", tmp_path / "run")
    answer = engram(*words)
    assert answer.code == 0, answer.err
    answer = engram("predict", tmp_path / "run", tmp_path / "s.csv")
    rows, model = list(csv.DictReader(io.StringIO(answer.out))), library.load(tmp_path / "run")
    assert [row["input"] for row in rows[:2]] == [f"{tmp_path / 's.csv'}:{i}" for i in (1, 2)]
    mean, std = series[:320].mean(0), series[:320].std(0, ddof=1)
    with torch.no_grad():
        own = model(torch.from_numpy((series - mean) / std).float()[None])[0].double().numpy() * std + mean
    found = np.array([[float(row["prediction 0"]), float(row["prediction 1"])] for row in rows])
    np.testing.assert_allclose(found, own, rtol=1e-5)
    np.testing.assert_allclose(model.predict(series), own, rtol=1e-5)
    np.savetxt(tmp_path / "one.csv", series[:, 0])
    assert "takes 2 values at every step" in refused("predict", tmp_path / "run", tmp_path / "one.csv")


@pytest.mark.parametrize("name", ["translate", "rnn-attention"])
def test_translations_are_the_models_own(name, finished, engram, tmp_path):
    lines = ["3 march 2001", "12/05/1999"]
    (tmp_path / "dates.txt").write_text("\n".join(lines))
    answer = engram("predict", finished(name), tmp_path / "dates.txt", "--json")
    rows = [json.loads(line) for line in answer.out.splitlines()]
    model = library.load(finished(name))
    own = [model.tokenizer.decode(model.translate(torch.tensor([model.tokenizer.encode(line)]))[0]) for line in lines]
    assert [row["prediction"] for row in rows] == own == model.predict(lines)
    assert [row["input"] for row in rows] == [f"{tmp_path / 'dates.txt'}:{i}" for i in (1, 2)]


def test_masks_are_filled_with_the_most_probable_token(finished, engram, tmp_path):
    model, text = library.load(finished("bert")), "to be or [MASK] to be"
    ids = model.tokenizer.encode(text)
    with torch.no_grad():
        best = model(torch.tensor([ids]))[0, ids.index(model.tokenizer.mask_id)].argmax().item()
    (tmp_path / "a.txt").write_text(text)
    (row,) = (json.loads(line) for line in engram("predict", finished("bert"), tmp_path, "--json").out.splitlines())
    assert row["tokens"] == model.tokenizer.token(best).strip()


def test_rows_of_a_table_are_predicted_wherever_they_come_from(engram, tmp_path):
    lines = [
        "size,color,kind",
        *(f"{i % 7},{'red' if i % 2 else 'blue'},{'big' if i % 7 > 3 else 'small'}" for i in range(80)),
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    run = ("run", "mlp", "--preset", "table", "--data", tmp_path / "t.csv", "--steps", 30, "--out", tmp_path / "run")
    assert engram(*run, "--target", "kind").code == 0
    for suffix in ("csv", "jsonl", "parquet"):
        assert engram("predict", tmp_path / "run", tmp_path / "t.csv", "--out", tmp_path / f"p.{suffix}").code == 0
    import pandas as pd

    table, lines_, parquet = (
        pd.read_csv(tmp_path / "p.csv"),
        pd.read_json(tmp_path / "p.jsonl", lines=True),
        pd.read_parquet(tmp_path / "p.parquet"),
    )
    assert list(table.columns) == list(lines_.columns) == list(parquet.columns)
    assert list(table["prediction"]) == list(parquet["prediction"]) == list(lines_["prediction"])
    own = library.load(tmp_path / "run").predict(pd.read_csv(tmp_path / "t.csv").drop(columns="kind"))
    assert list(own) == list(table["prediction"])


def type_in(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_rows_of_a_table_are_read_from_standard_input(engram, refused, monkeypatch, tmp_path):
    lines = ["u,v,kind", *(f"{i % 7},{i % 5}.5,{'ab'[i % 2]}" for i in range(60))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    tiny("mlp", tmp_path / "run", data=str(tmp_path / "t.csv"), target="kind")
    from_file = engram("predict", tmp_path / "run", tmp_path / "t.csv").out
    type_in(monkeypatch, "\n".join(lines).encode())
    answer = engram("predict", tmp_path / "run", "-")
    assert answer.code == 0, answer.err
    assert answer.out == from_file.replace(str(tmp_path / "t.csv"), "-")
    for content, sentence in (
        (b"u\n1\n", "lacks the column"),
        (b"", "The standard input is empty"),
        (b"\xff\xfe\x81", "UTF-8"),
    ):
        type_in(monkeypatch, content)
        assert sentence in refused("predict", tmp_path / "run", "-")
    Image.new("L", (8, 8)).save(tmp_path / "x.png")
    assert "rows of a table" in refused("predict", tmp_path / "run", tmp_path / "x.png")


def test_images_are_not_read_from_standard_input(finished, refused, monkeypatch):
    type_in(monkeypatch, b"1,2,3")
    assert "name files or folders" in refused("predict", finished("cnn"), "-")


def test_a_series_is_read_from_standard_input(engram, monkeypatch, tmp_path):
    series = "\n".join(f"{value:.4f}" for value in np.sin(np.arange(400) / 7))
    (tmp_path / "s.csv").write_text(series)
    tiny("gru", tmp_path / "run", data=str(tmp_path / "s.csv"))
    from_file = engram("predict", tmp_path / "run", tmp_path / "s.csv").out
    type_in(monkeypatch, series.encode())
    assert engram("predict", tmp_path / "run", "-").out == from_file.replace(str(tmp_path / "s.csv"), "-")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_pixels_that_are_no_numbers_are_refused(value, finished, refused, tmp_path):
    x = np.zeros((3, 8, 8), np.float32)
    x[1, 2, 3] = value
    np.save(tmp_path / "x.npy", x)
    assert f"has {value} in row 2" in refused("predict", finished("cnn"), tmp_path / "x.npy")
    with pytest.raises(EngramError, match="in row 2"):
        library.load(finished("cnn")).predict(x)


def test_pixels_from_0_to_255_may_be_floats(finished, engram, tmp_path):
    image, found = data.load("digits").test["image"][:20].numpy(), []
    for name, x in (("integers", image), ("floats", image.astype(np.float32)), ("fractions", image / 255)):
        np.save(tmp_path / f"{name}.npy", x)
        answer = engram("predict", finished("cnn"), tmp_path / f"{name}.npy", "--json")
        found.append([json.loads(line)["probability"] for line in answer.out.splitlines()])
    np.testing.assert_allclose(found[1:], [found[0]] * 2, atol=1e-6)


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("label", [None, "first", "last"])
def test_rows_of_pixels_are_predicted(label, header, finished, engram, refused, tmp_path):
    split = data.load("digits").test
    pixels, names = split["image"][:30].flatten(1).tolist(), [f"pixel{i}" for i in range(64)]
    places = {None: slice(0, 0), "first": slice(0, 0), "last": slice(64, 64)}[label]
    rows = [names] if header else []
    rows += pixels
    if label:
        for i, row in enumerate(rows):
            row[places] = ["label"] if header and i == 0 else [int(split["label"][i - header])]
    (tmp_path / "t.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    answer = engram("predict", finished("cnn"), tmp_path / "t.csv", "--json")
    assert answer.code == 0, answer.err
    predicted = [json.loads(line)["prediction"] for line in answer.out.splitlines()]
    assert predicted == library.load(finished("cnn")).predict(split["image"][:30]).tolist()
    (tmp_path / "few.csv").write_text("1,2,3\n4,5,6\n")
    assert "images of 64 pixels" in refused("predict", finished("cnn"), tmp_path / "few.csv")


def test_lines_in_are_lines_out(finished, engram, refused, tmp_path):
    (tmp_path / "lines.txt").write_text("3 march 2001\n12/05/1999\n")
    answer = engram("predict", finished("translate"), tmp_path / "lines.txt", "--out", tmp_path / "out.txt")
    assert answer.code == 0, answer.err
    own = library.load(finished("translate")).predict(["3 march 2001", "12/05/1999"])
    assert (tmp_path / "out.txt").read_text().splitlines() == [" ".join(line.splitlines()) for line in own]
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    assert "must end in .csv" in refused("predict", finished("cnn"), tmp_path / "a.png", "--out", tmp_path / "p.txt")


def test_checkpoints_of_image_classifiers_translators_and_masked_models_predict(finished, engram, refused, tmp_path):
    config = ViT.Config(width=16, layers=1, heads=2, patch=4, shape=(3, 8, 8), classes=3)
    save_checkpoint(ViT(config), tmp_path / "vit", classes=("ant", "bee", "cat"))
    Image.new("RGB", (10, 12), (9, 99, 199)).save(tmp_path / "a.png")
    (row,) = (
        json.loads(one) for one in engram("predict", tmp_path / "vit", tmp_path / "a.png", "--json").out.splitlines()
    )
    shown = json.loads(engram("sample", tmp_path / "vit", "--image", tmp_path / "a.png", "--json").out)["samples"]
    assert (row["prediction"], row["probability"]) == (shown[0]["class"], pytest.approx(shown[0]["probability"]))

    (tmp_path / "b.txt").write_text("to be or [MASK] to be")
    (tmp_path / "t.txt").write_text("3 march 2001")
    for name, file in (("bert", "b.txt"), ("translate", "t.txt")):
        model = library.load(finished(name))
        save_checkpoint(model, tmp_path / name, model.tokenizer)
        texts = [
            engram("predict", source, tmp_path / file, "--json").out for source in (tmp_path / name, finished(name))
        ]
        mine, own = ([json.loads(line)["prediction"] for line in text.splitlines()] for text in texts)
        assert mine == own != []
    gpt = library.load(finished("gpt"))
    save_checkpoint(gpt, tmp_path / "gpt", gpt.tokenizer)
    assert "holds a GPT, which predicts nothing" in refused("predict", tmp_path / "gpt", tmp_path / "t.txt")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "needs files"),
        (("nowhere.png",), "There is no file or folder nowhere.png"),
        (("{empty}",), "holds no file that ends in"),
        (("{image}", "--out", "p.txt"), "must end in .csv"),
        (("{image}", "--out", "{image}"), "must end in .csv"),
        (("{image}", "--batch", "0"), "--batch must be at least 1"),
        (("{text}",), "cannot be read"),
    ],
)
def test_wrong_commands_are_one_sentence(words, sentence, finished, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("this is no image")
    places = {"empty": "empty", "image": "a.png", "text": "b.png"}
    assert sentence in refused("predict", finished("cnn"), *(word.format(**places) for word in words))
    assert not list(tmp_path.glob("p.*"))


def test_who_predicts_nothing_says_so(finished, refused, tmp_path):
    (tmp_path / "a.txt").write_text("a")
    assert "predicts nothing about new inputs" in refused("predict", finished("rbm"), tmp_path)


def test_predictions_are_never_overwritten(finished, refused, tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "p.csv").write_text("mine")
    assert "is there already" in refused("predict", finished("cnn"), tmp_path / "a.png", "--out", tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text() == "mine"


NO_FIELDS = {"autoencoder", "dbn", "diffusion", "gan", "rbm", "vae"}
"""recipes whose samples are images and nothing else"""


@pytest.mark.parametrize("name", RECIPES)
def test_samples_as_json_are_fields(name, finished, engram):
    """Every sample is an object of the same names, whose values need no parsing."""
    answer = engram("sample", finished(name), "--json", *(("--max-new-tokens", 5) if name == "gpt" else ()))
    found = json.loads(answer.out)
    assert set(found) == {"samples", "files"}
    assert bool(found["samples"]) == (name not in NO_FIELDS)
    assert all(row.keys() == found["samples"][0].keys() for row in found["samples"])
    assert found["files"]


@pytest.mark.parametrize("name", [*CLASSIFIERS, "predictive-coding", "vanishing-gradients", "regularization"])
def test_every_classifier_of_images_takes_an_image_file(name, finished, engram, refused, tmp_path):
    pixels = data.load("digits").test["image"][0, 0]
    Image.fromarray(pixels.numpy()).save(tmp_path / "digit.png")
    answer = engram("sample", finished(name), "--image", tmp_path / "digit.png", "--json")
    assert answer.code == 0, answer.err
    rows = json.loads(answer.out)["samples"]
    value = "score" if name == "predictive-coding" else "probability"
    assert [row[value] for row in rows] == sorted((row[value] for row in rows), reverse=True)
    if name in PREDICTING:
        assert rows[0]["class"] == library.load(finished(name)).predict(pixels[None, None])[0]
    assert "There is no image" in refused("sample", finished(name), "--image", "nowhere.png")


@pytest.mark.parametrize("name", ["cnn", "vit", "spiking-classifier", "vanishing-gradients"])
def test_an_image_file_is_inspected(name, finished, engram, tmp_path):
    Image.fromarray(data.load("digits").test["image"][0, 0].numpy()).save(tmp_path / "digit.png")
    answer = engram("inspect", finished(name), "--image", tmp_path / "digit.png")
    assert answer.code == 0, answer.err
    assert "digit.png, predicted" in (finished(name) / "inspect.html").read_text()


def test_a_recurrent_network_of_images_takes_an_image_file(engram, refused, tmp_path):
    words = ("--preset", "tiny", "--steps", 2, "--eval-every", 2)
    assert engram("run", "gru", *words, "--data", "digits", "--out", tmp_path / "run").code == 0
    Image.fromarray(data.load("digits").test["image"][0, 0].numpy()).save(tmp_path / "digit.png")
    answer = engram("sample", tmp_path / "run", "--image", tmp_path / "digit.png", "--json")
    best = json.loads(answer.out)["samples"][0]["class"]
    assert best == library.load(tmp_path / "run").predict([tmp_path / "digit.png"])[0]
    assert engram("run", "gru", *words, "--out", tmp_path / "text").code == 0
    assert "holds no images" in refused("sample", tmp_path / "text", "--image", tmp_path / "digit.png")


def test_models_of_rows_take_no_image_file(engram, refused, tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "one.png")
    for name in ("mlp", "predictive-coding"):
        words = ("--preset", "tiny", "--data", "iris", "--steps", 2, "--eval-every", 2)
        assert engram("run", name, *words, "--out", tmp_path / name).code == 0
        for verb in ("sample", "inspect") if name == "mlp" else ("sample",):
            assert "rows of a table, not images" in refused(verb, tmp_path / name, "--image", tmp_path / "one.png")


def test_generated_rows_of_a_table_are_fields(engram, tmp_path):
    words = ("--preset", "tiny", "--data", "iris", "--steps", 2, "--eval-every", 2)
    for name in ("vae", "rbm"):
        assert engram("run", name, *words, "--out", tmp_path / name).code == 0
        rows = json.loads(engram("sample", tmp_path / name, "--count", 3, "--json").out)["samples"]
        assert len(rows) == 3
        assert all(isinstance(value, (int, float, str)) for row in rows for value in row.values())
        assert "petal_width" in " ".join(rows[0]).replace(" ", "_")


def test_one_output_tells_two_classes_apart(engram, tmp_path):
    """TRADES with a single output: sample, trace and predict agree with its sign."""
    digits = data.load("digits").train
    two = digits["label"] < 2
    np.savez(tmp_path / "two.npz", x=digits["image"][two][:, 0].numpy(), y=digits["label"][two].numpy())
    words = ("--preset", "tiny", "--outputs", 1, "--data", tmp_path / "two.npz", "--out", tmp_path / "run")
    assert engram("run", "trades", *words).code == 0
    run = Run.open(tmp_path / "run")
    model = run.learner.model
    with torch.no_grad():
        model.head.bias.copy_(-model(run.data.test["image"].float() / 255).median())
        sign = (model(run.data.test["image"].float() / 255)[:, 0] > 0).long().tolist()
    assert 0 < sum(sign) < len(sign)
    rows = run.recipe.sample(run.learner, run.data, SampleRequest(20, torch.Generator(), ImageSampleArgs())).rows
    assert [row["predicted"] for row in rows] == [str(sign[row["item"]]) for row in rows]
    predictor = ImagePredictor(model, json.loads((tmp_path / "run" / INPUTS).read_text()))
    assert predictor.predict(run.data.test["image"]).tolist() == list(map(str, sign))
