"""Choosing tokens against small distributions made by hand, against transformers, and against enumeration."""

import itertools
import logging
import math

import pytest
import torch
import transformers
from scipy import stats

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.generation import generate
from engram.generation.sampling import (
    GREEDY,
    SamplingParams,
    StopStrings,
    accept_draft,
    beam_search,
    decode_stream,
    multinomial,
    probabilities,
    sample_token,
    window_start,
)
from engram.generation.speculative import look_up, prompt_lookup_decode, speculative_decode
from engram.hub.huggingface import load_checkpoint
from engram.transformers.gpt.model import GPT

P = [0.5, 0.25, 0.15, 0.1]
LOGITS = torch.tensor([P]).log()
ALL = SamplingParams(temperature=1.0)


def fits(found, p):
    """Whether counts may well have come from probabilities p, and never from where p is zero."""
    possible, p = p > 0, p.double() / p.double().sum()
    assert found[~possible].sum() == 0
    return stats.chisquare(found[possible].double(), found.sum().double() * p[possible]).pvalue > 1e-3


def after(*, seen=None, logits=LOGITS, temperature=1.0, **settings):
    return probabilities(logits, SamplingParams(temperature=temperature, **settings), seen)[0].tolist()


# ---------------------------------------------------------------------- one distribution


def test_temperature_one_is_the_model_itself():
    assert after() == pytest.approx(P)


def test_temperature_half_squares_the_odds():
    total = sum(p * p for p in P)
    assert after(temperature=0.5) == pytest.approx([p * p / total for p in P])


def test_temperature_zero_takes_the_largest():
    assert after(temperature=0.0) == [1, 0, 0, 0]


def test_temperature_near_zero_is_no_trouble():
    assert after(temperature=1e-30) == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("k", "expected"), [(1, [1, 0, 0, 0]), (2, [2 / 3, 1 / 3, 0, 0]), (4, P), (9, P), (0, P)]
)  # fmt: skip
def test_top_k(k, expected):
    assert after(top_k=k) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("p", "expected"),
    [(0.3, [1, 0, 0, 0]), (0.6, [2 / 3, 1 / 3, 0, 0]), (0.8, [0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0]), (1.0, P)],
)
def test_top_p(p, expected):
    assert after(top_p=p) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("p", "expected"), [(0.0, P), (0.25, [0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0]), (0.45, [2 / 3, 1 / 3, 0, 0])]
)
def test_min_p(p, expected):
    assert after(min_p=p) == pytest.approx(expected)


def test_top_p_chooses_among_what_min_p_left():
    """min-p leaves 5/9, 2.5/9, 1.5/9; the first two reach 0.8 of these, but not 0.8 of all."""
    assert after(min_p=0.25, top_p=0.8) == pytest.approx([2 / 3, 1 / 3, 0, 0])


def test_repetition_divides_positive_logits_and_multiplies_negative_ones():
    logits = torch.tensor([[2.0, -1.0, 2.0, -1.0]])
    found = after(logits=logits, repetition_penalty=2.0, seen=torch.tensor([[0, 1, 1]]))
    assert found == pytest.approx(torch.tensor([1.0, -2.0, 2.0, -1.0]).softmax(0).tolist())


