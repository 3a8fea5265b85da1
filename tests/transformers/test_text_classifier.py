"""Text classifiers: padding never matters, fine-tuning keeps the encoder, own reviews are learned and predicted."""

import csv
import io
import json
import shutil

import numpy as np
import pytest
import torch
from sklearn import metrics as theirs

import engram as library
from engram.core.errors import EngramError
from engram.metrics.classification import f1_by_class, macro_f1
from engram.nn.lora import LoRA
from engram.training.run import Run
from engram.transformers.bert.model import BERT
from engram.transformers.text_classifier.model import TextClassifier, from_bert
from tests.transformers.test_bert import LENGTHS, VALID, near, texts

SMALL = {"vocabulary": 23, "context": 12, "width": 12, "layers": 2, "heads": 3}
TINY = ("--preset", "tiny", "--tokenizer", "words", "--vocab-size", 40, "--lr", 0.02)


def classifier(**settings):
    torch.manual_seed(0)
    model = TextClassifier(TextClassifier.Config(**SMALL, classes=3, **settings))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"pooled": True}, {"pooled": True, "pooler": "relu"}])
def test_a_padded_text_is_classified_as_if_alone(settings):
    model, x = classifier(**settings), texts()
    together = model(x, VALID)
    for row, length in enumerate(LENGTHS):
        near(together[row], model(x[row : row + 1, :length])[0])


@torch.no_grad()
def test_the_mean_is_over_the_tokens():
    model, x = classifier(), texts()[:1]
    near(model(x), model.encode(x).mean(1) @ model.head.weight.T + model.head.bias)


@torch.no_grad()
def test_the_encoder_of_a_checkpoint_is_kept():
    bert, x = BERT(BERT.Config(**SMALL, pooled=True)).eval(), texts()
    model = from_bert(bert, 4, pooled=True).eval()
    assert torch.equal(model.encode(x, VALID), bert.encode(x, VALID))
    near(model(x), bert.pooled(bert.encode(x)) @ model.head.weight.T + model.head.bias)


def test_f1_is_that_of_scikit_learn():
    random = torch.Generator().manual_seed(0)
    label, predicted = (torch.randint(4, (50,), generator=random) for _ in range(2))  # the fifth class never occurs
    expected = theirs.f1_score(label, predicted, average=None)
    np.testing.assert_allclose(f1_by_class(predicted, label, 5)[:4], expected)
    assert macro_f1(predicted, label, 5) == pytest.approx(theirs.f1_score(label, predicted, average="macro"))


# ---------------------------------------------------------------------- own reviews


def write_reviews(path):
    rows = [(f"the {what} was {how}", label) for what in ("film", "book", "music", "plot", "end", "cast", "pace", "set")
            for label, words in (("good", ("fine", "lovely", "moving")), ("bad", ("dull", "flat", "awful")))
            for how in words]  # fmt: skip
    path.write_text("\n".join(["review,opinion", *(f"{text},{label}" for text, label in rows)]))
    return path


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory):
    """A run on reviews, and their file."""
    folder = tmp_path_factory.mktemp("reviews")
    file = write_reviews(folder / "reviews.csv")
    settings = {"preset": "tiny", "tokenizer": "words", "vocab_size": 40, "steps": 120, "eval_every": 60, "lr": 0.03}
    return library.run("text-classifier", data=file, out=folder / "run", quiet=True, **settings), file


def test_reviews_are_learned(reviewed):
    run, _ = reviewed
    assert run.metrics["test_accuracy"] == run.metrics["test_macro_f1"] == 1
    assert list(run.model.predict(["the plot was dull", "the pace was lovely"])) == ["bad", "good"]
    np.testing.assert_allclose(run.model.predict_proba(["the plot was dull"]).sum(), 1, rtol=1e-6)
    titles = {figure.title for figure in run.figures()}
    assert {"Confusion matrix", "Most confident errors", "Importance of tokens"} <= titles


def test_texts_are_predicted_wherever_they_stand(reviewed, engram, tmp_path):
    run, file = reviewed
    lines = ["the film was awful", "the set was fine"]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    rows = list(csv.DictReader(io.StringIO(engram("predict", run.path, tmp_path / "a.txt").out)))
    p = run.model.predict_proba(lines)
    np.testing.assert_allclose([[float(row["p(bad)"]), float(row["p(good)"])] for row in rows], p, atol=1e-6)
    assert [row["text"] for row in rows] == lines
    assert len(engram("predict", run.path, file, "--json").out.splitlines()) == 48
    said = json.loads(engram("sample", run.path, "--text", lines[0], "--json").out)["samples"]
    assert said[0]["predicted"] == rows[0]["prediction"] == "bad"
    shown = engram("inspect", run.path, "--text", lines[1])
    assert shown.code == 0, shown.err
    assert "predicted &quot;good&quot;" in (run.path / "inspect.html").read_text()


