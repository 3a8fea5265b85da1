"""Restricted Boltzmann machine (note 003 §23).   B batch, V visible units, H hidden units

    E(v, h)      = -v W h' - b v' - c h'                                      energy                  (1)
    P(h = 1 | v) = sigma((v W + c) / T),  P(v = 1 | h) = sigma((h W' + b) / T)  Gibbs sampling        (2)
    F(v)         = -b v' - T sum_j log(1 + e^((v W + c)_j / T))               free energy, P(v) ~ e^-F/T  (3)
    dW = eta (V' sigma(VW + c) - v' sigma(vW + c)) / B                        contrastive divergence  (4)
    db = eta mean(V - v),   dc = eta mean(sigma(VW + c) - sigma(vW + c))                              (5)

V is data; v is what k rounds of (2) make of it (CD-k), or of chains that are never begun anew (persistent CD). Centred
(Montavon & Müller 2012), each unit counts from its mean, so that weights do not learn again what biases know:

    dW = eta ((V - m)'(sigma(VW + c) - n) - (v - m)'(sigma(vW + c) - n)) / B,   m, n means of V and sigma(VW + c)  (6)
    db = (5) - n dW',   dc = (5) - m dW                                                                            (7)

Parallel tempering (Desjardins et al. 2010) has chains of other temperatures beside them, where it is easy to move:

    p_k(v) ~ e^-F_k(v),   F_k(v) = -k b v' - sum_j log(1 + e^(k (v W + c)_j)),   k from 1 down to 0                (8)
    v_k, v_l change places with probability min(1, e^(F_k(v_k) + F_l(v_l) - F_k(v_l) - F_l(v_k)))                  (9)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core import together
from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics
from engram.core.registry import FromData
from engram.core.tap import tap
from engram.layers.bernoulli import draw

DRIFT = 0.01
"""how fast the means that centred units count from follow those of batches"""

Draw = Callable[[Tensor, torch.Generator], Tensor]
"""probabilities to zeros and ones"""


class RBM(nn.Module):
    """Binary units in two layers, with connections only between them."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        visible: FromData[int] = 784
        """units that hold the data (V)"""
        hidden: int = 500
        """units that explain it (H)"""
        temperature: float = 1.0
        """how freely the units flip (T)"""

        def __post_init__(self) -> None:
            if self.hidden < 1:
                raise EngramError(f"hidden must be at least 1, not {self.hidden}.")
            if not self.temperature > 0:
                raise EngramError(f"temperature must be above 0, not {self.temperature}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.W = nn.Parameter(torch.empty(config.visible, config.hidden), requires_grad=False)
        self.b = nn.Parameter(torch.empty(config.visible), requires_grad=False)
        self.c = nn.Parameter(torch.empty(config.hidden), requires_grad=False)
        self.initialise()

    def initialise(self, mean_V: Tensor | None = None) -> None:
        """Weights near zero; visible biases at the log-odds of each pixel, so that learning starts past the mean."""
        nn.init.normal_(self.W, std=0.01)
        nn.init.zeros_(self.c)
        nn.init.zeros_(self.b)
        if mean_V is not None:
            self.b.copy_(torch.logit(mean_V.clamp(0.001, 0.999)))

    def hidden(self, v_BV: Tensor) -> Tensor:
        """P(h = 1 | v)"""
        return self._on(torch.addmm(self.c, v_BV, self.W))  # (2)

    def visible(self, h_BH: Tensor) -> Tensor:
        """P(v = 1 | h)"""
        return self._on(torch.addmm(self.b, h_BH, self.W.T))  # (2)

    def _on(self, z: Tensor) -> Tensor:
        """How probable it is that a unit is on, in the place of its input z."""
        return (z if self.config.temperature == 1 else z.div_(self.config.temperature)).sigmoid_()

    def energy(self, v_BV: Tensor, h_BH: Tensor) -> Tensor:
        return -((v_BV @ self.W) * h_BH).sum(-1) - v_BV @ self.b - h_BH @ self.c  # (1)

    def free_energy(self, v_BV: Tensor) -> Tensor:
        T = self.config.temperature
        return -v_BV @ self.b - T * F.softplus(torch.addmm(self.c, v_BV, self.W) / T).sum(-1)  # (3)

    def gibbs(self, v_BV: Tensor, k: int, generator: torch.Generator, draw: Draw = draw) -> Tensor:
        """k rounds of alternating sampling from v."""
        for _ in range(k):
            h_BH = draw(self.hidden(v_BV), generator)
            v_BV = draw(self.visible(h_BH), generator)
        return v_BV

    def fill(self, v_BV: Tensor, known_BV: Tensor, rounds: int, generator: torch.Generator) -> Tensor:
        """v with what `known` leaves open filled in, after many rounds in which the rest is held: probabilities."""
        v, p = torch.where(known_BV, v_BV, draw(torch.sigmoid(self.b).expand_as(v_BV), generator)), v_BV
        for _ in range(rounds):
            p = self.visible(draw(self.hidden(v), generator))
            v = torch.where(known_BV, v_BV, draw(p, generator))
        return torch.where(known_BV, v_BV, p)

    def forward(self, v_BV: Tensor) -> Tensor:
        """The picture that the machine makes of v in one round without noise: P(v | P(h | v))."""
        h_BH = tap("hidden", self.hidden(v_BV))
        return tap("reconstruction", self.visible(h_BH))

    def sample(self, count: int, rounds: int, generator: torch.Generator) -> Tensor:
        """Pictures after many rounds of Gibbs sampling from noise: the probabilities of the last round."""
        v_BV = draw(torch.sigmoid(self.b).expand(count, -1), generator)
        v_BV = self.gibbs(v_BV, rounds - 1, generator)
        return self.visible(draw(self.hidden(v_BV), generator))


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """How the machine learns from the contrast between the data and its own dreams."""

    k: int = 1
    """rounds of Gibbs sampling in a step"""
    persistent: bool = True
    """carry the dreams on from step to step (persistent CD) instead of beginning them at the data (CD)"""
    centred: bool = True
    """count every unit from its mean (centred updates), so that weights and biases learn different things"""
    lr: float = 0.2
    """learning rate at the start (eta)"""
    decay: bool = True
    """let the learning rate fall linearly to zero"""
    replicas: int = 1
    """chains of each dream, of ever higher temperatures, which change places (parallel tempering); 1 has none beside"""
    momentum: float = 0.0
    """how much of the last update is kept"""
    weight_decay: float = 0.0
    """pull of the weights towards zero"""

    def __post_init__(self) -> None:
        for name in ("k", "replicas"):
            if getattr(self, name) < 1:
                raise EngramError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.replicas > 1 and not self.persistent:
            raise EngramError("Only dreams that are carried on have replicas: leave out --replicas or --no-persistent.")
        for name in ("lr", "momentum", "weight_decay"):
            if not getattr(self, name) >= 0:
                raise EngramError(f"{name} must not be negative or NaN, and is {getattr(self, name)}.")


class Tempering:
    """Chains at several temperatures, R × B × V, of which the first is the machine's own."""

    def __init__(self, rbm: RBM, v_RBV: Tensor) -> None:
        self.rbm, self.v_RBV = rbm, v_RBV
        self.k_R11 = torch.linspace(1, 0, len(v_RBV))[:, None, None] / rbm.config.temperature

    def round(self, generator: torch.Generator) -> Tensor:
        """One round of Gibbs sampling in every chain, then neighbours may change places; returns the first chains."""
        rbm, k = self.rbm, self.k_R11
        h = draw(torch.sigmoid(k * (self.v_RBV @ rbm.W + rbm.c)), generator)
        v = draw(torch.sigmoid(k * (h @ rbm.W.T + rbm.b)), generator)
        for first in (0, 1):  # pairs that have no chain in common change places at once
            low, high = v[first:-1:2], v[first + 1 :: 2]
            k_low, k_high = k[first:-1:2], k[first + 1 :: 2]
            gain = self.free_energy(low, k_low) + self.free_energy(high, k_high)
            gain = gain - self.free_energy(high, k_low) - self.free_energy(low, k_high)
            change = (torch.rand(gain.shape, generator=generator) < gain.exp())[..., None]  # (9)
            swapped = torch.where(change, high, low), torch.where(change, low, high)
            v[first:-1:2], v[first + 1 :: 2] = swapped
        self.v_RBV = v
        return v[0]

    def free_energy(self, v_RBV: Tensor, k_R11: Tensor) -> Tensor:
        rbm = self.rbm
        return -(k_R11[..., 0] * (v_RBV @ rbm.b)) - F.softplus(k_R11 * (v_RBV @ rbm.W + rbm.c)).sum(-1)  # (8)


class ContrastiveDivergence:
    """The learner of an RBM: no loss, no backward; what the data does to the hidden units minus what dreams do."""

    def __init__(self, model: RBM, contrast: Contrast, batch: int, steps: int, generator: torch.Generator) -> None:
        self.model, self.contrast, self.steps, self.generator, self.batch = model, contrast, steps, generator, batch
        self.done = 0
        self.means = {"visible": torch.sigmoid(model.b), "hidden": torch.sigmoid(model.c)}
        self.dreams_BV: Tensor | None = None
        if contrast.persistent:
            dreams = {"rows": draw(torch.sigmoid(model.b).expand(batch, -1), generator)}
            self.dreams_BV = together.own(dreams)["rows"]
        self.tempering: Tempering | None = None
        if contrast.replicas > 1:
            chains = torch.sigmoid(model.b).expand(contrast.replicas, batch, -1)
            self.tempering = Tempering(model, draw(chains, generator))

        together.shard(model)
        self.update = {name: torch.zeros_like(value) for name, value in model.named_parameters()}

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        with together.whole(self.model):
            changes, metrics = self._contrast(together.own(batch)["visible"], each=together.world() / self.batch)
        met = together.meet(changes, self.model)
        self._learn({name: met[name].add_(self.update[name], alpha=self.contrast.momentum) for name in met})
        self.done += 1
        return metrics

    def _contrast(self, V_BV: Tensor, each: float) -> tuple[dict[str, Tensor], Metrics]:
        """(4) to (6): what the data does minus what dreams do, summed over these rows, of which each counts as much."""
        rbm, contrast = self.model, self.contrast
        H_BH = rbm.hidden(V_BV)
        if self.tempering is not None:
            for _ in range(contrast.k):
                v_BV = self.tempering.round(self.generator)
            v_BV = v_BV[together.rank() :: together.world()]
        else:
            h_BH = self._draw(H_BH if self.dreams_BV is None else rbm.hidden(self.dreams_BV), self.generator)
            P_BV = rbm.visible(h_BH)
            v_BV = rbm.gibbs(self._draw(P_BV, self.generator), contrast.k - 1, self.generator, self._draw)
        h_BH = rbm.hidden(v_BV)
        if self.dreams_BV is not None:
            self.dreams_BV = v_BV
        sums = [each * x.sum(0) for x in (V_BV, v_BV, H_BH, h_BH)]
        together.average(sums)
        mean_V, dreamt_V, mean_H, dreamt_H = sums
        if contrast.centred:
            m_V, n_H = self.means["visible"].lerp_(mean_V, DRIFT), self.means["hidden"].lerp_(mean_H, DRIFT)
            dW = torch.mm((V_BV - m_V).T, H_BH - n_H)
            dW.addmm_((v_BV - m_V).T, h_BH - n_H, beta=each, alpha=-each)  # (6)
        else:
            dW = torch.mm(V_BV.T, H_BH).addmm_(v_BV.T, h_BH, beta=each, alpha=-each)  # (4)
        metrics = {"mismatch": (mean_V - dreamt_V).abs().mean()}
        if not contrast.persistent:
            metrics["reconstruction"] = each * len(V_BV) * F.mse_loss(P_BV, V_BV)
        return {"W": dW, "b": mean_V - dreamt_V, "c": mean_H - dreamt_H}, metrics  # (5)

    def _draw(self, p_BN: Tensor, generator: torch.Generator) -> Tensor:
        """Units drawn as they would be in one process that had all rows."""
        if together.world() == 1:
            return draw(p_BN, generator)
        rows = slice(together.rank(), None, together.world())
        whole = p_BN.new_zeros(self.batch, p_BN.shape[1])
        whole[rows] = p_BN
        return draw(whole, generator)[rows].contiguous()

    def _learn(self, update: dict[str, Tensor]) -> None:
        """One step of the weights, and (7)."""
        rbm, contrast, self.update = self.model, self.contrast, update
        rate = contrast.lr * (1 - self.done / self.steps if contrast.decay else 1)
        rbm.W.mul_(1 - rate * contrast.weight_decay).add_(update["W"], alpha=rate)
        rbm.b.add_(update["b"], alpha=rate)
        rbm.c.add_(update["c"], alpha=rate)
        if contrast.centred:
            dW = together.full(update["W"])
            rbm.b.sub_(together.like(dW @ self.means["hidden"], rbm.b), alpha=rate)  # (7)
            rbm.c.sub_(together.like(dW.T @ self.means["visible"], rbm.c), alpha=rate)

    def state_dict(self) -> dict[str, Any]:
        update, generator = together.full(self.update, everywhere=False), self.generator.get_state()
        state = {"done": self.done, "update": update, "means": self.means, "generator": generator}
        if self.tempering is not None:
            state["chains"] = self.tempering.v_RBV
        return state if self.dreams_BV is None else state | {"dreams": together.everyone(self.dreams_BV, self.batch)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        self.dreams_BV = together.own({"rows": state["dreams"]})["rows"] if "dreams" in state else None
        self.update = {name: together.like(state["update"][name], value) for name, value in self.update.items()}
        for name, value in state["means"].items():
            self.means[name].copy_(value)
        if self.tempering is not None:
            self.tempering.v_RBV = state["chains"]
        self.generator.set_state(state["generator"])