def test_repetition_is_a_matter_of_each_row():
    logits = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    found = probabilities(logits, SamplingParams(temperature=0.0, repetition_penalty=2.0), torch.tensor([[0], [1]]))
    assert found.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("settings", "peer"),
    [
        ({"temperature": 0.7}, transformers.TemperatureLogitsWarper(0.7)),
        ({"top_k": 7}, transformers.TopKLogitsWarper(7)),
        ({"top_p": 0.6}, transformers.TopPLogitsWarper(0.6)),
        ({"top_p": 0.95}, transformers.TopPLogitsWarper(0.95)),
        ({"min_p": 0.2}, transformers.MinPLogitsWarper(0.2)),
        ({"repetition_penalty": 1.7}, transformers.RepetitionPenaltyLogitsProcessor(1.7)),
        ({"repetition_penalty": 0.6}, transformers.RepetitionPenaltyLogitsProcessor(0.6)),
    ],
)
def test_each_rule_equals_that_of_transformers(settings, peer):
    logits = 3 * torch.randn(20, 50, generator=generator(0))
    seen = torch.randint(50, (20, 9), generator=generator(1))
    expected = peer(seen, logits.clone()).softmax(1)
    found = probabilities(logits, SamplingParams(**{"temperature": 1.0, **settings}), seen)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_all_rules_together_equal_transformers():
    logits = 3 * torch.randn(20, 50, generator=generator(0))
    seen = torch.randint(50, (20, 9), generator=generator(1))
    rules = [
        transformers.RepetitionPenaltyLogitsProcessor(1.3),
        transformers.TemperatureLogitsWarper(0.8),
        transformers.TopKLogitsWarper(12),
        transformers.TopPLogitsWarper(0.9),
    ]
    expected = transformers.LogitsProcessorList(rules)(seen, logits.clone()).softmax(1)
    found = probabilities(logits, SamplingParams(temperature=0.8, top_k=12, top_p=0.9, repetition_penalty=1.3), seen)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_draws_follow_the_distribution():
    p = torch.tensor([0.4, 0.0, 0.3, 0.2, 0.1])
    assert fits(torch.bincount(multinomial(p.expand(20_000, -1), generator(0)), minlength=5), p)


def test_draws_never_take_what_has_no_probability():
    p = torch.tensor([0.0, 0.0, 1e-30, 0.0, 0.0])
    assert set(multinomial(p.expand(1000, -1), generator(0)).tolist()) == {2}


def test_greedy_needs_no_randomness():
    random = generator(0)
    before = random.get_state()
    assert sample_token(LOGITS, GREEDY, random).tolist() == [0]
    assert torch.equal(random.get_state(), before)


@pytest.mark.parametrize(
    "settings",
    [{"temperature": -1}, {"temperature": math.nan}, {"temperature": math.inf}, {"top_k": -1}, {"top_p": 0},
     {"top_p": 1.1}, {"min_p": -0.1}, {"min_p": 2}, {"repetition_penalty": 0}],
)  # fmt: skip
def test_wrong_fields_are_named(settings):
    with pytest.raises(EngramError, match=next(iter(settings))):
        SamplingParams(**settings)


# ---------------------------------------------------------------------- the window


