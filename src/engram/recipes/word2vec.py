"""Word vectors from text: neighbours, analogies, and examinations that people have taken too."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.registry import Recipe, Request, Sample, recipe
from engram.core.seeding import generator
from engram.data import corpus, phrases
from engram.data.corpus import Corpus
from engram.data.sentences import Sentences, counts, names_of, stretch, vocabulary
from engram.data.tokeniser import Tokeniser
from engram.figures import words as views
from engram.figures.figure import Figure
from engram.models.word2vec import NegativeSampling, Sampling, Softmax, Word2Vec, noise, pairs
from engram.models.word_vectors import WordVectors
from engram.recipes.language import TOKENISER

EVALUATED_WORDS, EVALUATED_PAIRS = 50_000, 10_000
LIKENESS = ("wordsim353", "simlex999")
ENOUGH = 20
"""questions that must be known for an examination to mean anything"""
COMMON, RARE = 100, 1000
"""ranks of the words that are shown where none are named: neither the commonest nor rare ones"""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What word vectors may be asked."""

    words: tuple[str, ...] = ()
    """words whose neighbours are wanted; some frequent ones if none are named"""
    analogy: tuple[str, ...] = ()
    """three words, a b c: what is to c as b is to a"""
    odd: tuple[str, ...] = ()
    """words of which one does not belong to the others"""
    most: int = 10
    """neighbours and answers to show"""

    def __post_init__(self) -> None:
        if self.analogy and len(self.analogy) != 3:
            raise EngramError(f"analogy takes three words, as in --analogy man king woman, not {len(self.analogy)}.")
        if self.odd and len(self.odd) < 3:
            raise EngramError(f"odd takes three words or more, not {len(self.odd)}.")
        if self.most < 1:
            raise EngramError(f"most must be at least 1, not {self.most}.")


@dataclass(frozen=True, kw_only=True)
class Words:
    """What is looked at."""

    words: tuple[str, ...] = ()
    """words to look at, with those around them; some frequent ones if none are named"""


