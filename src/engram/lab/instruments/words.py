"""Word map: where words lie, what is near them, and what is to one word as another to a third.   V words, E width"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.data.sentences import names_of
from engram.figures import words as views
from engram.figures.embedding import principal
from engram.lab.arrays import packed, plot
from engram.lab.desk import Answer, Models, ask
from engram.models.word2vec import Word2Vec
from engram.models.word_vectors import WordVectors

LONGEST = 60
"""letters of a word that is looked for"""
ON_MAP = 1000
"""frequent words from which the map is made"""
NEAR = 50
"""neighbours at most"""
SUGGESTED = 12


class Atlas(NamedTuple):
    """What is derived from a model once."""

    vectors: WordVectors
    count_V: Tensor
    """how often each word occurs"""
    first: int
    """of the words that the map is made of: those before are hardly about anything"""
    xy_V2: Tensor
    """where every word lies on the plane in which frequent ones differ most"""
    share: float
    """of their variance, seen on it"""


ATLASES: "WeakKeyDictionary[nn.Module, Atlas]" = WeakKeyDictionary()
"""kept as long as the model itself is"""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A run of word vectors."""

    run: str = ""
    step: int = -1


@dataclass(frozen=True, kw_only=True)
class Sought(Opened):
    word: str = ""
    """whose neighbours are wanted; without one, some frequent word"""
    count: int = 12
    """neighbours"""

    def __post_init__(self) -> None:
        must_be_word("word", self.word)
        if not 1 <= self.count <= NEAR:
            raise EngramError(f"count must be from 1 to {NEAR}, not {self.count}.")


@dataclass(frozen=True, kw_only=True)
class Begun(Opened):
    begin: str = ""
    """the first letters of a word"""

    def __post_init__(self) -> None:
        must_be_word("begin", self.begin)


