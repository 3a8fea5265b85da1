r"""Phrases: words that often occur together become one token, as "new_york" (Mikolov et al. 2013).

    s(a, b) = N (n_{ab} - \delta) / (n_a n_b)     score of the words a b     (1)

    Symbols:
        n_a, n_{ab}   occurrences of the word a, and of the words a b in this order
        N             words of the text
        \delta        discount, against pairs of rare words

A pair whose score is above a threshold is a phrase. Another pass over the text with its phrases joined finds longer
ones. A text is read from left to right, and the longest phrase that begins at a word is taken.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from engram.core.errors import EngramError
from engram.data import cache
from engram.data.corpus import Corpus
from engram.data.sentences import COUNT_CHUNK, PHRASE_SEPARATOR, add_phrases, count_words, get_words
from engram.data.tokenizer import Tokenizer
from engram.data.tokens import Tokens

Ints = NDArray[np.int64]


def learn_phrases(tokens: Tokens, words: Tokenizer, passes: int, discount: int, threshold: float) -> Tokenizer:
    """Return the tokenizer with the phrases found in `passes` passes over the text."""
    names = get_words(words)
    first = len(names)
    with cache.temporary_folder("phrases") as folder:
        join_phrases = tokens
        for number in range(passes):
            found = [name for name in score_phrases(join_phrases, names, discount, threshold) if name not in set(names)]
            if not found:
                break
            names += found
            join_phrases = _write_joined(tokens, Trie(names), folder / str(number))
    return add_phrases(words, names[first:])


def score_phrases(tokens: Tokens, names: Sequence[str], discount: int, threshold: float) -> dict[str, float]:
    """Return pairs of words with scores above the threshold, the highest first."""
    V = len(names)
    count_V = count_words(tokens, V).numpy().astype(np.float64)
    key, count = _count_pairs(tokens, V)
    a, b = key // V, key % V
    value = (count - discount) / (count_V[a] * count_V[b]) * count_V.sum()  # (1)
    good = np.flatnonzero((value > threshold) & (count > discount))
    order = good[np.lexsort((key[good], -value[good]))]
    return {f"{names[a[i]]}{PHRASE_SEPARATOR}{names[b[i]]}": float(value[i]) for i in order}


def _count_pairs(tokens: Tokens, V: int) -> tuple[Ints, Ints]:
    """Count the pairs of adjacent known words within sentences; a pair is coded as a V + b."""
    key, count = np.empty(0, np.int64), np.empty(0, np.int64)
    first = 0
    while first < len(tokens):
        start = int(tokens.ends[first - 1]) if first else 0
        last = min(int(torch.searchsorted(tokens.ends, start + COUNT_CHUNK)) + 1, len(tokens))
        ends = tokens.ends[first:last].numpy() - start
        ids = tokens.ids[start : start + int(ends[-1])].numpy().astype(np.int64)
        inside = np.ones(max(0, len(ids) - 1), bool)
        inside[ends[(ends > 0) & (ends < len(ids))] - 1] = False
        near = inside & (ids[:-1] > 0) & (ids[1:] > 0)
        more, times = np.unique(ids[:-1][near] * V + ids[1:][near], return_counts=True)
        key, index = np.unique(np.concatenate([key, more]), return_inverse=True)
        count = np.bincount(index, np.concatenate([count, times])).astype(np.int64)
        first = last
    return key, count


class Trie:
    """Phrases by their words: which node a word leads to, and which phrase ends there (-1 for none)."""

    def __init__(self, names: Sequence[str]) -> None:
        place, self.size = {name: i for i, name in enumerate(names)}, len(names)
        steps: dict[int, int] = {}
        phrase = [-1]
        for i, name in enumerate(names):
            node, words = 0, [place[word] for word in name.split(PHRASE_SEPARATOR)] if PHRASE_SEPARATOR in name else []
            for word in words:
                if (step := node * self.size + word) not in steps:
                    steps[step] = len(phrase)
                    phrase.append(-1)
                node = steps[step]
            phrase[node] = i if words else phrase[node]
        self.steps = np.array(sorted(steps), np.int64)
        self.nodes = np.array([steps[step] for step in sorted(steps)], np.int64)
        self.phrase = np.array(phrase, np.int64)


def join_phrases(corpus: Corpus, fingerprint: str) -> Corpus:
    """The corpus with its phrases joined, if its tokenizer has any: out of the cache, or joined now."""
    trie = Trie(get_words(corpus.tokenizer))
    if not len(trie.steps):
        return corpus
    name = hashlib.sha256(f"{fingerprint} ".encode() + corpus.tokenizer.to_bytes()).hexdigest()[:24]
    with cache.lock_entry(f"phrases-{name}", f"the phrases of {corpus.info.name}"):
        splits = {
            part: _write_joined(tokens, trie, cache.cache_folder() / "tokens" / f"{name}-{part}")
            for part, tokens in corpus.splits.items()
        }
    return replace(corpus, splits=splits)


def _write_joined(tokens: Tokens, trie: Trie, place: Path) -> Tokens:
    """Write the tokens with phrases joined to PLACE.ids and PLACE.ends; PLACE.json is written last."""
    about = place.with_suffix(".json")
    ids, ends = place.with_suffix(".ids"), place.with_suffix(".ends")
    with cache.explain_errors():
        place.parent.mkdir(parents=True, exist_ok=True)
        if not about.exists():
            out = np.memmap(ids, np.int32, "w+", shape=max(1, len(tokens.ids)))
            out_ends = np.memmap(ends, np.int64, "w+", shape=max(1, len(tokens.ends)))
            arrays = tokens.ids.numpy(), tokens.ends.numpy(), trie.steps, trie.nodes, trie.phrase, trie.size
            size = _replace_words(*arrays, out, out_ends)
            out.flush()
            out_ends.flush()
            complete = about.with_suffix(".partial")
            complete.write_text(json.dumps(int(size)))
            cache.replace_file(complete, about)
        size = json.loads(about.read_text())
    if size < 1:
        raise EngramError("The text is too short to find phrases in it.")
    return Tokens(
        torch.from_file(str(ids), shared=False, size=size, dtype=torch.int32),
        torch.from_file(str(ends), shared=False, size=len(tokens.ends), dtype=torch.int64),
    )


@njit(cache=True, nogil=True)
def _replace_words(
    ids: Any, ends: Any, steps: Ints, nodes: Ints, phrase: Ints, size: int, out: Any, out_ends: Any
) -> int:
    """Replace words by the longest phrase that begins at each word, walking through the trie."""
    start = written = 0
    for s in range(len(ends)):
        i = start
        while i < ends[s]:
            node, length, found, j = 0, 1, np.int64(ids[i]), i
            while j < ends[s]:
                step = node * size + ids[j]
                at = np.searchsorted(steps, step)
                if at == len(steps) or steps[at] != step:
                    break
                node, j = nodes[at], j + 1
                if phrase[node] >= 0:
                    found, length = phrase[node], j - i
            out[written] = found
            written, i = written + 1, i + length
        start, out_ends[s] = ends[s], written
    return written
