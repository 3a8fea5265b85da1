"""Intrinsic evaluation of word vectors: word analogies and word similarity benchmarks."""

import functools
from collections.abc import Iterator

import numpy as np

from engram import data as datasets
from engram.plots.figure import Figure
from engram.sequences.word2vec import plots
from engram.sequences.word2vec.vectors import WordVectors

SIMILARITY_BENCHMARKS = ("wordsim353", "simlex999")
MIN_QUESTIONS = 20
"""fewest known questions for which a result is reported"""


@functools.cache
def load_benchmarks() -> tuple[dict[str, list[list[str]]], dict[str, list[tuple[str, str, float]]]]:
    """Load analogies by category, and pairs of words with human similarity scores by benchmark."""
    data = datasets.load("analogies")
    analogies: dict[str, list[list[str]]] = {category: [] for category in data.classes}
    for *row, label in zip(*(data.test[c] for c in "abcd"), data.test["label"].tolist(), strict=True):
        analogies[data.classes[label]].append(row)
    pairs = {}
    for name in SIMILARITY_BENCHMARKS:
        test = datasets.load(name).test
        pairs[name] = list(zip(test["first"], test["second"], test["score"].tolist(), strict=True))
    return analogies, pairs


def benchmark_metrics(vectors: WordVectors) -> dict[str, float]:
    """Return the accuracy on analogies, and Spearman's correlation on each similarity benchmark."""
    analogies, pairs = load_benchmarks()
    correct, count = np.array(list(vectors.evaluate_analogies(analogies).values())).sum(0).tolist()
    metrics = {"analogies_accuracy": correct / count} if count >= MIN_QUESTIONS else {}
    for name, rows in pairs.items():
        correlation, known = vectors.evaluate_word_pairs(rows)
        metrics |= {name: correlation} if known >= MIN_QUESTIONS else {}
    return metrics


def benchmark_figures(vectors: WordVectors) -> Iterator[Figure]:
    """Yield the pairs of the most accurate category as arrows, and the accuracy of each category."""
    analogies, _ = load_benchmarks()
    results = vectors.evaluate_analogies(analogies)
    accuracy = {name: correct / count for name, (correct, count) in results.items() if count >= MIN_QUESTIONS}
    if not accuracy:
        return
    best = max(accuracy, key=lambda name: accuracy[name])
    rows = [[word.lower() for word in row] for row in analogies[best]]
    yield plots.parallelograms(vectors, plots.known_pairs(rows, vectors))
    yield plots.analogy_accuracy(results)
