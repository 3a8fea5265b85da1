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

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics
from engram.core.registry import FromData
from engram.core.tap import tap
from engram.layers.bernoulli import draw

DRIFT = 0.01
"""how fast the means that centred units count from follow those of batches"""


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

    def gibbs(self, v_BV: Tensor, k: int, generator: torch.Generator) -> Tensor:
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
        self.model, self.contrast, self.steps, self.generator = model, contrast, steps, generator
        self.done = 0
        self.update = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
        self.means = {"visible": torch.sigmoid(model.b), "hidden": torch.sigmoid(model.c)}
        self.dreams_BV = draw(torch.sigmoid(model.b).expand(batch, -1), generator) if contrast.persistent else None
        self.tempering: Tempering | None = None
        if contrast.replicas > 1:
            chains = torch.sigmoid(model.b).expand(contrast.replicas, batch, -1)
            self.tempering = Tempering(model, draw(chains, generator))

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        rbm, contrast = self.model, self.contrast
        V_BV = batch["visible"]
        H_BH = rbm.hidden(V_BV)
        if self.tempering is not None:
            for _ in range(contrast.k):
                v_BV = self.tempering.round(self.generator)
        else:
            h_BH = draw(H_BH if self.dreams_BV is None else rbm.hidden(self.dreams_BV), self.generator)
            P_BV = rbm.visible(h_BH)
            v_BV = rbm.gibbs(draw(P_BV, self.generator), contrast.k - 1, self.generator)
        h_BH = rbm.hidden(v_BV)
        if self.dreams_BV is not None:
            self.dreams_BV = v_BV
        rate = contrast.lr * (1 - self.done / self.steps if contrast.decay else 1)
        dW, db, dc = self.update["W"], self.update["b"], self.update["c"]
        mismatch_V = (V_BV - v_BV).mean(0)
        db.mul_(contrast.momentum).add_(mismatch_V)  # (5)
        dc.mul_(contrast.momentum).add_((H_BH - h_BH).mean(0))  # (5)
        if contrast.centred:
            m_V, n_H = self.means["visible"], self.means["hidden"]
            m_V.lerp_(V_BV.mean(0), DRIFT)
            n_H.lerp_(H_BH.mean(0), DRIFT)
            V_BV, H_BH, dreamt_BV, h_BH = V_BV - m_V, H_BH - n_H, v_BV - m_V, h_BH - n_H
        else:
            dreamt_BV = v_BV
        each = 1 / len(V_BV)
        dW.addmm_(V_BV.T, H_BH, beta=contrast.momentum, alpha=each).addmm_(dreamt_BV.T, h_BH, alpha=-each)  # (4), (6)
        rbm.W.mul_(1 - rate * contrast.weight_decay).add_(dW, alpha=rate)
        rbm.b.add_(db, alpha=rate)
        rbm.c.add_(dc, alpha=rate)
        if contrast.centred:
            rbm.b.addmv_(dW, n_H, alpha=-rate)  # (7)
            rbm.c.addmv_(dW.T, m_V, alpha=-rate)
        self.done += 1
        metrics = {"mismatch": mismatch_V.abs().mean()}
        return metrics if contrast.persistent else metrics | {"reconstruction": F.mse_loss(P_BV, V_BV)}

    def state_dict(self) -> dict[str, Any]:
        state = {"done": self.done, "update": self.update, "means": self.means, "generator": self.generator.get_state()}
        if self.tempering is not None:
            state["chains"] = self.tempering.v_RBV
        return state if self.dreams_BV is None else state | {"dreams": self.dreams_BV}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done, self.dreams_BV = state["done"], state.get("dreams")
        for name, value in state["update"].items():
            self.update[name].copy_(value)
        for name, value in state["means"].items():
            self.means[name].copy_(value)
        if self.tempering is not None:
            self.tempering.v_RBV = state["chains"]
        self.generator.set_state(state["generator"])