@recipe
@dataclass(frozen=True, kw_only=True)
class Word2VecRecipe(Recipe):
    """Every word becomes a vector by which the words around it are told from others, and like words come together."""

    name: ClassVar[str] = "word2vec"
    title: ClassVar[str] = "Word vectors"
    kind: ClassVar[str] = "sequences"
    notes: ClassVar[str] = "003 §20"
    Model: ClassVar[type[nn.Module]] = Word2Vec
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {
            "data": "shakespeare", "width": 16, "batch": 2000, "steps": 20, "every": 10, "least": 10, "examine": False,
        },
        "full": {"data": "poetry", "batch": 50_000, "steps": 2200, "every": 440},
        "softmax": {
            "data": "shakespeare", "objective": "softmax", "most": 1000, "width": 50, "batch": 500, "steps": 1000,
            "every": 200, "window": 2, "rate": 0.05,
        },
    }  # fmt: skip
    unit: ClassVar[str] = "words"
    Ask: ClassVar[type] = Question
    Subject: ClassVar[type] = Words
    samples: ClassVar[int] = 8

    data: str = "brown"
    """data set of texts (`engram data list`), or a path: .txt file or folder of them, of any size"""
    steps: int = 2000
    every: int = 400
    batch: int = 10_000
    """words in a step; steps times this, divided by the words of the text, is how often it is read"""
    least: int = 5
    """how often a word must occur to have a vector"""
    most: int = 0
    """words that have a vector at most, the most frequent; 0 sets no limit"""
    lines: bool = True
    """take each line for a sentence; switched off, long stretches, for prose that is broken into lines anywhere"""
    phrases: int = 0
    """passes that join words that belong together, as new_york: one finds pairs, each further one longer phrases"""
    threshold: float = 100.0
    """how much more often than by chance the words of a phrase must meet"""
    examine: bool = True
    """examine on analogies and on pairs of words that people have compared"""
    model: Word2Vec.Config = field(default_factory=Word2Vec.Config)
    """the vectors"""
    sampling: Sampling = field(default_factory=Sampling)
    """how they learn"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("batch", "least"):
            if getattr(self, name) < 1:
                raise EngramError(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("most", "phrases", "threshold"):
            if not getattr(self, name) >= 0:
                raise EngramError(f"{name} must not be negative, and is {getattr(self, name)}.")

    @property
    def per_step(self) -> float:
        return self.batch

    # ------------------------------------------------------------------ data

    def load(self) -> Corpus:
        text = self.read()
        found = vocabulary(text.splits["train"](), self.least, self.most)
        if self.phrases:
            tokens = corpus.tokenised(text, found)["train"]
            found = phrases.learn(tokens, found, self.phrases, self.least, self.threshold)
        if self.examine:
            examinations()  # which may have to be obtained: better now than after an hour
        return phrases.joined(corpus.tokenised(text, found), text.identity)

    def reload(self, folder: Path) -> Corpus:
        text = self.read()
        found = phrases.joined(corpus.tokenised(text, Tokeniser.load(folder / TOKENISER)), text.identity)
        return replace(found, folder=folder)

    def read(self) -> corpus.Text:
        return corpus.read(self.data, "lines" if self.lines else "stretches")

    def files(self, data: Corpus) -> Mapping[str, bytes]:
        return {TOKENISER: data.tokeniser.to_bytes()}

    # ------------------------------------------------------------------ learning

    def learner(self, data: Corpus) -> NegativeSampling | Softmax:
        model = Word2Vec(replace(self.model, vocabulary=data.tokeniser.vocabulary))
        model.count.copy_(counts(data["train"], data.tokeniser.vocabulary))
        if self.sampling.objective == "softmax":
            return Softmax(model, self.sampling, self.steps)
        return NegativeSampling(model, self.sampling, self.steps, generator(self.seed, "sampling"))

    def batches(self, data: Corpus) -> Sentences:
        return Sentences(data["train"], self.batch)

    def evaluate(self, learner: Learner, data: Corpus, split: str) -> dict[str, float]:
        """The loss on pairs that were not learnt from, and what examinations say, where enough of them is known."""
        model = vectors(learner.model)
        measured = self.loss(model, data, split)
        if self.examine:
            words = WordVectors.of(model, names_of(data.tokeniser))
            measured |= marks(words)
        return measured

    def loss(self, model: Word2Vec, data: Corpus, split: str) -> dict[str, float]:
        found, _ = stretch(data[split], 0, EVALUATED_WORDS)
        input_N, output_N = pairs(found["words"].long(), found["ends"], self.sampling.window)
        chosen = torch.linspace(0, len(input_N) - 1, min(EVALUATED_PAIRS, len(input_N))).long()
        input_B, output_B = input_N[chosen], output_N[chosen]
        if not len(chosen):
            return {}
        if self.sampling.objective == "softmax":
            return {"loss": F.cross_entropy(model(input_B), output_B).item()}
        p_V = torch.from_numpy(noise(model.count.numpy()))
        drawn = torch.multinomial(
            p_V, len(chosen) * self.sampling.negative, True, generator=generator(self.seed, "negatives")
        )
        return {"loss": model.loss(input_B, output_B, drawn.view(len(chosen), -1)).item()}

    # ------------------------------------------------------------------ looking and asking

    def figures(self, learner: Learner, data: Corpus) -> Iterator[Figure]:
        words = WordVectors.of(vectors(learner.model), names_of(data.tokeniser))
        yield views.word_map(words)
        yield views.neighbourhoods(words, usual(words, 6, generator(self.seed, "words")))
        if self.examine:
            yield from examined(words)

    def look(self, model: nn.Module, data: Corpus, subject: Words) -> tuple[str, list[Figure]]:
        words = WordVectors.of(vectors(model), names_of(data.tokeniser))
        named = list(subject.words) or usual(words, 4, generator(self.seed, "words"))
        named = list(dict.fromkeys(words.words[words.index(word)] for word in named))
        around = dict.fromkeys(name for word in named for name, _ in words.most_similar(word, 5))
        shown = [*named, *(name for name in around if name not in named)]
        seen = [views.neighbourhoods(words, named), views.similarities(words, shown[:30])]
        if len(named) > 2 and len(named) % 2 == 0:
            seen.append(views.parallelograms(words, list(zip(named[::2], named[1::2], strict=True))))
        return ", ".join(named), seen

    def probe(self, model: nn.Module, data: Corpus, item: int) -> str:
        if not 0 <= item < data.tokeniser.vocabulary - 1:
            raise EngramError(f"item must be a word from 0 to {data.tokeniser.vocabulary - 2}, not {item}.")
        model(torch.tensor([item + 1]))
        return names_of(data.tokeniser)[item + 1]

    def sample(self, learner: Learner, data: Corpus, request: Request) -> Sample:
        """Neighbours of words, answers to an analogy, the odd one out."""
        ask: Question = request.ask
        words = WordVectors.of(vectors(learner.model), names_of(data.tokeniser))
        said: dict[str, list[tuple[str, float]]] = {}
        named = ask.words or (() if ask.analogy or ask.odd else usual(words, request.count, request.generator))
        for word in named:
            said[word] = words.most_similar(word, ask.most)
        if ask.analogy:
            a, b, c = ask.analogy
            said[f"{a} : {b} = {c} :"] = words.analogy(a, b, c, ask.most)
        lines = [
            f"{what}\n    {'   '.join(f'{name} {value:.2f}' for name, value in near)}" for what, near in said.items()
        ]
        if ask.odd:
            lines.append(f"{' '.join(ask.odd)}\n    {words.doesnt_match(ask.odd)} does not belong")
        near = [torch.tensor([value for _, value in row]) for row in said.values()]
        return Sample({"similarity": torch.cat(near) if near else torch.empty(0)}, "\n".join(lines), aloud=True)


def vectors(model: nn.Module) -> Word2Vec:
    assert isinstance(model, Word2Vec)
    return model


def usual(words: WordVectors, count: int, random: torch.Generator) -> list[str]:
    """Some words that are frequent, but not the most frequent."""
    first = min(COMMON, len(words) // 2)
    some = words.words[first : max(first + 1, min(RARE, len(words)))]
    order = torch.randperm(len(some), generator=random)[:count]
    return [some[i] for i in order.tolist()]


# ---------------------------------------------------------------------- examinations


@functools.cache
def examinations() -> tuple[dict[str, list[list[str]]], dict[str, list[tuple[str, str, float]]]]:
    """Analogies by kind, and pairs of words with how alike people find them, by where they come from."""
    data = datasets.load("analogies")
    kinds: dict[str, list[list[str]]] = {kind: [] for kind in data.classes}
    for *row, label in zip(*(data.test[c] for c in "abcd"), data.test["label"].tolist(), strict=True):
        kinds[data.classes[label]].append(row)
    likeness = {}
    for name in LIKENESS:
        test = datasets.load(name).test
        likeness[name] = list(zip(test["first"], test["second"], test["score"].tolist(), strict=True))
    return kinds, likeness


def marks(words: WordVectors) -> dict[str, float]:
    """What part of the analogies is answered right, and Spearman's correlations."""
    kinds, likeness = examinations()
    right, asked = np.array(list(words.analogies(kinds).values())).sum(0).tolist()
    measured = {"analogies_accuracy": right / asked} if asked >= ENOUGH else {}
    for name, rows in likeness.items():
        correlation, known = words.likeness(rows)
        measured |= {name: correlation} if known >= ENOUGH else {}
    return measured


def examined(words: WordVectors) -> Iterator[Figure]:
    """Pairs of the kind that is answered best, as arrows, and how many of each kind are right."""
    kinds, _ = examinations()
    found = words.analogies(kinds)
    asked = {kind: right / count for kind, (right, count) in found.items() if count >= ENOUGH}
    if not asked:
        return
    best = max(asked, key=lambda kind: asked[kind])
    lowered = [[word.lower() for word in row] for row in kinds[best]]
    yield views.parallelograms(words, views.pairs_of(lowered, words))
    yield views.answers(found)
