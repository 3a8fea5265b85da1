"""The word map of the lab: numbers of the word vectors themselves, and unknown words that are explained."""

import base64
import math

import numpy as np
import pytest
import torch

from engram.core.errors import EngramError
from engram.data.sentences import get_words
from engram.sequences.word2vec.vectors import WordVectors
from engram.training.run import Run


@pytest.fixture
def words(call_endpoint, finished):
    """Ask of a tiny run of word vectors."""
    path = finished("word2vec")
    return lambda name, **given: call_endpoint(name, root=path.parent, run="word2vec", **given)[1]


@pytest.fixture(scope="module")
def vectors(finished):
    run = Run.open(finished("word2vec"))
    return WordVectors.from_model(run.learner.model, get_words(run.data.tokenizer))


def test_neighbors_are_those_with_the_largest_cosine(words, vectors):
    answer = words("words", word="king", count=5)
    king = vectors["king"]
    cosine = torch.nn.functional.cosine_similarity(vectors.vectors, king[None])
    cosine[vectors.index("king")] = -1
    best = cosine.topk(5)
    assert [one["word"] for one in answer["near"]] == [vectors.words[i] for i in best.indices.tolist()]
    assert [one["cosine"] for one in answer["near"]] == pytest.approx(best.values.tolist(), abs=1e-5)
    assert answer["rank"] == vectors.index("king") + 1


def test_the_map_is_the_plane_of_the_two_largest_components(words, vectors):
    answer = words("words.map")
    xy = np.frombuffer(base64.b64decode(answer["xy"]["f32"]), "<f4").reshape(answer["xy"]["shape"])
    some = torch.stack([vectors.unit_VE[vectors.index(word)] for word in answer["words"]]).double()
    _, values, axes = torch.linalg.svd(some - some.mean(0), full_matrices=False)
    expected = ((some - some.mean(0)) @ axes[:2].T).abs().numpy()
    np.testing.assert_allclose(np.abs(xy), expected, atol=1e-3)
    assert answer["share"] == pytest.approx((values[:2].square().sum() / values.square().sum()).item(), rel=1e-3)
    assert answer["all"] == len(vectors)
    one = words("words", word=answer["words"][7])
    assert one["at"] == pytest.approx(xy[7].tolist(), abs=1e-5)


def test_the_parts_of_an_analogy_add_up(words, vectors):
    answer = words("words.analogy", a="man", b="king", c="woman", count=4)
    assert [one["word"] for one in answer["answers"]] == [w for w, _ in vectors.analogy("man", "king", "woman", 4)]
    for one in answer["answers"]:
        like_a, like_b, like_c = one["parts"]
        assert one["cosine"] == pytest.approx((like_b - like_a + like_c) / answer["length"], abs=1e-5)
    assert answer["plot"]["data"]


def test_two_words_have_an_angle_and_a_rank(words, vectors):
    near = vectors.most_similar("king", 3)
    answer = words("words.similarity", a="King", b=near[2][0])
    assert (answer["a"], answer["rank"]) == ("king", 3)
    assert math.cos(math.radians(answer["degrees"])) == pytest.approx(near[2][1], abs=1e-5)
    assert words("words.similarity", a="king", b="king")["cosine"] == pytest.approx(1)


def test_beginnings_are_completed_the_most_frequent_first(words, vectors):
    answer = words("words.complete", prefix="Ki")
    assert answer["words"] == [word for word in vectors.words if word.startswith("ki")][:12]
    assert not answer["known"]
    assert words("words.complete", prefix="king")["known"]
    assert words("words.complete", prefix="")["words"] == []


def test_examples_are_known(words, vectors):
    examples = words("words.map")["examples"]
    assert all(word in vectors for word in [*examples["words"], *examples["analogy"]])


@pytest.mark.parametrize(
    ("name", "given", "part"),
    [
        ("words", {"word": "kingg"}, "king"), ("words", {"word": "a" * 61}, "60"), ("words", {"count": 51}, "count"),
        ("words.analogy", {"a": "man", "b": "kinng", "c": "woman"}, "king"),
        ("words.complete", {"prefix": "a" * 61}, "60"),
        ("words.analogy", {"a": "man", "b": "king", "c": "woman", "count": 0}, "count"),
        ("words.similarity", {"a": "king", "b": "qqqq"}, "qqqq"), ("words", {"run": "gone"}, "gone"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(call_endpoint, finished, name, given, part):
    with pytest.raises(EngramError) as refused:
        call_endpoint(name, root=finished("word2vec").parent, **({"run": "word2vec"} | given))
    assert part in str(refused.value)


def test_a_run_without_words_is_refused(call_endpoint, finished):
    with pytest.raises(EngramError, match="no word vectors"):
        call_endpoint("words", root=finished("mlp").parent, run="mlp")
