r"""Word vectors: word2vec, skip-gram and CBOW with negative sampling (Mikolov et al. 2013).

    h = x W, \; y = \text{softmax}(h U^T)                           network with a softmax over all words            (1)
    h = v_c \text{ or } h = \frac{1}{C} \sum_c v_c                  skip-gram, or continuous bag of words (CBOW)     (2)
    L = -\log \sigma(h u_o^T) - \sum_k \log \sigma(-h u_k^T)        negative sampling, instead of -log y_o           (3)
    P(k) \propto n_k^{0.75}                                         noise distribution of negatives                  (4)
    P(\text{keep}) = \min(1, (\sqrt{f/t} + 1) t/f)                  sub-sampling of frequent words                   (5)
    g_o = 1 - \sigma(h u_o^T), \; g_k = -\sigma(h u_k^T)            gradient                                         (6)
    u \leftarrow u + \eta g h, \; v \leftarrow v + \eta \sum g u    update; in CBOW divided by C                     (7)

    Symbols:
        x            word as a one-hot vector
        v_c, u_o     input vector of word c (row of W), output vector of word o (row of U)
        C            context words in a window
        n_k, f       count of word k, count divided by all words
        t            sub-sampling threshold
        \eta         learning rate
        B, V, E, K   pairs of words, vocabulary, width, negatives

The input vectors are the result. In skip-gram, each context word predicts the center word, as in the original C code
and gensim (the reverse of the paper); the words of a window share their negatives, so that rows are loaded once for all
of them. Word 0 stands for all words outside the vocabulary: its count is 0, so (5) drops it.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.config import FromData, Settings
from engram.core.fit import FitMixin
from engram.core.tap import tap


class Word2Vec(FitMixin, nn.Module):
    """Input vector v and output vector u of every word."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Settings):
        vocabulary: FromData[int] = 2
        """vocabulary size, one of it for all other words (V)"""
        width: Annotated[int, Ge(1)] = 100
        """dimension of the vectors (E)"""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.v, self.u = (padded_table(config.vocabulary, config.width) for _ in range(2))
        self.count: Tensor
        self.register_buffer("count", torch.zeros(config.vocabulary, dtype=torch.int64))
        self.initialize()

    def initialize(self) -> None:
        """Initialize input vectors uniformly and output vectors to zero: all words are equally probable."""
        nn.init.uniform_(self.v, -0.5 / self.config.width, 0.5 / self.config.width)
        nn.init.zeros_(self.u)

    def forward(self, x_B: Tensor) -> Tensor:
        """Return the logits of (1) for the words near x, B × V."""
        h_BE = tap("hidden", self.v[x_B])
        return tap("logits", h_BE @ self.u.T)

    def loss(self, input_B: Tensor, output_B: Tensor, negative_BK: Tensor) -> Tensor:
        """Return (3), averaged over pairs; a negative that is the output word itself is ignored."""
        h_BE = self.v[input_B]
        positive_B = F.softplus(-(h_BE * self.u[output_B]).sum(-1))
        negative_loss_BK = F.softplus(torch.einsum("be,bke->bk", h_BE, self.u[negative_BK]))
        return (positive_B + (negative_loss_BK * (negative_BK != output_B[:, None])).sum(-1)).mean()  # (3)


def padded_table(rows: int, width: int) -> nn.Parameter:
    """Return zeros, rows × width, whose rows are padded to a multiple of eight, for vectorized loops."""
    padded = -(-width // 8) * 8
    return nn.Parameter(torch.zeros(rows, padded)[:, :width], requires_grad=False)


def padded_view(table: Tensor) -> NDArray[np.float32]:
    """Return the rows of a table with their padding, in the same memory."""
    padded = table.stride(0)
    return table.as_strided((len(table), padded), (padded, 1)).numpy()


def keep_probability(count: NDArray[np.int64], sample: float) -> NDArray[np.float64]:
    """Return the probability (5) that a word is kept; 0 for a word that never occurs."""
    f_V = count / max(1, count.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        keep_V = (np.sqrt(f_V / sample) + 1) * (sample / f_V) if sample else np.ones(len(count))  # (5)
    return np.where(count > 0, np.minimum(1.0, keep_V), 0.0)


def noise_distribution(count: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the probability (4) that a word is sampled as a negative."""
    power_V = count.astype(np.float64) ** 0.75
    return power_V / power_V.sum()  # (4)


def alias_table(p_V: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return the tables `prob` and `alias` of the alias method (Walker 1977)."""
    V = len(p_V)
    prob, alias = p_V * V, np.arange(V, dtype=np.int32)
    small, large = [int(w) for w in np.flatnonzero(prob < 1)], [int(w) for w in np.flatnonzero(prob >= 1)]
    while small and large:
        w, donor = small.pop(), large[-1]
        alias[w] = donor
        prob[donor] -= 1 - prob[w]
        if prob[donor] < 1:
            small.append(large.pop())
    prob[small + large] = 1.0  # up to rounding
    return prob, alias


def split_sentences(
    words: NDArray[np.int32], ends: NDArray[np.int64], parts: int
) -> list[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """Split sentences into parts of about equally many; each part is words and ends."""
    cuts = [len(ends) * i // parts for i in range(parts + 1)]
    found = []
    for first, last in zip(cuts[:-1], cuts[1:], strict=True):
        start = int(ends[first - 1]) if first else 0
        found.append((words[start : int(ends[last - 1])], ends[first:last] - start))
    return found


# ---------------------------------------------------------------------- pairs of words


def one_hot(word_B: Tensor, vocabulary: int) -> Tensor:
    """Return the one-hot vectors x of (1), B × V; `v[word]` is x W without the product."""
    return F.one_hot(word_B, vocabulary).float()


def context_pairs(words: Tensor, ends: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Return inputs and outputs of all pairs of known words at a distance of at most `window`."""
    sentence = torch.bucketize(torch.arange(len(words)), ends, right=True)
    inputs, outputs = [], []
    for distance in range(1, min(window, len(words) - 1) + 1):
        left, right = words[:-distance], words[distance:]
        near = (sentence[:-distance] == sentence[distance:]) & (left > 0) & (right > 0)
        inputs += [left[near], right[near]]
        outputs += [right[near], left[near]]
    empty = words[:0]
    return torch.cat([empty, *inputs]), torch.cat([empty, *outputs])
