"""Adversarial training and TRADES: losses against their definitions, and the robust accuracy they reach."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.robustness.attacks.evaluation import robust_accuracy
from engram.robustness.attacks.methods import PGD, ThreatModel
from engram.robustness.trades.learner import AdversarialTraining, classification_loss, divergence, loss


def linear(outputs):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(9, outputs))


def batch(size=20, classes=3):
    random = generator(0)
    image = torch.rand(size, 1, 3, 3, generator=random)
    label = torch.randint(classes, (size,), generator=random)
    return {"image": image, "label": label, "start": 2 * torch.rand(image.shape, generator=random) - 1}


def test_of_many_classes_it_is_cross_entropy_and_kl():
    a, b, label = torch.randn(5, 3), torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    torch.testing.assert_close(classification_loss(a, label), F.cross_entropy(a, label, reduction="none"))
    p, q = torch.distributions.Categorical(logits=b), torch.distributions.Categorical(logits=a)
    torch.testing.assert_close(divergence(a, b), torch.distributions.kl_divergence(p, q))


def test_with_one_output_it_is_the_logistic_loss():
    f, g = torch.randn(6, 1), torch.randn(6, 1)
    label = torch.tensor([0, 1, 0, 1, 1, 0])
    T = 2.0 * label - 1
    torch.testing.assert_close(classification_loss(f, label), torch.log1p(torch.exp(-f[:, 0] * T)))
    torch.testing.assert_close(divergence(g, f), torch.log1p(torch.exp(-f[:, 0] * g[:, 0])))


def test_the_worst_near_a_linear_classifier_is_known():
    """One output, maximum norm: f(x') = f(x) -+ eps |w|_1, wherever the range of pixels lets it."""
    net = linear(1)
    given = batch(classes=2)
    given["image"] = 0.4 + 0.2 * given["image"]
    threat = ThreatModel(eps=0.05)
    f = net(given["image"])[:, 0]
    T = 2.0 * given["label"] - 1
    w = net[1].weight.abs().sum()
    expected = F.softplus(-(f * T - 0.05 * w)).mean()
    found, _ = loss(net, given, threat, AdversarialTraining(objective="adversarial", inner_steps=20))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    away = F.softplus(-f * T) + 6 * F.softplus(-f * (f - f.sign() * 0.05 * w))
    found, _ = loss(net, given, threat, AdversarialTraining(objective="trades", inner_steps=20, beta=6.0))
    torch.testing.assert_close(found, away.mean(), rtol=1e-3, atol=1e-3)


def test_with_no_room_trades_is_plain_learning():
    net, given = linear(3), batch()
    plain, _ = loss(net, given, ThreatModel(eps=0.0), AdversarialTraining(objective="none"))
    for objective in ("adversarial", "trades"):
        found, _ = loss(net, given, ThreatModel(eps=0.0), AdversarialTraining(objective=objective, inner_steps=2))
        torch.testing.assert_close(found, plain)


def test_batch_norms_keep_their_moments_while_attacked():
    net = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3)).train()
    loss(net, batch(), ThreatModel(eps=0.1), AdversarialTraining(inner_steps=5))
    assert net[1].num_batches_tracked == 2  # the two passes that are learnt from
    assert net.training


@pytest.mark.parametrize("objective", ["adversarial", "trades"])
def test_adversarial_training_raises_robust_accuracy(objective):
    """Two features: one strong and easily shifted, one weak; only robust learning looks at the right one."""

    def trained(objective):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 2))
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        random = generator(1)
        for _ in range(150):
            x, label = blobs(64, random)
            start = 2 * torch.rand(x.shape, generator=random) - 1
            optimizer.zero_grad()
            config = AdversarialTraining(objective=objective, inner_steps=5)
            loss(net, {"image": x, "label": label, "start": start}, ThreatModel(eps=0.15), config)[0].backward()
            optimizer.step()
        x, label = blobs(300, generator(2))
        return robust_accuracy(
            net.eval(), x, label, PGD(threat=ThreatModel(eps=0.15), steps=20, generator=generator(3))
        )

    assert trained(objective) > trained("none") + 0.1


def blobs(count, random):
    """Images whose first pixel tells the class by a wide margin, the others by a narrow one each."""
    label = torch.randint(2, (count,), generator=random)
    x = 0.5 + 0.01 * torch.randn(count, 1, 3, 3, generator=random)
    side = (2.0 * label - 1)[:, None]
    flat = x.view(count, 9)
    flat[:, :1] += 0.2 * side * (torch.rand(count, 1, generator=random) < 0.9)
    flat[:, 1:] += 0.04 * side
    return x.clamp(0, 1), label


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"inner_steps": 0}, "inner_steps"),
        ({"beta": -1.0}, "beta"),
        ({"eps_warmup": 1.0}, "eps_warmup"),
        ({"inner_step_size": math.nan}, "inner_step_size"),
    ],
)
def test_bad_settings_are_named(settings, says):
    with pytest.raises(EngramError, match=says):
        AdversarialTraining(**settings)


@pytest.mark.download
def test_the_command_attacks_any_classifier(engram, finished, tmp_path):
    folder = finished("cnn")
    answer = engram("attack", folder, "--count", "20", "--minimal", "5", "--attack-steps", "5", "--json")
    assert answer.code == 0, answer.err
    assert '"attack": "PGD-5"' in answer.out
    assert (folder / "attack.html").exists()
    (folder / "attack.html").unlink()
    refused = engram("attack", finished("rbm"))
    assert refused.code == 2
    assert "no image classifier" in refused.err
    assert engram("attack", folder, "--count", "0").code == 2
