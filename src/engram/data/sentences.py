"""Text as sentences of words: a vocabulary of words, and stretches of sentences one after the other."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.tokeniser import Tokeniser
from engram.data.tokens import Tokens

UNKNOWN = "[UNK]"
JOINT = "_"
"""stands between the words of a phrase, and in no word"""
WORD = Regex(r"[\p{L}\p{M}\p{N}]+(?:['’][\p{L}\p{M}\p{N}]+)*")
COUNTED = 1 << 22
"""words that are counted at once"""


def vocabulary(texts: Iterable[str], least: int, most: int) -> Tokeniser:
    """The words that occur `least` times or more, at most `most` of them, the most frequent first; in small letters."""
    inner = _words({UNKNOWN: 0})
    size = most + 1 if most else 1 << 31
    trainer = trainers.WordLevelTrainer(
        vocab_size=size, min_frequency=least, special_tokens=[UNKNOWN], show_progress=False
    )
    inner.train_from_iterator(texts, trainer)
    if inner.get_vocab_size() < 3:
        raise EngramError(f"Fewer than two words occur {least} times or more: lower --least, or give more text.")
    return Tokeniser(inner)


def with_phrases(tokeniser: Tokeniser, phrases: Sequence[str]) -> Tokeniser:
    """The same words, and phrases after them; the tokeniser itself finds words only, and `phrases.joined` the rest."""
    names = names_of(tokeniser)
    inner = _words({name: i for i, name in enumerate([*names, *phrases])})
    inner.add_special_tokens([UNKNOWN])
    return Tokeniser(inner)


def names_of(tokeniser: Tokeniser) -> list[str]:
    """Every word and phrase, by its number."""
    found = tokeniser.inner.get_vocab()
    return sorted(found, key=lambda name: found[name])


def _words(names: dict[str, int]) -> Tokenizer:
    inner = Tokenizer(models.WordLevel(names, unk_token=UNKNOWN))
    apostrophe = normalizers.Replace("’", "'")
    inner.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase(), apostrophe])
    inner.pre_tokenizer = pre_tokenizers.Split(WORD, "removed", invert=True)
    return inner


def counts(tokens: Tokens, size: int) -> Tensor:
    """How often each word occurs; those that are unknown are not counted."""
    total = np.zeros(size, np.int64)
    for part in tokens.ids.split(COUNTED):
        total += np.bincount(part.numpy(), minlength=size)
    total[0] = 0
    return torch.from_numpy(total)


class Sentences:
    """Endless stretches of about `batch` words, sentence by sentence in the order of the text, again and again."""

    def __init__(self, tokens: Tokens, batch: int) -> None:
        if not len(tokens):
            raise EngramError("The text has no sentences to learn from.")
        self.tokens, self.batch, self.position = tokens, batch, 0

    def __next__(self) -> dict[str, Tensor]:
        if self.position == len(self.tokens):
            self.position = 0
        found, self.position = stretch(self.tokens, self.position, self.batch)
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


def stretch(tokens: Tokens, first: int, words: int) -> tuple[dict[str, Tensor], int]:
    """Whole sentences from the one numbered `first` on, with at least as many words if there are; and the next one."""
    start = int(tokens.ends[first - 1]) if first else 0
    last = min(int(torch.searchsorted(tokens.ends, start + words)) + 1, len(tokens))
    ends = tokens.ends[first:last] - start
    return {"words": tokens.ids[start : start + int(ends[-1])].to(torch.int32), "ends": ends}, last
