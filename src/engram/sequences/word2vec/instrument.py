"""Word map: principal components, nearest neighbors, analogies.   V words, E width"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.data.sentences import get_words
from engram.plots.arrays import pack_array, plotly_json
from engram.plots.embedding import principal_components
from engram.plots.instrument import Models, Response, endpoint, register_instrument
from engram.sequences.word2vec import plots
from engram.sequences.word2vec.model import Word2Vec
from engram.sequences.word2vec.vectors import WordVectors

register_instrument(
    "words",
    title="Word map",
    about="Search a map of words, see neighbors, complete analogies.",
    recipes=("word2vec",),
    folder=Path(__file__).parent,
)

MAX_LETTERS = 60
"""longest word of a query"""
MAP_WORDS = 1000
"""frequent words on the map"""
MAX_NEIGHBORS = 50
SUGGESTIONS = 12


class WordMap(NamedTuple):
    """Vectors and their map, computed once per model."""

    vectors: WordVectors
    count_V: Tensor
    """how often each word occurs"""
    first: int
    """rank of the first word on the map; those before are stop words"""
    xy_V2: Tensor
    """every word on the first two principal components of the frequent words"""
    share: float
    """explained variance of the two components"""


MAPS: "WeakKeyDictionary[nn.Module, WordMap]" = WeakKeyDictionary()
"""cached as long as the model is"""


@dataclass(frozen=True, kw_only=True)
class RunArgs:
    """A run of word vectors."""

    run: str = ""
    step: int = -1


@dataclass(frozen=True, kw_only=True)
class NeighborsArgs(RunArgs):
    word: str = ""
    """word whose neighbors are listed; a frequent one if empty"""
    count: int = 12
    """number of neighbors"""

    def __post_init__(self) -> None:
        check_length("word", self.word)
        if not 1 <= self.count <= MAX_NEIGHBORS:
            raise EngramError(f"count must be from 1 to {MAX_NEIGHBORS}, not {self.count}.")


@dataclass(frozen=True, kw_only=True)
class CompletionArgs(RunArgs):
    prefix: str = ""
    """first letters of a word"""

    def __post_init__(self) -> None:
        check_length("prefix", self.prefix)


@dataclass(frozen=True, kw_only=True)
class SimilarityArgs(RunArgs):
    a: str = ""
    b: str = ""

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            check_length(name, getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class AnalogyArgs(SimilarityArgs):
    c: str = ""
    count: int = 8
    """number of answers"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_length("c", self.c)
        if not 1 <= self.count <= MAX_NEIGHBORS:
            raise EngramError(f"count must be from 1 to {MAX_NEIGHBORS}, not {self.count}.")


@endpoint("words.map")
def word_map(args: RunArgs, models: Models) -> Response:
    """Frequent words and their positions on the map."""
    map_ = get_map(args, models)
    chosen = slice(map_.first, map_.first + MAP_WORDS)
    words = map_.vectors.words
    return {
        "words": words[chosen], "xy": pack_array(map_.xy_V2[chosen]), "share": map_.share, "all": len(words),
        "examples": examples(words),
    }  # fmt: skip


@endpoint("words")
def neighbors(args: NeighborsArgs, models: Models) -> Response:
    """Nearest neighbors of a word, with their positions on the map."""
    map_ = get_map(args, models)
    vectors = map_.vectors
    i = vectors.index(args.word) if args.word else min(map_.first, len(vectors) - 1)
    neighbors = vectors.most_similar(vectors.words[i], args.count)
    return {
        "word": vectors.words[i], "rank": i + 1, "occurs": int(map_.count_V[i]),
        "at": map_.xy_V2[i].tolist(),
        "near": [{"word": word, "cosine": cosine, "at": position(map_, word)} for word, cosine in neighbors],
    }  # fmt: skip


@endpoint("words.complete")
def complete(args: CompletionArgs, models: Models) -> Response:
    """The most frequent words with a prefix, and whether the prefix is a word itself."""
    vectors = get_map(args, models).vectors
    prefix = args.prefix.lower().replace(" ", "_")
    found = [word for word in vectors.words if word.lower().startswith(prefix)] if prefix else []
    return {"words": found[:SUGGESTIONS], "known": any(form in vectors for form in (args.prefix, prefix))}


