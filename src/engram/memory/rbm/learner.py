r"""Contrastive divergence (CD), persistent CD and parallel tempering of a restricted Boltzmann machine.

    \Delta W = \eta (V^\top \sigma(V W + c) - v^\top \sigma(v W + c)) / B                  contrastive divergence    (1)
    \Delta b = \eta \text{mean}(V - v)                                                     visible biases            (2)
    \Delta c = \eta \text{mean}(\sigma(V W + c) - \sigma(v W + c))                         hidden biases
    \Delta W = \eta ((V - m)^\top (\sigma(V W + c) - n) - (v - m)^\top (\sigma(v W + c) - n)) / B  centered          (3)
    \Delta b \leftarrow \Delta b - n \Delta W^\top                                         centered visible biases   (4)
    \Delta c \leftarrow \Delta c - m \Delta W                                              centered hidden biases
    F_k(v) = -k b v^\top - \sum_j \log(1 + \exp(k (v W + c)_j))                            tempered free energy      (5)
    P(\text{swap}) = \min(1, \exp(F_k(v_k) + F_l(v_l) - F_k(v_l) - F_l(v_k)))              swap of two replicas      (6)

    Symbols:
        V         a batch of data
        v         samples of the model: fantasy particles
        m, n      running means of V and of \sigma(V W + c)
        \eta      learning rate
        k, l      inverse temperatures of two replicas, from 1 down to 0
        B, R      batch, replicas

CD-k (Hinton 2002) runs k Gibbs steps from the data. Persistent CD (Tieleman 2008) never restarts its chains, the
fantasy particles. Centering (Montavon & Müller 2012) subtracts the mean of each unit, so that weights do not
learn what biases know. Parallel tempering (Desjardins et al. 2010) runs replicas at higher temperatures, which mix
more easily.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from annotated_types import Ge
from torch import Tensor
from torch.nn import functional as F

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.global_batch import batch_sums, gather_rows, local_rows
from engram.core.learner import Batch, Metrics
from engram.memory.rbm.model import RBM
from engram.nn.bernoulli import sample_bernoulli, sample_bernoulli_rows
from engram.training.rule_learner import RuleLearner, Updates, gather_whole, shard_like_weights, shard_models

MEAN_RATE = 0.01
"""rate of the running means of centered units"""


@dataclass(frozen=True, kw_only=True)
class ContrastiveDivergenceConfig(Settings):
    """Contrastive divergence (CD), persistent CD, centering and parallel tempering."""

    gibbs_steps: Annotated[int, Ge(1)] = 1
    """Gibbs steps per update (k in CD-k)"""
    persistent: bool = True
    """keep the fantasy particles between updates (persistent CD) instead of restarting them at the data"""
    centered: bool = True
    """centered updates: subtract the running mean of each unit"""
    lr: Annotated[float, Ge(0)] = 0.2
    """initial learning rate"""
    lr_decay: bool = True
    """decay the learning rate linearly to zero"""
    temperatures: Annotated[int, Ge(1)] = 1
    """replicas of each chain at rising temperatures (parallel tempering); 1 disables"""
    momentum: Annotated[float, Ge(0)] = 0.0
    """momentum of the updates; 0 disables"""
    weight_decay: Annotated[float, Ge(0)] = 0.0
    """decoupled weight decay; not applied to biases"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperatures > 1 and not self.persistent:
            raise EngramError("Parallel tempering keeps its chains: leave out --temperatures or --no-persistent.")


class ParallelTempering:
    """Gibbs chains at several temperatures, R × B × V; the first is at the temperature of the model."""

    def __init__(self, rbm: RBM, v_RBV: Tensor) -> None:
        self.rbm, self.v_RBV = rbm, v_RBV
        self.k_R11 = torch.linspace(1, 0, len(v_RBV))[:, None, None] / rbm.config.temperature

    def step(self, generator: torch.Generator) -> Tensor:
        """Run one Gibbs step in every chain, swap neighbors by (6), and return the chains of the model."""
        rbm, k = self.rbm, self.k_R11
        h = sample_bernoulli(torch.sigmoid(k * (self.v_RBV @ rbm.W + rbm.c)), generator)
        v = sample_bernoulli(torch.sigmoid(k * (h @ rbm.W.T + rbm.b)), generator)
        for first in (0, 1):  # pairs without a chain in common swap at once
            low, high = v[first:-1:2], v[first + 1 :: 2]
            k_low, k_high = k[first:-1:2], k[first + 1 :: 2]
            gain = self.free_energy(low, k_low) + self.free_energy(high, k_high)
            gain = gain - self.free_energy(high, k_low) - self.free_energy(low, k_high)
            swap = (torch.rand(gain.shape, generator=generator) < gain.exp())[..., None]  # (6)
            swapped = torch.where(swap, high, low), torch.where(swap, low, high)
            v[first:-1:2], v[first + 1 :: 2] = swapped
        self.v_RBV = v
        return v[0]

    def free_energy(self, v_RBV: Tensor, k_R11: Tensor) -> Tensor:
        """Return the tempered free energy of each chain, R × B."""
        rbm = self.rbm
        return -(k_R11[..., 0] * (v_RBV @ rbm.b)) - F.softplus(k_R11 * (v_RBV @ rbm.W + rbm.c)).sum(-1)  # (5)


