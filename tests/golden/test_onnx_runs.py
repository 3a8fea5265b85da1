"""engram export RUN --to onnx: outputs of a trained model, names of recipe and classes, and what cannot be exported."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import engram as library
from engram.cli.export import default_place
from engram.core.errors import EngramError
from engram.training.run import Run
from tests.conftest import tiny
from tests.golden.onnx_file import open_onnx

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow


def agree(ours, expected):
    torch.testing.assert_close(ours, expected.detach(), atol=1e-5, rtol=1e-5)


def test_a_classifier_names_its_recipe_and_classes(finished, engram, tmp_path):
    answer = engram("export", finished("cnn"), "--to", "onnx", "--out", tmp_path / "digits.onnx")
    assert answer.code == 0, answer.err
    run, metadata = open_onnx(answer.out.strip())
    data = Run.open(finished("cnn")).data
    image = data.test["image"][:7].float() / 255
    agree(run(image=image)["logits"], library.load(finished("cnn"))(image))
    assert metadata["engram.recipe"] == "cnn"
    assert json.loads(metadata["classes"]) == list(data.classes)


def test_a_recurrent_network_reads_images_row_by_row(engram, tmp_path):
    run = tiny("lstm", tmp_path / "run", data="digits")
    answer = engram("export", tmp_path / "run", "--to", "onnx")
    assert answer.out.strip() == str(tmp_path / "run" / "model.onnx"), answer.err
    call, metadata = open_onnx(answer.out.strip())
    x, _ = run.recipe.task.inputs_and_targets(run.data.test.select(torch.arange(5)), run.data)
    agree(call(x=x)["output"], library.load(tmp_path / "run")(x))
    assert json.loads(metadata["classes"]) == list(run.data.classes)


def test_a_vae_is_two_files(finished, engram, tmp_path):
    answer = engram("export", finished("vae"), "--to", "onnx", "--out", tmp_path / "vae.onnx")
    assert answer.out.split() == [str(tmp_path / f"vae.{part}.onnx") for part in ("encoder", "decoder")]
    assert all(open_onnx(path)[1]["engram.recipe"] == "vae" for path in answer.out.split())


def test_a_run_whose_data_are_gone_is_exported_without_class_names(finished, engram, tmp_path, monkeypatch):
    def refuse(recipe, folder):
        raise EngramError("There is no such folder.")

    path = finished("mlp")
    monkeypatch.setattr("engram.foundations.mlp.recipe.MLPRecipe.reload", refuse)
    answer = engram("export", path, "--to", "onnx", "--out", tmp_path / "model.onnx")
    assert answer.code == 0, answer.err
    assert "no names of classes or columns: There is no such folder." in answer.err
    assert "classes" not in open_onnx(answer.out.strip())[1]


def test_a_recipe_without_onnx_is_refused(finished, refused):
    sentence = refused("export", finished("rbm"), "--to", "onnx")
    assert "rbm cannot be written as ONNX; the models of autodiff, " in sentence


def test_the_file_of_a_table_says_how_its_rows_are_encoded(engram, tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{'' if i % 9 == 0 else round(a, 3)},{'red' if i % 3 else 'blue'},{2 * a}"
             for i, a in enumerate(rng.normal(size=60))]  # fmt: skip
    (tmp_path / "rows.csv").write_text("\n".join(["a,color,price", *lines]))
    call = ("--preset", "table", "--steps", 5, "--data", tmp_path / "rows.csv", "--target", "price")
    engram("run", "mlp", *call, "--out", tmp_path / "run")
    assert engram("export", tmp_path / "run", "--to", "onnx", "--out", tmp_path / "rows").code == 0
    run, metadata = open_onnx(tmp_path / "rows.onnx")
    about = json.loads(metadata["table"])
    assert about["inputs"] == ["a", "a is missing", "color=red", "color=blue"]
    assert about["target"] == "price"
    first, second = about["features"]
    assert (first["name"], first["kind"], first["indicator"]) == ("a", "number", True)
    assert abs(first["fill_value"]) < 1
    assert second["levels"] == ["red", "blue"]
    point = torch.tensor([[first["fill_value"], 1, 0, 1], [0.5, 0, 1, 0]])
    expected = library.load(tmp_path / "run").predict(pd.DataFrame({"a": [None, 0.5], "color": ["blue", "red"]}))
    np.testing.assert_allclose(run(point=point)["prediction"], expected, rtol=1e-4)


def test_no_export_takes_the_name_of_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "tiny.gguf").touch()
    assert default_place("gpt2", "hf") == Path("gpt2-hf")
    assert default_place("openai-community/gpt2", "model.onnx") == Path("gpt2-model.onnx")
    assert default_place("tiny.gguf", "hf") == Path("tiny-hf")
    assert default_place("run", "hf") == Path("run/hf")
