"""Pictures and words in the lab: the model's own numbers, pictures of the right size, and checkpoints."""

import base64
import math

import numpy as np
import pytest
import torch

from engram.cli.export import write_export
from engram.core.errors import EngramError
from engram.training.run import Run

TEXTS = ["a red circle", "a large blue square", "a green cross"]


@pytest.fixture
def clip(call_endpoint, finished):
    path = finished("clip")
    return lambda name, **given: call_endpoint(name, root=path.parent, **({"run": "clip"} | given))


@pytest.fixture(scope="module")
def run(finished):
    opened = Run.open(finished("clip"))
    opened.learner.model.eval()
    return opened


def logits(run, items, texts):
    with torch.no_grad():
        image = run.data.data.test["image"][torch.tensor(items)].float() / 255
        return run.learner.model(image, run.recipe.tokenize(run.data, texts))


def test_probabilities_are_the_softmax_of_the_models_logits(clip, run):
    parts, _ = clip("clip", item=2, labels=TEXTS)
    shown = next(part for part in parts if "p" in part)
    expected = logits(run, [2], TEXTS)
    assert shown["p"] == pytest.approx(expected.softmax(1)[0].tolist(), abs=1e-5)
    assert [shown["scale"] * one for one in shown["cosine"]] == pytest.approx(expected[0].tolist(), abs=1e-4)
    assert shown["caption"] == run.data.data.test["caption"][2]


def test_the_nearest_captions_are_the_best_of_all(clip, run):
    _, last = clip("clip", item=1, labels=TEXTS)
    cosine = logits(run, [1], list(run.data.captions))[0] / run.learner.model.scale.exp().item()
    best = cosine.topk(8)
    assert [one["cosine"] for one in last["captions"]] == pytest.approx(best.values.tolist(), abs=1e-4)
    assert last["captions"][0]["text"] in run.data.captions


def test_the_matrix_has_every_picture_with_every_text(clip, run):
    _, answer = clip("clip.matrix", item=3, count=4, labels=TEXTS)
    expected = logits(run, [3, 4, 5, 6], TEXTS) / run.learner.model.scale.exp().item()
    np.testing.assert_allclose(answer["cosine"], expected.numpy(), atol=1e-5)
    assert (answer["items"], answer["texts"], answer["x"]["shape"]) == ([3, 4, 5, 6], TEXTS, [4, 3, 32, 32])


def test_without_texts_a_matrix_has_the_pictures_own_captions(clip, run):
    _, answer = clip("clip.matrix", item=18, count=12)
    captions = list(run.data.data.test["caption"])[18:]
    assert answer["captions"] == captions
    assert answer["texts"] == list(dict.fromkeys(captions))


def test_a_picture_of_ones_own_is_seen_as_it_was_sent(clip, run):
    image = run.data.data.test["image"][4]
    sent = base64.b64encode(image.numpy().tobytes()).decode()
    (own, test) = (
        next(part for part in clip("clip", labels=TEXTS, **given)[0] if "p" in part)
        for given in ({"pixels": sent}, {"item": 4})
    )
    assert own["p"] == pytest.approx(test["p"], abs=1e-6)
    assert own["caption"] == ""


def test_a_checkpoint_names_pictures_that_are_brought(clip, finished, tmp_path):
    folder = write_export(str(finished("clip")), "hf", tmp_path / "hf")
    _, about = clip("clip.about", run=str(folder))
    assert (about["count"], about["captions"], about["shape"]) == (0, 0, [3, 32, 32])
    pixels = base64.b64encode(bytes(3 * 32 * 32)).decode()
    parts, last = clip("clip", run=str(folder), pixels=pixels, labels=about["labels"])
    shown = next(part for part in parts if "p" in part)
    assert math.isclose(sum(shown["p"]), 1, abs_tol=1e-5)
    assert last["captions"] == []
    with pytest.raises(EngramError, match="no test images"):
        clip("clip", run=str(folder), item=0)


def test_there_are_labels_to_begin_with(clip, run):
    _, about = clip("clip.about")
    assert about["labels"][0] == run.data.data.test["caption"][0]
    assert 2 <= len(about["labels"]) <= 8
    assert about["count"] == len(run.data.data.test)


@pytest.mark.parametrize(
    ("name", "given", "part"),
    [
        ("clip", {"labels": []}, "labels"), ("clip", {"labels": ["a"] * 25}, "24"),
        ("clip", {"labels": ["a" * 201]}, "200"),
        ("clip", {"labels": [" "]}, "labels"), ("clip", {"labels": [3]}, "labels"), ("clip", {"item": 99_999}, "item"),
        ("clip", {"pixels": "AAAA"}, "3072"), ("clip", {"pixels": "A" * 2_000_000}, "pixels"),
        ("clip.matrix", {"count": 13}, "count"), ("clip.matrix", {"count": 0}, "count"),
        ("clip.matrix", {"item": -1}, "item"),
        ("clip.matrix", {"item": 99_999}, "item"), ("clip.matrix", {"labels": ["a" * 201]}, "200"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(clip, name, given, part):
    with pytest.raises(EngramError) as refused:
        clip(name, **given)
    assert part in str(refused.value)


def test_what_knows_no_texts_is_refused(call_endpoint, finished):
    with pytest.raises(EngramError, match="choose a run of clip"):
        call_endpoint("clip", root=finished("mlp").parent, run="mlp")
