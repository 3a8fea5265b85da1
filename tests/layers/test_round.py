"""One token through the kernel, beside the same block of torch's operations."""

import pytest
import torch

from engram.core.tap import watch
from engram.layers.attention import KeyValues
from engram.layers.decoding import GREEDY
from engram.layers.int8 import quantised
from engram.layers.lora import adapt
from engram.layers.round import pass_through, rounds
from engram.models.gpt import GPT, gpt2

SMALL = {"vocabulary": 40, "context": 12, "width": 32, "layers": 2, "heads": 4}
CONFIGS = {
    "default": GPT.Config(**SMALL),
    "gpt2": gpt2(**SMALL),
    "swiglu, grouped heads": GPT.Config(**SMALL, kv_heads=2, function="swiglu"),
    "one key for all": GPT.Config(**SMALL, kv_heads=1, function="relu"),
    "gelu, sinusoidal": GPT.Config(**SMALL, function="gelu", norm="layer", qk_norm=False, position="sinusoidal"),
    "quick gelu, wide inside": GPT.Config(**SMALL, function="quick_gelu", inside=50, bias=True),
    "silu": GPT.Config(**SMALL, function="silu"),
}


def random_gpt(config: GPT.Config) -> GPT:
    torch.manual_seed(1)
    model = GPT(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model


@pytest.mark.parametrize("bits", [32, 8])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@torch.no_grad()
def test_the_kernel_computes_what_the_block_computes(config, bits):
    model = random_gpt(config) if bits == 32 else quantised(random_gpt(config))
    x_1T = torch.randint(40, (1, 10))
    whole_TV = model(x_1T)[0]
    cache = [KeyValues(config.context) for _ in model.blocks]
    model(x_1T[:, :4], cache=cache)
    made = rounds(model.blocks)
    for t in range(4, 10):
        h_BTE = model.embed(x_1T[:, t : t + 1], t)
        pass_through(made, h_BTE[0, 0], cache)
        torch.testing.assert_close(model.logits(h_BTE)[0, 0], whole_TV[t], atol=2e-5, rtol=1e-5)
        assert cache[0].length == t + 1


def test_writing_uses_the_kernel_and_follows_changed_weights(monkeypatch):
    from engram.models import writing

    passed = []
    monkeypatch.setattr(writing, "pass_through", lambda *args: passed.append(1) or pass_through(*args))
    model = random_gpt(CONFIGS["default"])
    before = model.generate([[1, 2, 3]], 6, GREEDY)
    assert len(passed) == 5  # the prompt goes through the blocks as a whole
    with torch.no_grad():
        model.blocks[0].ff.down.weight.neg_()
    after = model.generate([[1, 2, 3]], 6, GREEDY)
    assert after == model.generate([[1, 2, 3]], 6, GREEDY, cached=False) != before


def test_who_watches_sees_every_token(monkeypatch):
    model = random_gpt(CONFIGS["default"])
    plain = model.generate([[1, 2, 3]], 6, GREEDY)
    with watch(model, "*attention.out") as seen:
        assert model.generate([[1, 2, 3]], 6, GREEDY) == plain
    assert len(seen.all("blocks.0.attention.out")) == 6


def test_blocks_that_are_not_plain_are_left_to_torch():
    model = random_gpt(CONFIGS["default"])
    adapt(model, 2)
    assert rounds(model.blocks) is None
    assert rounds(random_gpt(GPT.Config(**SMALL, pre=False)).blocks) is None
    assert rounds(random_gpt(CONFIGS["default"]).double().blocks) is None
    adapted = model.generate([[1, 2, 3]], 6, GREEDY)
    assert adapted == model.generate([[1, 2, 3]], 6, GREEDY, cached=False)
