"""engram.run on data from Python, the object that comes back, and wrong arguments."""

import importlib.util
import shutil

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics as theirs

import engram
from engram.api import Figures, to_python
from engram.core.errors import EngramError
from engram.core.fit import FitMixin
from engram.core.registry import get_recipe
from engram.foundations.mlp.model import MLP
from engram.plots.figure import Figure, line, plot
from engram.transformers.gpt.model import GPT
from tests.conftest import RECIPES

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def linear():
    x = RNG.normal(size=(400, 4)) * [1, 100, 1, 0.01] + [0, 50, 0, 3]
    return x, 3 * x[:, 0] - 0.02 * x[:, 1] + 7


def test_regression_from_arrays(linear, tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    x, y = linear
    run = engram.run("mlp", data=(x, y), preset="table", out=tmp_path / "run", quiet=True)
    assert run.metrics["test_r2"] > 0.95
    assert run.report.exists()
    assert "test_r2" in repr(run)
    predicted = run.model.predict(x)
    assert theirs.r2_score(y, predicted) > 0.95
    titles = [figure.title for figure in run.figures()]
    assert {"Predicted and true", "Residuals", "Permutation importance"} <= set(titles)
    run.figures()["Residuals"].save(tmp_path / "figure.html")
    assert "plotly" in (tmp_path / "figure.html").read_text()
    assert run.figures().save(tmp_path / "all.html") == [tmp_path / "all.html"]
    assert all(title in (tmp_path / "all.html").read_text() for title in titles)
    assert run.metrics == dict(run.metrics) == pd.Series(run.metrics).to_dict()
    head, *lines = str(run.metrics).splitlines()
    assert head.split() == ["metric", "train", "valid", "test"]
    assert [line.split()[-1] for line in lines if line.startswith("r2")] == [f"{run.metrics['test_r2']:.4g}"]
    assert f"<th>rmse</th><td></td><td>{run.metrics['valid_rmse']:.4g}</td>" in run.metrics._repr_html_()
    again = engram.run(resume=tmp_path / "run", steps=310, quiet=True)
    assert again.run.step == 310
    bars = next(figure for figure in run.figures() if figure.title == "Permutation importance").plot.data[0]
    importance = dict(zip(bars.y, bars.x, strict=True))
    assert importance["0"] > importance["1"] > max(importance["2"], importance["3"])


def test_two_classes_from_a_frame(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    x = RNG.normal(size=300)
    frame = pd.DataFrame(
        {"x": x, "color": np.where(RNG.random(300) > 0.5, "red", "blue"), "buys": np.where(x > 0, "yes", "no")}
    )
    run = engram.run("mlp", data=frame, target="buys", preset="table", out=tmp_path / "run", quiet=True)
    assert run.metrics["test_accuracy"] > 0.9
    assert run.metrics["test_auc"] > 0.95
    assert {"ROC curve", "Precision–recall curve", "Calibration"} <= {figure.title for figure in run.figures()}
    model = engram.load(tmp_path / "run")
    assert set(model.predict(frame)) == {"yes", "no"}
    np.testing.assert_allclose(model.predict_proba(frame).sum(1), 1, rtol=1e-5)


def test_a_text_from_python(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    text = "To be, or not to be, that is the question. " * 100
    run = engram.run("gpt", data=text, preset="tiny", out=tmp_path / "run", quiet=True)
    assert run.model.tokenizer.vocab_size == len(set(text))


def test_early_stopping_of_a_regression_watches_its_loss(linear, tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    settings = {"preset": "table", "patience": 2, "steps": 200, "eval_every": 20, "quiet": True}
    run = engram.run("mlp", data=linear, out=tmp_path / "run", **settings).run
    losses = {row["step"]: row["valid_loss"] for row in run.folder.metrics() if "valid_loss" in row}
    assert run.best_step == min(losses, key=losses.__getitem__) > 0


def test_a_model_is_trained_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    text = "To be, or not to be, that is the question. " * 100
    model = GPT.fit(text, preset="tiny", out=tmp_path / "gpt", quiet=True)
    assert isinstance(model, GPT)
    assert not model.training
    assert len(model.generate([model.tokenizer.encode("To be")], 5)[0]) == 5
    assert (tmp_path / "gpt" / "report.html").exists()


def test_every_model_that_fits_trains_the_recipe_of_its_folder():
    fitting = {name: get_recipe(name).Model for name in RECIPES if issubclass(get_recipe(name).Model, FitMixin)}
    assert {"gpt", "rbm", "vae", "word2vec", "hopfield"} <= set(fitting)
    assert all(model.recipe_name() == name for name, model in fitting.items() if name not in ("autodiff", "backprop"))
    assert MLP.recipe_name() == "mlp"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": None}, "takes the name of a recipe"),
        ({"name": "mlp", "resume": "runs/x"}, "takes the name of a recipe"),
        ({"name": None, "resume": "runs/x", "lr": 1.0}, "cannot change"),
        ({"name": "mlp", "data": RNG.normal(size=(50, 3))}, "no column is named target"),
        ({"name": "cnn", "data": RNG.normal(size=(50, 3))}, "labeled images"),
        ({"name": "mlp", "nonsense": 1}, "nonsense"),
        ({"name": "vae", "preset": "tiny", "latent_dim": 999_999_999}, "memory.* smaller model"),
        ({"name": "mlp", "device": "tpu"}, 'There is no device "tpu"'),
        ({"name": "mlp", "device": "cuda"}, "leave out `device=`"),
        ({"name": "mlp", "hidden": 64}, r"hidden must be a list, such as \[128\], not 64"),
        ({"name": "mlp", "lr": "x" * 1000}, "lr must be a number, not 'x{,60}…x{,60}'"),
        ({"name": "mlp", "data": 3.0}, "Data of type float"),
        ({"name": "gpt", "data": "ab" * 1000}, "There is no data set"),
        ({"name": "mlp", "data": RNG.normal(size=(50, 3))}, 'in data given from Python .* give `target="COLUMN"`'),
        ({"name": "mlp", "data": (RNG.normal(size=(50, 3)), RNG.normal(size=50)), "batch": 10**6},
         "the training set of data given from Python only 40: lower `batch=` to 40"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_one_sentence(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    if arguments.get("device") == "cuda":
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(EngramError, match=sentence) as caught:
        engram.run(**arguments)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert not (tmp_path / "runs").exists()


def test_errors_speak_python(linear, tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    settings = {"preset": "table", "steps": 2, "quiet": True}
    engram.run("mlp", data=linear, out=tmp_path / "my run", **settings)
    with pytest.raises(EngramError, match=r"`engram.run\(resume=\"/.*/my run\"\)` or name another `out=`"):
        engram.run("mlp", data=linear, out=tmp_path / "my run", **settings)
    assert to_python("add --no-tied or --from, a --lr of 1.") == "add `tied=False` or `from_=`, a `lr=` of 1."
    assert to_python("see `engram data get x --file FILE`") == "see `engram data get x --file FILE`"


def test_pictures_of_figures_need_the_extra(tmp_path):
    figure = Figure("A title", "A caption.", plot(line([0, 1], [0, 1], "a")))
    found = Figures([figure, figure])
    browser = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome")))
    if importlib.util.find_spec("kaleido") is None or not browser:
        with pytest.raises(EngramError, match=r"a-1-a-title.svg needs kaleido \(pip install 'engram\[figures\]'\)"):
            found.save(tmp_path / "a.svg")
        return
    assert [path.name for path in found.save(tmp_path / "a.svg")] == ["a-1-a-title.svg", "a-2-a-title.svg"]
    assert all("<svg" in path.read_text() for path in tmp_path.glob("*.svg"))


def test_a_polars_frame(tmp_path, monkeypatch):
    polars = pytest.importorskip("polars")
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    x = RNG.normal(size=300)
    frame = polars.DataFrame({"x": x, "color": np.where(RNG.random(300) > 0.5, "red", "blue"), "y": 2 * x + 1})
    run = engram.run("mlp", data=frame, target="y", preset="table", out=tmp_path / "run", quiet=True)
    assert run.metrics["test_r2"] > 0.9
    np.testing.assert_array_equal(
        run.model.predict(frame), run.model.predict(pd.DataFrame(frame.to_dict(as_series=False)))
    )
