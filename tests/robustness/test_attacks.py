"""Attacks against torchattacks, against closed forms, and what they must never do."""

import pytest
import torch
from torch import nn

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.robustness.attacks import FGSM, PGD, RandomNoise, ThreatModel, deepfool, minimal_norm_attack
from engram.robustness.attacks.evaluation import attack_batches, robust_accuracy, robustness_curve

torchattacks = pytest.importorskip("torchattacks")


@pytest.fixture(scope="module")
def task():
    """A small network trained for a few steps on blobs of images, and images to attack."""
    torch.manual_seed(0)
    x = torch.rand(64, 1, 8, 8) * 0.6 + 0.2
    label = torch.arange(64) % 4
    for k in range(4):
        x[label == k, :, 2 * k : 2 * k + 2] += 0.25
    x = x.clamp(0, 1)
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(288, 4))
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), label).backward()
        optimizer.step()
    net.eval()
    assert (net(x).argmax(1) == label).float().mean() > 0.95
    return net, x, label


def test_fgsm_is_that_of_torchattacks(task):
    net, x, label = task
    expected = torchattacks.FGSM(net, eps=0.05)(x, label)
    torch.testing.assert_close(FGSM(threat=ThreatModel(eps=0.05))(net, x, label), expected, rtol=0, atol=1e-6)


def test_pgd_is_that_of_torchattacks(task):
    net, x, label = task
    expected = torchattacks.PGD(net, eps=0.05, alpha=0.01, steps=12, random_start=False)(x, label)
    ours = PGD(threat=ThreatModel(eps=0.05), step_size=0.01, steps=12, random_start=False, early_stop=False)(
        net, x, label
    )
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)


def test_pgd_in_the_euclidean_ball_is_that_of_torchattacks(task):
    net, x, label = task
    expected = torchattacks.PGDL2(net, eps=0.5, alpha=0.1, steps=12, random_start=False)(x, label)
    pgd = PGD(threat=ThreatModel(norm="l2", eps=0.5), step_size=0.1, steps=12, random_start=False, early_stop=False)
    ours = pgd(net, x, label)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)


def test_the_same_start_leads_to_the_same_end(task):
    """torchattacks draws its start from torch's own generator: the same seed, the same place."""
    net, x, label = task
    theirs = torchattacks.PGD(net, eps=0.05, alpha=0.01, steps=5, random_start=True)
    torch.manual_seed(7)
    expected = theirs(x, label)
    torch.manual_seed(7)
    start = (x + torch.empty_like(x).uniform_(-0.05, 0.05)).clamp(0, 1)
    ours = PGD(threat=ThreatModel(eps=0.05), step_size=0.01, steps=5, early_stop=False)(net, x, label, start=start)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)


def test_a_plain_step_follows_the_gradient(task):
    net, x, label = task
    at = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(nn.functional.cross_entropy(net(at), label, reduction="sum"), at)
    step = FGSM(threat=ThreatModel(), step_size=0.3)
    torch.testing.assert_close(step(net, x, label), (x + 0.3 * g).clamp(0, 1))
    torch.testing.assert_close(step(net, x, label, targeted=True), (x - 0.3 * g).clamp(0, 1))


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("targeted", [False, True])
def test_nothing_leaves_the_ball_or_the_range(task, norm, targeted):
    net, x, label = task
    threat = ThreatModel(norm=norm, eps=0.3)
    target = (label + 1) % 4 if targeted else label
    for attack in (
        FGSM(threat=threat), PGD(threat=threat, steps=5, restarts=2, generator=generator(0)),
        RandomNoise(threat=threat, generator=generator(0)),
    ):  # fmt: skip
        moved = attack(net, x, target, targeted=targeted)
        assert threat.norms(moved - x).max() <= 0.3 + 1e-5
        assert moved.min() >= 0
        assert moved.max() <= 1


def test_targets_are_reached(task):
    net, x, label = task
    target = (label + 1) % 4
    moved = PGD(threat=ThreatModel(eps=0.4), steps=40, generator=generator(0))(net, x, target, targeted=True)
    assert (net(moved).argmax(1) == target).float().mean() > 0.9


def test_stopping_early_fools_as_many_and_leaves_the_fooled_alone(task):
    net, x, label = task
    threat = ThreatModel(eps=0.1)
    early = PGD(threat=threat, steps=20, random_start=False)(net, x, label)
    late = PGD(threat=threat, steps=20, random_start=False, early_stop=False)(net, x, label)
    fooled = net(early).argmax(1) != label
    assert fooled.sum() >= (net(late).argmax(1) != label).sum()
    again = PGD(threat=threat, steps=20, random_start=False)(net, early[fooled], label[fooled])
    assert torch.equal(again, early[fooled])


