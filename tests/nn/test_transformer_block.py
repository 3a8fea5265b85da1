"""One round written out by hand, and its functions against torch."""

import pytest
import torch
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.nn.attention import causal_mask
from engram.nn.transformer_block import ACTIVATIONS, Block, BlockConfig, FeedForward, relu2

E = 12


def block(seed=0, **settings):
    """A block none of whose parameters is zero or one."""
    torch.manual_seed(seed)
    options = {key: settings.pop(key) for key in ("causal", "cross") if key in settings}
    made = Block(BlockConfig(width=E, heads=3, ff_width=20, **settings), **options)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


def residual(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def normed(x, layer):
    """Layer norm, written out."""
    x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    return x * layer.weight + layer.bias


def heard(x, z, layer, mask=None):
    """Attention with three heads of four, one head at a time."""
    heads = []
    for h in range(3):
        part = slice(4 * h, 4 * h + 4)
        q, k, v = (
            F.linear(source, one.weight[part], one.bias[part])
            for source, one in ((x, layer.q), (z, layer.k), (z, layer.v))
        )
        score = q @ k.mT / 2
        if mask is not None:
            score = score.masked_fill(~mask, -torch.inf)
        heads.append(score.softmax(-1) @ v)
    return layer.o(torch.cat(heads, -1))


def fed(x, layer):
    return layer.down(F.gelu(layer.up(x)))


def near(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_norm_before():
    b, h = block(residual="pre-norm"), residual(2, 5, E)
    x = normed(h, b.attention_norm)
    middle = h + heard(x, x, b.attention)
    near(b(h), middle + fed(normed(middle, b.ff_norm), b.ff))


@torch.no_grad()
def test_norm_after():
    b, h = block(residual="post-norm"), residual(2, 5, E)
    middle = normed(h + heard(h, h, b.attention), b.attention_norm)
    near(b(h), normed(middle + fed(middle, b.ff), b.ff_norm))


@torch.no_grad()
def test_a_decoder_hears_itself_first_and_then_the_source():
    b, h, z = block(residual="post-norm", causal=True, cross=True), residual(2, 5, E), residual(2, 7, E, seed=2)
    h1 = normed(h + heard(h, h, b.attention, causal_mask(5, 5)), b.attention_norm)
    h2 = normed(h1 + heard(h1, z, b.cross), b.cross_norm)
    near(b(h, encoded_BSE=z), normed(h2 + fed(h2, b.ff), b.ff_norm))


@torch.no_grad()
def test_a_plain_norm_has_no_gain_and_no_bias():
    b, h = block(norm="layer-no-affine"), residual(2, 5, E)
    assert not any("norm" in name for name, _ in b.named_parameters())
    x = F.layer_norm(h, (E,))
    middle = h + heard(x, x, b.attention)
    near(b(h), middle + fed(F.layer_norm(middle, (E,)), b.ff))


@torch.no_grad()
@pytest.mark.parametrize(
    "settings", [{}, {"residual": "post-norm"}, {"qk_norm": "layer-no-affine"}, {"heads": 6, "kv_heads": 2}]
)
def test_packed_equals_each_sequence_alone(settings):
    torch.manual_seed(0)
    b = Block(BlockConfig(**{"width": E, "heads": 3, **settings})).eval()
    parts = [residual(1, n, E, seed=n) for n in (4, 1, 6)]
    found = b.forward_unpadded(torch.cat(parts, 1)[0], [4, 1, 6])
    near(found, torch.cat([b(part) for part in parts], 1)[0])


# ---------------------------------------------------------------------- the feed-forward part


def feed_forward(activation):
    torch.manual_seed(0)
    return FeedForward(BlockConfig(width=E, heads=3, ff_width=20, activation=activation))


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "activation"),
    [
        ("relu", lambda z: z.clamp(min=0)),
        ("gelu", lambda z: 0.5 * z * (1 + torch.erf(z / 2**0.5))),
        ("gelu_tanh", torch.nn.GELU(approximate="tanh")),
        ("quick_gelu", lambda z: z / (1 + torch.exp(-1.702 * z))),
        ("relu2", lambda z: z.clamp(min=0) ** 2),
        ("silu", torch.nn.SiLU()),
    ],
)
def test_feed_forward(name, activation):
    ff, x = feed_forward(name), residual(2, 5, E)
    near(ff(x), ff.down(activation(x @ ff.up.weight.T + ff.up.bias)))


@torch.no_grad()
def test_swiglu_is_gated():
    ff, x = feed_forward("swiglu"), residual(2, 5, E)
    near(ff(x), ff.down(torch.nn.SiLU()(ff.gate(x)) * ff.up(x)))


def test_every_function_can_be_chosen():
    for name in ACTIVATIONS:
        assert feed_forward(name)(residual(1, 2, E)).shape == (1, 2, E)


def test_relu2_has_the_derivative_that_it_says():
    z = (residual(40).double() + 0.01).requires_grad_()
    assert torch.autograd.gradcheck(relu2, z)


def test_relu2_is_the_same_with_and_without_a_gradient():
    z = residual(40)
    assert torch.equal(relu2(z), relu2(z.clone().requires_grad_()).detach())


def test_relu2_leaves_what_it_is_given_alone():
    z = residual(40)
    before = z.clone()
    relu2(z)
    assert torch.equal(z, before)


# ---------------------------------------------------------------------- dropout


def test_dropout_is_off_in_evaluation():
    wet, dry, h = block(dropout=0.5), block(), residual(2, 5, E)
    assert torch.equal(wet(h), dry(h))


def test_dropout_is_on_while_learning():
    wet, h = block(dropout=0.5).train(), residual(2, 5, E)
    assert not torch.equal(wet(h), wet(h))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"width": 10, "heads": 3}, "heads"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads"),
        ({"layers": 0}, "layers"),
        ({"ff_width": -1}, "ff_width"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_wrong_fields_are_named(settings, named):
    with pytest.raises(EngramError, match=named):
        BlockConfig(**settings)
