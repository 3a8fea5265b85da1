r"""Likelihood of a restricted Boltzmann machine.

Exact log Z, annealed importance sampling (AIS), pseudo-likelihood.

    \log P(v) = -F(v) - \log Z                                                         log-likelihood                (1)
    Z = \sum_h \exp(c h^\top) \prod_i (1 + \exp((h W^\top + b)_i))                     exact, by enumeration         (2)
    p_k(v) = \exp((1 - k) a v^\top + k b v^\top) \prod_j (1 + \exp(k (v W + c)_j))     intermediate distributions    (3)
    Z_0 = 2^H \prod_i (1 + \exp(a_i))                                                  of the base-rate model        (4)
    \log Z \approx \log Z_0 + \log \text{mean}_B \prod_k p_k(v_k) / p_{k-1}(v_k)       AIS                           (5)

    Symbols:
        F         free energy at the temperature of the model
        Z         partition function
        k         inverse temperatures from 0, the base-rate model, to 1, the RBM
        a         biases of the base-rate model, the log-odds of the data
        B, V, H   chains, visible units, hidden units

(2) enumerates the states of the smaller layer. In (5) chains start in p_0 and take one Gibbs step at every k; the steps
of k shrink toward 1, where the modes of the RBM separate (Salakhutdinov & Murray 2008).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.memory.rbm.model import RBM
from engram.nn.bernoulli import sample_bernoulli

MAX_EXACT_UNITS = 24
"""largest smaller layer whose states are enumerated"""
CHUNK = 2**14
"""states that are enumerated at once"""


class LogZ(NamedTuple):
    """Estimate of log Z and its confidence interval (three standard errors of the importance weights)."""

    value: float
    low: float
    high: float


def exact_log_z(rbm: RBM) -> LogZ:
    """Compute log Z by enumerating the states of the smaller layer (2)."""
    W, b, c = scaled_parameters(rbm)
    if W.shape[0] < W.shape[1]:
        W, b, c = W.T, c, b
    H = W.shape[1]
    if H > MAX_EXACT_UNITS:
        raise EngramError(f"2^{H} states are too many to enumerate: estimate log Z by annealed importance sampling.")
    total = torch.tensor(-math.inf, dtype=torch.float64)
    for numbers in torch.arange(2**H).split(CHUNK):
        h = ((numbers[:, None] >> torch.arange(H)) & 1).double()
        part = (h @ c + F.softplus(h @ W.T + b).sum(1)).logsumexp(0)  # (2)
        total = torch.logaddexp(total, part)
    return LogZ(total.item(), total.item(), total.item())


def scaled_parameters(rbm: RBM) -> tuple[Tensor, Tensor, Tensor]:
    """Return W, b and c divided by the temperature, as float64."""
    T = rbm.config.temperature
    return rbm.W.double() / T, rbm.b.double() / T, rbm.c.double() / T


def ais_log_z(
    rbm: RBM, generator: torch.Generator, *, chains: int = 100, temperatures: int = 1000, mean_V: Tensor | None = None
) -> LogZ:
    """Estimate log Z by annealed importance sampling (5).

    `temperatures` is the number of intermediate distributions, `mean_V` the mean of the data (of the base-rate model).
    """
    T = rbm.config.temperature
    W, b, c = rbm.W / T, rbm.b / T, rbm.c / T
    a = b if mean_V is None else torch.logit(mean_V.clamp(0.001, 0.999))
    k = (1 - torch.linspace(1, 0, temperatures + 1, dtype=torch.float64).square()).tolist()
    v = sample_bernoulli(torch.sigmoid(a).expand(chains, -1), generator)
    log_weight_B = torch.zeros(chains, dtype=torch.float64)
    for before, now in zip(k, k[1:], strict=False):
        z_BH = torch.addmm(c, v, W)
        visible_B = (now - before) * (v @ (b - a))
        hidden_B = (F.softplus(now * z_BH) - F.softplus(before * z_BH)).sum(1)
        log_weight_B += visible_B.double() + hidden_B.double()  # (3), (5)
        h = sample_bernoulli(torch.sigmoid(now * z_BH), generator)
        v = sample_bernoulli(torch.sigmoid(now * torch.addmm(b, h, W.T) + (1 - now) * a), generator)
    base = rbm.config.hidden * math.log(2) + F.softplus(a.double()).sum().item()  # (4)
    mean = log_weight_B.logsumexp(0).item() - math.log(chains)
    error = (log_weight_B - mean).exp().std().item() / math.sqrt(chains)  # standard error relative to the mean
    low = math.log(1 - 3 * error) if 3 * error < 1 else -math.inf
    return LogZ(base + mean, base + mean + low, base + mean + math.log1p(3 * error))


def log_z(rbm: RBM, generator: torch.Generator, *, temperatures: int = 1000, mean_V: Tensor | None = None) -> LogZ:
    """Compute log Z exactly if the smaller layer has at most 20 units, otherwise by AIS."""
    if is_enumerable(rbm):
        return exact_log_z(rbm)
    return ais_log_z(rbm, generator, temperatures=temperatures, mean_V=mean_V)


def is_enumerable(rbm: RBM) -> bool:
    """Return whether the states of the smaller layer are few enough to be enumerated."""
    return min(rbm.config.visible, rbm.config.hidden) <= MAX_EXACT_UNITS - 4


def log_likelihood(rbm: RBM, v_BV: Tensor, z: LogZ) -> Tensor:
    """Return log P(v) of each row, in nats."""
    return -rbm.free_energy(v_BV) / rbm.config.temperature - z.value  # (1)


def pseudo_likelihood(rbm: RBM, v_BV: Tensor, generator: torch.Generator) -> Tensor:
    """Estimate the pseudo-log-likelihood of each row, V log P(v_i | others), at one random unit i."""
    i_B = torch.randint(v_BV.shape[1], (len(v_BV),), generator=generator)
    flipped = v_BV.clone()
    rows = torch.arange(len(v_BV))
    flipped[rows, i_B] = 1 - flipped[rows, i_B]
    gap_B = (rbm.free_energy(flipped) - rbm.free_energy(v_BV)) / rbm.config.temperature
    return v_BV.shape[1] * F.logsigmoid(gap_B)
