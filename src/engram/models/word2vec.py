"""Word vectors (Mikolov et al. 2013; note 003 §20).   B pairs of words, V vocabulary, E width, K negatives

    h = x W,  y = softmax(h U')                       three layers on a one-hot word x: P(a word near x)       (1)
    h = v_c,  or  h = mean of v_c over the words c around                  skip-gram, or bag of words (CBOW)   (2)
    E = -log sigma(h u_o') - sum_k log sigma(-h u_k')  tell the word o from K negatives, instead of -log y_o   (3)
    P(k) ~ count(k)^0.75                                                                  negatives            (4)
    P(kept) = min(1, (sqrt(f / t) + 1) t / f)          sub-sampling, f = count / all words                     (5)
    g_o = 1 - sigma(h u_o'),  g_k = -sigma(h u_k')                                                             (6)
    u += eta g h,  v += eta sum g u                    a mean hands on to each word its share                  (7)

v_c is row c of W, a word as input, and what is kept in the end; u_o is row o of U, a word as output. In skip-gram, the
words around a word each predict it; they have the same negatives, so that rows are loaded once for all of them. Word 0
stands for all that are not in the vocabulary: its count is 0, so (5) drops it.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics
from engram.core.registry import FromData
from engram.core.tap import tap
from engram.models.word2vec_kernel import kernel

SOFTMAX_PAIRS = 64
"""pairs that the softmax learns from at once"""


class Word2Vec(nn.Module):
    """Two vectors for every word, as input and as output."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        vocabulary: FromData[int] = 2
        """words, and one for all others (V)"""
        width: int = 100
        """size of a vector (E)"""

        def __post_init__(self) -> None:
            if self.width < 1:
                raise EngramError(f"width must be at least 1, not {self.width}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.v, self.u = table(config.vocabulary, config.width), table(config.vocabulary, config.width)
        self.count: Tensor
        self.register_buffer("count", torch.zeros(config.vocabulary, dtype=torch.int64))
        self.initialise()

    def initialise(self) -> None:
        """Small inputs, and outputs at zero: in the beginning every word is as probable as any other."""
        nn.init.uniform_(self.v, -0.5 / self.config.width, 0.5 / self.config.width)
        nn.init.zeros_(self.u)

    def forward(self, x_B: Tensor) -> Tensor:
        """The logits of (1): how much each word is expected near x."""
        h_BE = tap("hidden", self.v[x_B])
        return tap("logits", h_BE @ self.u.T)

    def loss(self, input_B: Tensor, output_B: Tensor, negative_BK: Tensor) -> Tensor:
        """The mean of (3) over pairs; a negative that is the output itself does not count."""
        h_BE = self.v[input_B]
        own_B = F.softplus(-(h_BE * self.u[output_B]).sum(-1))
        others_BK = F.softplus(torch.einsum("be,bke->bk", h_BE, self.u[negative_BK]))
        return (own_B + (others_BK * (negative_BK != output_B[:, None])).sum(-1)).mean()  # (3)


def table(rows: int, width: int) -> nn.Parameter:
    """Rows with room for a multiple of eight numbers, so that no loop over one has a rest; the room stays zero."""
    padded = -(-width // 8) * 8
    return nn.Parameter(torch.zeros(rows, padded)[:, :width], requires_grad=False)


def with_room(table: Tensor) -> NDArray[np.float32]:
    """The rows of a table with the room behind them, in the same memory."""
    padded = table.stride(0)
    return table.as_strided((len(table), padded), (padded, 1)).numpy()


# ---------------------------------------------------------------------- learning


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the vectors learn."""

    objective: Literal["negatives", "softmax"] = "negatives"
    """tell words from negatives, or predict by a softmax over all words, which takes long where there are many"""
    predict: Literal["skip-gram", "cbow"] = "skip-gram"
    """each word around predicts the one in the middle, or their mean does"""
    window: int = 5
    """how far the words around may be"""
    negative: int = 5
    """negatives that a word is told from (K)"""
    share: Literal["window", "sentence"] = "window"
    """who has negatives in common: the words of a window, or all of a sentence, which is quicker still"""
    sample: float = 1e-3
    """part of all words above which a word is skipped now and then (t); 0 skips none"""
    rate: float = 0.025
    """learning rate at the start, which falls to nearly nothing (eta)"""
    workers: int = 1
    """threads that learn side by side; more than one is quicker, and no two runs are the same"""

    def __post_init__(self) -> None:
        for name in ("window", "negative", "workers"):
            if getattr(self, name) < 1:
                raise EngramError(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("sample", "rate"):
            if not 0 <= getattr(self, name) < math.inf:
                raise EngramError(f"{name} must not be negative, and finite, and is {getattr(self, name)}.")
        if self.share == "sentence" and self.predict == "cbow":
            raise EngramError("A sentence shares its negatives in skip-gram only: leave out --share or --predict.")

    def eta(self, done: float) -> float:
        """The learning rate after a part `done` of all steps."""
        return self.rate * max(1e-4, 1 - done)


@dataclass(frozen=True)
class Chances:
    """(4) and (5) as the kernel draws them, with 32 random bits for each: no division, no search."""

    keep: NDArray[np.uint64]
    """a word is kept where the bits are below this"""
    chance: NDArray[np.uint32]
    alias: NDArray[np.int32]
    """negatives: a word drawn evenly stands for itself where the bits are below its chance, else for its alias"""

    @classmethod
    def of(cls, count: NDArray[np.int64], sample: float) -> "Chances":
        keep_V = np.minimum(1.0, kept(count, sample))
        chance_V, alias_V = aliases(noise(count))
        chance = np.minimum(chance_V * 2.0**32, 2.0**32 - 1).astype(np.uint32)
        return cls((keep_V * 2.0**32).astype(np.uint64), chance, alias_V)


def kept(count: NDArray[np.int64], sample: float) -> NDArray[np.float64]:
    """The probability that a word is kept; a word that never occurs is not."""
    f_V = count / max(1, count.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        keep_V = (np.sqrt(f_V / sample) + 1) * (sample / f_V) if sample else np.ones(len(count))  # (5)
    return np.where(count > 0, np.minimum(1.0, keep_V), 0.0)


def noise(count: NDArray[np.int64]) -> NDArray[np.float64]:
    """The probability that a word is drawn as a negative."""
    power_V = count.astype(np.float64) ** 0.75
    return power_V / power_V.sum()  # (4)


def aliases(p_V: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Walker's tables: who has less than an even share gives the rest of its place to one who has more."""
    V = len(p_V)
    chance, alias = p_V * V, np.arange(V, dtype=np.int32)
    poor, rich = [int(w) for w in np.flatnonzero(chance < 1)], [int(w) for w in np.flatnonzero(chance >= 1)]
    while poor and rich:
        w, giver = poor.pop(), rich[-1]
        alias[w] = giver
        chance[giver] -= 1 - chance[w]
        if chance[giver] < 1:
            poor.append(rich.pop())
    chance[poor + rich] = 1.0  # whose share is even, but for rounding
    return chance, alias


class NegativeSampling:
    """The learner of word2vec: (2) to (7) on a stretch of sentences, in a compiled loop."""

    def __init__(self, model: Word2Vec, sampling: Sampling, steps: int, generator: torch.Generator) -> None:
        self.model, self.sampling, self.steps, self.generator = model, sampling, steps, generator
        self.done = 0
        self.chances = Chances.of(model.count.numpy(), sampling.sample)
        self.pool = ThreadPoolExecutor(sampling.workers)
        self.negative = 2 * sampling.negative + 2 if sampling.share == "sentence" else sampling.negative

    def step(self, batch: Batch) -> Metrics:
        workers = min(self.sampling.workers, len(batch["ends"]))
        seeds = torch.randint(2**62, (workers,), generator=self.generator).tolist()
        parts = list(zip(stretches(batch["words"].numpy(), batch["ends"].numpy(), workers), seeds, strict=True))
        if workers == 1:
            measured = [self._learn(*parts[0])]
        else:
            measured = list(self.pool.map(lambda part: self._learn(*part), parts))
        self.done += 1
        loss, pairs = map(sum, zip(*measured, strict=True))
        return {"loss": torch.tensor(loss / pairs, dtype=torch.float64)} if pairs else {}

    def _learn(self, part: tuple[NDArray[np.int32], NDArray[np.int64]], seed: int) -> tuple[float, int]:
        sampling, chances, v, u = self.sampling, self.chances, with_room(self.model.v), with_room(self.model.u)
        return kernel(v.shape[1])(
            *part, v, u, chances.keep, chances.chance, chances.alias,
            sampling.window, self.negative, sampling.negative / self.negative, sampling.eta(self.done / self.steps),
            seed, sampling.predict == "cbow", sampling.share == "sentence",
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        self.generator.set_state(state["generator"])
        self.chances = Chances.of(self.model.count.numpy(), self.sampling.sample)


def stretches(
    words: NDArray[np.int32], ends: NDArray[np.int64], parts: int
) -> list[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """The sentences in as many parts of about as many sentences."""
    cuts = [len(ends) * i // parts for i in range(parts + 1)]
    found = []
    for first, last in zip(cuts[:-1], cuts[1:], strict=True):
        start = int(ends[first - 1]) if first else 0
        found.append((words[start : int(ends[last - 1])], ends[first:last] - start))
    return found


class Softmax:
    """The learner of the three-layer network: (1) on all pairs of a stretch of sentences, a few at a time."""

    def __init__(self, model: Word2Vec, sampling: Sampling, steps: int) -> None:
        self.model, self.sampling, self.steps = model, sampling, steps
        self.done = 0

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        input_N, output_N = pairs(batch["words"].long(), batch["ends"], self.sampling.window)
        eta, losses = self.sampling.eta(self.done / self.steps), []
        for input_B, output_B in zip(input_N.split(SOFTMAX_PAIRS), output_N.split(SOFTMAX_PAIRS), strict=True):
            losses.append(self._learn(input_B, output_B, eta))
        self.done += 1
        return {"loss": torch.cat(losses).mean()} if losses else {}

    def _learn(self, input_B: Tensor, output_B: Tensor, eta: float) -> Tensor:
        """One step downhill on the sum of -log y_o over pairs; returns each of them."""
        v, u = self.model.v, self.model.u
        h_BE = v[input_B]
        log_y_BV = (h_BE @ u.T).log_softmax(-1)  # (1)
        g_BV = -log_y_BV.exp()
        g_BV[torch.arange(len(output_B)), output_B] += 1  # -dE/d(h U') = one-hot - y
        dh_BE = g_BV @ u
        u.addmm_(g_BV.T, h_BE, alpha=eta)
        v.index_add_(0, input_B, dh_BE, alpha=eta)
        return -log_y_BV.gather(1, output_B[:, None])[:, 0]

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]


# ---------------------------------------------------------------------- words and pairs


def one_hot(word_B: Tensor, vocabulary: int) -> Tensor:
    """x of (1): all zero but for a one at the place of the word. `v[word]` is x W without the product."""
    return F.one_hot(word_B, vocabulary).float()


def pairs(words: Tensor, ends: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """All pairs of known words of a sentence that are at most `window` apart, in both directions: inputs, outputs."""
    sentence = torch.bucketize(torch.arange(len(words)), ends, right=True)
    inputs, outputs = [], []
    for apart in range(1, min(window, len(words) - 1) + 1):
        left, right = words[:-apart], words[apart:]
        near = (sentence[:-apart] == sentence[apart:]) & (left > 0) & (right > 0)
        inputs += [left[near], right[near]]
        outputs += [right[near], left[near]]
    none = words[:0]
    return torch.cat([none, *inputs]), torch.cat([none, *outputs])
