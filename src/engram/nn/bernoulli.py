r"""Fast sampling of Bernoulli variables.

    P(x_i = 1) = p_i                                                       Bernoulli distribution            (1)
    u_{2i}, u_{2i+1} = \text{halves of}\ \text{splitmix64}(k + i)          uniform numbers by hashing        (2)

    Symbols:
        x, p     binary values and their probabilities
        u        uniform random numbers, 24 bits each
        k        key

torch draws random numbers one after the other, which takes an eighth of a training step of an RBM. The kernel takes one
number from the generator as key and hashes it (Steele, Lea & Flood 2014): three times as fast, and as reproducible. For
fewer than SMALL values, and on other devices than the CPU, torch samples.
"""

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.core.global_batch import is_split, local_rows

SMALL = 4096
"""number of values from which the kernel is used"""


def sample_bernoulli(p: Tensor, generator: torch.Generator) -> Tensor:
    """Sample 1 with probability p, else 0."""
    if p.numel() < SMALL or p.device.type != "cpu" or p.dtype != torch.float32:
        return torch.rand(p.shape, generator=generator, dtype=p.dtype, device=p.device).lt_(p)  # (1)
    x = torch.empty(p.shape, dtype=p.dtype)
    key = torch.randint(2**62, (), generator=generator).item()
    _sample(p.detach().contiguous().view(-1).numpy(), x.view(-1).numpy(), np.uint64(key))
    return x


def sample_bernoulli_rows(p_BN: Tensor, generator: torch.Generator, size: int) -> Tensor:
    """Sample this process's rows of a batch of `size` as one process with all of them would."""
    if not is_split():
        return sample_bernoulli(p_BN, generator)
    rows = local_rows(torch.arange(size))
    whole = p_BN.new_zeros(size, p_BN.shape[1])
    whole[rows] = p_BN
    return sample_bernoulli(whole, generator)[rows]


@numba.njit(cache=True)
def _sample(p: NDArray[np.float32], x: NDArray[np.float32], key: np.uint64) -> None:
    scale = np.float32(2.0**-24)
    for i in range((p.size + 1) // 2):
        z = key + np.uint64(i) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))  # (2)
        low = np.float32((z & np.uint64(0xFFFFFFFF)) >> np.uint64(8)) * scale
        x[2 * i] = np.float32(1.0) if low < p[2 * i] else np.float32(0.0)  # (1)
        if 2 * i + 1 < p.size:
            high = np.float32(z >> np.uint64(40)) * scale
            x[2 * i + 1] = np.float32(1.0) if high < p[2 * i + 1] else np.float32(0.0)
