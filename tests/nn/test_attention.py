"""Attention against a loop over every number, against torch's own module, and the fused form against the reference."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.nn.attention import Attention, KVCache, attention, causal_mask, check_heads, reference_attention
from engram.nn.position import RotaryEmbedding
from engram.transformers.bert.model import BERT
from engram.transformers.gpt.model import GPT
from engram.transformers.translate.model import Transformer
from engram.transformers.vit.model import ViT

B, H, D = 2, 4, 6
NEAR = {"atol": 1e-6, "rtol": 1e-5}


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def allowed(*shape):
    """An arbitrary mask, in which every token may see the first at least."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(9)) < 0.5
    mask[..., 0] = True
    return mask


VALID = (torch.arange(7) < torch.tensor([7, 3])[:, None])[:, None, None]
CASES = {
    "no mask": (7, 7, H, None, False),
    "causal": (7, 7, H, None, True),
    "valid tokens": (7, 7, H, VALID, False),
    "arbitrary mask": (7, 7, H, allowed(B, 1, 7, 7), False),
    "a mask for each head": (7, 7, H, allowed(B, H, 7, 7), False),
    "causal and a mask": (7, 7, H, VALID, True),
    "grouped": (7, 7, 2, None, False),
    "one group": (7, 7, 1, None, True),
    "grouped, causal and a mask": (7, 7, 2, VALID, True),
    "fewer queries than keys": (3, 7, H, None, False),
    "more queries than keys": (7, 3, H, None, False),
    "the last queries, causal": (3, 7, H, None, True),
    "the last queries, causal and a mask": (3, 7, 2, VALID, True),
    "the last query, causal": (1, 7, H, None, True),
}


def queries(T, S, G, double=False):
    q, k, v = random(B, H, T, D), random(B, G, S, D, seed=1), random(B, G, S, D, seed=2)
    return (q.double(), k.double(), v.double()) if double else (q, k, v)


def looped(q, k, v, mask, causal, temperature=1.0, bias=None):
    """Equation (2), number by number."""
    q, k, v = (x.double().numpy() for x in (q, k, v))
    T, S, share = q.shape[2], k.shape[2], H // k.shape[1]
    mask = np.ones((B, H, T, S), bool) if mask is None else mask.expand(B, H, T, S).numpy()
    bias = np.zeros((H, T, S)) if bias is None else bias.numpy()
    weights, out = np.zeros((B, H, T, S)), np.zeros((B, H, T, D))
    for b in range(B):
        for h in range(H):
            for t in range(T):
                visible = [s for s in range(S) if mask[b, h, t, s] and not (causal and s > t + S - T)]
                products = [sum(q[b, h, t] * k[b, h // share, s]) / math.sqrt(D) for s in visible]
                scores = [(z + bias[h, t, s]) / temperature for z, s in zip(products, visible, strict=True)]
                total = sum(math.exp(score) for score in scores)
                for s, score in zip(visible, scores, strict=True):
                    weights[b, h, t, s] = math.exp(score) / total
                    out[b, h, t] += weights[b, h, t, s] * v[b, h // share, s]
    return torch.tensor(weights), torch.tensor(out)


class Shown(nn.Module):
    """The reference form as a module, so that it can be watched."""

    def forward(self, *qkv, **options):
        return reference_attention(*qkv, **options)


def shown(*qkv, **options):
    """Weights and values of the reference form."""
    model = Shown()
    with watch(model, "weights") as seen:
        out = model(*qkv, **options)
    return seen["weights"], out


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_fused_equals_the_reference(case, biased):
    T, S, G, mask, causal = CASES[case]
    qkv, bias = queries(T, S, G), random(H, T, S, seed=3) if biased else None
    torch.testing.assert_close(
        attention(*qkv, mask, bias, causal=causal), reference_attention(*qkv, mask, bias, causal=causal), **NEAR
    )


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_reference_equals_a_loop(case, biased):
    T, S, G, mask, causal = CASES[case]
    qkv, bias = queries(T, S, G, double=True), random(H, T, S, seed=3).double() if biased else None
    weights, out = shown(*qkv, mask, bias, causal=causal)
    expected_weights, expected_out = looped(*qkv, mask, causal, bias=bias)
    torch.testing.assert_close(out, expected_out, atol=1e-12, rtol=0)
    torch.testing.assert_close(weights, expected_weights, atol=1e-12, rtol=0)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 2, 3, 7, 8, 9, 14, 15, 20])
def test_windows_hide_what_is_far_away(window, causal):
    """Also where the window is wider than the text: without `causal` it lies half on either side."""
    q, k, v = queries(8, 8, H)
    distance = torch.arange(8)[:, None] - torch.arange(8)
    near = (distance >= 0) & (distance < window) if causal else distance.abs() <= window // 2
    expected = functional.scaled_dot_product_attention(q, k, v, near)
    for one in (attention, reference_attention):
        torch.testing.assert_close(one(q, k, v, causal=causal, window=window), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.1, 0.5, 3.0])
def test_temperature_divides_the_scores(temperature):
    qkv = queries(5, 7, H, double=True)
    _, expected = looped(*qkv, None, False, temperature)
    torch.testing.assert_close(reference_attention(*qkv, temperature=temperature), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("causal", [False, True])
def test_at_temperature_zero_it_is_the_hard_select(causal):
    q, k, v = queries(7, 7, H)
    found = reference_attention(q, k, v, causal=causal, temperature=0)
    for b, h, t in np.ndindex(B, H, 7):
        visible = t + 1 if causal else 7
        likeness = [float(q[b, h, t] @ k[b, h, s]) for s in range(visible)]
        assert torch.equal(found[b, h, t], v[b, h, likeness.index(max(likeness))])


def test_as_temperature_falls_it_becomes_the_hard_select():
    qkv = queries(7, 7, H, double=True)
    hard = reference_attention(*qkv, temperature=0)
    torch.testing.assert_close(reference_attention(*qkv, temperature=1e-5), hard, atol=1e-6, rtol=0)


@pytest.mark.parametrize("case", CASES)
def test_weights_of_a_token_sum_to_one(case):
    T, S, G, mask, causal = CASES[case]
    weights, _ = shown(*queries(T, S, G), mask, causal=causal)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T))