@endpoint("words.similarity")
def similarity(args: SimilarityArgs, models: Models) -> Response:
    """Cosine similarity of two words, and the rank of the second among the neighbors of the first."""
    vectors = get_map(args, models).vectors
    a, b = (vectors.index(word) for word in (args.a, args.b))
    cosine = max(-1.0, min(1.0, vectors.similarity(args.a, args.b)))
    cosine_V = vectors.unit_VE @ vectors.unit_VE[a]
    cosine_V[a] = -math.inf
    return {
        "a": vectors.words[a], "b": vectors.words[b], "cosine": cosine,
        "degrees": math.degrees(math.acos(cosine)),
        "rank": 1 + int((cosine_V > cosine_V[b]).sum()), "of": len(vectors) - 1,
    }  # fmt: skip


@endpoint("words.analogy")
def analogy(args: AnalogyArgs, models: Models) -> Response:
    """Answers d of the analogy a : b = c : d, with the parts of cos(d, b - a + c)."""
    vectors = get_map(args, models).vectors
    a, b, c = (vectors.words[vectors.index(word)] for word in (args.a, args.b, args.c))
    found = vectors.analogy(a, b, c, args.count)
    if not found:
        raise EngramError("There are no other words to answer with.")
    unit_a, unit_b, unit_c = (vectors.unit_VE[vectors.index(word)] for word in (a, b, c))
    answers = [
        {"word": d, "cosine": cosine, "parts": [vectors.similarity(d, word) for word in (a, b, c)]}
        for d, cosine in found
    ]
    figure = plots.parallelograms(vectors, [(a, b), (c, found[0][0])])
    return {
        "words": [a, b, c], "answers": answers, "length": (unit_b - unit_a + unit_c).norm().item(),
        "plot": plotly_json(figure.plot), "caption": figure.caption,
    }  # fmt: skip


# ---------------------------------------------------------------------- maps


def get_map(args: RunArgs, models: Models) -> WordMap:
    """Return the map of a run of word2vec."""
    run = models.open(args.run, args.step)
    model = run.learner.model
    if not isinstance(model, Word2Vec):
        raise EngramError(f"{run.recipe.name} has no word vectors: choose a run of word2vec.")
    if model not in MAPS:
        MAPS[model] = build_map(model, WordVectors.from_model(model, get_words(run.data.tokenizer)))
    return MAPS[model]


def build_map(model: Word2Vec, vectors: WordVectors) -> WordMap:
    """Project all words onto the principal components of the frequent ones."""
    first = plots.STOP_WORDS if len(vectors) > plots.STOP_WORDS + 20 else 0
    frequent_NE = vectors.unit_VE[first : first + MAP_WORDS]
    xy_N2, share = principal_components(frequent_NE)
    mean_E = frequent_NE.mean(0)
    plane_E2 = torch.linalg.lstsq(frequent_NE - mean_E, xy_N2, driver="gelsd").solution
    count_V = model.count.sort(descending=True).values[: len(vectors)]
    return WordMap(vectors, count_V, first, (vectors.unit_VE - mean_E) @ plane_E2, share)


def position(map_: WordMap, word: str) -> list[float]:
    """Return the position of a word on the map."""
    x, y = map_.xy_V2[map_.vectors.index(word)].tolist()
    return [x, y]


def check_length(name: str, word: str) -> None:
    """Refuse a word that is too long."""
    if len(word) > MAX_LETTERS:
        raise EngramError(f"{name} must have at most {MAX_LETTERS} letters, not {len(word)}.")


def examples(words: list[str]) -> dict[str, Any]:
    """Return example words and an example analogy from the vocabulary."""
    known = set(words)
    familiar = [word for word in ("king", "paris", "music", "water", "love") if word in known]
    analogies = [
        row
        for row in (("man", "king", "woman"), ("he", "his", "she"), ("man", "men", "woman"), ("is", "was", "are"))
        if known.issuperset(row)
    ]
    frequent = words[plots.STOP_WORDS : plots.STOP_WORDS + 20 : 5] or words[:3]
    return {"words": familiar or frequent, "analogy": list(analogies[0] if analogies else (frequent * 3)[:3])}
