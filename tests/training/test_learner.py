"""The learner against the update rules of the notes, written out."""

import math

import pytest
import torch
from torch import nn

from engram.core.errors import EngramError
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig
from engram.transformers.gpt.model import GPT
from engram.transformers.gpt.recipe import GPTRecipe

STEPS = 5


def quadratic(model, batch):
    error = model(batch["x"]) - batch["t"]
    return error.square().mean(), {"largest": error.detach().abs().max()}


def setting(dtype=torch.float64):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).to(dtype)
    generator = torch.Generator().manual_seed(1)
    batches = [
        {
            "x": torch.randn(8, 4, dtype=dtype, generator=generator),
            "t": torch.randn(8, 2, dtype=dtype, generator=generator),
        }
        for _ in range(STEPS)
    ]
    return model, batches


def by_hand(rule, weight_decay=0.0):
    """Parameters after STEPS steps of `rule(state, gradient, t) -> update`, decay of matrices written into E."""
    model, batches = setting()
    states = [{} for _ in model.parameters()]
    for t, batch in enumerate(batches, 1):
        gradients = torch.autograd.grad(quadratic(model, batch)[0], list(model.parameters()))
        for parameter, gradient, state in zip(model.parameters(), gradients, states, strict=True):
            decay = weight_decay if parameter.ndim > 1 else 0.0
            with torch.no_grad():
                parameter -= rule(state, gradient + decay * parameter, t)
    return list(model.parameters())


def learnt(**options):
    model, batches = setting()
    learner = GradientLearner(model, quadratic, OptimizerConfig(schedule="constant", warmup=0.0, **options), STEPS)
    for batch in batches:
        learner.step(batch)
    return list(model.parameters())


def sgd(state, g, t):
    return 0.1 * g


def momentum(state, g, t):
    state["v"] = 0.9 * state.get("v", 0) + g
    return 0.1 * state["v"]


def rmsprop(state, g, t):
    state["s"] = 0.99 * state.get("s", 0) + 0.01 * g**2
    return 0.1 * g / (state["s"].sqrt() + 1e-8)


def adam(state, g, t):
    state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
    state["s"] = 0.999 * state.get("s", 0) + 0.001 * g**2
    return 0.1 * (state["m"] / (1 - 0.9**t)) / ((state["s"] / (1 - 0.999**t)).sqrt() + 1e-8)


@pytest.mark.parametrize(
    ("name", "rule"), [("sgd", sgd), ("momentum", momentum), ("rmsprop", rmsprop), ("RMSprop", rmsprop), ("adam", adam)]
)
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_update_rules_of_the_notes(name, rule, weight_decay):
    expected = by_hand(rule, weight_decay)
    found = learnt(optimizer=name, lr=0.1, weight_decay=weight_decay)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_adamw_decays_weights_beside_the_gradient():
    def decoupled(state, g, t):
        return adam(state, g, t)

    expected = by_hand(decoupled)
    found = learnt(optimizer="adamw", lr=0.1, weight_decay=0.0)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    decayed = learnt(optimizer="adamw", lr=0.1, weight_decay=0.5)
    assert decayed[0].norm() < found[0].norm()


