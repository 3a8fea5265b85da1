"""Binary units drawn from their probabilities, quickly.

    x_i = 1 with probability p_i, else 0                                             (1)
    u_2i, u_2i+1 = the two halves of splitmix64(key + i)                             (2)

torch draws its random numbers one after the other, which takes an eighth of a step of a Boltzmann machine.
The fast form takes one number from the generator as a key and makes the others by hashing (Steele, Lea & Flood 2014):
three times as quick, and as reproducible. Below `SMALL` units, and away from the CPU, torch draws them itself.
"""

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SMALL = 4096


def draw(p: Tensor, generator: torch.Generator) -> Tensor:
    """1 with probability p, else 0."""
    if p.numel() < SMALL or p.device.type != "cpu" or p.dtype != torch.float32:
        return torch.rand(p.shape, generator=generator, dtype=p.dtype, device=p.device).lt_(p)  # (1)
    x = torch.empty(p.shape, dtype=p.dtype)
    key = torch.randint(2**62, (), generator=generator).item()
    _draw(p.detach().contiguous().view(-1).numpy(), x.view(-1).numpy(), np.uint64(key))
    return x


@numba.njit(cache=True)
def _draw(p: NDArray[np.float32], x: NDArray[np.float32], key: np.uint64) -> None:
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
