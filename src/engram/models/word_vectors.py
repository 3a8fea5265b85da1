"""Words as points: what lies near, what is to one word as another to a third, what does not belong.   V words, E width

    similarity(a, b) = cos(a, b) = a b' / (|a| |b|)
    analogy a : b = c : ?  is the word nearest to  b - a + c, each taken at length 1

vectors = WordVectors.load("vectors.txt")       # word2vec's text or binary format, or safetensors
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

from engram.core.errors import EngramError
from engram.models import word_files
from engram.models.word2vec import Word2Vec

TOGETHER = 1024
"""questions that are answered at once"""


class WordVectors:
    """Words with their vectors, the most frequent first."""

    def __init__(self, words: Sequence[str], vectors: Tensor) -> None:
        if len(words) != len(vectors):
            raise EngramError(f"There are {len(words)} words and {len(vectors)} vectors: each word needs one.")
        self.words, self.vectors = list(words), vectors
        self.place = {word: i for i, word in enumerate(self.words)}
        self.unit_VE = vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-12)

    @classmethod
    def load(cls, path: str | Path) -> "WordVectors":
        """From a file in word2vec's text or binary format, gzipped or not, from safetensors, or from a run folder."""
        words, vectors = word_files.read(Path(path))
        return cls(words, vectors)

    @classmethod
    def of(cls, model: Word2Vec, names: Sequence[str]) -> "WordVectors":
        """The words of a model that occur in its text; `names` are all, by their numbers."""
        return cls(*word_files.by_count(names, model.v.detach(), model.count))

    def save(self, path: str | Path, binary: bool | None = None) -> Path:
        """To word2vec's text format, to its binary format (a name that ends in .bin), or to .safetensors."""
        return word_files.write(Path(path), self.words, self.vectors, binary)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self.place

    def __getitem__(self, word: str) -> Tensor:
        return self.vectors[self.index(word)]

    def index(self, word: str) -> int:
        """The place of a word that must be known; one that is only written differently is understood."""
        for form in (word, word.lower(), word.replace(" ", "_"), word.lower().replace(" ", "_")):
            if form in self.place:
                return self.place[form]
        close = get_close_matches(word.lower(), self.words[:50_000], n=3, cutoff=0.6)
        hint = f" Did you mean {' or '.join(f'«{one}»' for one in close)}?" if close else ""
        raise EngramError(f"The word «{word}» is not among the {len(self)} that have a vector.{hint}")

    # ------------------------------------------------------------------ what is near

    def most_similar(
        self, positive: str | Sequence[str] = (), k: int = 10, negative: str | Sequence[str] = ()
    ) -> list[tuple[str, float]]:
        """The k words nearest to the sum of some words minus others, which themselves are left out."""
        plus, minus = (([one] if isinstance(one, str) else list(one)) for one in (positive, negative))
        if not plus and not minus:
            raise EngramError("Name at least one word to find what is near.")
        asked = [self.index(word) for word in (*plus, *minus)]
        sign = torch.tensor([1.0] * len(plus) + [-1.0] * len(minus))
        wanted_E = (sign[:, None] * self.unit_VE[asked]).sum(0)
        near_V = self.unit_VE @ (wanted_E / wanted_E.norm().clamp(min=1e-12))
        near_V[asked] = -torch.inf
        top = near_V.topk(min(k, len(self) - len(set(asked))))
        return [(self.words[i], value) for i, value in zip(top.indices.tolist(), top.values.tolist(), strict=True)]

    def analogy(self, a: str, b: str, c: str, k: int = 10) -> list[tuple[str, float]]:
        """What is to c as b is to a: «man» is to «king» as «woman» to …"""
        return self.most_similar([b, c], k, negative=[a])

    def similarity(self, a: str, b: str) -> float:
        """The cosine of the angle between two words."""
        return float(self.unit_VE[self.index(a)] @ self.unit_VE[self.index(b)])

    def doesnt_match(self, words: Sequence[str]) -> str:
        """The word that is farthest from the mean of all of them."""
        if not words:
            raise EngramError("Name the words of which one does not match.")
        unit_NE = self.unit_VE[[self.index(word) for word in words]]
        return list(words)[int((unit_NE @ unit_NE.mean(0)).argmin())]

    # ------------------------------------------------------------------ examinations

    def analogies(
        self, questions: Mapping[str, Iterable[Sequence[str]]], most: int = 300_000
    ) -> dict[str, tuple[int, int]]:
        """For each kind of questions, «a is to b as c to d», how many were answered right, and how many could be asked.

        Letters are taken as small, only the `most` frequent words can be asked for and answered, and a word of the
        question is no answer to it: as word2vec's own test does it.
        """
        place: dict[str, int] = {}
        for i, word in enumerate(self.words[:most]):
            place.setdefault(word.lower(), i)
        found = {}
        for kind, rows in questions.items():
            known = [
                places
                for row in rows
                if None not in (places := [place.get(word.lower()) for word in row]) and len(row) == 4
            ]
            found[kind] = (
                self._right(torch.tensor(known, dtype=torch.int64).view(-1, 4), min(most, len(self))),
                len(known),
            )
        return found

    def _right(self, question_N4: Tensor, most: int) -> int:
        unit_VE, right = self.unit_VE[:most], 0
        for row_B4 in question_N4.split(TOGETHER):
            a_B, b_B, c_B, d_B = row_B4.unbind(1)
            near_BV = (unit_VE[b_B] - unit_VE[a_B] + unit_VE[c_B]) @ unit_VE.T
            near_BV.scatter_(1, row_B4[:, :3], -torch.inf)
            right += int((near_BV.argmax(1) == d_B).sum())
        return right

    def likeness(self, pairs: Iterable[tuple[str, str, float]]) -> tuple[float, int]:
        """Spearman's correlation of the cosine with how alike people find two words, and how many pairs are known."""
        place = {word.lower(): i for i, word in reversed(list(enumerate(self.words)))}
        known = [
            (place[a.lower()], place[b.lower()], score)
            for a, b, score in pairs
            if a.lower() in place and b.lower() in place
        ]
        if len(known) < 2:
            return 0.0, len(known)
        first, second, score = zip(*known, strict=True)
        cosine_N = (self.unit_VE[list(first)] * self.unit_VE[list(second)]).sum(1)
        return spearman(cosine_N.numpy(), np.array(score)), len(known)


def spearman(x: NDArray[Any], y: NDArray[Any]) -> float:
    """The correlation of ranks; equal values share the mean of their ranks. 0 where one of them never varies."""
    ranks = []
    for values in (x, y):
        _, index, count = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(count) - (count - 1) / 2)[index])
    a, b = (rank - rank.mean() for rank in ranks)
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / scale if scale else 0.0
