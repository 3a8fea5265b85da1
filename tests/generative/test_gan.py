"""GAN training: losses against torch, alternating updates, the EMA of the generator, and resuming."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.generative.gan.learner import GANLearner, GANTrainingConfig, gradient_penalty
from engram.generative.gan.model import GAN


def gan_learner(loss="non-saturating", **changes):
    torch.manual_seed(0)
    model = GAN(GAN.Config(shape=(2,), center=0.0, scale=1.0, latent_dim=3, hidden=(8,)))
    return GANLearner(model, GANTrainingConfig(**{"loss": loss, "lr_decay": False, "ema_decay": 0.9, **changes}), 100)


def batch(size=16, turns=2):
    return {"x": torch.randn(size, 2), "latents": torch.randn(size, turns, 3)}


def test_non_saturating_losses_are_cross_entropies():
    learner, given = gan_learner(), batch()
    D, G = learner.model.discriminator, learner.generator
    real, fake = D(given["x"])[:, 0], D(G(given["latents"][:, 0]))[:, 0]
    expected = F.binary_cross_entropy_with_logits(real, torch.ones(16)) + F.binary_cross_entropy_with_logits(
        fake, torch.zeros(16)
    )
    metrics = learner.step(given)
    torch.testing.assert_close(metrics["discriminator_loss"], expected.detach())
    assert metrics["real_logit"] == pytest.approx(real.mean().item(), abs=1e-6)
    assert metrics["fake_logit"] == pytest.approx(fake.mean().item(), abs=1e-6)
    right = ((real > 0).float().mean() + (fake <= 0).float().mean()) / 2
    assert metrics["discriminator_accuracy"] == pytest.approx(right.item())


def test_generator_learns_towards_what_looks_real():
    learner, given = gan_learner(discriminator_lr=0.0), batch()
    fake = learner.model.discriminator(learner.generator(given["latents"][:, 1]))[:, 0]
    expected = F.binary_cross_entropy_with_logits(fake, torch.ones(16))
    assert learner.step(given)["generator_loss"] == pytest.approx(expected.item(), rel=1e-5)
    for _ in range(30):
        last = learner.step(given)
    assert last["generator_loss"] < expected


def test_hinge_is_that_of_its_definition():
    learner, given = gan_learner("hinge", discriminator_lr=0.0), batch()
    D, G = learner.model.discriminator, learner.generator
    real, fake = D(given["x"])[:, 0], D(G(given["latents"][:, 0]))[:, 0]
    other = D(G(given["latents"][:, 1]))[:, 0]
    metrics = learner.step(given)
    assert metrics["discriminator_loss"] == pytest.approx(
        (F.relu(1 - real).mean() + F.relu(1 + fake).mean()).item(), rel=1e-5
    )
    assert metrics["generator_loss"] == pytest.approx(-other.mean().item(), rel=1e-4, abs=1e-6)


def test_gradient_penalty_of_a_linear_discriminator_is_known():
    """Its gradient is the same everywhere."""
    D = nn.Linear(2, 1)
    real, fake = torch.randn(7, 2), torch.randn(7, 2)
    assert gradient_penalty(D, real, fake).item() == pytest.approx((D.weight.norm().item() - 1) ** 2, rel=1e-5)


def test_gradient_penalty_keeps_the_gradient_norm_near_one():
    learner = gan_learner("wgan-gp", discriminator_lr=5e-3)
    for _ in range(200):
        learner.step(batch(64))
    given = batch(256)
    with torch.no_grad():
        fake = learner.generator(given["latents"][:, 0])
    assert gradient_penalty(learner.model.discriminator, given["x"], fake).item() < 0.1


def test_the_generator_update_leaves_the_discriminator_unchanged():
    learner = gan_learner(discriminator_lr=0.0)
    before = [weight.clone() for weight in learner.model.discriminator.parameters()]
    learner.step(batch())
    assert all(torch.equal(a, b) for a, b in zip(before, learner.model.discriminator.parameters(), strict=True))
    assert all(weight.requires_grad for weight in learner.model.discriminator.parameters())


def test_discriminator_steps_use_parts_of_the_batch():
    learner = gan_learner(discriminator_steps=3)
    learner.step(batch(18, turns=4))
    assert learner.done == 1
    steps = learner.optimizers["discriminator"].state_dict()["state"][0]["step"]
    assert steps == 3


def test_the_kept_generator_is_the_ema():
    learner = gan_learner()
    kept = [weight.clone() for weight in learner.model.generator.parameters()]
    for i in range(1, 4):
        learner.step(batch())
        m = min(0.9, (1 + i) / (10 + i))
        kept = [m * a + (1 - m) * b for a, b in zip(kept, learner.generator.parameters(), strict=True)]
    for expected, found in zip(kept, learner.model.generator.parameters(), strict=True):
        torch.testing.assert_close(found, expected.detach())


def test_training_resumes_exactly():
    torch.manual_seed(5)
    batches = [batch() for _ in range(6)]
    straight = gan_learner()
    for one in batches:
        straight.step(one)
    first = gan_learner()
    for one in batches[:3]:
        first.step(one)
    second = gan_learner()
    second.model.load_state_dict(first.model.state_dict())
    second.load_state_dict(first.state_dict())
    for one in batches[3:]:
        second.step(one)
    for a, b in zip(straight.model.state_dict().values(), second.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_convolutional_networks_resume_exactly():
    """A saved moment comes back as rows, and the weight that it belongs to lies in memory otherwise."""

    def learner():
        torch.manual_seed(0)
        return GANLearner(
            GAN(GAN.Config(shape=(1, 8, 8), latent_dim=3, channels=(4, 8), hidden=())), GANTrainingConfig(), 100
        )

    torch.manual_seed(5)
    batches = [{"x": torch.rand(6, 1, 8, 8), "latents": torch.randn(6, 2, 3)} for _ in range(6)]
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
    model = GAN(GAN.Config(shape=(2,), center=0.0, scale=1.0, latent_dim=2, hidden=(64, 64)))
    learner = GANLearner(model, GANTrainingConfig(lr=2e-3, discriminator_lr=2e-3, lr_decay=True), 1500)
    for _ in range(1500):
        angle = 6.2832 * torch.rand(128)
        learner.step({"x": torch.stack([angle.cos(), angle.sin()], 1), "latents": torch.randn(128, 2, 2)})
    fake = model.eval().sample(1000, generator(0))
    assert fake.norm(dim=1).mean().item() == pytest.approx(1, abs=0.15)
    assert fake.norm(dim=1).std() < 0.3
    assert fake.mean(0).norm() < 0.3


def test_images_are_between_black_and_white():
    model = GAN(GAN.Config(shape=(3, 9, 14), channels=(8, 16), hidden=()))
    fake = model.sample(4, generator(0))
    assert fake.shape == (4, 3, 9, 14)
    assert fake.min() >= 0
    assert fake.max() <= 1
    assert model(fake).shape == (4,)


@pytest.mark.parametrize(
    ("field", "value"), [("lr", -1.0), ("beta1", 1.0), ("ema_decay", -0.1), ("discriminator_steps", 0)]
)
def test_bad_settings_are_named(field, value):
    with pytest.raises(EngramError, match=field):
        GANTrainingConfig(**{field: value})