@dataclass(frozen=True, kw_only=True)
class Two(Opened):
    a: str = ""
    b: str = ""

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            must_be_word(name, getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class Three(Two):
    c: str = ""
    count: int = 8
    """answers"""

    def __post_init__(self) -> None:
        super().__post_init__()
        must_be_word("c", self.c)
        if not 1 <= self.count <= NEAR:
            raise EngramError(f"count must be from 1 to {NEAR}, not {self.count}.")


@ask("words.map")
def word_map(asked: Opened, models: Models) -> Answer:
    """Frequent words and where they lie."""
    atlas = opened(asked, models)
    chosen = slice(atlas.first, atlas.first + ON_MAP)
    words = atlas.vectors.words
    return {
        "words": words[chosen], "xy": packed(atlas.xy_V2[chosen]), "share": atlas.share, "all": len(words),
        "examples": examples(words),
    }  # fmt: skip


@ask("words")
def neighbours(asked: Sought, models: Models) -> Answer:
    """The words nearest to one, with where they lie on the map."""
    atlas = opened(asked, models)
    vectors = atlas.vectors
    place = vectors.index(asked.word) if asked.word else min(atlas.first, len(vectors) - 1)
    near = vectors.most_similar(vectors.words[place], asked.count)
    return {
        "word": vectors.words[place], "rank": place + 1, "occurs": int(atlas.count_V[place]),
        "at": atlas.xy_V2[place].tolist(),
        "near": [{"word": word, "cosine": cosine, "at": at(atlas, word)} for word, cosine in near],
    }  # fmt: skip


@ask("words.complete")
def complete(asked: Begun, models: Models) -> Answer:
    """The most frequent words that begin so, and whether what was typed is a word itself."""
    vectors = opened(asked, models).vectors
    begin = asked.begin.lower().replace(" ", "_")
    found = [word for word in vectors.words if word.lower().startswith(begin)] if begin else []
    return {"words": found[:SUGGESTED], "known": any(form in vectors for form in (asked.begin, begin))}


@ask("words.similarity")
def similarity(asked: Two, models: Models) -> Answer:
    """The cosine of the angle between two words, and how many words are nearer to the first than the second is."""
    vectors = opened(asked, models).vectors
    a, b = (vectors.index(word) for word in (asked.a, asked.b))
    cosine = max(-1.0, min(1.0, vectors.similarity(asked.a, asked.b)))
    near_V = vectors.unit_VE @ vectors.unit_VE[a]
    near_V[a] = -math.inf
    return {
        "a": vectors.words[a], "b": vectors.words[b], "cosine": cosine,
        "degrees": math.degrees(math.acos(cosine)), "rank": 1 + int((near_V > near_V[b]).sum()), "of": len(vectors) - 1,
    }  # fmt: skip


@ask("words.analogy")
def analogy(asked: Three, models: Models) -> Answer:
    """What is to c as b is to a: cos(d, b - a + c) = (cos(d, b) - cos(d, a) + cos(d, c)) / |b - a + c|."""
    vectors = opened(asked, models).vectors
    a, b, c = (vectors.words[vectors.index(word)] for word in (asked.a, asked.b, asked.c))
    found = vectors.analogy(a, b, c, asked.count)
    if not found:
        raise EngramError("There are no other words to answer with.")
    unit_a, unit_b, unit_c = (vectors.unit_VE[vectors.index(word)] for word in (a, b, c))
    answers = [
        {"word": d, "cosine": cosine, "parts": [vectors.similarity(d, word) for word in (a, b, c)]}
        for d, cosine in found
    ]
    drawn = views.parallelograms(vectors, [(a, b), (c, found[0][0])])
    return {
        "words": [a, b, c], "answers": answers, "length": (unit_b - unit_a + unit_c).norm().item(),
        "plot": plot(drawn.plot), "caption": drawn.caption,
    }  # fmt: skip


# ---------------------------------------------------------------------- what is opened


def opened(asked: Opened, models: Models) -> Atlas:
    run = models.open(asked.run, asked.step)
    model = run.learner.model
    if not isinstance(model, Word2Vec):
        raise EngramError(f"{run.recipe.name} has no word vectors: choose a run of word2vec.")
    if model not in ATLASES:
        ATLASES[model] = drawn_up(model, WordVectors.of(model, names_of(run.data.tokeniser)))
    return ATLASES[model]


def drawn_up(model: Word2Vec, vectors: WordVectors) -> Atlas:
    first = views.COMMON if len(vectors) > views.COMMON + 20 else 0
    some_NE = vectors.unit_VE[first : first + ON_MAP]
    xy_N2, share = principal(some_NE)
    mean_E = some_NE.mean(0)
    plane_E2 = torch.linalg.lstsq(some_NE - mean_E, xy_N2, driver="gelsd").solution  # so that others lie on it too
    count_V = model.count.sort(descending=True).values[: len(vectors)]
    return Atlas(vectors, count_V, first, (vectors.unit_VE - mean_E) @ plane_E2, share)


def at(atlas: Atlas, word: str) -> list[float]:
    x, y = atlas.xy_V2[atlas.vectors.index(word)].tolist()
    return [x, y]


def must_be_word(name: str, word: str) -> None:
    if len(word) > LONGEST:
        raise EngramError(f"{name} must have at most {LONGEST} letters, not {len(word)}.")


def examples(words: list[str]) -> dict[str, Any]:
    """Something to begin with: the first of the usual examples whose words are known, or else frequent words."""
    known = set(words)
    usual = [word for word in ("king", "paris", "music", "water", "love") if word in known]
    analogies = [
        row
        for row in (("man", "king", "woman"), ("he", "his", "she"), ("man", "men", "woman"), ("is", "was", "are"))
        if known.issuperset(row)
    ]
    some = words[views.COMMON : views.COMMON + 20 : 5] or words[:3]
    return {"words": usual or some, "analogy": list(analogies[0] if analogies else (some * 3)[:3])}