class ContrastiveDivergence(RuleLearner[RBM]):
    """Learner of an RBM: statistics of the data minus statistics of the fantasy particles, without a loss."""

    def __init__(
        self, model: RBM, config: ContrastiveDivergenceConfig, batch: int, steps: int, generator: torch.Generator
    ) -> None:
        super().__init__(model, steps)
        self.config, self.generator, self.batch = config, generator, batch
        self.means = {"visible": torch.sigmoid(model.b), "hidden": torch.sigmoid(model.c)}
        self.particles_BV: Tensor | None = None
        if config.persistent:
            self.particles_BV = local_rows(sample_bernoulli(torch.sigmoid(model.b).expand(batch, -1), generator))
        self.tempering: ParallelTempering | None = None
        if config.temperatures > 1:
            chains = torch.sigmoid(model.b).expand(config.temperatures, batch, -1)
            self.tempering = ParallelTempering(model, sample_bernoulli(chains, generator))
        shard_models(model)
        self.update = {name: torch.zeros_like(value) for name, value in model.named_parameters()}

    def find_update(self, rows: Batch) -> tuple[Updates, Metrics]:
        """Return (1) to (3) without the learning rate, as means over these rows, and metrics."""
        rbm, config, V_BV = self.model, self.config, rows["visible"]
        H_BH = rbm.prob_hidden(V_BV)
        if self.tempering is not None:
            for _ in range(config.gibbs_steps):
                v_BV = self.tempering.step(self.generator)
            v_BV = local_rows(v_BV)
        else:
            h_BH = self._draw(H_BH if self.particles_BV is None else rbm.prob_hidden(self.particles_BV), self.generator)
            P_BV = rbm.prob_visible(h_BH)
            v_BV = rbm.gibbs(self._draw(P_BV, self.generator), config.gibbs_steps - 1, self.generator, self._draw)
        h_BH = rbm.prob_hidden(v_BV)
        if self.particles_BV is not None:
            self.particles_BV = v_BV
        mean_V, model_V, mean_H, model_H = batch_sums(*(x.sum(0) * (1 / self.batch) for x in (V_BV, v_BV, H_BH, h_BH)))
        each = 1 / len(V_BV)
        if config.centered:
            m_V, n_H = self.means["visible"].lerp_(mean_V, MEAN_RATE), self.means["hidden"].lerp_(mean_H, MEAN_RATE)
            dW = torch.mm((V_BV - m_V).T, H_BH - n_H)
            dW.addmm_((v_BV - m_V).T, h_BH - n_H, beta=each, alpha=-each)  # (3)
        else:
            dW = torch.mm(V_BV.T, H_BH).addmm_(v_BV.T, h_BH, beta=each, alpha=-each)  # (1)
        metrics = {"mean_difference": (mean_V - model_V).abs().mean()}
        if not config.persistent:
            metrics["reconstruction"] = F.mse_loss(P_BV, V_BV)
        return {"W": dW, "b": mean_V - model_V, "c": mean_H - model_H}, metrics  # (2)

    def _draw(self, p_BN: Tensor, generator: torch.Generator) -> Tensor:
        return sample_bernoulli_rows(p_BN, generator, self.batch)

    def apply_update(self, update: Updates) -> None:
        """Update weights and biases with momentum; centered biases by (4)."""
        rbm, config = self.model, self.config
        self.update = {name: update[name].add_(self.update[name], alpha=config.momentum) for name in update}
        rate = config.lr * (1 - self.done / self.steps if config.lr_decay else 1)
        rbm.W.mul_(1 - rate * config.weight_decay).add_(self.update["W"], alpha=rate)
        rbm.b.add_(self.update["b"], alpha=rate)
        rbm.c.add_(self.update["c"], alpha=rate)
        if config.centered:
            dW = gather_whole(self.update["W"])
            offsets = {"b": dW @ self.means["hidden"], "c": dW.T @ self.means["visible"]}
            offsets = shard_like_weights(offsets, rbm)
            rbm.b.sub_(offsets["b"], alpha=rate)  # (4)
            rbm.c.sub_(offsets["c"], alpha=rate)

    def state_dict(self) -> dict[str, Any]:
        state = {"done": self.done, "update": self.update, "means": self.means, "generator": self.generator.get_state()}
        if self.tempering is not None:
            state["chains"] = self.tempering.v_RBV
        if self.particles_BV is not None:
            state["particles"] = gather_rows(self.particles_BV, self.batch)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        self.particles_BV = local_rows(state["particles"]) if "particles" in state else None
        self.update = shard_like_weights(state["update"], self.model)
        for name, value in state["means"].items():
            self.means[name].copy_(value)
        if self.tempering is not None:
            self.tempering.v_RBV = state["chains"]
        self.generator.set_state(state["generator"])
