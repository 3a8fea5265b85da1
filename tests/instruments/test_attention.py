"""Attention in the lab: changes do to the model what they say, and predictions are the model's own."""

import base64
import json

import numpy as np
import pytest
import torch

from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.hub import huggingface
from engram.hub.load import load
from engram.lab import inference_worker
from engram.plots.ablation import head_effects

TEXT, OTHER = "to be or not to", "to do or not we"  # as many characters, which are the tokens here


@pytest.fixture
def model(finished):
    return load(str(finished("gpt")))


@pytest.fixture
def read(call_endpoint, finished):
    def call(name="gpt", **arguments):
        path = finished(name)
        return call_endpoint("attention", root=path.parent, run=path.name, **{"text": TEXT, **arguments})[1]

    return call


def numbers(packed):
    return np.frombuffer(base64.b64decode(packed["f32"]), "<f4").reshape(packed["shape"])


def tokens(answer, which):
    return {one["token"]: one[which] for one in answer["predictions"]}


def expected(model, text, position=-1):
    """Probabilities by the model itself."""
    with torch.no_grad():
        p_V = model(torch.tensor([model.tokenizer.encode(text)]))[0, position].softmax(-1)
    return {model.tokenizer.token(i): p for i, p in enumerate(p_V.tolist())}


def agree(found, right):
    assert found
    for token, p in found.items():
        assert p == pytest.approx(right[token], rel=1e-4, abs=1e-7), token


def test_without_changes_it_predicts_what_the_model_does(read, model):
    answer = read()
    right = expected(model, TEXT)
    agree(tokens(answer, "before"), right)
    assert tokens(answer, "after") == tokens(answer, "before")
    assert max(right, key=right.get) == answer["predictions"][0]["token"]
    assert (answer["kind"], answer["tokens"], answer["changed"]) == ("gpt", list(TEXT), False)
    json.dumps(answer, allow_nan=False)


def test_after_an_earlier_token_it_predicts_what_comes_there(read, model):
    agree(tokens(read(position=4), "before"), expected(model, TEXT[:5]))


def test_a_head_that_is_off_is_one_whose_part_of_the_output_matrix_is_zero(read, model):
    answer = read(ablations=[[1, 1]])
    size = model.blocks[1].attention.head_width
    with torch.no_grad():
        model.blocks[1].attention.o.weight[:, size : 2 * size] = 0
    agree(tokens(answer, "after"), expected(model, TEXT))
    assert answer["divergence"] > 0
    assert any(one["marked"] for one in answer["predictions"])


def test_changes_leave_the_model_as_it_was(read):
    before = read()
    read(ablations=[[0, 0], [0, 1]], edits=[[1, 0, 3, 1, 0.5]])
    assert read() == before


def test_an_edited_row_sums_to_one_and_the_rest_keeps_its_proportions(read):
    answer = read(layer=0, head=1, edits=[[0, 1, 6, 2, 0.7], [0, 1, 6, 4, 0.1]])
    was, now = numbers(answer["weights_before"]), numbers(answer["weights"])
    assert now[6].sum() == pytest.approx(1, abs=1e-6)
    assert now[6, [2, 4]] == pytest.approx([0.7, 0.1])
    rest = [0, 1, 3, 5, 6]
    assert now[6, rest] / now[6, rest].sum() == pytest.approx(was[6, rest] / was[6, rest].sum(), rel=1e-5)
    assert (np.delete(now, 6, 0) == np.delete(was, 6, 0)).all()


@pytest.mark.parametrize(
    ("edits", "row"), [([[0, 0, 0, 0, 0.0]], [1.0]), ([[0, 0, 1, 0, 1.0], [0, 0, 1, 1, 0.5]], [2 / 3, 1 / 3])]
)
def test_weights_that_cannot_be_share_the_row(read, edits, row):
    now = numbers(read(layer=0, head=0, edits=edits)["weights"])
    assert now[edits[0][2], : len(row)] == pytest.approx(row)


def test_a_token_that_asks_only_one_other_hears_its_value(read, model):
    last, other = len(TEXT) - 1, 3
    answer = read(edits=[[0, 1, last, other, 1.0]])

    def only(heads_BHTD):
        heads_BHTD = heads_BHTD.clone()
        heads_BHTD[0, 1, last] = value_HTD[1, other]
        return heads_BHTD

    with torch.no_grad(), watch(model, "embedding") as seen:
        expected(model, TEXT)
        block = model.blocks[0]
        value_HTD = block.attention._split_heads(block.attention.v(block.attention_norm(seen["embedding"])))[0]
    with watch(model, replace={"blocks.0.attention.heads": only}):
        agree(tokens(answer, "after"), expected(model, TEXT))


def test_the_last_stream_of_another_text_brings_its_prediction(read, model):
    answer = read(source=OTHER, patches=[["residual", 1, 0, -1]])
    agree(tokens(answer, "after"), expected(model, OTHER))
    at_last = read(source=OTHER, patches=[["residual", 1, 0, len(TEXT) - 1]])
    assert tokens(at_last, "after") == tokens(answer, "after")
    elsewhere = read(source=OTHER, patches=[["residual", 1, 0, 2]])
    agree(tokens(elsewhere, "after"), expected(model, TEXT))


