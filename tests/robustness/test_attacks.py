"""Attacks against torchattacks, against closed forms, and what they must never do."""

import pytest
import torch
from torch import nn

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.robustness import PGD, Guess, Step, Threat, deepfool, minimal
from engram.robustness.evaluation import attacked, examine, withstood

torchattacks = pytest.importorskip("torchattacks")


@pytest.fixture(scope="module")
def task():
    """A small network that has learnt two blobs of pictures a little, and pictures to attack."""
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
    torch.testing.assert_close(Step(threat=Threat(eps=0.05))(net, x, label), expected, rtol=0, atol=1e-6)


def test_pgd_is_that_of_torchattacks(task):
    net, x, label = task
    expected = torchattacks.PGD(net, eps=0.05, alpha=0.01, steps=12, random_start=False)(x, label)
    ours = PGD(threat=Threat(eps=0.05), alpha=0.01, steps=12, random=False, early=False)(net, x, label)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)


def test_pgd_in_the_euclidean_ball_is_that_of_torchattacks(task):
    net, x, label = task
    expected = torchattacks.PGDL2(net, eps=0.5, alpha=0.1, steps=12, random_start=False)(x, label)
    ours = PGD(threat=Threat(norm="l2", eps=0.5), alpha=0.1, steps=12, random=False, early=False)(net, x, label)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)


def test_the_same_start_leads_to_the_same_end(task):
    """torchattacks draws its start from torch's own generator: the same seed, the same place."""
    net, x, label = task
    theirs = torchattacks.PGD(net, eps=0.05, alpha=0.01, steps=5, random_start=True)
    torch.manual_seed(7)
    expected = theirs(x, label)
    torch.manual_seed(7)
    start = (x + torch.empty_like(x).uniform_(-0.05, 0.05)).clamp(0, 1)
    ours = PGD(threat=Threat(eps=0.05), alpha=0.01, steps=5, early=False)(net, x, label, start=start)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)


def test_a_plain_step_follows_the_gradient(task):
    net, x, label = task
    at = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(nn.functional.cross_entropy(net(at), label, reduction="sum"), at)
    step = Step(threat=Threat(), kappa=0.3)
    torch.testing.assert_close(step(net, x, label), (x + 0.3 * g).clamp(0, 1))
    torch.testing.assert_close(step(net, x, label, targeted=True), (x - 0.3 * g).clamp(0, 1))


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("targeted", [False, True])
def test_nothing_leaves_the_ball_or_the_range(task, norm, targeted):
    net, x, label = task
    threat = Threat(norm=norm, eps=0.3)
    target = (label + 1) % 4 if targeted else label
    for attack in (
        Step(threat=threat), PGD(threat=threat, steps=5, restarts=2, generator=generator(0)),
        Guess(threat=threat, generator=generator(0)),
    ):  # fmt: skip
        moved = attack(net, x, target, targeted=targeted)
        assert threat.size(moved - x).max() <= 0.3 + 1e-5
        assert moved.min() >= 0
        assert moved.max() <= 1


def test_targets_are_reached(task):
    net, x, label = task
    target = (label + 1) % 4
    moved = PGD(threat=Threat(eps=0.4), steps=40, generator=generator(0))(net, x, target, targeted=True)
    assert (net(moved).argmax(1) == target).float().mean() > 0.9


def test_stopping_early_fools_as_many_and_leaves_the_fooled_alone(task):
    net, x, label = task
    threat = Threat(eps=0.1)
    early = PGD(threat=threat, steps=20, random=False)(net, x, label)
    late = PGD(threat=threat, steps=20, random=False, early=False)(net, x, label)
    fooled = net(early).argmax(1) != label
    assert fooled.sum() >= (net(late).argmax(1) != label).sum()
    again = PGD(threat=threat, steps=20, random=False)(net, early[fooled], label[fooled])
    assert torch.equal(again, early[fooled])


def test_more_attempts_fool_no_fewer(task):
    net, x, label = task

    def left(restarts):
        attack = PGD(threat=Threat(eps=0.08), steps=5, restarts=restarts, generator=generator(3))
        return withstood(net, x, label, attack)

    assert left(5) <= left(1)


def test_guessing_is_weaker_than_the_gradient(task):
    net, x, label = task
    threat = Threat(eps=0.1)
    guess = withstood(net, x, label, Guess(threat=threat, generator=generator(0)))
    assert withstood(net, x, label, PGD(threat=threat, steps=20)) < guess


def test_weights_keep_their_gradients_and_modes(task):
    net, x, label = task
    for weight in net.parameters():
        weight.grad = torch.ones_like(weight)
    PGD(threat=Threat(eps=0.1), steps=3)(net, x, label)
    assert all(torch.equal(weight.grad, torch.ones_like(weight)) for weight in net.parameters())
    assert not net.training


def test_the_curve_falls(task):
    net, x, label = task
    found = examine(net, x, label, PGD(threat=Threat(eps=0.2), steps=10, generator=generator(0)))
    assert found.accuracy[0] == (net(x).argmax(1) == label).double().mean().item()
    assert all(a >= b for a, b in zip(found.accuracy, found.accuracy[1:], strict=False))
    assert Threat(eps=0.2).size(found.moved - x).max() <= 0.2 + 1e-6
    moved = attacked(net, x, label, PGD(threat=Threat(eps=0.2), steps=10))
    assert (net(moved).argmax(1) == label).double().mean().item() < found.accuracy[0]


# ---------------------------------------------------------------------- the smallest change


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_of_a_linear_classifier_the_smallest_change_is_known(norm):
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
    found = minimal(net, x, label, norm=norm)
    torch.testing.assert_close(found.norm_B[inside], expected[inside], rtol=0.02, atol=1e-3)
    assert inside.sum() > 5
    assert (net(found.x).argmax(1) != label).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_smallest_changes_are_no_larger_than_foolboxes(task, norm):
    foolbox = pytest.importorskip("foolbox")
    net, x, label = task
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    attacks = foolbox.attacks
    theirs = [attacks.LinfDeepFoolAttack()] if norm == "linf" else [
        attacks.L2DeepFoolAttack(), attacks.L2CarliniWagnerAttack(steps=300, binary_search_steps=5, stepsize=0.02),
    ]  # fmt: skip
    right = net(x).argmax(1) == label
    ours = minimal(net, x, label, norm=norm)
    assert ours.norm_B.isfinite().all()
    assert (net(ours.x).argmax(1) != label).all()
    assert (ours.norm_B[~right] == 0).all()
    for attack in theirs:
        _, moved, success = attack(model, x, label, epsilons=None)
        assert success.all()
        size = Threat(norm=norm).size(moved - x)
        assert ours.norm_B[right].mean() <= size[right].mean()


def test_deepfool_fools(task):
    net, x, label = task
    moved = deepfool(net, x, label, Threat(norm="l2"))
    assert (net(moved).argmax(1) != label).all()


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Threat(eps=-1), "eps must not be negative"), (lambda: Threat(low=1, high=0), "low must be below high"),
        (lambda: PGD(threat=Threat(), steps=0), "steps must be at least 1"),
        (lambda: minimal(nn.Identity(), torch.ones(1, 2), torch.zeros(1).long(), steps=0), "steps must be at least 1"),
    ],
)  # fmt: skip
def test_bad_settings_are_named(build, says):
    with pytest.raises(EngramError, match=says):
        build()
