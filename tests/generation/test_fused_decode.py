"""One token through the kernel, beside the same block of torch's operations."""

import pytest
import torch

from engram.core.tap import watch
from engram.generation.fused_decode import decode_token, prepare_layers
from engram.generation.quantization import quantize
from engram.generation.sampling import GREEDY
from engram.nn.attention import KVCache
from engram.nn.lora import apply_lora
from engram.nn.transformer_block import PROJECTIONS
from engram.transformers.gpt.model import GPT, gpt2

SMALL = {"vocabulary": 40, "context": 12, "width": 32, "layers": 2, "heads": 4}
CONFIGS = {
    "default": GPT.Config(**SMALL),
    "gpt2": gpt2(**SMALL),
    "swiglu, grouped heads": GPT.Config(**SMALL, kv_heads=2, activation="swiglu"),
    "one key for all": GPT.Config(**SMALL, kv_heads=1, activation="relu"),
    "gelu, sinusoidal": GPT.Config(**SMALL, activation="gelu", norm="layer", qk_norm="none", position="sinusoidal"),
    "quick gelu, wide inside": GPT.Config(**SMALL, activation="quick_gelu", ff_width=50, bias=PROJECTIONS),
    "silu": GPT.Config(**SMALL, activation="silu"),
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
    model = random_gpt(config) if bits == 32 else quantize(random_gpt(config))
    x_1T = torch.randint(40, (1, 10))
    whole_TV = model(x_1T)[0]
    cache = [KVCache(config.context) for _ in model.blocks]
    model(x_1T[:, :4], cache=cache)
    made = prepare_layers(model.blocks)
    for t in range(4, 10):
        h_BTE = model.embed_tokens(x_1T[:, t : t + 1], t)
        decode_token(made, h_BTE[0, 0], cache)
        torch.testing.assert_close(model.logits(h_BTE)[0, 0], whole_TV[t], atol=2e-5, rtol=1e-5)
        assert cache[0].length == t + 1


def test_writing_uses_the_kernel_and_follows_changed_weights(monkeypatch):
    from engram.generation import generate

    passed = []
    monkeypatch.setattr(generate, "decode_token", lambda *args: passed.append(1) or decode_token(*args))
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
    apply_lora(model, 2)
    assert prepare_layers(model.blocks) is None
    assert prepare_layers(random_gpt(GPT.Config(**SMALL, residual="post-norm")).blocks) is None
    assert prepare_layers(random_gpt(CONFIGS["default"]).double().blocks) is None
    adapted = model.generate([[1, 2, 3]], 6, GREEDY)
    assert adapted == model.generate([[1, 2, 3]], 6, GREEDY, cached=False)
