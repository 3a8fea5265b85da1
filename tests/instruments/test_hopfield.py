"""The Hopfield memory of the lab: energies are the formulas', and it ends where the library's recall does."""

import numpy as np
import pytest
import torch

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.memory.hopfield.instrument import digits, gallery, state
from engram.memory.hopfield.model import Hopfield
from tests.instruments.unpacking import unpacked

STORED = ["smile", "moon", "star", "cup", "key"]


@pytest.fixture
def cue(call_endpoint):
    """What is left of the moon."""
    return call_endpoint("hopfield.corrupt", drawing=digits(gallery()["moon"]), fraction=0.25)[1]["drawing"]


def states(drawing, changes):
    """Every state on the way, from its changes."""
    found = [state(drawing)]
    for units in changes:
        found.append(found[-1].clone())
        found[-1][units] *= -1
    return torch.stack(found)


def patterns():
    return torch.stack([gallery()[name] for name in STORED])


@pytest.mark.parametrize("synchronous", [False, True])
def test_energies_and_overlaps_are_those_of_the_formulas(call_endpoint, cue, synchronous):
    _, answer = call_endpoint("hopfield", drawing=cue, stored=STORED, synchronous=synchronous)
    x, X = states(cue, answer["changes"]), patterns()
    W = X.T @ X / len(X) - torch.eye(100)
    torch.testing.assert_close(unpacked(answer["energy"]), -0.5 * ((x @ W) * x).sum(1), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(unpacked(answer["overlap"]), x @ X.T / 100)
    assert answer["kind"] == "stored"
    assert '"moon"' in answer["text"]
    assert answer["load"] == 0.05
    assert answer["stable"] == STORED


@pytest.mark.parametrize("rule", ["hebb", "pseudo-inverse", "storkey"])
def test_flip_by_flip_it_ends_where_recall_does_and_energy_falls(call_endpoint, cue, rule):
    _, answer = call_endpoint("hopfield", drawing=cue, stored=STORED, rule=rule, seed=3)
    network = Hopfield(Hopfield.Config(units=100)).store(patterns(), rule)
    found = network.recall(state(cue)[None], generator(3, "order"))
    assert torch.equal(states(cue, answer["changes"])[-1], found.x[0])
    assert max(answer["sweeps"]) == int(found.sweeps)
    assert (np.diff(unpacked(answer["energy"])) <= 0).all()
    assert all(len(units) == 1 for units in answer["changes"])


def test_the_seed_says_the_order(call_endpoint, cue):
    first, again, other = (call_endpoint("hopfield", drawing=cue, seed=seed)[1]["changes"] for seed in (1, 1, 2))
    assert first == again != other


def test_the_negative_of_a_pattern_is_a_spurious_state(call_endpoint):
    _, answer = call_endpoint("hopfield", drawing=digits(-gallery()["moon"]), stored=STORED)
    assert (answer["kind"], answer["changes"]) == ("negative", [])


def test_all_at_once_it_can_go_to_and_fro(call_endpoint):
    """Given is what has nothing in common with the one stored pattern: each unit hears only minus itself."""
    own = [digits(torch.tensor([1.0, -1.0] * 50))]
    _, answer = call_endpoint("hopfield", drawing=digits(torch.ones(100)), stored=[], drawings=own, synchronous=True)
    assert answer["kind"] == "cycle"
    assert len(answer["changes"]) < 10


def test_what_was_drawn_can_be_stored(call_endpoint):
    drawing = digits(torch.tensor([1.0] * 37 + [-1.0] * 63))
    _, answer = call_endpoint("hopfield", drawing=drawing, stored=["moon"], drawings=[drawing])
    assert answer["names"] == ["moon", "own 1"]
    assert '"own 1"' in answer["text"]


def test_modern_is_softmax_over_the_patterns(call_endpoint, cue):
    _, answer = call_endpoint("hopfield.modern", drawing=cue, stored=STORED, beta=0.02, steps=2)
    s, X = state(cue), patterns()
    for step in range(2):
        weights = torch.softmax(0.02 * X @ s, 0)
        s = weights @ X
        torch.testing.assert_close(unpacked(answer["weights"])[step], weights)
        torch.testing.assert_close(unpacked(answer["states"])[step + 1], s)
    assert unpacked(answer["energy"]).diff().le(0).all()


def test_a_large_beta_finds_the_pattern_in_one_step(call_endpoint, cue):
    _, answer = call_endpoint("hopfield.modern", drawing=cue, stored=list(gallery()), beta=1.0)
    assert '"moon" has 100.0% of the attention' in answer["text"]


def test_corruption_flips_that_part_or_covers_a_half(call_endpoint):
    drawing = digits(torch.ones(100))
    first, again, other = (
        call_endpoint("hopfield.corrupt", drawing=drawing, fraction=0.3, seed=seed)[1] for seed in (0, 0, 1)
    )
    assert first == again != other
    assert 15 <= (state(first["drawing"]) < 0).sum() <= 45
    left = state(call_endpoint("hopfield.corrupt", drawing=drawing, how="left")[1]["drawing"]).view(10, 10)
    assert (left[:, :5] == -1).all()
    assert (left[:, 5:] == 1).all()


def test_the_gallery_has_every_pattern_of_the_data(call_endpoint):
    _, answer = call_endpoint("hopfield.gallery")
    assert len(answer["patterns"]) == 36
    assert torch.equal(state(answer["patterns"]["heart"]), gallery()["heart"])
    assert answer["equations"]["modern"]["mathml"].startswith("<math")


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("hopfield", {"stored": ["sun"]}, 'no pattern "sun"'),
        ("hopfield", {"stored": []}, "Nothing is stored"),
        ("hopfield", {"stored": ["moon", "moon"]}, "twice"),
        ("hopfield", {"drawing": "f" * 26}, "drawing must be 25"),
        ("hopfield", {"drawings": [7]}, "drawings must be 25"),
        ("hopfield", {"drawings": ["0" * 25] * 21}, "20 drawings at most"),
        ("hopfield", {"rule": "rote"}, 'no rule "rote"'),
        ("hopfield", {"seed": -1}, "seed must be"),
        ("hopfield.modern", {"beta": 0.0}, "beta must be above 0"),
        ("hopfield.modern", {"steps": 1000}, "steps must be"),
        ("hopfield.corrupt", {"fraction": float("nan")}, "fraction must be"),
        ("hopfield.corrupt", {"how": "burn"}, 'no how "burn"'),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(call_endpoint, name, arguments, sentence):
    with pytest.raises(EngramError, match=sentence):
        call_endpoint(name, **arguments)