@pytest.mark.parametrize("case", ["causal", "valid tokens", "arbitrary mask", "the last queries, causal and a mask"])
def test_masked_weights_are_exactly_zero(case):
    T, S, G, mask, causal = CASES[case]
    weights, _ = shown(*queries(T, S, G), mask, causal=causal)
    visible = torch.ones(B, H, T, S, dtype=torch.bool) if mask is None else mask.expand(B, H, T, S)
    visible = visible & causal_mask(T, S) if causal else visible
    assert torch.equal(weights[~visible], torch.zeros_like(weights[~visible]))
    assert (weights[visible] > 0).all()


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_fused_equal_those_of_the_reference(case):
    T, S, G, mask, causal = CASES[case]
    slopes = []
    for form in (attention, reference_attention):
        qkv = [x.requires_grad_() for x in queries(T, S, G)]
        slopes.append(torch.autograd.grad(form(*qkv, mask, causal=causal).square().sum(), qkv))
    for fused, plain in zip(*slopes, strict=True):
        torch.testing.assert_close(fused, plain, atol=1e-5, rtol=1e-5)


# ---------------------------------------------------------------------- the module


E = H * D


def module(**settings):
    torch.manual_seed(0)
    made = Attention(E, H, **settings)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.3)
    return made.eval()


def peer(ours):
    """torch's own, with the same weights."""
    theirs = nn.MultiheadAttention(E, H, batch_first=True).eval()
    theirs.in_proj_weight.data = torch.cat([ours.q.weight, ours.k.weight, ours.v.weight]).data
    theirs.in_proj_bias.data = torch.cat([ours.q.bias, ours.k.bias, ours.v.bias]).data
    theirs.out_proj.load_state_dict(ours.o.state_dict())
    return theirs


