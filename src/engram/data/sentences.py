"""Sentences of words, for word2vec.

A word-level tokenizer, word counts, and batches of whole sentences.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as HFTokenizer
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.tokenizer import Tokenizer
from engram.data.tokens import Tokens

UNK = "[UNK]"
PHRASE_SEPARATOR = "_"
"""joins the words of a phrase; occurs in no word"""
WORD = Regex(r"[\p{L}\p{M}\p{N}]+(?:['’][\p{L}\p{M}\p{N}]+)*")
COUNT_CHUNK = 1 << 22
"""words counted at once"""


def train_word_tokenizer(texts: Iterable[str], min_count: int, max_words: int) -> Tokenizer:
    """Train a lowercase word-level tokenizer: words that occur `min_count` times, the most frequent first.

    `max_words` limits the vocabulary; 0 sets no limit.
    """
    backend = _make_backend({UNK: 0})
    vocab_size = max_words + 1 if max_words else 1 << 31
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size, min_frequency=min_count, special_tokens=[UNK], show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    if backend.get_vocab_size() < 3:
        raise EngramError(f"Fewer than two words occur {min_count} times or more: lower --least, or give more text.")
    return Tokenizer(backend)


def add_phrases(tokenizer: Tokenizer, phrases: Sequence[str]) -> Tokenizer:
    """Return the tokenizer with phrases added after its words; `phrases.join_phrases` joins their words."""
    names = get_words(tokenizer)
    backend = _make_backend({name: i for i, name in enumerate([*names, *phrases])})
    backend.add_special_tokens([UNK])
    return Tokenizer(backend)


def get_words(tokenizer: Tokenizer) -> list[str]:
    """Return the words and phrases of the vocabulary, in the order of their ids."""
    vocab = tokenizer.backend.get_vocab()
    return sorted(vocab, key=lambda word: vocab[word])


def make_word_tokenizer(names: dict[str, int]) -> Tokenizer:
    """Return a lowercase word-level tokenizer of these words and their ids."""
    return Tokenizer(_make_backend(names))


def _make_backend(names: dict[str, int]) -> HFTokenizer:
    backend = HFTokenizer(models.WordLevel(names, unk_token=UNK))
    apostrophe = normalizers.Replace("’", "'")
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase(), apostrophe])
    backend.pre_tokenizer = pre_tokenizers.Split(WORD, "removed", invert=True)
    return backend


def count_words(tokens: Tokens, size: int) -> Tensor:
    """Count how often each word occurs; the unknown token counts 0."""
    total = np.zeros(size, np.int64)
    for part in tokens.ids.split(COUNT_CHUNK):
        total += np.bincount(part.numpy(), minlength=size)
    total[0] = 0
    return torch.from_numpy(total)


class SentenceLoader:
    """Endless batches of whole sentences with about `batch` words, in the order of the text."""

    def __init__(self, tokens: Tokens, batch: int) -> None:
        if not len(tokens):
            raise EngramError("The text has no sentences to train on.")
        self.tokens, self.batch, self.position = tokens, batch, 0

    def __next__(self) -> dict[str, Tensor]:
        if self.position == len(self.tokens):
            self.position = 0
        found, self.position = take_sentences(self.tokens, self.position, self.batch)
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


def take_sentences(tokens: Tokens, first: int, words: int) -> tuple[dict[str, Tensor], int]:
    """Return sentences from number `first` on with at least `words` words, and the next number."""
    start = int(tokens.ends[first - 1]) if first else 0
    last = min(int(torch.searchsorted(tokens.ends, start + words)) + 1, len(tokens))
    ends = tokens.ends[first:last] - start
    return {"words": tokens.ids[start : start + int(ends[-1])].to(torch.int32), "ends": ends}, last