def test_muon_moves_matrices_by_nearly_orthogonal_updates():
    model, batches = setting(torch.float32)
    before = model[0].weight.detach().clone()
    learner = GradientLearner(
        model,
        quadratic,
        OptimizerConfig(optimizer="muon", lr=0.1, weight_decay=0.0, schedule="constant", warmup=0.0),
        STEPS,
    )
    learner.step(batches[0])
    singular = torch.linalg.svdvals(model[0].weight.detach() - before)
    assert singular.max() / singular.min() < 2.5  # Newton–Schulz brings all singular values near one another
    assert len(learner.optimizers) == 2


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_a_batch_in_parts_gives_the_same_step(parts):
    for ours, theirs in zip(learnt(lr=0.1, grad_accum=parts), learnt(lr=0.1), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_clipping_bounds_the_gradient():
    model, batches = setting()
    learner = GradientLearner(
        model,
        quadratic,
        OptimizerConfig(
            optimizer="sgd", lr=1.0, clip_grad_norm=0.01, schedule="constant", warmup=0.0, weight_decay=0.0
        ),
        STEPS,
    )
    before = [p.detach().clone() for p in model.parameters()]
    measured = learner.step(batches[0])
    moved = torch.cat([(p.detach() - b).flatten() for p, b in zip(model.parameters(), before, strict=True)]).norm()
    assert measured["gradient"] > 0.01
    assert moved == pytest.approx(0.01, rel=1e-3)


def test_schedules():
    cosine, linear = OptimizerConfig(warmup=0.1), OptimizerConfig(warmup=0.1, schedule="linear")
    assert cosine.lr_factor(0.05) == pytest.approx(0.5)
    assert cosine.lr_factor(0.1) == pytest.approx(1)
    assert cosine.lr_factor(0.55) == pytest.approx(0.5)
    assert cosine.lr_factor(1) == pytest.approx(0)
    assert cosine.lr_factor(0.325) == pytest.approx(0.5 + 0.5 * math.cos(math.pi / 4))
    assert linear.lr_factor(0.55) == pytest.approx(0.5)
    assert OptimizerConfig(schedule="constant", warmup=0.0).lr_factor(0.7) == 1


def test_state_continues_exactly():
    straight = learnt(lr=0.1)
    model, batches = setting()
    optimization = OptimizerConfig(schedule="constant", warmup=0.0, lr=0.1)
    learner = GradientLearner(model, quadratic, optimization, STEPS)
    for batch in batches[:3]:
        learner.step(batch)
    again = GradientLearner(model, quadratic, optimization, STEPS)
    again.load_state_dict(learner.state_dict())
    for batch in batches[3:]:
        again.step(batch)
    for ours, theirs in zip(model.parameters(), straight, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("field", "value"),
    [("optimizer", "adan"), ("warmup", 1.0), ("grad_accum", 0), ("lr", -1.0), ("clip_grad_norm", math.nan)],
)
def test_wrong_fields_are_named(field, value):
    with pytest.raises(EngramError, match=field if field != "optimizer" else 'Did you mean "adam'):
        OptimizerConfig(**{field: value})


def speaker(**changes):
    """A small GPT, how it learns, and a batch."""
    torch.manual_seed(0)
    model = GPT(GPT.Config(width=32, layers=3, heads=2, context=16, vocabulary=40, dropout=0.1))
    for weight in model.parameters():
        weight.data.add_(0.02 * torch.randn_like(weight))  # what begins at zero would have no gradient
    learner = GradientLearner(model, GPTRecipe().loss, OptimizerConfig(**changes), 100)
    x = torch.randint(40, (4, 16))
    return learner, {"x": x, "y": x.roll(1, 1)}


def kept(learner, batch):
    """Numbers that are kept for the way back."""
    sizes = []

    def keep(tensor):
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        learner.model.train()
        learner.loss(learner.model, batch)
    return sum(sizes)


def test_what_is_computed_again_is_the_same_and_needs_less_memory():
    (plain, batch), (again, _) = speaker(), speaker(grad_checkpointing=True)
    assert kept(again, batch) < kept(plain, batch) / 2
    for learner in (plain, again):
        torch.manual_seed(1)  # of dropout, which must be the same when it is computed again
        learner.step(batch)
    for one, other in zip(plain.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_recompute_needs_blocks():
    with pytest.raises(EngramError, match="made of blocks, and Linear has none"):
        GradientLearner(nn.Linear(2, 2), None, OptimizerConfig(grad_checkpointing=True), 1)


def test_bfloat16_multiplies_in_fewer_bits_and_keeps_weights_in_all():
    (plain, batch), (short, _) = speaker(), speaker(precision="bfloat16")
    losses = []
    for learner in (plain, short):
        torch.manual_seed(1)
        losses.append(learner.step(batch)["loss"].item())
    assert losses[0] != losses[1]
    assert abs(losses[0] - losses[1]) < 0.02 * losses[0]
    assert {weight.dtype for weight in short.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw", "muon", "rmsprop", "adafactor", "nadam"])
def test_an_optimizer_goes_on_from_its_moments_with_the_options_of_its_recipe(name):
    def begun():
        torch.manual_seed(0)
        return GradientLearner(nn.Linear(4, 3), quadratic, OptimizerConfig(optimizer=name, lr=0.01), 10)

    straight, first, second = begun(), begun(), begun()
    batch = {"x": torch.randn(5, 4), "t": torch.randn(5, 3)}
    for learner in (straight, first):
        learner.step(batch)
    saved = first.state_dict()
    assert all(list(optimizer) == ["state"] for optimizer in saved["optimizers"])
    second.model.load_state_dict(first.model.state_dict())
    second.load_state_dict(saved)
    for learner in (straight, second):
        learner.step(batch)
    for a, b in zip(straight.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["momentum", "adam", "adamw", "muon"])
def test_moments_that_are_not_those_of_their_weight_are_refused(name):
    """A fused kernel would read and write past their end."""
    learner = GradientLearner(nn.Linear(4, 3), quadratic, OptimizerConfig(optimizer=name), 10)
    learner.step({"x": torch.randn(5, 4), "t": torch.randn(5, 3)})
    for optimizer in range(len(learner.optimizers)):
        for moment in learner.state_dict()["optimizers"][optimizer]["state"][0]:
            for wrong in (torch.zeros(2), torch.zeros(0), torch.zeros(12), None):
                state = learner.state_dict()
                state["optimizers"][optimizer]["state"][0][moment] = wrong
                with pytest.raises((AttributeError, TypeError, ValueError)):
                    learner.load_state_dict(state)
