"""Predictive coding (Rao & Ballard 1999; Whittington & Bogacz 2017; note 003 §29).   B batch, layers 1 … L

    mu_i = sigma(x_i+1) M_i + beta_i                                predictions go down                              (1)
    tau de_i/dt = x_i - mu_i - nu_i e_i                             errors; at rest e_i = (x_i - mu_i) / nu_i        (2)
    tau dx_i/dt = sigma'(x_i) * (e_i-1 W_i-1) - e_i                 and go up: each value is pulled from both sides  (3)
    F = 1/2 sum_i nu_i |e_i|^2                                      what falls while values settle                   (4)
    dM_i ~ sigma(x_i+1)' e_i,   dbeta_i ~ e_i                       learning, by what is at hand in each layer       (5)
    dW_i ~ e_i' sigma(x_i+1)                                        feedback, learnt apart, or tied: W = M'          (6)

x_1 is what is predicted in the end, x_L what predicts. Learning clamps both; then nothing in (5) and (6) comes from
anywhere but the two ends of a connection. Where x_1 may differ from its prediction much more than the layers between
(nu_1 is large), these hardly move, and the updates are those of back-propagation (Whittington & Bogacz). Errors follow
at once here (tau of (2) is short beside that of (3)), and the step of (3) adapts so that (4) never rises.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from engram.core import together
from engram.core.errors import EngramError
from engram.core.learner import Batch, Descent, Metrics, cut, descend, optimizers, restore, saved
from engram.core.registry import FromData
from engram.core.tap import tap
from engram.layers.activation import ACTIVATIONS, ActivationName

LONGEST_STEP, SHORTEST_STEP = 1.0, 1e-4


class State(NamedTuple):
    """Values of all layers and errors of all but the last, from x_1 on, and F of each of the batch."""

    x: list[Tensor]
    e: list[Tensor]
    F_B: Tensor


class PredictiveCoding(nn.Module):
    """Layers that predict the one below, and are told where they were wrong."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        sizes: FromData[tuple[int, ...]] = (10, 128, 784)
        """units of the layers, from what is predicted to what predicts"""
        activation: ActivationName = "tanh"
        """function of every unit that predicts (sigma)"""
        variance: float = 1.0
        """how much a layer may differ from its prediction (nu)"""
        bottom_variance: float = 1.0
        """the same for what is predicted in the end (nu_1)"""
        tied: bool = True
        """send errors back through the transposed weights instead of ones that are learnt apart"""

        def __post_init__(self) -> None:
            if len(self.sizes) < 2 or min(self.sizes) < 1:
                raise EngramError(f"sizes must name two layers of one unit at least, not {self.sizes}.")
            for name in ("variance", "bottom_variance"):
                if not getattr(self, name) > 0:
                    raise EngramError(f"{name} must be above 0, not {getattr(self, name)}.")

        def nu(self, i: int) -> float:
            """The variance of the i-th layer, from 0."""
            return self.variance if i else self.bottom_variance

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        pairs = list(zip(config.sizes, config.sizes[1:], strict=False))
        self.M = nn.ParameterList(torch.empty(above, below) for below, above in pairs)
        self.beta = nn.ParameterList(torch.zeros(below) for below, _ in pairs)
        self.W = nn.ParameterList(torch.empty(below, above) for below, above in pairs if not config.tied)
        self.initialise()

    def initialise(self) -> None:
        for weight in (*self.M, *self.W):
            nn.init.xavier_normal_(weight)
        for weight in self.parameters():
            weight.requires_grad_(False)

    def sigma(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.config.activation].f(x)

    def slope(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.config.activation].derivative(x)

    def predict(self, i: int, x_above: Tensor) -> Tensor:
        """mu of the i-th layer, from 0."""
        return torch.addmm(self.beta[i], self.sigma(x_above), self.M[i])  # (1)

    def back(self, i: int, e_BD: Tensor) -> Tensor:
        return e_BD @ (self.M[i].T if self.config.tied else self.W[i])

    def forward(self, top_BD: Tensor) -> Tensor:
        """What the top predicts of the bottom, layer by layer, with no error anywhere."""
        return tap("prediction", self.downwards(top_BD)[0])

    def downwards(self, top_BD: Tensor) -> list[Tensor]:
        """Values of all layers where each is what it is predicted to be."""
        x = [top_BD]
        for i in reversed(range(len(self.M))):
            x.insert(0, tap(f"value.{i}", self.predict(i, x[0])))
        return x

    # ------------------------------------------------------------------ settling

    def at(self, x: list[Tensor], known: Mapping[int, Tensor] = {}) -> State:
        """Errors and F where values are x; predictions of layers that are held may be `known`."""
        nu = self.config.nu
        mu = [known[i] if i in known else self.predict(i, x[i + 1]) for i in range(len(self.M))]
        e = [(x[i] - mu[i]) / nu(i) for i in range(len(self.M))]  # (2), at rest
        F_B = torch.stack([0.5 * nu(i) * one.square().sum(1) for i, one in enumerate(e)]).sum(0)
        return State(x, e, F_B)  # (4)

    def pull(self, state: State, i: int) -> Tensor:
        """tau dx/dt of the i-th layer, from its own value and error and the error below."""
        x, e = state.x[i], state.e
        up = self.slope(x) * self.back(i - 1, e[i - 1]) if i > 0 else torch.zeros_like(x)
        return up - e[i] if i < len(e) else up  # (3)

    def settle(self, x: list[Tensor], free: tuple[int, ...], rounds: int, tolerance: float = 1e-4) -> State:
        """Let the `free` layers go where (3) leads, the others held, until the rounds are over or all is at rest: the
        pull is no more than a part, `tolerance`, of what it was at first."""
        known = {i: self.predict(i, x[i + 1]) for i in range(len(self.M)) if i + 1 not in free}
        state, step_B1, first = self.at(x, known), x[0].new_full((len(x[0]), 1), 0.2), 0.0
        for _ in range(rounds):
            move = {i: self.pull(state, i) for i in free}
            largest = max((one.abs().max().item() for one in move.values()), default=0.0)
            first = first or largest
            if largest <= tolerance * first:
                break
            tried = self.at([x + step_B1 * move[i] if i in move else x for i, x in enumerate(state.x)], known)
            better_B1 = (tried.F_B <= state.F_B)[:, None]
            state = State(
                [a if a is b else torch.where(better_B1, a, b) for a, b in zip(tried.x, state.x, strict=True)],
                [torch.where(better_B1, a, b) for a, b in zip(tried.e, state.e, strict=True)],
                torch.minimum(tried.F_B, state.F_B),
            )
            step_B1 = torch.where(better_B1, step_B1 * 1.2, step_B1 * 0.5).clamp(SHORTEST_STEP, LONGEST_STEP)
        return state

    def learn_from(self, bottom_BD: Tensor, top_BD: Tensor, rounds: int) -> tuple[State, Tensor]:
        """Both ends clamped; the layers between begin where they are predicted to be. Also F at that beginning."""
        predicted_BD, *x = self.downwards(top_BD)
        first_B = 0.5 * (bottom_BD - predicted_BD).square().sum(1) / self.config.nu(0)
        return self.settle([bottom_BD, *x], tuple(range(1, len(x))), rounds), first_B

    def infer(self, bottom_BD: Tensor, rounds: int) -> Tensor:
        """What the top would be, if the bottom is this: the values that leave the least error."""
        top = bottom_BD.new_zeros(len(bottom_BD), self.config.sizes[-1])
        x = self.downwards(top)
        x[0] = bottom_BD
        return self.settle(x, tuple(range(1, len(x))), rounds).x[-1]


