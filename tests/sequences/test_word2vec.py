"""word2vec's compiled loop and the softmax network against torch's own gradients, and its chances against formulas."""

import numpy as np
import pytest
import torch
from scipy import stats

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.sequences.word2vec.kernels import compile_kernel
from engram.sequences.word2vec.learner import FullSoftmax, NegativeSampling, SamplingTables, Word2VecTraining
from engram.sequences.word2vec.model import (
    Word2Vec,
    context_pairs,
    keep_probability,
    noise_distribution,
    one_hot,
    padded_view,
)

pytestmark = pytest.mark.xdist_group("word2vec")  # one process compiles the kernels

V, E = 40, 12
ROW = 16
"""a row of E numbers with its room: a kernel is compiled for each width of rows, which takes seconds"""
RATE = 0.05


def model(scale=0.3, vocabulary=V, width=E):
    torch.manual_seed(0)
    words = Word2Vec(Word2Vec.Config(vocabulary=vocabulary, width=width))
    torch.nn.init.normal_(words.v, std=scale)
    torch.nn.init.normal_(words.u, std=scale)
    words.count[1:] = torch.arange(vocabulary, 1, -1) ** 2
    return words


def train(words, ids, ends, *, window=1, negatives, share="window", cbow=False, weight=1.0, seed=3, keep=None):
    """The kernel with negatives that are known: each is drawn from the few that are given, all equally probable."""
    chance, alias = np.zeros(len(negatives), np.uint32), np.array(negatives, np.int32)
    keep = np.full(len(words.v), 2**32, np.uint64) if keep is None else keep
    v, u = padded_view(words.v), padded_view(words.u)
    return compile_kernel(v.shape[1])(
        np.array(ids, np.int32), np.array(ends, np.int64), v, u, keep, chance, alias,
        window, len(negatives) if share == "sentence" else 3, weight, RATE, seed, cbow, share == "sentence",
    )  # fmt: skip


def descended(before, loss):
    """The tables of a model after one step downhill on a loss."""
    v, u = before.v.clone().requires_grad_(), before.u.clone().requires_grad_()
    gradients = torch.autograd.grad(loss(v, u), (v, u))
    return before.v - RATE * gradients[0], before.u - RATE * gradients[1]


def negative_loss(h_BE, u, output_B, negative_BK, weight=1.0):
    own = torch.nn.functional.logsigmoid((h_BE * u[output_B]).sum(-1)).sum()
    others = torch.nn.functional.logsigmoid(-torch.einsum("be,bke->bk", h_BE, u[negative_BK])).sum()
    return -own - weight * others


@pytest.mark.parametrize("width", [1, 12, 100])
def test_a_window_of_skip_gram_is_a_step_down_torchs_gradient(width):
    """Two words, of which each is the other's context; one negative, three times over."""
    words, before = model(width=width), model(width=width)
    train(words, [5, 9], [2], negatives=[7])
    for center, context in ((5, 9), (9, 5)):
        v, u = descended(
            before,
            lambda v, u, a=context, b=center: negative_loss(v[[a]], u, torch.tensor([b]), torch.tensor([[7, 7, 7]])),
        )
        before.v.copy_(v)
        before.u.copy_(u)
    torch.testing.assert_close(words.v, before.v, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(words.u, before.u, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 9])
