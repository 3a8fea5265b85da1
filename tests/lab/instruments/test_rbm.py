"""The Boltzmann machine of the lab: rounds are the library's own, energies the formulas', and all is bounded."""

import pytest
import torch

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.layers.bernoulli import draw
from engram.training.run import Run
from tests.lab.instruments.unpacking import unpacked

RUN = "rbm"


@pytest.fixture
def machine(asked, finished):
    """Ask a tiny machine of 64 visible and 16 hidden units."""
    root = finished("rbm").parent

    def call(name, **arguments):
        return asked(name, root=root, run=RUN, **arguments)

    return call


@pytest.fixture(scope="module")
def rbm(finished):
    return Run.open(finished("rbm")).learner.model


@pytest.fixture
def digit(machine):
    return unpacked(machine("rbm.picture", item=3)[1]["picture"]).tolist()


def binary(digit, seed):
    """The zeros and ones that a dream begins with."""
    return draw(torch.tensor([digit]), generator(seed, "pixels"))


def test_it_says_what_the_machine_is_like(machine):
    _, answer = machine("rbm")
    assert answer["shape"] == [1, 8, 8]
    assert answer["hidden"] == 16
    assert answer["temperature"] == 1.0


def test_a_test_picture_is_that_of_the_data(machine, finished):
    _, answer = machine("rbm.picture", item=3)
    test = Run.open(finished("rbm")).data.test
    torch.testing.assert_close(unpacked(answer["picture"]), test["image"][3].flatten() / 255)
    assert answer["label"] == str(int(test["label"][3]))


def test_a_free_dream_is_gibbs_sampling(machine, rbm, digit):
    parts, _ = machine("rbm.dream", picture=digit, rounds=7, seed=5)
    expected = rbm.gibbs(binary(digit, 5), 7, generator(5, "dream from 0"))
    assert [part["round"] for part in parts] == list(range(1, 8))
    assert torch.equal(unpacked(parts[-1]["visible"]), expected[0])


def test_a_held_half_is_filled_as_the_library_fills(machine, rbm, digit):
    parts, _ = machine("rbm.dream", picture=digit, rounds=5, hold="upper", seed=2)
    v, known = binary(digit, 2), torch.arange(64).view(1, 64) < 32
    expected = rbm.fill(v, known, 5, generator(2, "dream from 0"))
    assert torch.equal(unpacked(parts[-1]["probability"]), expected[0])
    assert all(torch.equal(unpacked(part["visible"])[:32], v[0, :32]) for part in parts)


def test_energies_are_those_of_the_formulas(machine, rbm, digit):
    parts, _ = machine("rbm.dream", picture=digit, rounds=3)
    for part in parts:
        v, h = unpacked(part["visible"]), unpacked(part["hidden"])
        energy = -(v @ rbm.W @ h) - rbm.b @ v - rbm.c @ h
        free = -rbm.b @ v - torch.log1p(torch.exp(v @ rbm.W + rbm.c)).sum()
        assert part["energy"] == [pytest.approx(energy.item(), rel=1e-4, abs=1e-4)]
        assert part["free"] == [pytest.approx(free.item(), rel=1e-4, abs=1e-4)]


def test_a_long_dream_comes_in_few_parts_with_every_energy(machine, digit):
    parts, _ = machine("rbm.dream", picture=digit, rounds=450)
    assert len(parts) == 150
    assert sum(len(part["free"]) for part in parts) == 450


def test_the_seed_decides_and_a_dream_goes_on_from_where_it_was(machine, digit):
    first, again, other = (machine("rbm.dream", picture=digit, rounds=4, seed=seed)[0] for seed in (1, 1, 2))
    assert first == again
    assert first[-1]["visible"] != other[-1]["visible"]
    zeros_and_ones = unpacked(first[-1]["visible"]).int().tolist()
    on, _ = machine("rbm.dream", picture=zeros_and_ones, rounds=1, begun=4, hold="left")
    assert on[0]["round"] == 5
    held = torch.arange(64) % 8 < 4
    assert torch.equal(unpacked(on[0]["visible"])[held], unpacked(first[-1]["visible"])[held])


def test_heat_makes_units_undecided(machine, digit):
    def doubt(temperature):
        hidden = unpacked(machine("rbm.look", picture=digit, temperature=temperature)[1]["hidden"])
        return (hidden - 0.5).abs().mean()

    assert doubt(10.0) < doubt(1.0) < doubt(0.1)


def test_looking_leaves_the_machine_as_it_is(machine, rbm, digit):
    machine("rbm.look", picture=digit, temperature=3.0)
    assert machine("rbm")[1]["temperature"] == 1.0
    _, answer = machine("rbm.look", picture=digit)
    v = torch.tensor([digit])
    torch.testing.assert_close(unpacked(answer["hidden"]), torch.sigmoid(v @ rbm.W + rbm.c)[0])
    assert answer["free_energy"] == pytest.approx(rbm.free_energy(v).item(), rel=1e-5)
    assert answer["usual"] == sorted(answer["usual"])


def test_filters_are_columns_of_the_weights(machine, rbm):
    _, answer = machine("rbm.filters", units=[5, 0])
    torch.testing.assert_close(unpacked(answer["filters"]), rbm.W[:, [5, 0]].T)


def test_corruption_loses_a_part_or_a_half(machine, digit):
    first, again, other = (machine("rbm.corrupt", picture=digit, part=0.5, seed=seed)[1] for seed in (0, 0, 1))
    assert first == again != other
    assert machine("rbm.corrupt", picture=digit, part=0.0)[1]["picture"] != first["picture"]
    covered = unpacked(machine("rbm.corrupt", picture=[1.0] * 64, how="lower")[1]["picture"]).view(8, 8)
    assert covered.sum(1).tolist() == [8.0] * 4 + [0.0] * 4


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("rbm.dream", {"picture": [0.5] * 63}, "1 × 8 × 8 numbers, not 63"),
        ("rbm.dream", {"picture": [2.0] * 64}, "from 0 to 1"),
        ("rbm.dream", {"picture": [float("nan")] * 64}, "finite"),
        ("rbm.dream", {"picture": [0.0] * 20_000}, "12288 numbers at most"),
        ("rbm.dream", {"rounds": 10**6}, "rounds must be between"),
        ("rbm.dream", {"hold": "corner"}, "no hold «corner»"),
        ("rbm.dream", {"temperature": -1.0}, "temperature must be"),
        ("rbm.dream", {"seed": -1}, "seed must be"),
        ("rbm.picture", {"item": 10**6}, "item must be from 0"),
        ("rbm.filters", {"units": [16]}, "between 0 and 15"),
        ("rbm.filters", {"units": [0] * 65}, "64 at most"),
        ("rbm.corrupt", {"part": 2.0}, "part must be"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(machine, name, arguments, sentence):
    with pytest.raises(EngramError, match=sentence):
        machine(name, **arguments)


def test_a_run_of_something_else_is_refused(asked, finished):
    with pytest.raises(EngramError, match="a run of mlp; this instrument opens those of rbm"):
        asked("rbm", root=finished("mlp").parent, run="mlp")
