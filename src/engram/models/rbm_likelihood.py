"""How probable data is to a Boltzmann machine (Salakhutdinov & Murray 2008).

B chains, V visible units, H hidden units; everything at the machine's own temperature

    log P(v) = -F(v) - log Z,   Z = sum_v e^-F(v)                              F is free energy                      (1)
    Z = sum_h e^(c h') prod_i (1 + e^(h W' + b)_i)                             exactly, over the smaller layer       (2)
    p_k(v) = e^((1 - k) a v' + k b v') prod_j (1 + e^(k (v W + c)_j))          between 0, where units are            (3)
                                                                               independent, and 1, the machine
    Z_0 = 2^H prod_i (1 + e^a_i)                                               known                                 (4)
    log Z ~ log Z_0 + log mean_B prod_k p_k(v_k) / p_k-1(v_k)                  annealed importance sampling          (5)

In (5) chains begin in p_0 and take a round of Gibbs sampling at every k. `a` is near what the data is like. The nearer
k is to 1, the shorter its steps: there the machine's own modes come apart.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.layers.bernoulli import draw
from engram.models.rbm import RBM

LARGEST = 24
"""units of the smaller layer up to which all its states are gone through"""
AT_ONCE = 2**14


class LogZ(NamedTuple):
    """log Z, and between which values it lies, as far as the spread of the chains tells (three standard errors)."""

    value: float
    low: float
    high: float


def exact_log_z(rbm: RBM) -> LogZ:
    """(2): all states of the smaller layer, one after the other."""
    W, b, c = scaled(rbm)
    if W.shape[0] < W.shape[1]:
        W, b, c = W.T, c, b
    H = W.shape[1]
    if H > LARGEST:
        raise EngramError(f"2^{H} states are too many to go through: annealed importance sampling estimates log Z.")
    total = torch.tensor(-math.inf, dtype=torch.float64)
    for numbers in torch.arange(2**H).split(AT_ONCE):
        h = ((numbers[:, None] >> torch.arange(H)) & 1).double()
        part = (h @ c + F.softplus(h @ W.T + b).sum(1)).logsumexp(0)
        total = torch.logaddexp(total, part)
    return LogZ(total.item(), total.item(), total.item())


def scaled(rbm: RBM) -> tuple[Tensor, Tensor, Tensor]:
    """Weights and biases of the machine that is the same at temperature 1, in 64 bits."""
    T = rbm.config.temperature
    return rbm.W.double() / T, rbm.b.double() / T, rbm.c.double() / T


def annealed_log_z(
    rbm: RBM, generator: torch.Generator, *, chains: int = 100, levels: int = 1000, mean_V: Tensor | None = None
) -> LogZ:
    """(5) with `levels` temperatures between; `mean_V` is how often each visible unit is on in the data."""
    T = rbm.config.temperature
    W, b, c = rbm.W / T, rbm.b / T, rbm.c / T
    a = b if mean_V is None else torch.logit(mean_V.clamp(0.001, 0.999))
    k = (1 - torch.linspace(1, 0, levels + 1, dtype=torch.float64).square()).tolist()
    v = draw(torch.sigmoid(a).expand(chains, -1), generator)
    weight_B = torch.zeros(chains, dtype=torch.float64)
    for before, now in zip(k, k[1:], strict=False):
        z_BH = torch.addmm(c, v, W)
        visible_B = (now - before) * (v @ (b - a))
        hidden_B = (F.softplus(now * z_BH) - F.softplus(before * z_BH)).sum(1)
        weight_B += visible_B.double() + hidden_B.double()  # (5), by (3)
        h = draw(torch.sigmoid(now * z_BH), generator)
        v = draw(torch.sigmoid(now * torch.addmm(b, h, W.T) + (1 - now) * a), generator)
    first = rbm.config.hidden * math.log(2) + F.softplus(a.double()).sum().item()  # (4)
    mean = weight_B.logsumexp(0).item() - math.log(chains)
    share = (weight_B - mean).exp().std().item() / math.sqrt(chains)  # standard error, as a part of the mean
    low = math.log(1 - 3 * share) if 3 * share < 1 else -math.inf
    return LogZ(first + mean, first + mean + low, first + mean + math.log1p(3 * share))


def log_z(rbm: RBM, generator: torch.Generator, *, levels: int = 1000, mean_V: Tensor | None = None) -> LogZ:
    """Exactly where that can be, otherwise estimated."""
    if min(rbm.config.visible, rbm.config.hidden) <= LARGEST - 4:
        return exact_log_z(rbm)
    return annealed_log_z(rbm, generator, levels=levels, mean_V=mean_V)


def log_likelihood(rbm: RBM, v_BV: Tensor, z: LogZ) -> Tensor:
    """log P(v) in nats, one number for each."""
    return -rbm.free_energy(v_BV) / rbm.config.temperature - z.value  # (1)


def pseudo_likelihood(rbm: RBM, v_BV: Tensor, generator: torch.Generator) -> Tensor:
    """V log P(v_i | all others) for one unit i of each, drawn evenly: an estimate of the sum over all units."""
    i_B = torch.randint(v_BV.shape[1], (len(v_BV),), generator=generator)
    flipped = v_BV.clone()
    rows = torch.arange(len(v_BV))
    flipped[rows, i_B] = 1 - flipped[rows, i_B]
    gap_B = (rbm.free_energy(flipped) - rbm.free_energy(v_BV)) / rbm.config.temperature
    return v_BV.shape[1] * F.logsigmoid(gap_B)
