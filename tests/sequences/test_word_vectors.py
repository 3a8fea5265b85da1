"""Word vectors and their files against gensim."""

import gzip

import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors
from gensim.test.utils import datapath

from engram.core.errors import EngramError
from engram.sequences.word2vec.evaluation import load_benchmarks
from engram.sequences.word2vec.vectors import WordVectors, spearman

WORDS = ["the", "king", "queen", "man", "woman", "naïve", "new_york", "don't", "東京", "prince"]


def some(words=WORDS, width=7):
    torch.manual_seed(0)
    return WordVectors(words, torch.randn(len(words), width))


@pytest.fixture(scope="module")
def large():
    """Vectors for the words of the load_benchmarks, with some sense in them: alike words have much in common."""
    kinds, likeness = load_benchmarks()
    words = dict.fromkeys(word.lower() for rows in kinds.values() for row in rows for word in row)
    words |= dict.fromkeys(word.lower() for rows in likeness.values() for row in rows[::2] for word in row[:2])
    torch.manual_seed(0)
    place = {word: i for i, word in enumerate(words)}
    x = torch.randn(len(words), 20)
    for rows in kinds.values():
        for a, b, c, d in rows[::7]:
            i, j, k, end = (place[word.lower()] for word in (a, b, c, d))
            x[end] = x[j] - x[i] + x[k] + 0.5 * torch.randn(20)
    return WordVectors(list(words), x)


def keyed(vectors):
    found = KeyedVectors(vectors.vectors.shape[1])
    found.add_vectors(vectors.words, vectors.vectors.numpy())
    return found


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.bin"])
def test_gensim_opens_what_engram_saves_and_the_other_way_round(name, tmp_path):
    ours, binary = some(), name.endswith(".bin")
    theirs = KeyedVectors.load_word2vec_format(str(ours.save(tmp_path / name)), binary=binary)
    assert theirs.index_to_key == WORDS
    np.testing.assert_array_equal(theirs.vectors, ours.vectors.numpy())
    theirs.save_word2vec_format(str(tmp_path / "theirs"), binary=binary)
    back = WordVectors.load(tmp_path / "theirs")
    assert back.words == WORDS
    assert torch.equal(back.vectors, ours.vectors)
    with gzip.open(tmp_path / "packed", "wb") as packed:
        packed.write((tmp_path / "theirs").read_bytes())
    assert torch.equal(WordVectors.load(tmp_path / "packed").vectors, ours.vectors)


def test_files_are_gensims_byte_for_byte(tmp_path):
    ours = some()
    for name, binary in (("a.txt", False), ("a.bin", True)):
        ours.save(tmp_path / name)
        keyed(ours).save_word2vec_format(str(tmp_path / f"{name}.gensim"), binary=binary)
        assert (tmp_path / name).read_bytes() == (tmp_path / f"{name}.gensim").read_bytes()


def test_safetensors_keep_words_and_vectors(tmp_path):
    back = WordVectors.load(some().save(tmp_path / "v.safetensors"))
    assert back.words == WORDS
    assert torch.equal(back.vectors, some().vectors)


@pytest.mark.download
def test_most_similar_is_gensims(large):
    theirs = keyed(large)
    for positive, negative in (("king", []), (["king", "woman"], ["man"]), (["good", "better", "bad"], [])):
        ours = large.most_similar(positive, 8, negative=negative)
        expected = theirs.most_similar(positive=positive, negative=negative, topn=8)
        assert [word for word, _ in ours] == [word for word, _ in expected]
        np.testing.assert_allclose([s for _, s in ours], [s for _, s in expected], rtol=1e-5)
    assert large.analogy("man", "king", "woman", 3) == large.most_similar(["king", "woman"], 3, negative=["man"])
    assert large.similarity("king", "queen") == pytest.approx(theirs.similarity("king", "queen"), abs=1e-6)
    for group in (["king", "queen", "paris"], ["good", "better", "best", "lima"]):
        assert large.doesnt_match(group) == theirs.doesnt_match(group)


@pytest.mark.download
def test_examinations_are_gensims(large):
    kinds, likeness = load_benchmarks()
    theirs = keyed(large)
    score, sections = theirs.evaluate_word_analogies(datapath("questions-words.txt"))
    ours = large.evaluate_analogies(kinds)
    for section in sections[:-1]:
        expected = (len(section["correct"]), len(section["correct"]) + len(section["incorrect"]))
        assert ours[section["section"]] == expected, section["section"]
    right, asked = np.array(list(ours.values())).sum(0)
    assert right / asked == pytest.approx(score)
    assert 0.05 < score < 0.95
    for name, file in (("wordsim353", "wordsim353.tsv"), ("simlex999", "simlex999.txt")):
        _, (expected, _), unknown = theirs.evaluate_word_pairs(datapath(file))
        correlation, known = large.evaluate_word_pairs(likeness[name])
        assert correlation == pytest.approx(expected, abs=1e-6)
        assert known / len(likeness[name]) == pytest.approx(1 - unknown / 100)


def test_spearman_shares_ranks_and_is_zero_where_nothing_varies():
    from scipy import stats

    x, y = np.array([1.0, 2, 2, 3, 5, 5, 5]), np.array([3.0, 1, 4, 1, 5, 9, 2])
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert spearman(x, np.ones(7)) == 0


@pytest.mark.download
def test_an_unknown_word_brings_the_nearest(large):
    with pytest.raises(EngramError, match='"quen" is not among .* "queen"'):
        large.most_similar("quen")
    assert some().index("New York") == WORDS.index("new_york")
    assert some().index("KING") == 1
    with pytest.raises(EngramError, match="at least one word"):
        large.most_similar([])


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"3 4\na 1 2 3 4\n", b"1 4\na 1 2 3\n", b"0 4\n", b"2 2\nword", b"1 1\nabc"]
)
def test_a_file_that_is_something_else_is_refused(content, tmp_path):
    (tmp_path / "file.txt").write_bytes(content)
    with pytest.raises(EngramError, match=r"file\.txt does not hold word vectors"):
        WordVectors.load(tmp_path / "file.txt")
    with pytest.raises(EngramError, match="There is no file"):
        WordVectors.load(tmp_path / "nothing")


def test_what_cannot_be_kept_is_refused(tmp_path):
    with pytest.raises(EngramError, match="has a space"):
        WordVectors(["new york"], torch.zeros(1, 2)).save(tmp_path / "v.txt")
    with pytest.raises(EngramError, match="cannot be written"):
        some().save("/proc/nothing/v.txt")
    with pytest.raises(EngramError, match="2 words and 3 vectors"):
        WordVectors(["a", "b"], torch.zeros(3, 2))
