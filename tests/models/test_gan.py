"""The two players: their losses against torch's, who learns when, and what is kept."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.models.gan import GAN, Adversarial, Contest, penalty


def players(rules="notes", **changes):
    torch.manual_seed(0)
    model = GAN(GAN.Config(shape=(2,), centre=0.0, scale=1.0, code=3, hidden=(8,)))
    return Adversarial(model, Contest(**{"rules": rules, "decay": False, "memory": 0.9, **changes}), 100)


def batch(size=16, turns=2):
    return {"x": torch.randn(size, 2), "codes": torch.randn(size, turns, 3)}


def test_losses_of_the_notes_are_cross_entropies():
    learner, given = players(), batch()
    D, G = learner.model.discriminator, learner.player
    real, made = D(given["x"])[:, 0], D(G(given["codes"][:, 0]))[:, 0]
    expected = F.binary_cross_entropy_with_logits(real, torch.ones(16)) + F.binary_cross_entropy_with_logits(
        made, torch.zeros(16)
    )
    metrics = learner.step(given)
    torch.testing.assert_close(metrics["judge_loss"], expected.detach())
    assert metrics["real_score"] == pytest.approx(real.mean().item(), abs=1e-6)
    assert metrics["made_score"] == pytest.approx(made.mean().item(), abs=1e-6)
    right = ((real > 0).float().mean() + (made <= 0).float().mean()) / 2
    assert metrics["judge_accuracy"] == pytest.approx(right.item())


def test_generator_learns_towards_what_looks_real():
    learner, given = players(judge_lr=0.0), batch()
    made = learner.model.discriminator(learner.player(given["codes"][:, 1]))[:, 0]
    expected = F.binary_cross_entropy_with_logits(made, torch.ones(16))
    assert learner.step(given)["generator_loss"] == pytest.approx(expected.item(), rel=1e-5)
    for _ in range(30):
        last = learner.step(given)
    assert last["generator_loss"] < expected


def test_hinge_is_that_of_its_definition():
    learner, given = players("hinge", judge_lr=0.0), batch()
    D, G = learner.model.discriminator, learner.player
    real, made = D(given["x"])[:, 0], D(G(given["codes"][:, 0]))[:, 0]
    other = D(G(given["codes"][:, 1]))[:, 0]
    metrics = learner.step(given)
    assert metrics["judge_loss"] == pytest.approx((F.relu(1 - real).mean() + F.relu(1 + made).mean()).item(), rel=1e-5)
    assert metrics["generator_loss"] == pytest.approx(-other.mean().item(), rel=1e-4, abs=1e-6)


def test_penalty_of_a_linear_judge_is_known():
    """Its slope is the same everywhere."""
    D = nn.Linear(2, 1)
    real, made = torch.randn(7, 2), torch.randn(7, 2)
    assert penalty(D, real, made).item() == pytest.approx((D.weight.norm().item() - 1) ** 2, rel=1e-5)


def test_penalty_keeps_the_slope_near_one():
    learner = players("penalty", judge_lr=5e-3)
    for _ in range(200):
        learner.step(batch(64))
    given = batch(256)
    with torch.no_grad():
        made = learner.player(given["codes"][:, 0])
    assert penalty(learner.model.discriminator, given["x"], made).item() < 0.1


def test_generators_turn_leaves_the_judge_as_it_is():
    learner = players(judge_lr=0.0)
    before = [weight.clone() for weight in learner.model.discriminator.parameters()]
    learner.step(batch())
    assert all(torch.equal(a, b) for a, b in zip(before, learner.model.discriminator.parameters(), strict=True))
    assert all(weight.requires_grad for weight in learner.model.discriminator.parameters())


def test_judges_turns_use_parts_of_the_batch():
    learner = players(rounds=3)
    learner.step(batch(18, turns=4))
    assert learner.done == 1
    steps = learner.optimizers["discriminator"].state_dict()["state"][0]["step"]
    assert steps == 3


def test_kept_generator_is_the_average_of_the_one_that_plays():
    learner = players()
    kept = [weight.clone() for weight in learner.model.generator.parameters()]
    for i in range(1, 4):
        learner.step(batch())
        m = min(0.9, (1 + i) / (10 + i))
        kept = [m * a + (1 - m) * b for a, b in zip(kept, learner.player.parameters(), strict=True)]
    for expected, found in zip(kept, learner.model.generator.parameters(), strict=True):
        torch.testing.assert_close(found, expected.detach())


def test_goes_on_exactly_where_it_stopped():
    torch.manual_seed(5)
    batches = [batch() for _ in range(6)]
    straight = players()
    for one in batches:
        straight.step(one)
    first = players()
    for one in batches[:3]:
        first.step(one)
    second = players()
    second.model.load_state_dict(first.model.state_dict())
    second.load_state_dict(first.state_dict())
    for one in batches[3:]:
        second.step(one)
    for a, b in zip(straight.model.state_dict().values(), second.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_convolutional_players_go_on_exactly_too():
    """A saved moment comes back as rows, and the weight that it belongs to lies in memory otherwise."""

    def learner():
        torch.manual_seed(0)
        return Adversarial(GAN(GAN.Config(shape=(1, 8, 8), code=3, channels=(4, 8), hidden=())), Contest(), 100)

    torch.manual_seed(5)
    batches = [{"x": torch.rand(6, 1, 8, 8), "codes": torch.randn(6, 2, 3)} for _ in range(6)]
    straight, first, second = learner(), learner(), learner()
    for one in batches:
        straight.step(one)
    for one in batches[:3]:
        first.step(one)
    saved = first.state_dict()
    for state in saved["optimizers"].values():
        for moments in state["state"].values():
            moments.update(
                {name: value.clone(memory_format=torch.contiguous_format) for name, value in moments.items()}
            )
    second.model.load_state_dict(first.model.state_dict())
    second.load_state_dict(saved)
    for one in batches[3:]:
        second.step(one)
    for a, b in zip(straight.model.state_dict().values(), second.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
def test_learns_a_ring():
    """The generator finds a distribution that one Gaussian is not."""
    torch.manual_seed(0)
    model = GAN(GAN.Config(shape=(2,), centre=0.0, scale=1.0, code=2, hidden=(64, 64)))
    learner = Adversarial(model, Contest(lr=2e-3, judge_lr=2e-3, decay=True), 1500)
    for _ in range(1500):
        angle = 6.2832 * torch.rand(128)
        learner.step({"x": torch.stack([angle.cos(), angle.sin()], 1), "codes": torch.randn(128, 2, 2)})
    made = model.eval().sample(1000, generator(0))
    assert made.norm(dim=1).mean().item() == pytest.approx(1, abs=0.15)
    assert made.norm(dim=1).std() < 0.3
    assert made.mean(0).norm() < 0.3


def test_pictures_are_between_black_and_white():
    model = GAN(GAN.Config(shape=(3, 9, 14), channels=(8, 16), hidden=()))
    made = model.sample(4, generator(0))
    assert made.shape == (4, 3, 9, 14)
    assert made.min() >= 0
    assert made.max() <= 1
    assert model(made).shape == (4,)


@pytest.mark.parametrize(("field", "value"), [("lr", -1.0), ("beta1", 1.0), ("memory", -0.1), ("rounds", 0)])
def test_bad_settings_are_named(field, value):
    with pytest.raises(EngramError, match=field):
        Contest(**{field: value})