@dataclass(frozen=True, kw_only=True)
class Settling:
    """How the network comes to rest, and by what it learns."""

    learning: Literal["predictive-coding", "backprop"] = "predictive-coding"
    """local updates at equilibrium, or for comparison back-propagation through the same network"""
    rounds: int = 20
    """steps of settling at most, while learning"""

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise EngramError(f"rounds must be at least 1, not {self.rounds}.")


class LocalLearning:
    """The learner of predictive coding: clamp both ends, settle, let each connection learn from its own two ends."""

    def __init__(self, model: PredictiveCoding, settling: Settling, descent: Descent, steps: int) -> None:
        self.model, self.settling, self.descent, self.steps, self.done = model, settling, descent, steps, 0
        for weight in model.parameters():
            weight.requires_grad_(True)  # for the optimiser, which is given what (5) and (6) say
        together.shard(model)
        self.optimizers = list(optimizers(model, descent))

    def step(self, batch: Batch) -> Metrics:
        ((part, share),) = cut(batch, 1)
        learn = self._backprop if self.settling.learning == "backprop" else self._settle
        with together.whole(self.model):
            found, metrics = learn(part["bottom"], part["top"])
        together.give({name: share * gradient for name, gradient in found.items()}, self.model)
        metrics = {name: share * value for name, value in metrics.items()}
        self.done += 1
        descend(self.optimizers, self.descent.rate(self.done / self.steps))
        return metrics

    @torch.no_grad()
    def _settle(self, bottom: Tensor, top: Tensor) -> tuple[dict[str, Tensor], Metrics]:
        state, before = self.model.learn_from(bottom, top, self.settling.rounds)
        found: dict[str, Tensor] = {}
        for i, e in enumerate(state.e):
            found |= self._local(i, state.x[i + 1], e)
        return found, {"loss": before.mean(), "settled": state.F_B.mean()}

    def _local(self, i: int, above_BD: Tensor, e_BD: Tensor) -> dict[str, Tensor]:
        """Downhill is where (5) and (6) lead: gradients are their opposites."""
        each, rate_BD = -1 / len(e_BD), self.model.sigma(above_BD)
        found = {f"M.{i}": each * rate_BD.T @ e_BD, f"beta.{i}": each * e_BD.sum(0)}  # (5)
        return found if self.model.config.tied else found | {f"W.{i}": each * e_BD.T @ rate_BD}  # (6)

    def _backprop(self, bottom: Tensor, top: Tensor) -> tuple[dict[str, Tensor], Metrics]:
        away = bottom - self.model(top)
        loss = 0.5 * away.square().sum(1).mean() / self.model.config.bottom_variance
        return together.gradients(loss, self.model), {"loss": loss.detach()}

    def to(self, place: torch.device) -> None:
        self.model.to(place)

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "optimizers": saved(self.optimizers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        for optimizer, before in zip(self.optimizers, state["optimizers"], strict=True):
            restore(optimizer, before)
