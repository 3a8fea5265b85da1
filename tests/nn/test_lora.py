"""Low-rank adaptation: nothing changes at first, only A and B learn, and merging changes nothing either."""

import pytest
import torch
from torch import nn

from engram.nn.lora import LoRA, apply_lora, lora_rank, merge_lora
from engram.nn.transformer_block import PROJECTIONS
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig
from engram.transformers.bert.model import BERT
from engram.transformers.gpt.model import GPT

SMALL = {"width": 12, "layers": 2, "heads": 3, "vocabulary": 11}
X = torch.randint(11, (2, 6), generator=torch.Generator().manual_seed(0))
MODELS = {
    "gpt": lambda: GPT(GPT.Config(**SMALL)),
    "gated gpt": lambda: GPT(GPT.Config(**SMALL, activation="swiglu", bias=PROJECTIONS, norm="layer")),
    "bert": lambda: BERT(BERT.Config(**SMALL)),
}


def made(name):
    torch.manual_seed(0)
    model = MODELS[name]()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


def shake(model):
    """As if it had learnt."""
    for key, parameter in model.named_parameters():
        if "lora" in key:
            nn.init.normal_(parameter, std=0.3)


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_at_first_nothing_changes(name):
    model = made(name)
    before = model(X)
    apply_lora(model, 4)
    assert torch.equal(model(X), before)


@pytest.mark.parametrize("name", MODELS)
def test_every_projection_of_the_blocks_is_adapted(name):
    model = made(name)
    apply_lora(model, 4)
    inside = [part for key, part in model.blocks.named_modules() if isinstance(part, nn.Linear)]
    assert inside
    assert all(isinstance(part, LoRA) for part in inside)


@pytest.mark.parametrize("name", MODELS)
def test_only_the_small_matrices_can_learn(name):
    model = made(name)
    apply_lora(model, 4)
    learning = {key.rpartition(".")[2] for key, p in model.named_parameters() if p.requires_grad}
    assert learning == {"lora_A", "lora_B"}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_only_the_small_matrices_learn(optimizer):
    model = made("gpt")
    apply_lora(model, 4)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    learner = GradientLearner(
        model, lambda model, b: (model.loss(b["x"], b["x"]), {}), OptimizerConfig(optimizer=optimizer), 5
    )
    for _ in range(5):
        learner.step({"x": X})
    changed = {
        key.rpartition(".")[2] for key, value in model.state_dict().items() if not torch.equal(value, before[key])
    }
    assert changed == {"lora_A", "lora_B"}


@torch.no_grad()
@pytest.mark.parametrize("rank", [1, 4, 30])
def test_an_adapted_layer_is_what_is_written(rank):
    torch.manual_seed(0)
    plain = nn.Linear(5, 7)
    layer, x = LoRA(plain, rank), torch.randn(3, 5)
    nn.init.normal_(layer.lora_B)
    expected = x @ plain.weight.T + plain.bias + (x @ layer.lora_A.T @ layer.lora_B.T) / rank**0.5
    torch.testing.assert_close(layer(x), expected)


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
def test_a_merged_layer_equals_the_adapted_one(bias):
    torch.manual_seed(0)
    layer, x = LoRA(nn.Linear(5, 7, bias), 3), torch.randn(3, 5)
    nn.init.normal_(layer.lora_B)
    torch.testing.assert_close(layer.merge()(x), layer(x), atol=1e-6, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_a_merged_model_equals_the_adapted_one(name):
    model = made(name)
    apply_lora(model, 4)
    shake(model)
    adapted = model(X)
    merge_lora(model)
    torch.testing.assert_close(model(X), adapted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_merged_model_is_an_ordinary_one(name):
    model, plain = made(name), made(name)
    apply_lora(model, 4)
    merge_lora(model)
    assert {key: value.shape for key, value in model.state_dict().items()} == {
        key: value.shape for key, value in plain.state_dict().items()
    }
    assert all(type(part) is not LoRA for part in model.modules())
    assert all(p.requires_grad for p in model.parameters())


def test_merging_leaves_an_ordinary_model_alone():
    model = made("gpt")
    model.embedding.requires_grad_(False)
    merge_lora(model)
    assert not model.embedding.weight.requires_grad


def test_adapted_weights_are_saved_and_loaded():
    model, other = made("gpt"), made("gpt")
    apply_lora(model, 4)
    apply_lora(other, 4)
    shake(model)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(X), model(X))


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_the_rank_is_found_in_saved_weights(rank):
    model = made("gpt")
    apply_lora(model, rank)
    assert lora_rank(model.state_dict()) == rank


def test_the_lora_rank_ordinary_weights_is_zero():
    assert lora_rank(made("gpt").state_dict()) == 0
