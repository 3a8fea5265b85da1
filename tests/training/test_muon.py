"""Muon against the singular value decomposition and its own equations, one matrix at a time."""

import math

import pytest
import torch
from torch import nn

from engram.nn.transformer_block import PROJECTIONS
from engram.training.learner import GradientLearner
from engram.training.muon import Muon, orthogonalize
from engram.training.optimizer import OptimizerConfig, build_optimizers
from engram.transformers.bert.model import BERT
from engram.transformers.clip.model import CLIP
from engram.transformers.gpt.model import GPT
from engram.transformers.vit.model import ViT

SHAPES = [(8, 8), (5, 20), (20, 5), (64, 16)]


def decomposed(rows, columns, seed=0):
    """A matrix whose singular values go from 1 to 0.02, with its singular vectors."""
    random = torch.Generator().manual_seed(seed)
    U, _, Vh = torch.linalg.svd(torch.randn(rows, columns, generator=random).double(), full_matrices=False)
    return U, torch.linspace(1, 0.02, min(rows, columns), dtype=torch.float64), Vh


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_come_near_one(shape):
    U, s, Vh = decomposed(*shape)
    found = torch.linalg.svdvals(orthogonalize(((U * s) @ Vh)[None])[0])
    assert found.min() > 0.6
    assert found.max() < 1.3


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_vectors_are_kept(shape):
    U, s, Vh = decomposed(*shape)
    inside = U.T @ orthogonalize(((U * s) @ Vh)[None])[0] @ Vh.T
    torch.testing.assert_close(inside, torch.diag(inside.diagonal()), atol=1e-10, rtol=0)


