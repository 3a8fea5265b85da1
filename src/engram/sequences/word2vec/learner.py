"""Learners of word2vec: negative sampling and full softmax; equations are those of `word2vec.model`."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge
from numpy.typing import NDArray
from torch import Tensor

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics
from engram.sequences.word2vec.kernels import compile_kernel
from engram.sequences.word2vec.model import (
    Word2Vec,
    alias_table,
    context_pairs,
    keep_probability,
    noise_distribution,
    padded_view,
    split_sentences,
)

SOFTMAX_BATCH = 64
"""pairs per update of the softmax"""


@dataclass(frozen=True, kw_only=True)
class Word2VecTraining(Settings):
    """Objective, architecture and sampling of word2vec."""

    objective: Literal["negative-sampling", "softmax"] = "negative-sampling"
    """negative-sampling: classify words against negatives; softmax: over all words, slow for large vocabularies"""
    architecture: Literal["skip-gram", "cbow"] = "skip-gram"
    """skip-gram: each context word predicts the center word; cbow: their mean does"""
    window: Annotated[int, Ge(1)] = 5
    """largest distance between center word and context word"""
    negative: Annotated[int, Ge(1)] = 5
    """negatives per word (K)"""
    shared_negatives: Literal["window", "sentence"] = "window"
    """words that share their negatives: those of a window, or all of a sentence, which is faster"""
    sample: Annotated[float, Ge(0)] = 1e-3
    """threshold of sub-sampling (t): relative frequency above which words are dropped at random; 0 disables"""
    lr: Annotated[float, Ge(0)] = 0.025
    """initial learning rate (eta), which decays linearly to almost 0"""
    workers: Annotated[int, Ge(1)] = 1
    """threads that train in parallel (Hogwild!); more than one is faster and not reproducible"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shared_negatives == "sentence" and self.architecture == "cbow":
            raise EngramError(
                "A sentence shares its negatives in skip-gram only: leave out --shared-negatives or --architecture."
            )

    def learning_rate(self, progress: float) -> float:
        """Return the learning rate after this fraction of all steps."""
        return self.lr * max(1e-4, 1 - progress)


@dataclass(frozen=True)
class SamplingTables:
    """(4) and (5) as the kernel samples them, from 32 random bits each, without division or search."""

    keep: NDArray[np.uint64]
    """a word is kept if the bits are below this"""
    prob: NDArray[np.uint32]
    alias: NDArray[np.int32]
    """negatives: a uniformly sampled word is taken if the bits are below its `prob`, otherwise its alias"""

    @classmethod
    def from_counts(cls, count: NDArray[np.int64], sample: float) -> "SamplingTables":
        keep_V = np.minimum(1.0, keep_probability(count, sample))
        prob_V, alias_V = alias_table(noise_distribution(count))
        prob = np.minimum(prob_V * 2.0**32, 2.0**32 - 1).astype(np.uint32)
        return cls((keep_V * 2.0**32).astype(np.uint64), prob, alias_V)


class NegativeSampling:
    """Learner by negative sampling: (2) to (7) on a batch of sentences, in a compiled kernel."""

    def __init__(self, model: Word2Vec, config: Word2VecTraining, steps: int, generator: torch.Generator) -> None:
        self.model, self.config, self.steps, self.generator = model, config, steps, generator
        self.done = 0
        self.tables = SamplingTables.from_counts(model.count.numpy(), config.sample)
        self.pool = ThreadPoolExecutor(config.workers)
        self.negative = 2 * config.negative + 2 if config.shared_negatives == "sentence" else config.negative

    def step(self, batch: Batch) -> Metrics:
        workers = min(self.config.workers, len(batch["ends"]))
        seeds = torch.randint(2**62, (workers,), generator=self.generator).tolist()
        parts = list(zip(split_sentences(batch["words"].numpy(), batch["ends"].numpy(), workers), seeds, strict=True))
        if workers == 1:
            losses = [self._train(*parts[0])]
        else:
            losses = list(self.pool.map(lambda part: self._train(*part), parts))
        self.done += 1
        loss, pairs = map(sum, zip(*losses, strict=True))
        return {"loss": torch.tensor(loss / pairs, dtype=torch.float64)} if pairs else {}

    def _train(self, part: tuple[NDArray[np.int32], NDArray[np.int64]], seed: int) -> tuple[float, int]:
        """Train on one part of a batch; returns the loss of some pairs and their number."""
        config, tables, v, u = self.config, self.tables, padded_view(self.model.v), padded_view(self.model.u)
        return compile_kernel(v.shape[1])(
            *part, v, u, tables.keep, tables.prob, tables.alias,
            config.window, self.negative, config.negative / self.negative,
            config.learning_rate(self.done / self.steps), seed, config.architecture == "cbow",
            config.shared_negatives == "sentence",
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        self.generator.set_state(state["generator"])
        self.tables = SamplingTables.from_counts(self.model.count.numpy(), self.config.sample)


class FullSoftmax:
    """Learner by the full softmax (1): SGD on all pairs of a batch of sentences."""

    def __init__(self, model: Word2Vec, config: Word2VecTraining, steps: int) -> None:
        self.model, self.config, self.steps = model, config, steps
        self.done = 0

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        input_N, output_N = context_pairs(batch["words"].long(), batch["ends"], self.config.window)
        eta, losses = self.config.learning_rate(self.done / self.steps), []
        for input_B, output_B in zip(input_N.split(SOFTMAX_BATCH), output_N.split(SOFTMAX_BATCH), strict=True):
            losses.append(self._update(input_B, output_B, eta))
        self.done += 1
        return {"loss": torch.cat(losses).mean()} if losses else {}

    def _update(self, input_B: Tensor, output_B: Tensor, eta: float) -> Tensor:
        """Take one gradient step on the sum of -log y_o over pairs; returns the loss of each pair."""
        v, u = self.model.v, self.model.u
        h_BE = v[input_B]
        log_y_BV = (h_BE @ u.T).log_softmax(-1)  # log y of (1)
        g_BV = -log_y_BV.exp()
        g_BV[torch.arange(len(output_B)), output_B] += 1  # -dL/d(h U^T) = one-hot - y
        dh_BE = g_BV @ u
        u.addmm_(g_BV.T, h_BE, alpha=eta)
        v.index_add_(0, input_B, dh_BE, alpha=eta)
        return -log_y_BV.gather(1, output_B[:, None])[:, 0]

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
