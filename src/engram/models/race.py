"""Optimisers on a surface (note 003 §11).   x a place on it, g = grad E(x), kappa the learning rate

    gd         x <- x - kappa g                                                                                      (1)
    sgd        the same, where only g + noise is known                                                               (2)
    momentum   v <- beta v + g,   x <- x - kappa v                                                                   (3)
    rmsprop    u <- rho u + (1 - rho) g^2,   x <- x - kappa g / (sqrt(u) + eps)                                      (4)
    adam       m, u <- means of g, g^2,   x <- x - kappa m^ / (sqrt(u^) + eps)                                       (5)
    muon       v <- beta v + g,   x <- x - kappa v / |v|, the orthogonal part of a matrix with one row               (6)

All but gd know g only with the same noise. The surface is an expression of x and y, and its gradient that of
`engram.autodiff`; the steps are those of torch.optim and `engram.core.muon`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engram.autodiff import Var
from engram.autodiff.parse import Expression, ExpressionError
from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics, restore
from engram.core.muon import Muon

RACERS = ("gd", "sgd", "momentum", "rmsprop", "adam", "muon")
FAR = 1e6
"""where a racer counts as lost, and stays"""


class Race(nn.Module):
    """Where each racer is, and the surface below."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        surface: str = "(1 - x)^2 + 5*(y - x^2)^2"
        """height at x and y: numbers, + - * / ^ and functions such as sin, exp, tanh"""

        def __post_init__(self) -> None:
            self.expression()

        def expression(self) -> Expression:
            try:
                found = Expression(self.surface)
            except ExpressionError as error:
                raise EngramError(str(error)) from None
            if not found.names or not set(found.names) <= {"x", "y"}:
                raise EngramError(f"surface must be of x and y, and «{self.surface}» is not.")
            return found

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.places = nn.ParameterDict({name: nn.Parameter(torch.zeros(1, 2)) for name in RACERS})

    def forward(self, x_B2: Tensor) -> Tensor:
        """The height of each place."""
        values = self.config.expression().numbers(x=x_B2[:, 0].numpy(), y=x_B2[:, 1].numpy())
        return torch.tensor(values.copy(), dtype=x_B2.dtype)

    def slope(self, x_12: Tensor) -> tuple[float, Tensor]:
        """Height and gradient."""
        x, y = (Var(float(value)) for value in x_12[0])
        E = self.config.expression()(x=x, y=y)
        E.backward()
        g = [0.0 if one.grad is None else float(one.grad) for one in (x, y)]
        return float(E.val), torch.tensor([g], dtype=x_12.dtype)


class Racing:
    """The learner: every racer takes a step."""

    def __init__(self, model: Race, start: Tensor, lr: float, adaptive_lr: float, beta: float) -> None:
        self.model, self.path = model, [start.expand(len(RACERS), 2).clone()]
        for place in model.places.values():
            place.data.copy_(start)
        at = model.places
        self.optimizers: dict[str, torch.optim.Optimizer] = {
            "gd": torch.optim.SGD([at["gd"]], lr),  # (1)
            "sgd": torch.optim.SGD([at["sgd"]], lr),  # (2)
            "momentum": torch.optim.SGD([at["momentum"]], lr, momentum=beta),  # (3)
            "rmsprop": torch.optim.RMSprop([at["rmsprop"]], adaptive_lr),  # (4)
            "adam": torch.optim.Adam([at["adam"]], adaptive_lr, betas=(beta, 0.999)),  # (5)
            "muon": Muon([at["muon"]], lr=adaptive_lr, momentum=beta, weight_decay=0.0),  # (6)
        }

    def step(self, batch: Batch) -> Metrics:
        heights = {}
        for name, optimizer in self.optimizers.items():
            place = self.model.places[name]
            height, g = self.model.slope(place.detach())
            if place.abs().max() < FAR and g.isfinite().all():
                place.grad = g + (batch["noise"] if name != "gd" else 0)
                optimizer.step()
            heights[name] = torch.tensor(height)
        self.path.append(torch.cat([self.model.places[name].detach() for name in RACERS]))
        return heights

    def state_dict(self) -> dict[str, Any]:
        states = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        return {"path": torch.stack(self.path), "optimizers": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.path = list(state["path"].unbind(0))
        for name, optimizer in self.optimizers.items():
            restore(optimizer, state["optimizers"][name])