def test_windows_one_after_the_other_are_steps_down_torchs_gradient(count):
    ids = list(range(10, 10 + count))
    words, before = model(), model()
    train(words, ids, [count], window=1, negatives=[7])
    for i, center in enumerate(ids):
        context = [ids[j] for j in (i - 1, i + 1) if 0 <= j < count]
        v, u = descended(
            before,
            lambda v, u, a=context, b=center: negative_loss(
                v[a], u, torch.tensor([b] * len(a)), torch.full((len(a), 3), 7)
            ),
        )
        before.v.copy_(v)
        before.u.copy_(u)
    torch.testing.assert_close(words.v, before.v, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(words.u, before.u, rtol=1e-5, atol=1e-6)


def windows_of(seed, n, window, between=0):
    """The reaches that the kernel draws for the first sentence of n words, from splitmix64 as its paper has it."""
    state, mask = seed, 2**64 - 1

    def draw():
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    for _ in range(n):  # whether each word is kept
        draw()
    reach = []
    for _ in range(n):
        reach.append(window - ((draw() >> 32) * window >> 32))
        for _ in range(between):  # the negatives of each window
            draw()
    return reach


@pytest.mark.parametrize("n", [3, 8, 25])
def test_wide_windows_are_steps_down_torchs_gradient(n):
    """Up to ten words around each: full fours of inputs, and what is left of them."""
    ids, window = list(range(1, n + 1)), 5
    words, before = model(scale=0.1, width=100), model(scale=0.1, width=100)
    train(words, ids, [n], window=window, negatives=[35])
    for i, reach in enumerate(windows_of(3, n, window, between=3)):
        context = [ids[j] for j in range(n) if 0 < abs(i - j) <= reach]
        own, negatives = torch.tensor([ids[i]] * len(context)), torch.full((len(context), 3), 35)
        v, u = descended(before, lambda v, u, c=context, o=own, k=negatives: negative_loss(v[c], u, o, k))
        before.v.copy_(v)
        before.u.copy_(u)
    torch.testing.assert_close(words.v, before.v, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(words.u, before.u, rtol=1e-5, atol=1e-6)


def test_the_room_behind_a_row_stays_zero():
    words = model(width=E)
    train(words, list(range(1, 30)), [29], window=5, negatives=[35])
    assert padded_view(words.v).shape == (V, 16)
    assert not padded_view(words.v)[:, E:].any()
    assert not padded_view(words.u)[:, E:].any()


@pytest.mark.parametrize("n", [2, 5, 11, 30])
def test_a_sentence_that_shares_negatives_is_a_step_down_torchs_gradient(n):
    ids, negatives, weight, window = list(range(1, n + 1)), [35], 0.5, 5
    words, before = model(scale=0.1), model(scale=0.1)
    train(words, ids, [n], window=window, negatives=negatives, share="sentence", weight=weight)
    reach = windows_of(3, n, window)
    chosen = [(ids[j], ids[i]) for i in range(n) for j in range(n) if 0 < abs(i - j) <= reach[i]]
    input_B, output_B = (torch.tensor(column) for column in zip(*chosen, strict=True))
    v, u = descended(
        before, lambda v, u: negative_loss(v[input_B], u, output_B, torch.full((len(input_B), 1), 35), weight)
    )
    torch.testing.assert_close(words.v, v, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(words.u, u, rtol=1e-4, atol=1e-6)


def test_a_bag_of_words_is_a_step_down_torchs_gradient():
    """The middle one of three words is predicted from the mean of the others, and before and after it they from it."""
    ids, words, before = [5, 9, 13], model(), model()
    train(words, ids, [3], negatives=[7], cbow=True)
    for i, center in enumerate(ids):
        context = [ids[j] for j in (i - 1, i + 1) if 0 <= j < 3]
        v, u = descended(
            before,
            lambda v, u, a=context, b=center: negative_loss(
                v[a].mean(0, keepdim=True), u, torch.tensor([b]), torch.tensor([[7, 7, 7]])
            ),
        )
        before.v.copy_(v)
        before.u.copy_(u)
    torch.testing.assert_close(words.v, before.v, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(words.u, before.u, rtol=1e-5, atol=1e-6)


def test_a_negative_that_is_the_word_itself_teaches_nothing():
    words, before = model(), model()
    train(words, [5, 9], [2], negatives=[5], seed=3)
    g = RATE * (1 - torch.sigmoid(before.v[9] @ before.u[5]))  # the window around 5 comes first
    torch.testing.assert_close(words.v[9], before.v[9] + g * before.u[5])
    u_5 = before.u[5] + g * before.v[9]
    u_5 = u_5 - 3 * RATE * torch.sigmoid(before.v[5] @ u_5) * before.v[5]  # in that around 9 it is a negative
    torch.testing.assert_close(words.u[5], u_5)


def test_the_loss_that_is_reported_is_that_of_the_equation():
    words = model()
    ids, ends = [5, 9], [2]
    loss, measured = train(words, ids, ends, negatives=[7])  # the first window of all is measured
    negative = torch.full((1, 3), 7)
    expected = model().loss(torch.tensor([9]), torch.tensor([5]), negative)
    assert measured == 1
    assert loss == pytest.approx(expected.item(), rel=1e-5)


def test_words_that_are_dropped_close_the_gap():
    """Of 5 0 9 the middle one, unknown, is never kept: 5 and 9 are neighbors."""
    keep = np.full(V, 2**32, np.uint64)
    keep[0] = 0
    with_gap, without = model(), model()
    ids = {3: [5, 0, 9], 2: [5, 9]}
    train(with_gap, ids[3], [3], negatives=[7], keep=keep)
    train(without, ids[2], [2], negatives=[7], keep=keep)
    torch.testing.assert_close(with_gap.v, without.v)


def test_sentences_do_not_touch():
    apart, before = model(), model()
    train(apart, [5, 9], [1, 2], negatives=[7])
    assert torch.equal(apart.v, before.v)


# ---------------------------------------------------------------------- chances


def test_sub_sampling_is_as_gensim_has_it():
    count = np.array([0, 50_000, 3000, 120, 5])
    total = count.sum()
    threshold = 1e-3 * total
    expected = [min(1.0, (np.sqrt(c / threshold) + 1) * threshold / c) for c in count[1:]]
    np.testing.assert_allclose(keep_probability(count, 1e-3), [0, *expected])
    np.testing.assert_allclose(keep_probability(count, 0.0), [0, 1, 1, 1, 1])


def test_negatives_are_drawn_by_the_power_of_their_counts():
    count = np.array([0, 900, 400, 100, 30, 5, 1])
    chances = SamplingTables.from_counts(count, 0.0)
    share = np.zeros(len(count))
    for w in range(len(count)):  # the law of the alias tables, exactly
        share[w] += chances.prob[w] / 2**32 / len(count)
        share[chances.alias[w]] += (1 - chances.prob[w] / 2**32) / len(count)
    np.testing.assert_allclose(share, noise_distribution(count), atol=1e-8)
    np.testing.assert_allclose(noise_distribution(count)[1:], count[1:] ** 0.75 / (count[1:] ** 0.75).sum())


def drawn(words, ids, window, count):
    """How often the kernel pairs words i and j of a sentence, from how much u_j learns of v_i at a tiny rate."""
    seen = np.zeros((len(ids), len(ids)))
    chance, alias = np.zeros(1, np.uint32), np.array([V - 1], np.int32)
    keep = np.full(V, 2**32, np.uint64)
    v = np.zeros((V, ROW), np.float32)
    for i in ids:
        v[i, i] = 1
    for seed in range(count):
        u = np.zeros((V, ROW), np.float32)
        compile_kernel(ROW)(
            np.array(ids, np.int32), np.array([len(ids)]), v.copy(), u, keep, chance, alias, window, 1, 1.0, 1e-3,
            seed * 7919, False, False,
        )  # fmt: skip
        seen += u[np.ix_(ids, ids)] > 1e-4
    return seen / count


def test_windows_reach_as_far_as_each_distance_equally_often():
    """A word at distance d is in the window with probability 1 - (d - 1) / window."""
    count = 4000
    seen = drawn(model(), [3, 4, 5, 6, 7, 8, 9], 5, count)
    for i in range(7):
        for j in range(7):
            expected = 0.0 if i == j else max(0.0, 1 - (abs(i - j) - 1) / 5)
            assert abs(seen[i, j] - expected) < 5 * 0.5 / np.sqrt(count), (i, j)


def test_negatives_and_kept_words_come_as_often_as_they_should():
    """Sentences of two words: how often u of each word moves tells how often it was drawn."""
    words = model()
    chances = SamplingTables.from_counts(words.count.numpy(), 0.05)
    p, keep = noise_distribution(words.count.numpy()), keep_probability(words.count.numpy(), 0.05)
    hits, pairs_kept, rounds = np.zeros(V), 0, 3000
    for seed in range(rounds):
        v, u = np.zeros((V, ROW), np.float32), np.zeros((V, ROW), np.float32)
        v[:, 0] = 1
        compile_kernel(ROW)(
            np.array([1, 2], np.int32), np.array([2]), v, u, chances.keep, chances.prob, chances.alias, 1, 1, 1.0,
            1e-4, seed * 104_729, False, False,
        )  # fmt: skip
        pairs_kept += bool(np.any(u != 0))
        hits += u[:, 0] < 0
    expected = keep[1] * keep[2]
    assert abs(pairs_kept / rounds - expected) < 5 * 0.5 / np.sqrt(rounds)
    rest = np.arange(3, V)
    statistic = stats.chisquare(hits[rest], hits[rest].sum() * p[rest] / p[rest].sum())
    assert statistic.pvalue > 1e-4


# ---------------------------------------------------------------------- learners


def text(count=3000, seed=0):
    """Sentences of five words, each about one of four subjects of eight words."""
    random = np.random.default_rng(seed)
    subject = random.integers(4, size=count)
    words = (1 + subject[:, None] * 8 + random.integers(8, size=(count, 5))).astype(np.int32)
    return {"words": torch.from_numpy(words.ravel()), "ends": torch.arange(5, 5 * count + 1, 5)}


def learnt(sampling, steps=20):
    torch.manual_seed(0)
    words, batch = Word2Vec(Word2Vec.Config(vocabulary=33, width=E)), text()
    words.count.copy_(torch.bincount(batch["words"].long(), minlength=33))
    softmax = sampling.objective == "softmax"
    learner = FullSoftmax(words, sampling, steps) if softmax else NegativeSampling(words, sampling, steps, generator(1))
    for _ in range(steps):
        metrics = learner.step(batch)
    return words, metrics


@pytest.mark.parametrize(
    "sampling",
    [
        Word2VecTraining(lr=0.1),
        Word2VecTraining(lr=0.1, shared_negatives="sentence"),
        Word2VecTraining(lr=0.1, workers=2),
        Word2VecTraining(lr=0.2, architecture="cbow"),
        Word2VecTraining(lr=0.05, objective="softmax", window=2),
    ],
    ids=["window", "sentence", "two workers", "cbow", "softmax"],
)
def test_words_of_one_subject_come_together(sampling):
    words, metrics = learnt(sampling, steps=3 if sampling.objective == "softmax" else 20)
    unit = torch.nn.functional.normalize(words.v[1:], dim=1)
    cosine = (unit @ unit.T).view(4, 8, 4, 8).mean((1, 3))
    within, between = cosine.diagonal().mean(), (cosine.sum() - cosine.diagonal().sum()) / 12
    assert within > between + 0.5
    assert torch.isfinite(metrics["loss"])


@pytest.mark.parametrize("share", ["window", "sentence"])
def test_one_worker_gives_the_same_bits(share):
    first, second = (learnt(Word2VecTraining(shared_negatives=share))[0] for _ in range(2))
    assert torch.equal(first.v, second.v)
    assert torch.equal(first.u, second.u)


def test_softmax_is_a_step_down_torchs_gradient():
    words, before = model(), model()
    batch = {"words": torch.tensor([5, 9, 11]), "ends": torch.tensor([3])}
    input_B, output_B = context_pairs(batch["words"], batch["ends"], 2)
    metrics = FullSoftmax(words, Word2VecTraining(objective="softmax", window=2, lr=RATE), 10).step(batch)
    v, u = descended(
        before,
        lambda v, u: torch.nn.functional.cross_entropy(one_hot(input_B, V) @ v @ u.T, output_B, reduction="sum"),
    )
    torch.testing.assert_close(words.v, v)
    torch.testing.assert_close(words.u, u)
    expected = torch.nn.functional.cross_entropy(before(input_B), output_B)
    torch.testing.assert_close(metrics["loss"], expected)


def test_pairs_are_all_neighbors_of_known_words_within_sentences():
    words, ends = torch.tensor([3, 0, 4, 5, 6, 7]), torch.tensor([4, 6])
    found = set(zip(*(column.tolist() for column in context_pairs(words, ends, 2)), strict=True))
    assert found == {(3, 4), (4, 3), (4, 5), (5, 4), (6, 7), (7, 6)}
    assert len(context_pairs(torch.tensor([3]), torch.tensor([1]), 2)[0]) == 0


@pytest.mark.parametrize(
    "wrong", [{"window": 0}, {"negative": 0}, {"workers": 0}, {"sample": -1.0}, {"lr": float("nan")}]
)
def test_settings_that_make_no_sense_are_named(wrong):
    (name,) = wrong
    with pytest.raises(EngramError, match=name):
        Word2VecTraining(**wrong)
    with pytest.raises(EngramError, match="skip-gram only"):
        Word2VecTraining(shared_negatives="sentence", architecture="cbow")
