"""One token through the kernel, beside the same block of torch's operations."""

import pytest
import torch

from engram.core.tap import watch
from engram.generation.fused_decode import FusedDecoder
from engram.generation.generate import TransformerDecoder
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


@pytest.mark.parametrize("bits", [32, 8, 4])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@torch.no_grad()
def test_the_kernel_computes_what_the_block_computes(config, bits):
    model = random_gpt(config) if bits == 32 else quantize(random_gpt(config), bits)
    x_1T = torch.randint(40, (1, 10))
    whole_TV = model(x_1T)[0]
    cache = [KVCache(config.context) for _ in model.blocks]
    model(x_1T[:, :4], cache=cache)
    decoder = FusedDecoder.of(model.blocks)
    for t in range(4, 10):
        h_BTE = model.embed_tokens(x_1T[:, t : t + 1], t)
        decoder(h_BTE[:, 0], cache, torch.zeros(1, dtype=torch.long))
        if bits == 32:
            torch.testing.assert_close(model.logits(h_BTE)[0, 0], whole_TV[t], atol=2e-5, rtol=1e-5)
        else:  # an input may be rounded to the next of 127 steps
            assert (model.logits(h_BTE)[0, 0] - whole_TV[t]).norm() < 0.02 * whole_TV[t].norm()
        assert cache[0].length == t + 1


@pytest.mark.parametrize("cache_bits", [32, 16, 8])
@pytest.mark.parametrize("name", ["default", "gpt2", "swiglu, grouped heads"])
@torch.no_grad()
def test_texts_of_unequal_length_are_decoded_as_each_alone(name, cache_bits):
    """Six texts, so that a weight is read for four of them and for one at a time."""
    model = random_gpt(CONFIGS[name])
    texts = [torch.randint(40, (length,)).tolist() for length in (3, 7, 5, 8, 2, 6)]
    decoder = TransformerDecoder(model, cache_bits=cache_bits)
    assert decoder.fused is not None
    decoder(texts)
    for _ in range(3):
        texts = [[*text, i] for i, text in enumerate(texts)]
        logits_BV = decoder(texts)[:, -1]
        for text, logits_V in zip(texts, logits_BV, strict=True):
            expected_V = model(torch.tensor([text]))[0, -1]
            error = (logits_V - expected_V).norm() / expected_V.norm()
            assert error < {32: 1e-5, 16: 3e-3, 8: 0.05}[cache_bits]


@pytest.mark.parametrize("cache_bits", [16, 8])
@torch.no_grad()
def test_the_kernel_reads_a_small_cache_as_torch_does(cache_bits):
    """Reading and writing keys and values of 16 and 8 bits stand twice: in the kernel and in the KV cache."""
    model, text = random_gpt(CONFIGS["default"]), torch.randint(40, (10,)).tolist()
    fused, plain = (TransformerDecoder(model, cache_bits=cache_bits) for _ in range(2))
    plain.fused = None
    for t in range(3, 11):
        torch.testing.assert_close(fused([text[:t]]), plain([text[:t]]), atol=2e-4, rtol=1e-3)
    assert fused.cache[0].k_BGSD.dtype == {16: torch.float16, 8: torch.int8}[cache_bits]


@torch.no_grad()
def test_nothing_is_read_past_the_end_of_a_matrix():
    """50 hidden units fill no strip of 16, and what follows the weights in memory is not a number."""
    model = random_gpt(CONFIGS["quick gelu, wide inside"])
    for module in model.modules():
        for name, value in list(module.named_parameters(recurse=False)):
            rows = torch.cat([value, torch.full_like(value, float("nan"))])[: len(value)]
            module.register_parameter(name, torch.nn.Parameter(rows))
    decoder, text = TransformerDecoder(model), [1, 2, 3]
    decoder([text])
    torch.testing.assert_close(decoder([[*text, 4]]), model(torch.tensor([[*text, 4]]))[:, -1:], atol=2e-5, rtol=1e-5)


def test_generation_uses_the_kernel_and_follows_changed_weights(monkeypatch):
    passed = []
    call = FusedDecoder.__call__
    monkeypatch.setattr(FusedDecoder, "__call__", lambda *args: passed.append(1) or call(*args))
    model = random_gpt(CONFIGS["default"])
    before = model.generate([[1, 2, 3]], 6, GREEDY)
    assert len(passed) == 5  # the prompt goes through the blocks as a whole
    with torch.no_grad():
        model.blocks[0].ff.down.weight.neg_()
    after = model.generate([[1, 2, 3]], 6, GREEDY)
    assert after == model.generate([[1, 2, 3]], 6, GREEDY, cached=False) != before


def test_who_watches_sees_every_token():
    model = random_gpt(CONFIGS["default"])
    plain = model.generate([[1, 2, 3]], 6, GREEDY)
    with watch(model, "*attention.out") as seen:
        assert model.generate([[1, 2, 3]], 6, GREEDY) == plain
    assert len(seen.all("blocks.0.attention.out")) == 6


def test_blocks_that_the_kernel_cannot_compute_are_left_to_torch():
    model = random_gpt(CONFIGS["default"])
    apply_lora(model, 2)
    assert FusedDecoder.of(model.blocks) is None
    assert FusedDecoder.of(random_gpt(GPT.Config(**SMALL, residual="post-norm")).blocks) is None
    assert FusedDecoder.of(random_gpt(CONFIGS["default"]).double().blocks) is None
    adapted = model.generate([[1, 2, 3]], 6, GREEDY)
    assert adapted == model.generate([[1, 2, 3]], 6, GREEDY, cached=False)