@torch.no_grad()
def test_self_attention_equals_that_of_torch():
    ours, x = module(), random(B, 7, E)
    torch.testing.assert_close(ours(x), peer(ours)(x, x, x)[0], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_causal_attention_equals_that_of_torch():
    ours, x = module(causal=True), random(B, 7, E)
    expected = peer(ours)(x, x, x, attn_mask=~causal_mask(7, 7))[0]
    torch.testing.assert_close(ours(x), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_cross_attention_equals_that_of_torch():
    ours, x, z = module(), random(B, 5, E), random(B, 7, E, seed=1)
    expected = peer(ours)(x, z, z, key_padding_mask=~VALID[:, 0, 0])[0]
    torch.testing.assert_close(ours(x, z, mask=VALID), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_weights_equal_those_of_torch():
    ours, x = module(), random(B, 7, E)
    with watch(ours, "weights") as seen:
        ours(x)
    expected = peer(ours)(x, x, x, average_attn_weights=False)[1]
    torch.testing.assert_close(seen["weights"], expected, **NEAR)


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"causal": True, "kv_heads": 2}])
def test_watching_weights_changes_nothing(settings):
    ours, x = module(**settings), random(B, 7, E)
    with watch(ours, "weights"):
        seen = ours(x)
    torch.testing.assert_close(ours(x), seen, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_grouped_heads_equal_heads_that_repeat():
    grouped, whole = module(kv_heads=2), module()
    whole.q, whole.o = grouped.q, grouped.o
    for name in ("k", "v"):
        weight, bias = getattr(grouped, name).weight, getattr(grouped, name).bias
        getattr(whole, name).weight.data = weight.view(2, D, E).repeat_interleave(2, 0).flatten(0, 1)
        getattr(whole, name).bias.data = bias.view(2, D).repeat_interleave(2, 0).flatten()
    x = random(B, 7, E)
    torch.testing.assert_close(grouped(x), whole(x), **NEAR)


@torch.no_grad()
def test_normed_queries_make_the_size_of_the_stream_irrelevant_to_weights():
    ours, x = module(qk_norm="layer-no-affine", qkv_bias=False, out_bias=False), random(B, 7, E)
    weights = []
    for scale in (10, 1000):
        with watch(ours, "weights") as seen:
            ours(scale * x)
        weights.append(seen["weights"])
    torch.testing.assert_close(*weights, atol=1e-4, rtol=0)


# ---------------------------------------------------------------------- cache and packing


CACHED = [
    {},
    {"qk_norm": "layer-no-affine"},
    {"rotary": RotaryEmbedding(D, 9)},
    {"kv_heads": 2, "qk_norm": "layer-no-affine", "rotary": RotaryEmbedding(D, 9)},
]


@torch.no_grad()
@pytest.mark.parametrize("parts", [[1] * 9, [4, 1, 1, 3], [9]])
@pytest.mark.parametrize("settings", CACHED)
def test_token_by_token_equals_all_at_once(settings, parts):
    ours, x, cache = module(causal=True, **settings), random(B, 9, E), KVCache(9)
    found = torch.cat([ours(part, cache=cache) for part in x.split(parts, 1)], 1)
    torch.testing.assert_close(found, ours(x), atol=2e-6, rtol=1e-5)


@torch.no_grad()
def test_cross_attention_token_by_token_equals_all_at_once():
    ours, x, z, cache = module(), random(B, 5, E), random(B, 7, E, seed=1), KVCache(7)
    found = torch.cat([ours(one, z, mask=VALID, cache=cache) for one in x.split(1, 1)], 1)
    torch.testing.assert_close(found, ours(x, z, mask=VALID), atol=2e-6, rtol=1e-5)


@torch.no_grad()
def test_reordered_rows_go_on_from_others():
    ours, x, cache = module(causal=True), random(3, 6, E), KVCache(6)
    ours(x[:, :5], cache=cache)
    row = torch.tensor([2, 0, 0])
    cache.reorder(row)
    found = ours(x[:, 5:], cache=cache)
    expected = ours(torch.cat([x[row, :5], x[:, 5:]], 1))[:, 5:]
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("settings", [*CACHED, {"causal": True}])
def test_packed_equals_padded(settings):
    ours, lengths = module(**settings), [4, 1, 6]
    x = random(3, 6, E)
    valid = torch.arange(6) < torch.tensor(lengths)[:, None]
    padded = ours(x, mask=valid[:, None, None])[valid]
    torch.testing.assert_close(ours.forward_unpadded(x[valid], lengths), padded, atol=2e-6, rtol=1e-5)


# ---------------------------------------------------------------------- a head that is switched off


def shaken(model):
    """With no projection where its initialization left it."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


SMALL = {"width": 12, "layers": 2, "heads": 3}
IDS = torch.randint(2, 11, (2, 6), generator=torch.Generator().manual_seed(0))
MODELS = {
    "gpt": (lambda: GPT(GPT.Config(vocabulary=11, **SMALL)), [IDS], "blocks.1.attention"),
    "grouped gpt": (lambda: GPT(GPT.Config(vocabulary=11, **SMALL, kv_heads=1)), [IDS], "blocks.0.attention"),
    "bert": (lambda: BERT(BERT.Config(vocabulary=11, **SMALL)), [IDS], "blocks.1.attention"),
    "vit": (lambda: ViT(ViT.Config(shape=(1, 8, 8), **SMALL)), [random(2, 1, 8, 8)], "blocks.0.attention"),
    "encoder": (lambda: Transformer(Transformer.Config(vocabulary=11, **SMALL)), [IDS, IDS], "encoder.1.attention"),
    "decoder": (lambda: Transformer(Transformer.Config(vocabulary=11, **SMALL)), [IDS, IDS], "decoder.0.attention"),
    "cross": (lambda: Transformer(Transformer.Config(vocabulary=11, **SMALL)), [IDS, IDS], "decoder.1.cross"),
}


def off(head):
    def silenced(heads_BHTD):
        heads_BHTD = heads_BHTD.clone()
        heads_BHTD[:, head] = 0
        return heads_BHTD

    return silenced


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_a_head_switched_off_is_a_head_without_its_slice_of_the_output_matrix(name):
    make, inputs, place = MODELS[name]
    model, head, size = shaken(make()), 1, 4
    before = model(*inputs)
    with watch(model, replace={f"{place}.heads": off(head)}):
        found = model(*inputs)
    model.get_submodule(place).o.weight[:, head * size : (head + 1) * size] = 0
    torch.testing.assert_close(found, model(*inputs), atol=1e-7, rtol=1e-6)
    assert (found - before).abs().max() > 1e-3


@torch.no_grad()
def test_a_head_switched_off_everywhere():
    model = shaken(MODELS["gpt"][0]())
    with watch(model, replace={"*.attention.heads": off(2)}):
        found = model(IDS)
    for block in model.blocks:
        block.attention.o.weight[:, 8:] = 0
    torch.testing.assert_close(found, model(IDS), atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize(("heads", "kv_heads"), [(5, 0), (0, 0), (4, 3), (4, -1)])
def test_heads_that_do_not_divide_are_refused(heads, kv_heads):
    with pytest.raises(EngramError, match="must divide"):
        check_heads(12, heads, kv_heads)
