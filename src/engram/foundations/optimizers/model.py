"""A surface of two variables and the positions of optimizers on it.

The surface is an expression of x and y, differentiated by `engram.foundations.autodiff`; the optimizers are those of
`engram.foundations.optimizers.learner`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.foundations.autodiff import Var
from engram.foundations.autodiff.parse import Expression, ExpressionError

OPTIMIZERS = ("gd", "sgd", "momentum", "rmsprop", "adam", "muon")


class OptimizerRace(nn.Module):
    """The surface, and the position of each optimizer."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        surface: str = "(1 - x)^2 + 5*(y - x^2)^2"
        """function of x and y to minimize: numbers, + - * / ^ and functions such as sin, exp, tanh"""

        def __post_init__(self) -> None:
            self.expression()

        def expression(self) -> Expression:
            try:
                found = Expression(self.surface)
            except ExpressionError as error:
                raise EngramError(str(error)) from None
            if not found.names or not set(found.names) <= {"x", "y"}:
                raise EngramError(f'surface must be of x and y, not "{self.surface}".')
            return found

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.positions = nn.ParameterDict({name: nn.Parameter(torch.zeros(1, 2)) for name in OPTIMIZERS})

    def forward(self, x_B2: Tensor) -> Tensor:
        """Return the value of the surface at each position."""
        values = self.config.expression().numbers(x=x_B2[:, 0].numpy(), y=x_B2[:, 1].numpy())
        return torch.tensor(values.copy(), dtype=x_B2.dtype)

    def value_and_gradient(self, x_12: Tensor) -> tuple[float, Tensor]:
        """Return value and gradient of the surface."""
        x, y = (Var(float(value)) for value in x_12[0])
        E = self.config.expression()(x=x, y=y)
        E.backward()
        g = [0.0 if v.grad is None else float(v.grad) for v in (x, y)]
        return float(E.val), torch.tensor([g], dtype=x_12.dtype)
