r"""Predictive coding network (Rao & Ballard 1999; Whittington & Bogacz 2017).

    \mu_i = \sigma(x_{i+1}) M_i + \beta_i                                      predictions                        (1)
    \tau \frac{d\epsilon_i}{dt} = x_i - \mu_i - \nu_i \epsilon_i               errors                             (2)
    \tau \frac{dx_i}{dt} = \sigma'(x_i) \odot (\epsilon_{i-1} W_{i-1}) - \epsilon_i     values                    (3)
    F = 1/2 \sum_i \nu_i |\epsilon_i|^2                                        energy                             (4)

    Symbols:
        x_i         values of layer i; x_1 is the bottom, which is predicted, x_L the top
        \epsilon_i  prediction errors of layer i
        M_i, W_i    prediction and feedback weights; W_i = M_i^\top if they are tied
        \nu_i       variance of layer i
        B, D        batch, units

Learning clamps x_1 and x_L and infers the values between. Here errors are at the equilibrium of (2), \epsilon_i =
(x_i - \mu_i) / \nu_i, and the step of (3) adapts so that (4) never rises.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import Gt
from torch import Tensor, nn

from engram.core.config import FromData, Settings
from engram.core.errors import EngramError
from engram.core.fit import FitMixin
from engram.core.tap import tap
from engram.nn.activation import ACTIVATIONS, ActivationName

LONGEST_STEP, SHORTEST_STEP = 1.0, 1e-4
SCORE_STEPS = 100
"""inference steps at most for the scores of classes at the top"""


class State(NamedTuple):
    """Values of all layers, errors of all but the top, and the energy of each sample."""

    x: list[Tensor]
    e: list[Tensor]
    F_B: Tensor


class PredictiveCoding(FitMixin, nn.Module):
    """Predictive coding network: each layer predicts the one below and receives its prediction errors."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Settings):
        sizes: FromData[tuple[int, ...]] = (10, 128, 784)
        """units of the layers, from the bottom to the top"""
        activation: ActivationName = "tanh"
        """activation function (sigma)"""
        variance: Annotated[float, Gt(0)] = 1.0
        """variance of the hidden layers (nu)"""
        bottom_variance: Annotated[float, Gt(0)] = 1.0
        """variance of the bottom layer (nu_1)"""
        tied: bool = True
        """send errors back through the transposed prediction weights instead of separate feedback weights"""
        classes: FromData[Literal["bottom", "top"]] = "bottom"
        """layer of the classes: predicted at the bottom, or inferred at the top"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if len(self.sizes) < 2 or min(self.sizes) < 1:
                raise EngramError(f"sizes must be at least two layers of at least one unit, not {self.sizes}.")

        def nu(self, i: int) -> float:
            """Variance of layer i, counted from 0."""
            return self.variance if i else self.bottom_variance

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        pairs = list(zip(config.sizes, config.sizes[1:], strict=False))
        self.M = nn.ParameterList(torch.empty(above, below) for below, above in pairs)
        self.beta = nn.ParameterList(torch.zeros(below) for below, _ in pairs)
        self.W = nn.ParameterList(torch.empty(below, above) for below, above in pairs if not config.tied)
        self.initialize()

    def initialize(self) -> None:
        for weight in (*self.M, *self.W):
            nn.init.xavier_normal_(weight)
        for weight in self.parameters():
            weight.requires_grad_(False)

    def sigma(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.config.activation].f(x)

    def sigma_derivative(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.config.activation].derivative(x)

    def predict_layer(self, i: int, x_above: Tensor) -> Tensor:
        """Prediction of layer i, counted from 0, from the values above."""
        return torch.addmm(self.beta[i], self.sigma(x_above), self.M[i])  # (1)

    def feedback(self, i: int, e_BD: Tensor) -> Tensor:
        """Errors of layer i sent to the layer above."""
        return e_BD @ (self.M[i].T if self.config.tied else self.W[i])

    def forward(self, top_BD: Tensor) -> Tensor:
        """Prediction of the bottom from the top, with all errors at zero."""
        return tap("prediction", self.predict_all(top_BD)[0])

    def predict_scores(self, x: Tensor) -> Tensor:
        """Scores of the classes of images or rows."""
        x_BD = x.flatten(1)
        return self(x_BD) if self.config.classes == "bottom" else self.infer_top(x_BD, SCORE_STEPS)

    def predict_all(self, top_BD: Tensor) -> list[Tensor]:
        """Values of all layers, each equal to its prediction."""
        x = [top_BD]
        for i in reversed(range(len(self.M))):
            x.insert(0, tap(f"value.{i}", self.predict_layer(i, x[0])))
        return x

    # ------------------------------------------------------------------ inference

    def state_at(self, x: list[Tensor], known: Mapping[int, Tensor] = {}) -> State:
        """Errors and energy at values x; predictions that do not change may be passed as `known`."""
        nu = self.config.nu
        mu = [known[i] if i in known else self.predict_layer(i, x[i + 1]) for i in range(len(self.M))]
        e = [(x[i] - mu[i]) / nu(i) for i in range(len(self.M))]  # (2), at equilibrium
        F_B = torch.stack([0.5 * nu(i) * one.square().sum(1) for i, one in enumerate(e)]).sum(0)
        return State(x, e, F_B)  # (4)

    def value_derivative(self, state: State, i: int) -> Tensor:
        """tau dx/dt of layer i, from its own values and errors and the errors below."""
        x, e = state.x[i], state.e
        up = self.sigma_derivative(x) * self.feedback(i - 1, e[i - 1]) if i > 0 else torch.zeros_like(x)
        return up - e[i] if i < len(e) else up  # (3)

    def relax(self, x: list[Tensor], free: tuple[int, ...], steps: int, tolerance: float = 1e-4) -> State:
        """Integrate (3) for the `free` layers with the others clamped; returns the state at equilibrium.

        Ends after `steps`, or when the largest derivative is below `tolerance` times the initial one.
        """
        known = {i: self.predict_layer(i, x[i + 1]) for i in range(len(self.M)) if i + 1 not in free}
        state, step_B1, first = self.state_at(x, known), x[0].new_full((len(x[0]), 1), 0.2), 0.0
        for _ in range(steps):
            move = {i: self.value_derivative(state, i) for i in free}
            largest = max((one.abs().max().item() for one in move.values()), default=0.0)
            first = first or largest
            if largest <= tolerance * first:
                break
            tried = self.state_at([x + step_B1 * move[i] if i in move else x for i, x in enumerate(state.x)], known)
            better_B1 = (tried.F_B <= state.F_B)[:, None]
            state = State(
                [a if a is b else torch.where(better_B1, a, b) for a, b in zip(tried.x, state.x, strict=True)],
                [torch.where(better_B1, a, b) for a, b in zip(tried.e, state.e, strict=True)],
                torch.minimum(tried.F_B, state.F_B),
            )
            step_B1 = torch.where(better_B1, step_B1 * 1.2, step_B1 * 0.5).clamp(SHORTEST_STEP, LONGEST_STEP)
        return state

    def infer_hidden(self, bottom_BD: Tensor, top_BD: Tensor, steps: int) -> tuple[State, Tensor]:
        """Infer the hidden layers with both ends clamped; returns the state and the initial energy."""
        predicted_BD, *x = self.predict_all(top_BD)
        first_B = 0.5 * (bottom_BD - predicted_BD).square().sum(1) / self.config.nu(0)
        return self.relax([bottom_BD, *x], tuple(range(1, len(x))), steps), first_B

    def infer_top(self, bottom_BD: Tensor, steps: int) -> Tensor:
        """Infer the top values with only the bottom clamped."""
        top = bottom_BD.new_zeros(len(bottom_BD), self.config.sizes[-1])
        x = self.predict_all(top)
        x[0] = bottom_BD
        return self.relax(x, tuple(range(1, len(x))), steps).x[-1]