@pytest.mark.parametrize("context", [1, 2, 3, 8, 9])
def test_windows_hold_what_fits_and_move_by_half_a_context(context):
    hop, before = max(1, context // 2), 0
    for length in range(1, 5 * context + 3):
        start = window_start(length, context)
        assert 1 <= length - start <= context
        assert start - before in (0, hop)
        assert start == 0 or length - start > context - hop
        before = start


# ---------------------------------------------------------------------- beam search


V, MAX_NEW_TOKENS, END = 4, 4, 3


def tiny_gpt(seed, vocabulary=V, sharpness=1.0, **settings):
    """A small model with opinions."""
    torch.manual_seed(seed)
    options = {"width": 8, "layers": 1, "heads": 2, "context": 16, **settings}
    model = GPT(GPT.Config(vocabulary=vocabulary, **options))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    model.head.weight.data.mul_(sharpness)
    return model.eval()


@torch.no_grad()
def log_p(model, prompt, tokens):
    """Sum of the log-probabilities of tokens after a prompt."""
    log = model(torch.tensor([[*prompt, *tokens]]))[0].log_softmax(-1)
    return sum(log[len(prompt) - 1 + i, token].item() for i, token in enumerate(tokens))


def enumerated(model, prompt, end):
    """All texts of up to MAX_NEW_TOKENS tokens, with log-probability: those that end, and those that are cut off."""
    texts = {}
    for length in range(MAX_NEW_TOKENS + 1):
        for tokens in itertools.product([token for token in range(V) if token != end], repeat=length):
            if length == MAX_NEW_TOKENS:
                texts[tokens] = log_p(model, prompt, tokens)
            elif end is not None:
                texts[tokens] = log_p(model, prompt, [*tokens, end])
    return texts


@pytest.mark.parametrize("seed", range(4))
def test_with_enough_beams_the_best_text_is_found(seed):
    model, prompt = tiny_gpt(seed), [0, 1]
    texts = enumerated(model, prompt, None)
    best = model.beam_search(prompt, MAX_NEW_TOKENS, 64)[0]
    assert tuple(best.tokens) == max(texts, key=texts.get)
    assert best.score == pytest.approx(max(texts.values()), abs=1e-5)


@pytest.mark.parametrize("beams", [20, 40, 64, 200])
@pytest.mark.parametrize("seed", range(4))
def test_with_enough_beams_the_best_text_is_found_among_texts_that_end(seed, beams):
    model, prompt = tiny_gpt(seed), [0, 1]
    texts = enumerated(model, prompt, END)
    best = model.beam_search(prompt, MAX_NEW_TOKENS, beams, eos_id=END, length_penalty=0.0)[0]
    assert tuple(best.tokens) == max(texts, key=texts.get)
    assert best.score == pytest.approx(max(texts.values()), abs=1e-5)


def test_beams_come_best_first_and_differ():
    found = tiny_gpt(0).beam_search([0], MAX_NEW_TOKENS, 10)
    assert [beam.score for beam in found] == sorted((beam.score for beam in found), reverse=True)
    assert len({tuple(beam.tokens) for beam in found}) == 10


@pytest.mark.parametrize("end", [None, END])
def test_one_beam_is_greedy(end):
    model = tiny_gpt(1, sharpness=3)
    assert (
        model.beam_search([0, 1, 2], 12, 1, eos_id=end)[0].tokens
        == model.generate([[0, 1, 2]], 12, GREEDY, eos_id=end)[0]
    )


def test_beams_go_on_past_the_context():
    """Against a search that reads every text anew."""
    model = tiny_gpt(2, context=6)
    rows = [[0, 1]]

    def step(token_BT, row_B):
        if row_B is not None:
            rows[:] = [[*rows[i], int(token)] for i, token in zip(row_B.tolist(), token_BT[:, 0], strict=True)]
        windows = [row[window_start(len(row), 6) :] for row in rows]
        with torch.no_grad():
            return model(torch.tensor(windows))[:, -1]

    expected = beam_search(step, [0, 1], num_beams=3, max_new_tokens=15, eos_id=None)
    assert [beam.tokens for beam in model.beam_search([0, 1], 15, 3)] == [beam.tokens for beam in expected]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A tiny GPT-2 of transformers, and the same one here."""
    transformers.utils.logging.set_verbosity(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    shape = {"vocab_size": 7, "n_positions": 32, "n_embd": 12, "n_layer": 1, "n_head": 3}
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, bos_token_id=0, eos_token_id=None))
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.35)  # so that texts end at once, later or never
    folder = tmp_path_factory.mktemp("gpt2")
    theirs.eval().save_pretrained(folder)
    return theirs, load_checkpoint(folder).model


@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.0])
@pytest.mark.parametrize("end", [None, 3, 5])
@pytest.mark.parametrize("beams", [2, 3])
def test_beams_equal_those_of_transformers(gpt2, beams, end, length_penalty):
    theirs, ours = gpt2
    for first in range(4):
        prompt = [first, 1, 2]
        expected = theirs.generate(
            torch.tensor([prompt]), num_beams=beams, max_new_tokens=10, do_sample=False, eos_token_id=end,
            pad_token_id=6, length_penalty=length_penalty, attention_mask=torch.ones(1, 3, dtype=torch.long),
        )[0, 3:].tolist()  # fmt: skip
        expected = expected[: expected.index(end)] if end in expected else expected
        assert ours.beam_search(prompt, 10, beams, eos_id=end, length_penalty=length_penalty)[0].tokens == expected


# ---------------------------------------------------------------------- guessing ahead


@pytest.mark.parametrize("ahead", [1, 3, 6])
@pytest.mark.parametrize("context", [6, 16])
def test_greedy_text_is_the_same_whoever_guesses(ahead, context):
    model, draft = tiny_gpt(0, 7, 2.0, context=context), tiny_gpt(1, 7, 2.0, context=8)
    plain = list(generate.stream(model, [1, 2], 30, GREEDY))
    assert list(speculative_decode(model, draft, [1, 2], 30, GREEDY, draft_tokens=ahead)) == plain


def test_greedy_text_is_the_same_with_repetition_and_an_end():
    model, draft = tiny_gpt(0, 7, 2.0), tiny_gpt(1, 7, 2.0)
    choice = SamplingParams(temperature=0.0, repetition_penalty=1.5)
    plain = list(generate.stream(model, [1, 2], 30, choice))
    end = plain[9]
    expected = plain[: plain.index(end)]
    assert list(speculative_decode(model, draft, [1, 2], 30, choice, eos_id=end)) == expected


@torch.no_grad()
def joint(model, prompt, choice):
    """p(x, y) of the next two tokens, exactly."""
    first = probabilities(model(torch.tensor([prompt]))[:, -1], choice)[0]
    rows = torch.tensor([[*prompt, x] for x in range(V)])
    return first[:, None].double() * probabilities(model(rows)[:, -1], choice)


@pytest.mark.slow
@pytest.mark.parametrize("choice", [ALL, SamplingParams(temperature=0.7, top_k=3)])
def test_guessed_text_is_distributed_as_the_model_says(choice):
    model, draft, random, found = tiny_gpt(0), tiny_gpt(1), generator(0), torch.zeros(V, V)
    for _ in range(2000):
        x, y = speculative_decode(model, draft, [0, 1], 2, choice, draft_tokens=3, generator=random)
        found[x, y] += 1
    assert fits(found, joint(model, [0, 1], choice))


def test_acceptance_gives_the_right_distribution_of_three_tokens():
    """Two guesses and the token after them, with distributions that share little."""
    p = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
    q = torch.tensor([[0.1, 0.3, 0.6], [0.5, 0.5, 0.0]])
    random, found, lengths = generator(0), torch.zeros(3, 3), torch.zeros(4)
    for _ in range(4000):
        kept = accept_draft(multinomial(q, random).tolist(), p, q, random)
        lengths[len(kept)] += 1
        for place, token in enumerate(kept):
            found[place, token] += 1
    alike = torch.minimum(p[:2], q).sum(1)
    assert fits(lengths, torch.tensor([0, 1 - alike[0], alike[0] * (1 - alike[1]), alike[0] * alike[1]]))
    for place in range(3):
        assert fits(found[place], p[place])


def test_guesses_of_the_model_itself_are_all_kept():
    p = torch.tensor([P, P, P])
    random = generator(0)
    for _ in range(100):
        draft = multinomial(p[:2], random).tolist()
        assert accept_draft(draft, p, p[:2], random)[:2] == draft


def test_a_draft_of_another_vocabulary_is_refused():
    with pytest.raises(EngramError, match="vocabulary"):
        next(speculative_decode(tiny_gpt(0, 7), tiny_gpt(0, 8), [1], 3, GREEDY))


# ---------------------------------------------------------------------- stops and streaming


def told(text, *stops, pieces=1):
    """What is said of a text that arrives in pieces of so many characters."""
    tokens = [text[i : i + pieces] for i in range(0, len(text), pieces)]
    return list(decode_stream(lambda ids: "".join(tokens[i] for i in ids), iter(range(len(tokens))), stops))


@pytest.mark.parametrize("pieces", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("one two three", (), "one two three"),
        ("one two three", ("two",), "one "),
        ("one two three", ("three", "two"), "one "),
        ("one two three", ("four",), "one two three"),
        ("to two", ("tw",), "to "),
        ("aab aaab", ("aaab",), "aab "),
        ("stop", ("stop",), ""),
        ("one two tw", ("two tw!",), "one two tw"),
        ("a\n\nb", ("\n\n",), "a"),
        ("one two", ("",), "one two"),
    ],
)
def test_text_goes_on_up_to_the_first_stop(text, stops, expected, pieces):
    assert "".join(told(text, *stops, pieces=pieces)) == expected


def test_nothing_is_held_back_that_cannot_become_a_stop():
    assert told("abcxyz", "cd") == ["a", "b", "cx", "y", "z"]


def test_a_stop_over_several_tokens_is_never_said():
    said = []
    watch = StopStrings(["END"])
    for text in ("a", "a E", "a EN", "a END", "a END b"):
        piece, ended = watch.update(text)
        said.append(piece)
        if ended:
            break
    assert said == ["a", " ", "", ""]


def bytes_of(text):
    """A byte is a token, as for a model of bytes."""
    return iter(text.encode()), lambda ids: bytes(ids).decode(errors="replace")


def test_characters_of_several_bytes_arrive_whole():
    tokens, decode = bytes_of("a→é😀!")
    assert list(decode_stream(decode, tokens)) == ["a", "→", "é", "😀", "!"]


def test_a_stop_of_several_bytes_is_found():
    tokens, decode = bytes_of("one → two")
    assert "".join(decode_stream(decode, tokens, ["→"])) == "one "


def test_half_a_character_at_the_end_is_said_at_last():
    tokens = list("a😀".encode())[:-1]
    assert "".join(decode_stream(bytes_of("")[1], iter(tokens))) == "a\N{REPLACEMENT CHARACTER}"


def test_no_more_tokens_are_asked_for_after_a_stop():
    asked = []

    def tokens():
        for i in range(10):
            asked.append(i)
            yield i

    list(decode_stream(lambda ids: "".join(map(str, ids)), tokens(), ["3"]))
    assert asked == [0, 1, 2, 3]


# ---------------------------------------------------------------------- prompt lookup


def test_the_draft_is_what_followed_the_longest_ngram_that_stood_before():
    assert look_up([1, 2, 3, 4, 9, 2, 3, 5, 8, 1, 2, 3], 2) == [4, 9]  # 1 2 3, not the later 2 3
    assert look_up([5, 6, 1, 5, 7, 2, 5], 3) == [7, 2, 5]  # the last of two
    assert look_up([1, 2, 3], 3) == []
    assert look_up([1], 3) == []
    assert look_up([1, 1], 3) == [1]


@pytest.mark.parametrize("choice", [GREEDY, SamplingParams(temperature=0.0, repetition_penalty=1.5)])
@pytest.mark.parametrize("context", [6, 16])
def test_greedy_text_is_the_same_with_prompt_lookup(context, choice):
    model = tiny_gpt(0, 7, 2.0, context=context)
    plain = list(generate.stream(model, [1, 2, 1], 40, choice))
    assert list(prompt_lookup_decode(model, [1, 2, 1], 40, choice, draft_tokens=4)) == plain


@pytest.mark.slow
def test_text_of_prompt_lookup_is_distributed_as_the_model_says():
    model, random, found = tiny_gpt(0), generator(0), torch.zeros(V, V)
    for _ in range(2000):
        x, y = prompt_lookup_decode(model, [0, 1, 2, 0, 1], 2, ALL, draft_tokens=3, generator=random)
        found[x, y] += 1
    assert fits(found, joint(model, [0, 1, 2, 0, 1], ALL))