def test_evaluation_on_other_reviews(reviewed, engram, tmp_path):
    run, file = reviewed
    answer = engram("evaluate", run.path, "--data", file, "--json")
    found = json.loads(answer.out)
    assert (found["size"], found["unit"]) == (48, "texts")
    values = {row["metric"]: row for row in found["metrics"]}
    assert values["accuracy"]["low"] <= values["accuracy"]["value"] == values["macro_f1"]["value"] == 1
    (tmp_path / "other.csv").write_text("text,label\n" + "\n".join(f"the film {i},{'gb'[i % 2]}" for i in range(20)))
    assert 'class "b"' in engram("evaluate", run.path, "--data", tmp_path / "other.csv").err


def test_bert_points_to_the_text_classifier(reviewed, refused, tmp_path):
    _, file = reviewed
    sentence = refused("run", "bert", "--preset", "tiny", "--data", file, "--from", "x", "--out", tmp_path / "run")
    assert f"engram run text-classifier --data {file}` with --from x" in sentence


# ---------------------------------------------------------------------- checkpoints


def exported_logits(folder, lines):
    """What transformers says of texts."""
    import transformers

    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        batch = tokenizer(lines, return_tensors="pt", padding=True)
        return model(**batch).logits, model.config.id2label


def test_a_bert_is_fine_tuned_and_exported_as_transformers_has_it(finished, engram, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = write_reviews(tmp_path / "reviews.csv")
    words = ("run", "text-classifier", *TINY, "--from", finished("bert"), "--data", file, "--pooling", "cls")
    answer = engram(*words, "--out", tmp_path / "run")
    assert answer.code == 0, answer.err
    answer = engram("export", tmp_path / "run", "--out", tmp_path / "hf")
    assert answer.code == 0, answer.err
    lines = ["the plot was dull", "the set was fine"]
    found, names = exported_logits(tmp_path / "hf", lines)
    assert names == {0: "bad", 1: "good"}
    for folder in (tmp_path / "run", tmp_path / "hf"):
        model = library.load(folder)
        np.testing.assert_allclose(model.predict_proba(lines), found.softmax(1), atol=1e-5)
        assert list(model.predict(lines)) == [names[k] for k in found.argmax(1).tolist()]
    said = json.loads(engram("sample", tmp_path / "hf", "--text", *lines, "--json").out)["samples"]
    assert [row["predicted"] for row in said] == [names[k] for k in found.argmax(1).tolist()]
    again = engram("run", "text-classifier", *TINY, "--from", tmp_path / "hf", "--data", file, "--steps", 2, "--lr", 0,
                   "--optimizer", "sgd", "--out", tmp_path / "again")  # fmt: skip
    assert again.code == 0, again.err
    np.testing.assert_allclose(library.load(tmp_path / "again").predict_proba(lines), found.softmax(1), atol=1e-5)


def test_lora_also_trains_what_is_new(finished, engram, tmp_path):
    file = write_reviews(tmp_path / "reviews.csv")
    shutil.copytree(finished("bert"), tmp_path / "base")
    words = ("run", "text-classifier", *TINY, "--from", tmp_path / "base", "--lora", 2, "--pooling", "cls")
    assert engram(*words, "--data", file, "--out", tmp_path / "run", "--steps", 10).code == 0
    shutil.rmtree(tmp_path / "base")
    assert engram("run", "--resume", tmp_path / "run", "--steps", 20).code == 0
    model, base = Run.open(tmp_path / "run").learner.model, library.load(finished("bert"))
    learning = {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad}
    assert learning == {"blocks", "head", "pool"}
    adapted = model.blocks[0].attention.q
    assert isinstance(adapted, LoRA)
    assert torch.equal(adapted.weight, base.blocks[0].attention.q.weight)
    assert torch.equal(model.embedding.weight, base.embedding.weight)


def test_a_mean_has_no_counterpart_in_transformers(reviewed, refused, tmp_path):
    run, _ = reviewed
    assert "no counterpart in transformers" in refused("export", run.path, "--out", tmp_path / "hf")


def test_a_checkpoint_of_another_kind_is_refused(finished, refused, tmp_path):
    words = ("--preset", "tiny", "--from", finished("gpt"), "--out", tmp_path / "run")
    assert "holds a GPT, and a BERT is needed" in refused("run", "text-classifier", *words)
    run = library.load(finished("text-classifier"))
    with pytest.raises(EngramError, match="saved without its head|no pooled"):
        run.pooled(torch.zeros(1, 2, 16))


@pytest.mark.download
@pytest.mark.slow
def test_minilm_learns_reviews_in_a_few_steps(engram, tmp_path):
    file = write_reviews(tmp_path / "reviews.csv")
    answer = engram("run", "text-classifier", "--from", "minilm", "--data", file, "--steps", 12, "--eval-every", 12,
                    "--batch", 8, "--context", 16, "--out", tmp_path / "run", "--json")  # fmt: skip
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["test_accuracy"] == 1
