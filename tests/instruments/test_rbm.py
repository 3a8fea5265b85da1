"""The RBM instrument: its Gibbs steps are those of the library, its energies those of the equations."""

import pytest
import torch

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.nn.bernoulli import sample_bernoulli
from engram.training.run import Run
from tests.instruments.unpacking import unpacked

RUN = "rbm"


@pytest.fixture
def machine(call_endpoint, finished):
    """Ask a tiny machine of 64 visible and 16 hidden units."""
    root = finished("rbm").parent

    def call(name, **arguments):
        return call_endpoint(name, root=root, run=RUN, **arguments)

    return call


@pytest.fixture(scope="module")
def rbm(finished):
    return Run.open(finished("rbm")).learner.model


@pytest.fixture
def digit(machine):
    return unpacked(machine("rbm.image", item=3)[1]["image"]).tolist()


def binary(digit, seed):
    """The binarized image that a chain starts from."""
    return sample_bernoulli(torch.tensor([digit]), generator(seed, "pixels"))


def test_it_says_what_the_machine_is_like(machine):
    _, answer = machine("rbm")
    assert answer["shape"] == [1, 8, 8]
    assert answer["hidden"] == 16
    assert answer["temperature"] == 1.0


def test_a_test_image_is_that_of_the_data(machine, finished):
    _, answer = machine("rbm.image", item=3)
    test = Run.open(finished("rbm")).data.test
    torch.testing.assert_close(unpacked(answer["image"]), test["image"][3].flatten() / 255)
    assert answer["label"] == str(int(test["label"][3]))


def test_a_free_chain_is_gibbs_sampling(machine, rbm, digit):
    parts, _ = machine("rbm.gibbs", image=digit, steps=7, seed=5)
    expected = rbm.gibbs(binary(digit, 5), 7, generator(5, "dream from 0"))
    assert [part["step"] for part in parts] == list(range(1, 8))
    assert torch.equal(unpacked(parts[-1]["visible"]), expected[0])


def test_a_clamped_half_is_inpainted_as_the_library_does(machine, rbm, digit):
    parts, _ = machine("rbm.gibbs", image=digit, steps=5, clamp="upper", seed=2)
    v, known = binary(digit, 2), torch.arange(64).view(1, 64) < 32
    expected = rbm.inpaint(v, known, 5, generator(2, "dream from 0"))
    assert torch.equal(unpacked(parts[-1]["probability"]), expected[0])
    assert all(torch.equal(unpacked(part["visible"])[:32], v[0, :32]) for part in parts)


def test_energies_are_those_of_the_formulas(machine, rbm, digit):
    parts, _ = machine("rbm.gibbs", image=digit, steps=3)
    for part in parts:
        v, h = unpacked(part["visible"]), unpacked(part["hidden"])
        energy = -(v @ rbm.W @ h) - rbm.b @ v - rbm.c @ h
        free = -rbm.b @ v - torch.log1p(torch.exp(v @ rbm.W + rbm.c)).sum()
        assert part["energy"] == [pytest.approx(energy.item(), rel=1e-4, abs=1e-4)]
        assert part["free_energy"] == [pytest.approx(free.item(), rel=1e-4, abs=1e-4)]


def test_a_long_chain_comes_in_few_frames_with_every_energy(machine, digit):
    parts, _ = machine("rbm.gibbs", image=digit, steps=450)
    assert len(parts) == 150
    assert sum(len(part["free_energy"]) for part in parts) == 450


def test_the_seed_decides_and_a_chain_continues(machine, digit):
    first, again, other = (machine("rbm.gibbs", image=digit, steps=4, seed=seed)[0] for seed in (1, 1, 2))
    assert first == again
    assert first[-1]["visible"] != other[-1]["visible"]
    zeros_and_ones = unpacked(first[-1]["visible"]).int().tolist()
    on, _ = machine("rbm.gibbs", image=zeros_and_ones, steps=1, start_step=4, clamp="left")
    assert on[0]["step"] == 5
    held = torch.arange(64) % 8 < 4
    assert torch.equal(unpacked(on[0]["visible"])[held], unpacked(first[-1]["visible"])[held])


def test_heat_makes_units_undecided(machine, digit):
    def doubt(temperature):
        hidden = unpacked(machine("rbm.infer", image=digit, temperature=temperature)[1]["hidden"])
        return (hidden - 0.5).abs().mean()

    assert doubt(10.0) < doubt(1.0) < doubt(0.1)


def test_looking_leaves_the_machine_as_it_is(machine, rbm, digit):
    machine("rbm.infer", image=digit, temperature=3.0)
    assert machine("rbm")[1]["temperature"] == 1.0
    _, answer = machine("rbm.infer", image=digit)
    v = torch.tensor([digit])
    torch.testing.assert_close(unpacked(answer["hidden"]), torch.sigmoid(v @ rbm.W + rbm.c)[0])
    assert answer["free_energy"] == pytest.approx(rbm.free_energy(v).item(), rel=1e-5)
    assert answer["free_energy_quantiles"] == sorted(answer["free_energy_quantiles"])


def test_filters_are_columns_of_the_weights(machine, rbm):
    _, answer = machine("rbm.filters", units=[5, 0])
    torch.testing.assert_close(unpacked(answer["filters"]), rbm.W[:, [5, 0]].T)


def test_corruption_loses_a_part_or_a_half(machine, digit):
    first, again, other = (machine("rbm.corrupt", image=digit, fraction=0.5, seed=seed)[1] for seed in (0, 0, 1))
    assert first == again != other
    assert machine("rbm.corrupt", image=digit, fraction=0.0)[1]["image"] != first["image"]
    covered = unpacked(machine("rbm.corrupt", image=[1.0] * 64, how="lower")[1]["image"]).view(8, 8)
    assert covered.sum(1).tolist() == [8.0] * 4 + [0.0] * 4


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("rbm.gibbs", {"image": [0.5] * 63}, "1 × 8 × 8 numbers, not 63"),
        ("rbm.gibbs", {"image": [2.0] * 64}, "from 0 to 1"),
        ("rbm.gibbs", {"image": [float("nan")] * 64}, "finite"),
        ("rbm.gibbs", {"image": [0.0] * 20_000}, "12288 numbers at most"),
        ("rbm.gibbs", {"steps": 10**6}, "steps must be at least 1 and at most 2000"),
        ("rbm.gibbs", {"clamp": "corner"}, 'no clamp "corner"'),
        ("rbm.gibbs", {"temperature": -1.0}, "temperature must be"),
        ("rbm.gibbs", {"seed": -1}, "seed must be"),
        ("rbm.image", {"item": 10**6}, "item must be from 0"),
        ("rbm.filters", {"units": [16]}, "between 0 and 15"),
        ("rbm.filters", {"units": [0] * 65}, "64 at most"),
        ("rbm.corrupt", {"fraction": 2.0}, "fraction must be"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(machine, name, arguments, sentence):
    with pytest.raises(EngramError, match=sentence):
        machine(name, **arguments)


def test_a_run_of_something_else_is_refused(call_endpoint, finished):
    with pytest.raises(EngramError, match="a run of mlp; this instrument opens those of rbm"):
        call_endpoint("rbm", root=finished("mlp").parent, run="mlp")