def test_more_attempts_fool_no_fewer(task):
    net, x, label = task

    def left(restarts):
        attack = PGD(threat=ThreatModel(eps=0.08), steps=5, restarts=restarts, generator=generator(3))
        return robust_accuracy(net, x, label, attack)

    assert left(5) <= left(1)


def test_random_noise_is_weaker_than_the_gradient(task):
    net, x, label = task
    threat = ThreatModel(eps=0.1)
    noise = robust_accuracy(net, x, label, RandomNoise(threat=threat, generator=generator(0)))
    assert robust_accuracy(net, x, label, PGD(threat=threat, steps=20)) < noise


def test_weights_keep_their_gradients_and_modes(task):
    net, x, label = task
    for weight in net.parameters():
        weight.grad = torch.ones_like(weight)
    PGD(threat=ThreatModel(eps=0.1), steps=3)(net, x, label)
    assert all(torch.equal(weight.grad, torch.ones_like(weight)) for weight in net.parameters())
    assert not net.training


def test_the_curve_falls(task):
    net, x, label = task
    found = robustness_curve(net, x, label, PGD(threat=ThreatModel(eps=0.2), steps=10, generator=generator(0)))
    assert found.accuracy[0] == (net(x).argmax(1) == label).double().mean().item()
    assert all(a >= b for a, b in zip(found.accuracy, found.accuracy[1:], strict=False))
    assert ThreatModel(eps=0.2).norms(found.adversarial - x).max() <= 0.2 + 1e-6
    moved = attack_batches(net, x, label, PGD(threat=ThreatModel(eps=0.2), steps=10))
    assert (net(moved).argmax(1) == label).double().mean().item() < found.accuracy[0]


# ---------------------------------------------------------------------- minimal norm


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_minimal_norm_of_a_linear_classifier_is_known(norm):
    """The distance from a hyperplane, in the dual norm."""
    torch.manual_seed(1)
    w = torch.randn(12)
    w -= w.mean()
    net = nn.Linear(12, 2, bias=False)
    net.weight.data = torch.stack([torch.zeros(12), w])
    x = 0.5 + 0.05 * torch.randn(30, 12)
    label = net(x).argmax(1)
    gap = (x @ w).abs()
    expected = gap / (w.abs().sum() if norm == "linf" else w.norm())
    inside = expected < 0.2  # so that the range of pixels does not matter
    found = minimal_norm_attack(net, x, label, norm=norm)
    torch.testing.assert_close(found.norm_B[inside], expected[inside], rtol=0.02, atol=1e-3)
    assert inside.sum() > 5
    assert (net(found.x).argmax(1) != label).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_minimal_norms_are_no_larger_than_those_of_foolbox(task, norm):
    foolbox = pytest.importorskip("foolbox")
    net, x, label = task
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    attacks = foolbox.attacks
    theirs = [attacks.LinfDeepFoolAttack()] if norm == "linf" else [
        attacks.L2DeepFoolAttack(), attacks.L2CarliniWagnerAttack(steps=300, binary_search_steps=5, stepsize=0.02),
    ]  # fmt: skip
    right = net(x).argmax(1) == label
    ours = minimal_norm_attack(net, x, label, norm=norm)
    assert ours.norm_B.isfinite().all()
    assert (net(ours.x).argmax(1) != label).all()
    assert (ours.norm_B[~right] == 0).all()
    for attack in theirs:
        _, moved, success = attack(model, x, label, epsilons=None)
        assert success.all()
        size = ThreatModel(norm=norm).norms(moved - x)
        assert ours.norm_B[right].mean() <= size[right].mean()


def test_deepfool_fools(task):
    net, x, label = task
    moved = deepfool(net, x, label, ThreatModel(norm="l2"))
    assert (net(moved).argmax(1) != label).all()


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: ThreatModel(eps=-1), "eps must be at least 0"),
        (lambda: ThreatModel(low=1, high=0), "low must be below high"),
        (lambda: PGD(threat=ThreatModel(), steps=0), "steps must be at least 1"),
        (
            lambda: minimal_norm_attack(nn.Identity(), torch.ones(1, 2), torch.zeros(1).long(), steps=0),
            "steps must be at least 1",
        ),
    ],
)  # fmt: skip
def test_bad_settings_are_named(build, says):
    with pytest.raises(EngramError, match=says):
        build()