@pytest.mark.parametrize("component", ["head", "attention", "residual"])
def test_a_patch_from_the_same_text_changes_nothing_and_from_another_something(read, component):
    same = read(source=TEXT, patches=[[component, 0, 1, -1]])
    assert same["changed"]
    assert same["divergence"] < 1e-9
    assert read(source=OTHER, patches=[[component, 0, 1, -1]])["divergence"] > 1e-9


def test_all_heads_of_a_layer_patched_are_its_attention_patched(read):
    heads = read(source=OTHER, patches=[["head", 0, 0, -1], ["head", 0, 1, -1]])
    agree(tokens(heads, "after"), tokens(read(source=OTHER, patches=[["attention", 0, 0, -1]]), "after"))


@pytest.mark.parametrize(("source", "part"), [("shorter", "7 tokens"), ("", "source text"), ("ü" * 15, "ü")])
def test_a_second_text_that_does_not_fit_is_explained_and_nothing_is_patched(read, source, part):
    answer = read(source=source, patches=[["residual", 0, 0, -1]])
    assert part in answer["patch_error"]
    assert not answer["changed"]


def test_long_texts_are_cut_to_what_is_read(read):
    answer = read(text="x" * 5 + "all the world's a stage")
    assert ("".join(answer["tokens"]), answer["truncated"]) == ("he world's a stage"[-16:], 12)


def test_a_gpt_of_its_own_chooses_text_and_head(read):
    answer = read(text="")
    assert len(answer["text"]) > 5
    assert answer["layer"] in (0, 1)
    assert answer["head"] in (0, 1)
    assert answer["maps"].startswith("data:image/png")


def test_bert_predicts_what_is_masked(read, finished):
    for text in ("", "to [MASK] or not"):
        answer = read("bert", text=text)
        position, names = answer["position"], answer["tokens"]
        assert (answer["kind"], names[0], names[position], names[-1]) == ("bert", "[CLS]", "[MASK]", "[SEP]")
    agree(tokens(answer, "before"), expected(load(str(finished("bert"))), text, position))
    assert numbers(read("bert", text="", edits=[[0, 0, 1, 4, 0.5]], layer=0, head=0)["weights"])[1, 4] == 0.5


def test_effects_are_those_of_the_figure(call_endpoint, finished, model):
    path = finished("gpt")
    parts, answer = call_endpoint("attention.effects", root=path.parent, run=path.name, text=TEXT)
    x_1T = torch.tensor([model.tokenizer.encode(TEXT)])
    right = head_effects(model, lambda: model(x_1T))
    assert [(part["layer"], part["head"]) for part in parts] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [part["effect"] for part in parts] == pytest.approx(right.flatten().tolist(), abs=1e-5)
    assert answer["target"] == max(expected(model, TEXT), key=expected(model, TEXT).get)


def test_between_parts_gradients_are_not_switched_off_for_others(finished):
    path = finished("gpt")
    message = {"endpoint": "attention.effects", "params": {"run": path.name, "text": TEXT}}
    parts = inference_worker.respond(message, inference_worker.Models(path.parent))
    next(parts)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_a_checkpoint_opens_by_its_path(call_endpoint, read, finished, tmp_path, name):
    text = "the [MASK] of" if name == "bert" else TEXT
    model = load(str(finished(name)))
    folder = huggingface.save_checkpoint(model, tmp_path / "hf", model.tokenizer)
    _, answer = call_endpoint("attention", run=str(folder), text=text)
    agree(tokens(answer, "before"), expected(model, text, answer["position"]))
    _, first = call_endpoint("attention", run=str(folder))
    assert len(first["tokens"]) > 5


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ({"layer": 2, "head": 0}, "layer 2"),
        ({"position": 15}, "position"),
        ({"ablations": [[0, 5]]}, "head 5"),
        ({"ablations": [[0]]}, "ablations"),
        ({"ablations": ["x"]}, "ablations"),
        ({"ablations": [[0, 0]] * 1000}, "ablations"),
        ({"edits": [[0, 0, 2, 5, 0.5]]}, "after it"),
        ({"edits": [[0, 0, 2, 1, 1.5]]}, "edits"),
        ({"edits": [[0, 0, 2, 1, float("nan")]]}, "edits"),
        ({"edits": [[0, 0, 99, 1, 0.5]]}, "query 99"),
        ({"patches": [["norm", 0, 0, -1]]}, "norm"),
        ({"patches": [["head", 0, 0, 77]]}, "token 77"),
        ({"text": "x" * 5000}, "text"),
        ({"text": "ü"}, "ü"),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(read, wrong, part):
    with pytest.raises(EngramError) as refused:
        read(**wrong)
    assert part in str(refused.value)
    assert str(refused.value).endswith(".")


def test_other_models_are_refused(read):
    with pytest.raises(EngramError, match="Recurrent"):
        read("gru")
