"""Phrases: words that stand together more often than chance would have it become one, as «new_york».

    score(a b) = (count(a b) - discount) / (count(a) count(b)) N       N words in all (Mikolov et al. 2013)

A pair whose score is above a threshold is a phrase. Another pass over a text whose phrases have been joined finds
longer ones. A text is read from left to right, and the longest phrase that begins at a word is taken.
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
from engram.data.sentences import COUNTED, JOINT, counts, names_of, with_phrases
from engram.data.tokeniser import Tokeniser
from engram.data.tokens import Tokens

Ints = NDArray[np.int64]


def learn(tokens: Tokens, words: Tokeniser, passes: int, discount: int, threshold: float) -> Tokeniser:
    """The tokeniser with the phrases that are found in so many passes."""
    names = names_of(words)
    first = len(names)
    with cache.draft("phrases") as folder:
        joined = tokens
        for number in range(passes):
            found = [name for name in score(joined, names, discount, threshold) if name not in set(names)]
            if not found:
                break
            names += found
            joined = _join(tokens, Trie(names), folder / str(number))
    return with_phrases(words, names[first:])


def score(tokens: Tokens, names: Sequence[str], discount: int, threshold: float) -> dict[str, float]:
    """Phrases of two neighbours and their scores, the highest first."""
    V = len(names)
    count_V = counts(tokens, V).numpy().astype(np.float64)
    key, count = _pairs(tokens, V)
    a, b = key // V, key % V
    value = (count - discount) / (count_V[a] * count_V[b]) * count_V.sum()
    good = np.flatnonzero((value > threshold) & (count > discount))
    order = good[np.lexsort((key[good], -value[good]))]
    return {f"{names[a[i]]}{JOINT}{names[b[i]]}": float(value[i]) for i in order}


def _pairs(tokens: Tokens, V: int) -> tuple[Ints, Ints]:
    """Every pair of known neighbours in a sentence as a V + b, and how often it occurs; the text is read in parts."""
    key, count = np.empty(0, np.int64), np.empty(0, np.int64)
    first = 0
    while first < len(tokens):
        start = int(tokens.ends[first - 1]) if first else 0
        last = min(int(torch.searchsorted(tokens.ends, start + COUNTED)) + 1, len(tokens))
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
            node, words = 0, [place[word] for word in name.split(JOINT)] if JOINT in name else []
            for word in words:
                if (step := node * self.size + word) not in steps:
                    steps[step] = len(phrase)
                    phrase.append(-1)
                node = steps[step]
            phrase[node] = i if words else phrase[node]
        self.steps = np.array(sorted(steps), np.int64)
        self.nodes = np.array([steps[step] for step in sorted(steps)], np.int64)
        self.phrase = np.array(phrase, np.int64)


def joined(corpus: Corpus, identity: str) -> Corpus:
    """The corpus with its phrases joined, if its tokeniser has any: out of the cache, or joined now."""
    trie = Trie(names_of(corpus.tokeniser))
    if not len(trie.steps):
        return corpus
    name = hashlib.sha256(f"{identity} ".encode() + corpus.tokeniser.to_bytes()).hexdigest()[:24]
    with cache.locked(f"phrases-{name}", f"the phrases of {corpus.info.name}"):
        splits = {
            part: _join(tokens, trie, cache.folder() / "tokens" / f"{name}-{part}")
            for part, tokens in corpus.splits.items()
        }
    return replace(corpus, splits=splits)


def _join(tokens: Tokens, trie: Trie, place: Path) -> Tokens:
    """The tokens with phrases for words, in the files PLACE.ids and PLACE.ends; PLACE.json says that they are whole."""
    about = place.with_suffix(".json")
    ids, ends = place.with_suffix(".ids"), place.with_suffix(".ends")
    with cache.complaining():
        place.parent.mkdir(parents=True, exist_ok=True)
        if not about.exists():
            out = np.memmap(ids, np.int32, "w+", shape=max(1, len(tokens.ids)))
            out_ends = np.memmap(ends, np.int64, "w+", shape=max(1, len(tokens.ends)))
            arrays = tokens.ids.numpy(), tokens.ends.numpy(), trie.steps, trie.nodes, trie.phrase, trie.size
            size = _replace(*arrays, out, out_ends)
            out.flush()
            out_ends.flush()
            complete = about.with_suffix(".partial")
            complete.write_text(json.dumps(int(size)))
            cache.install(complete, about)
        size = json.loads(about.read_text())
    if size < 1:
        raise EngramError("The text is too short to look for phrases in it.")
    return Tokens(
        torch.from_file(str(ids), shared=False, size=size, dtype=torch.int32),
        torch.from_file(str(ends), shared=False, size=len(tokens.ends), dtype=torch.int64),
    )


@njit(cache=True, nogil=True)
def _replace(ids: Any, ends: Any, steps: Ints, nodes: Ints, phrase: Ints, size: int, out: Any, out_ends: Any) -> int:
    """Follow the words from each place of a sentence through the trie, and write the longest phrase that was met."""
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
