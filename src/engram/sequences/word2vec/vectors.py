r"""Word vectors: most similar words, analogies, the odd one out, benchmarks, as in gensim.

V words, E width

    \cos(a, b) = a b^T / (|a| |b|)                                    similarity                           (1)
    d = \text{argmax}_d \cos(d, \hat{b} - \hat{a} + \hat{c})          analogy a : b = c : d, unit vectors     (2)

    Symbols:
        a, b, c, d    word vectors
        \hat{a}       a divided by its length

vectors = WordVectors.load("vectors.txt")       # word2vec's text or binary format, or safetensors; "glove"
vectors.most_similar("king")                    # [("queen", 0.81), …]
vectors.analogy("man", "king", "woman")         # [("queen", 0.77), …]
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.core.errors import EngramError, with_article
from engram.data.sentences import get_words
from engram.hub.huggingface import is_checkpoint, load_checkpoint
from engram.hub.models import MODELS
from engram.sequences.word2vec import files
from engram.sequences.word2vec.model import Word2Vec

ANALOGY_BYTES = 1 << 28
"""memory of the cosines of a batch of analogies with all words"""


class WordVectors:
    """Words and their vectors, the most frequent word first."""

    def __init__(self, words: Sequence[str], vectors: Tensor) -> None:
        if len(words) != len(vectors):
            raise EngramError(f"There are {len(words)} words and {len(vectors)} vectors: each word needs one.")
        self.words, self.vectors = list(words), vectors
        self.key_to_index = {word: i for i, word in enumerate(self.words)}
        self.unit_VE = vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-12)

    @classmethod
    def load(cls, path: str | Path) -> "WordVectors":
        """Load a file in word2vec's format, text or binary, safetensors, a run folder, or "glove"."""
        if is_checkpoint(Path(path)) or (str(path) in MODELS and not Path(path).exists()):
            return cls.from_checkpoint(path)
        words, vectors = files.read_vectors(Path(path))
        return cls(words, vectors)

    @classmethod
    def from_checkpoint(cls, source: str | Path) -> "WordVectors":
        """Return the vectors of a pretrained model, by its name or in its folder."""
        found = load_checkpoint(source)
        if not isinstance(found.model, Word2Vec) or found.tokenizer is None:
            raise EngramError(f"{source} holds {with_article(type(found.model).__name__)}, which has no word vectors.")
        return cls.from_model(found.model, get_words(found.tokenizer))

    @classmethod
    def from_model(cls, model: Word2Vec, names: Sequence[str]) -> "WordVectors":
        """Return the vectors of a model without words that never occur; `names` are its words by id."""
        return cls(*files.sort_by_count(names, model.v.detach(), model.count))

    def save(self, path: str | Path, binary: bool | None = None) -> Path:
        """Save in word2vec's text format, in its binary format (.bin), or as .safetensors."""
        return files.write_vectors(Path(path), self.words, self.vectors, binary)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self.key_to_index

    def __getitem__(self, word: str) -> Tensor:
        return self.vectors[self.index(word)]

    def index(self, word: str) -> int:
        """Return the index of a word, in any case and with spaces or underscores; refuse an unknown one."""
        for form in (word, word.lower(), word.replace(" ", "_"), word.lower().replace(" ", "_")):
            if form in self.key_to_index:
                return self.key_to_index[form]
        close = get_close_matches(word.lower(), self.words[:50_000], n=3, cutoff=0.6)
        hint = f' Did you mean "{close[0]}"?' if close else ""
        raise EngramError(f'The word "{word}" is not among the {len(self)} that have a vector.{hint}')

    # ------------------------------------------------------------------ similarity

    def most_similar(
        self, positive: str | Sequence[str] = (), k: int = 10, negative: str | Sequence[str] = ()
    ) -> list[tuple[str, float]]:
        """Return the k words most similar to the sum of `positive` minus `negative` words, without those."""
        plus, minus = (([one] if isinstance(one, str) else list(one)) for one in (positive, negative))
        if not plus and not minus:
            raise EngramError("Name at least one word to find similar ones.")
        query = [self.index(word) for word in (*plus, *minus)]
        sign = torch.tensor([1.0] * len(plus) + [-1.0] * len(minus))
        sum_E = (sign[:, None] * self.unit_VE[query]).sum(0)
        cosine_V = self.unit_VE @ (sum_E / sum_E.norm().clamp(min=1e-12))
        cosine_V[query] = -torch.inf
        top = cosine_V.topk(min(k, len(self) - len(set(query))))
        return [(self.words[i], value) for i, value in zip(top.indices.tolist(), top.values.tolist(), strict=True)]

    def analogy(self, a: str, b: str, c: str, k: int = 10) -> list[tuple[str, float]]:
        """Return the k best answers to "a is to b as c is to …" (2)."""
        return self.most_similar([b, c], k, negative=[a])

    def similarity(self, a: str, b: str) -> float:
        """Return the cosine similarity (1) of two words."""
        return float(self.unit_VE[self.index(a)] @ self.unit_VE[self.index(b)])

    def doesnt_match(self, words: Sequence[str]) -> str:
        """Return the word that is least similar to the mean of all of them."""
        if not words:
            raise EngramError("Name the words of which one does not match.")
        unit_NE = self.unit_VE[[self.index(word) for word in words]]
        return list(words)[int((unit_NE @ unit_NE.mean(0)).argmin())]

    # ------------------------------------------------------------------ benchmarks

    def evaluate_analogies(
        self, questions: Mapping[str, Iterable[Sequence[str]]], restrict_vocab: int = 300_000
    ) -> dict[str, tuple[int, int]]:
        """Return by category of analogies (a, b, c, d) the numbers of correct answers and known questions.

        As in word2vec's own test: case is ignored, questions and answers are restricted to the `restrict_vocab` most
        frequent words, and the words of a question are no answers.
        """
        index: dict[str, int] = {}
        for i, word in enumerate(self.words[:restrict_vocab]):
            index.setdefault(word.lower(), i)
        found = {}
        for kind, rows in questions.items():
            known = [
                ids for row in rows if None not in (ids := [index.get(word.lower()) for word in row]) and len(row) == 4
            ]
            found[kind] = (
                self._count_correct(torch.tensor(known, dtype=torch.int64).view(-1, 4), min(restrict_vocab, len(self))),
                len(known),
            )
        return found

    def _count_correct(self, question_N4: Tensor, vocabulary: int) -> int:
        """Return how many questions are answered correctly by (2)."""
        unit_VE, correct = self.unit_VE[:vocabulary], 0
        for row_B4 in question_N4.split(max(1, ANALOGY_BYTES // (4 * vocabulary))):
            a_B, b_B, c_B, d_B = row_B4.unbind(1)
            cosine_BV = (unit_VE[b_B] - unit_VE[a_B] + unit_VE[c_B]) @ unit_VE.T
            cosine_BV.scatter_(1, row_B4[:, :3], -torch.inf)
            correct += int((cosine_BV.argmax(1) == d_B).sum())
        return correct

    def evaluate_word_pairs(self, pairs: Iterable[tuple[str, str, float]]) -> tuple[float, int]:
        """Return Spearman's correlation of cosine and human similarity scores, and the number of known pairs."""
        index = {word.lower(): i for i, word in reversed(list(enumerate(self.words)))}
        known = [
            (index[a.lower()], index[b.lower()], score)
            for a, b, score in pairs
            if a.lower() in index and b.lower() in index
        ]
        if len(known) < 2:
            return 0.0, len(known)
        first, second, score = zip(*known, strict=True)
        cosine_N = (self.unit_VE[list(first)] * self.unit_VE[list(second)]).sum(1)
        return spearman(cosine_N.numpy(), np.array(score)), len(known)


def spearman(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Return Spearman's rank correlation; ties get their mean rank, and a constant gives 0."""
    ranks = []
    for values in (x, y):
        _, index, count = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(count) - (count - 1) / 2)[index])
    a, b = (rank - rank.mean() for rank in ranks)
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / scale if scale else 0.0
