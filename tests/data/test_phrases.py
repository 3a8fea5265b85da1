"""Phrases: their score against the formula, the longest taken first, and the way through files."""

import numpy as np
import pytest
import torch

from engram.core.errors import EngramError
from engram.data import corpus, phrases
from engram.data.sentences import (
    SentenceLoader,
    add_phrases,
    count_words,
    get_words,
    take_sentences,
    train_word_tokenizer,
)
from engram.data.tokens import Tokens

LINES = [
    "new york times",
    "new york is new",
    "i love new york",
    "times change",
    "york",
    "the new york times is new",
] * 5


def tokens_of(tokenizer, lines):
    rows = tokenizer.encode_batch(lines)
    return Tokens(torch.tensor([i for row in rows for i in row]), torch.tensor(np.cumsum([len(row) for row in rows])))


def test_words_are_counted_and_rare_ones_have_no_number():
    found = train_word_tokenizer(["A cat’s cat, the CAT!", "a dog; the cat_dog 12"], 2, 0)
    assert get_words(found) == ["[UNK]", "cat", "a", "dog", "the"]
    assert get_words(train_word_tokenizer(["a a a b b c"], 1, 2)) == ["[UNK]", "a", "b"]
    assert [found.token(i) for i in found.encode("the Cat")] == ["the", "cat"]
    tokens = tokens_of(found, ["a cat and a dog"])
    assert count_words(tokens, 5).tolist() == [0, 1, 2, 1, 0]
    with pytest.raises(EngramError, match="lower --least"):
        train_word_tokenizer(["one two three"], 2, 0)


def test_scores_are_those_of_the_formula():
    words = train_word_tokenizer(LINES, 1, 0)
    tokens, names = tokens_of(words, LINES), get_words(words)
    text = [line.split() for line in LINES]
    total = sum(map(len, text))
    count = {word: sum(line.count(word) for line in text) for word in names}
    together = sum(pair == ("new", "york") for line in text for pair in zip(line, line[1:], strict=False))
    expected = (together - 2) / (count["new"] * count["york"]) * total
    assert phrases.score_phrases(tokens, names, 2, 0.0)["new_york"] == pytest.approx(expected)
    assert "new_york" not in phrases.score_phrases(tokens, names, 2, expected + 0.01)
    assert "york_york" not in phrases.score_phrases(tokens, names, 0, 0.0)  # the end of a line is between


def test_passes_find_longer_phrases_and_the_longest_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    words = train_word_tokenizer(LINES, 1, 0)
    once, twice = (phrases.learn_phrases(tokens_of(words, LINES), words, n, 2, 1.2) for n in (1, 2))
    assert "new_york" in get_words(once)
    assert "new_york_times" not in get_words(once)
    assert "new_york_times" in get_words(twice)
    (tmp_path / "text.txt").write_text("\n".join(LINES * 3))
    text = corpus.read_text(str(tmp_path / "text.txt"), "lines")
    for _ in range(2):  # joined now, and out of the cache
        joined = phrases.join_phrases(corpus.tokenize_corpus(text, twice), text.fingerprint)["train"]
        said = [get_words(twice)[i] for i in take_sentences(joined, 0, 5)[0]["words"].tolist()]
        assert said[0] == "new_york_times"
        assert all("_" not in word or word in get_words(twice) for word in said)


def test_a_phrase_is_not_read_across_what_is_unknown_or_the_end_of_a_line(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    words = add_phrases(train_word_tokenizer(["new york new york"], 1, 0), ["new_york"])
    tokens = tokens_of(words, ["new strange york", "new", "york", "new york"])
    joined = phrases._write_joined(tokens, phrases.Trie(get_words(words)), tmp_path / "joined")
    assert [get_words(words)[i] for i in joined.ids.tolist()] == ["new", "[UNK]", "york", "new", "york", "new_york"]
    assert joined.ends.tolist() == [3, 4, 5, 6]


def test_sentences_go_round_and_go_on_from_where_they_were():
    tokens = Tokens(torch.arange(1, 11), torch.tensor([3, 4, 8, 10]))
    source, again = SentenceLoader(tokens, 4), SentenceLoader(tokens, 4)
    first = [next(source) for _ in range(3)]
    assert [batch["words"].tolist() for batch in first] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert first[0]["ends"].tolist() == [3, 4]
    again.load_state_dict(source.state_dict())
    assert next(again)["words"].tolist() == next(source)["words"].tolist() == [1, 2, 3, 4]