def test_the_size_of_an_update_does_not_matter():
    u = torch.randn(1, 6, 9, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(orthogonalize(1000 * u), orthogonalize(u), atol=1e-5, rtol=0)


def test_a_gradient_of_nothing_but_zeros_moves_nothing():
    assert torch.equal(orthogonalize(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


def turned(u):
    """(3) of one matrix, with R × R products whatever its shape."""
    X = u / u.norm()
    for _ in range(5):
        A = X @ X.T
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return X


def test_steps_equal_the_equations_matrix_by_matrix():
    random = torch.Generator().manual_seed(1)
    shapes = [(6, 4), (4, 6), (6, 4), (5, 5)]
    weights = [nn.Parameter(torch.randn(shape, generator=random, dtype=torch.float64)) for shape in shapes]
    expected, momenta = [w.detach().clone() for w in weights], [torch.zeros_like(w) for w in weights]
    muon = Muon(weights, lr=0.1, momentum=0.9, weight_decay=0.3)
    for _ in range(3):
        for i, weight in enumerate(weights):
            g = weight.grad = torch.randn(weight.shape, generator=random, dtype=torch.float64)
            momenta[i] = 0.9 * momenta[i] + g  # (1)
            X = turned(g + 0.9 * momenta[i])  # (2), (3)
            rows, columns = weight.shape
            expected[i] = (1 - 0.1 * 0.3) * expected[i] - 0.1 * math.sqrt(max(1, rows / columns)) * X  # (4)
        muon.step()
    for weight, value in zip(weights, expected, strict=True):
        torch.testing.assert_close(weight.detach(), value, atol=1e-9, rtol=0)


def test_a_matrix_without_a_gradient_stays():
    moved, left = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    moved.grad = torch.eye(2)
    Muon([moved, left]).step()
    assert torch.equal(left, torch.ones(2, 2))


# ---------------------------------------------------------------------- what it takes, and what it leaves to AdamW


def taken(model):
    """Names of the parameters that go to Muon, and of those that go to AdamW."""
    names = {id(p): name for name, p in model.named_parameters()}
    found = {"Muon": set(), "AdamW": set()}
    for optimizer in build_optimizers(model, OptimizerConfig(optimizer="muon")):
        found[type(optimizer).__name__] |= {names[id(p)] for group in optimizer.param_groups for p in group["params"]}
    return found["Muon"], found["AdamW"]


SMALL = {"width": 8, "layers": 1, "heads": 2}
CLASSIC = {"position": "learned", "norm": "layer", "bias": PROJECTIONS}
PICTURES = {"shape": (1, 8, 8), "patch": 4}
CLIP_SMALL = {"text_width": 8, "text_layers": 1, "text_heads": 2, "vocabulary": 9}
MODELS = {
    "gpt": lambda: GPT(GPT.Config(**SMALL, **CLASSIC)),
    "tied gpt": lambda: GPT(GPT.Config(**SMALL, **CLASSIC, tie_embeddings=True)),
    "bert": lambda: BERT(BERT.Config(**SMALL, pooled=True)),
    "vit": lambda: ViT(ViT.Config(**SMALL, **PICTURES)),
    "clip": lambda: CLIP(CLIP.Config(**SMALL, **PICTURES, **CLIP_SMALL)),
}
OUTER = ("embedding", "position", "token_type", "head")


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_has_one_optimizer(name):
    model = MODELS[name]()
    muon, adamw = taken(model)
    assert not muon & adamw
    assert muon | adamw == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("name", MODELS)
def test_muon_takes_the_matrices_inside_and_nothing_else(name):
    model = MODELS[name]()
    expected = {
        key for key, p in model.named_parameters() if p.ndim == 2 and not any(part in OUTER for part in key.split("."))
    }
    assert expected
    assert taken(model)[0] == expected


def test_the_rest_has_its_own_learning_rate():
    muon, adamw = build_optimizers(MODELS["gpt"](), OptimizerConfig(optimizer="muon", lr=0.02, adamw_lr=0.003))
    assert (muon.param_groups[0]["lr"], adamw.param_groups[0]["lr"]) == (0.02, 0.003)


def test_without_one_of_its_own_the_rest_has_the_same():
    muon, adamw = build_optimizers(MODELS["gpt"](), OptimizerConfig(optimizer="muon", lr=0.02))
    assert (muon.param_groups[0]["lr"], adamw.param_groups[0]["lr"]) == (0.02, 0.02)


def test_each_rate_is_scheduled_from_its_own_height():
    model = nn.Sequential(nn.Linear(2, 2))
    optimization = OptimizerConfig(optimizer="muon", lr=0.4, adamw_lr=0.1, schedule="linear", warmup=0.0)
    learner = GradientLearner(model, lambda model, batch: (model(batch["x"]).sum(), {}), optimization, steps=4)
    learner.step({"x": torch.ones(1, 2)})
    rates = [group["lr"] for optimizer in learner.optimizers for group in optimizer.param_groups]
    assert rates == pytest.approx([0.3, 0.075])


# ---------------------------------------------------------------------- state and schedule


def learner_of_gpt():
    torch.manual_seed(0)
    model = GPT(GPT.Config(vocabulary=11, context=6, **SMALL))
    optimization = OptimizerConfig(
        optimizer="muon", lr=0.02, adamw_lr=0.01, stable_fraction=0.4, schedule="linear", warmup=0.0
    )
    return GradientLearner(model, lambda model, batch: (model.loss(batch["x"], batch["y"]), {}), optimization, steps=6)


def test_three_steps_saved_and_three_more_are_six():
    tokens = torch.randint(11, (6, 2, 3, 6), generator=torch.Generator().manual_seed(0))
    straight, first, second = learner_of_gpt(), learner_of_gpt(), learner_of_gpt()
    for x, y in tokens:
        straight.step({"x": x, "y": y})
    for x, y in tokens[:3]:
        first.step({"x": x, "y": y})
    second.model.load_state_dict(first.model.state_dict())
    second.load_state_dict(first.state_dict())
    for x, y in tokens[3:]:
        second.step({"x": x, "y": y})
    for name, value in straight.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], value), name


@pytest.mark.parametrize(
    ("done", "rate"),
    [(0.0, 0.0), (0.05, 0.5), (0.1, 1.0), (0.3, 1.0), (0.5, 1.0), (0.75, 0.5), (0.9, 0.2), (1.0, 0.0)],
)
def test_a_rate_rises_is_held_and_falls(done, rate):
    assert OptimizerConfig(schedule="linear", warmup=0.1, stable_fraction=0.4).lr_factor(done) == pytest.approx(
        rate, abs=1e-12
    )


@pytest.mark.parametrize(("done", "rate"), [(0.5, 1.0), (0.625, 0.5 + 0.5 / math.sqrt(2)), (0.75, 0.5), (1.0, 0.0)])
def test_a_held_rate_falls_as_a_cosine(done, rate):
    assert OptimizerConfig(schedule="cosine", warmup=0.1, stable_fraction=0.4).lr_factor(done) == pytest.approx(
        rate, abs=1e-12
    )
