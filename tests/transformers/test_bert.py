"""BERT: padding never matters, and masking hides as many tokens as it should."""

from contextlib import nullcontext

import pytest
import torch
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.transformers.bert.model import BERT, IGNORE_INDEX, Masking

V, T = 23, 9
LENGTHS = [9, 4, 1, 6]
VALID = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
KINDS = [
    {},
    {"residual": "pre-norm"},
    {"qk_norm": "layer-no-affine"},
    {"kv_heads": 1},
    {"norm": "layer-no-affine", "bias": (), "types": 0},
]


def bert(**settings):
    torch.manual_seed(0)
    model = BERT(BERT.Config(**{"vocabulary": V, "context": 12, "width": 12, "layers": 2, "heads": 3, **settings}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def texts():
    return torch.randint(V, (len(LENGTHS), T), generator=torch.Generator().manual_seed(0))


def near(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


# ---------------------------------------------------------------------- padding


@torch.no_grad()
@pytest.mark.parametrize("settings", KINDS)
def test_a_padded_text_is_as_if_alone(settings):
    model, x = bert(**settings), texts()
    together = model(x, VALID)
    for row, length in enumerate(LENGTHS):
        near(together[row, :length], model(x[row : row + 1, :length])[0])


@torch.no_grad()
@pytest.mark.parametrize("settings", KINDS)
def test_texts_without_padding_between_them_equal_masked_ones(settings):
    """Whoever watches gets the masked way."""
    model, x = bert(**settings), texts()
    with watch(model, "nothing"):
        masked = model.encode(x, VALID)
    near(model.encode(x, VALID), masked)


@torch.no_grad()
def test_what_stands_in_the_padding_never_matters():
    model, x = bert(), texts()
    other = torch.where(VALID, x, (x + 5) % V)
    assert torch.equal(model(x, VALID), model(other, VALID))


@torch.no_grad()
def test_padding_gets_zeros():
    vectors = bert().encode(texts(), VALID)
    assert torch.equal(vectors[~VALID], torch.zeros_like(vectors[~VALID]))


@torch.no_grad()
def test_an_empty_text_among_others_does_no_harm():
    model, x = bert(), texts()
    valid = VALID.clone()
    valid[2] = False
    near(model(x, valid)[[0, 1, 3]], model(x[[0, 1, 3]], VALID[[0, 1, 3]]))


@torch.no_grad()
def test_padding_may_stand_anywhere():
    """Places are kept: the same words at the same places, with other words that are not seen."""
    model, x = bert(), texts()[:1]
    valid = torch.tensor([[1, 0, 1, 1, 0, 0, 1, 1, 0]]).bool()
    with watch(model, "nothing"):
        masked = model.encode(x, valid)
    near(model.encode(x, valid), masked)


@torch.no_grad()
def test_every_token_sees_every_other():
    model, x = bert(), texts()[:1]
    before = model(x)
    for place in range(T):
        other = x.clone()
        other[0, place] = (x[0, place] + 1) % V
        assert ((model(other) - before).abs().amax(-1) > 1e-4).all()


def test_gradients_pass_through_texts_without_padding():
    model, x = bert(), texts()
    y = torch.where(VALID, x, IGNORE_INDEX)
    slopes = []
    for masked in (False, True):
        model.zero_grad()
        with watch(model, "nothing") if masked else nullcontext():
            model.loss(x, y, VALID).backward()
        slopes.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for packed, padded in zip(*slopes, strict=True):
        near(packed, padded)


# ---------------------------------------------------------------------- loss


@torch.no_grad()
def test_loss_is_over_the_tokens_to_be_guessed():
    model, x = bert(), texts()
    y = torch.full_like(x, IGNORE_INDEX)
    y[0, 3], y[1, 0], y[3, 5] = 7, 2, 11
    log = model(x, VALID).log_softmax(-1)
    expected = -(log[0, 3, 7] + log[1, 0, 2] + log[3, 5, 11]) / 3
    near(model.loss(x, y, VALID), expected)


@torch.no_grad()
def test_loss_equals_the_cross_entropy_that_ignores():
    model, x = bert(), texts()
    shown, y = Masking(mask=1, vocabulary=V, excluded=(0,))(x, generator(0))
    expected = F.cross_entropy(model(shown).flatten(0, 1), y.flatten(), ignore_index=IGNORE_INDEX)
    near(model.loss(shown, y), expected)


def test_with_nothing_to_guess_the_loss_is_zero_and_has_a_gradient():
    model, x = bert(), texts()
    loss = model.loss(x, torch.full_like(x, IGNORE_INDEX))
    loss.backward()
    assert loss == 0


# ---------------------------------------------------------------------- masking


N = 200_000
MASKED_TOKEN, SPARED, WORDS = 4, (0, 1, 2), 1000


@pytest.fixture(scope="module")
def hidden():
    x = torch.randint(WORDS, (N // 100, 100), generator=generator(1))
    shown, y = Masking(mask=MASKED_TOKEN, vocabulary=WORDS, excluded=SPARED)(x, generator(1000))
    return x, shown, y


def within(count, total, part):
    """Within three standard deviations of a binomial."""
    return abs(count - total * part) < 3 * (total * part * (1 - part)) ** 0.5


def test_fifteen_percent_are_guessed(hidden):
    x, _, y = hidden
    candidates = ~torch.isin(x, torch.tensor(SPARED))
    assert within(int((y != IGNORE_INDEX).sum()), int(candidates.sum()), 0.15)


def test_specials_are_spared(hidden):
    x, shown, y = hidden
    special = torch.isin(x, torch.tensor(SPARED))
    assert (y[special] == IGNORE_INDEX).all()
    assert torch.equal(shown[special], x[special])


def test_what_is_guessed_is_what_stood_there(hidden):
    x, _, y = hidden
    assert torch.equal(y[y != IGNORE_INDEX], x[y != IGNORE_INDEX])


def test_what_is_not_guessed_is_shown(hidden):
    x, shown, y = hidden
    assert torch.equal(shown[y == IGNORE_INDEX], x[y == IGNORE_INDEX])


def test_eighty_ten_ten(hidden):
    """A random token may be the mask or the word itself, once in WORDS."""
    x, shown, y = hidden
    guessed = (y != IGNORE_INDEX) & (x != MASKED_TOKEN)
    total = int(guessed.sum())
    masked, left = (int((guessed & (shown == other)).sum()) for other in (MASKED_TOKEN, x))
    assert within(masked, total, 0.8 + 0.1 / WORDS)
    assert within(left, total, 0.1 + 0.1 / WORDS)
    assert within(total - masked - left, total, 0.1 * (1 - 2 / WORDS))


def test_random_words_are_all_equally_likely(hidden):
    x, shown, y = hidden
    other = (y != IGNORE_INDEX) & (shown != MASKED_TOKEN) & (shown != x)
    found = torch.bincount(shown[other] * 10 // WORDS, minlength=10)
    assert all(within(int(count), int(other.sum()), 0.1) for count in found)


def test_without_specials_every_token_may_be_hidden():
    x = torch.zeros(10, 1000, dtype=torch.long)
    _, y = Masking(mask=1, vocabulary=2)(x, generator(0))
    assert within(int((y != IGNORE_INDEX).sum()), 10_000, 0.15)


# ---------------------------------------------------------------------- what a checkpoint may lack


def test_no_pooled_vector_is_said():
    with pytest.raises(EngramError, match="pooled"):
        bert().pooled(torch.zeros(1, 1, 12))


def test_no_head_is_said():
    with pytest.raises(EngramError, match="head"):
        bert(masked=False)(texts())
