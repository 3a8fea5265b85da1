"""Word vectors of texts: word2vec with negative sampling."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from engram.core.seeding import generator
from engram.data.sentences import SentenceLoader, count_words, get_words, train_word_tokenizer
from engram.data.tokens import Tokens
from engram.estimators.fitting import Array, draw_seed, train
from engram.sequences.word2vec import vectors
from engram.sequences.word2vec.learner import NegativeSampling, Word2VecTraining
from engram.sequences.word2vec.model import Word2Vec


def check_texts(X: Any) -> list[str]:
    """Return texts as a list; refuse a single text and what is no text."""
    if isinstance(X, str) or not isinstance(X, Iterable):
        raise ValueError(f"X must be a list of texts, not a single {type(X).__name__}.")
    texts = list(X)
    if wrong := [one for one in texts if not isinstance(one, str)]:
        raise ValueError(f"X must be a list of texts, and one is {type(wrong[0]).__name__}.")
    return texts


class WordVectors(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Word vectors (skip-gram with negative sampling).

    A text becomes the mean of the vectors of its words.

    Parameters
    ----------
    width : numbers in a vector
    window : largest distance between two words that are trained on each other
    negative : negative samples per word
    sample : threshold of sub-sampling of frequent words; 0 disables
    min_count : lowest count of a word in the vocabulary
    epochs : passes over the texts
    batch : words per training step
    lr : initial learning rate, which decays linearly
    random_state : seed

    Attributes
    ----------
    vectors_ : the `engram.WordVectors`: most similar words, analogies, files
    """

    def __init__(
        self,
        *,
        width: int = 100,
        window: int = 5,
        negative: int = 5,
        sample: float = 1e-3,
        min_count: int = 5,
        epochs: int = 5,
        batch: int = 10_000,
        lr: float = 0.025,
        random_state: Any = None,
    ) -> None:
        self.width = width
        self.window = window
        self.negative = negative
        self.sample = sample
        self.min_count = min_count
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.random_state = random_state

    def fit(self, X: Sequence[str], y: None = None) -> Self:
        """Train on texts; a text is a sentence, which no window leaves."""
        texts, seed = check_texts(X), draw_seed(self.random_state)
        self.tokenizer_ = train_word_tokenizer(texts, self.min_count, 0)
        rows = self.tokenizer_.encode_batch(texts)
        ids = torch.tensor([i for row in rows for i in row], dtype=torch.int32)
        ends = torch.tensor([len(row) for row in rows if row]).cumsum(0)
        tokens = Tokens(ids, ends)
        config = Word2VecTraining(window=self.window, negative=self.negative, sample=self.sample, lr=self.lr)
        steps = max(1, round(self.epochs * len(ids) / self.batch))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = Word2Vec(Word2Vec.Config(vocabulary=self.tokenizer_.vocab_size, width=self.width))
        model.count.copy_(count_words(tokens, self.tokenizer_.vocab_size))
        learner = NegativeSampling(model, config, steps, generator(seed, "sampling"))
        train(learner, SentenceLoader(tokens, self.batch), steps)
        self.vectors_ = vectors.WordVectors.from_model(model, get_words(self.tokenizer_))
        return self

    def transform(self, X: Sequence[str]) -> Array:
        """Mean of the vectors of the words of each text, N × width; 0 where no word is known."""
        check_is_fitted(self)
        names = get_words(self.tokenizer_)
        found = np.zeros((len(texts := check_texts(X)), self.width), np.float32)
        for row, ids in zip(found, self.tokenizer_.encode_batch(texts), strict=True):
            if known := [self.vectors_[names[i]] for i in ids if names[i] in self.vectors_]:
                row[:] = torch.stack(known).mean(0).numpy()
        return found

    def most_similar(self, words: str | Sequence[str], topn: int = 10) -> list[tuple[str, float]]:
        """Most similar words, with their cosine similarities."""
        check_is_fitted(self)
        return self.vectors_.most_similar(words, topn)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.requires_fit = True, False, True
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.width
