r"""Interval arithmetic: bounds of an expression whose variables lie in intervals (Moore 1966).

    [a, b] + [c, d] = [a + c, b + d]                                           sum                                 (1)
    [a, b] \cdot [c, d] = [\min(ac, ad, bc, bd), \max(ac, ad, bc, bd)]         product                             (2)
    f([a, b]) = [f(a), f(b)]                                                   monotone function                   (3)

sin, cos, |x| and even powers have extrema inside the interval. The bounds are guaranteed; they are not tight where a
variable occurs twice, and converge as intervals shrink. Arrays hold many intervals at once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from engram.foundations.autodiff.var import Array

MONOTONE: dict[str, Callable[[Any], Any]] = {
    "arctan": np.arctan,
    "exp": np.exp,
    "log": np.log,
    "logistic": lambda a: 0.5 + 0.5 * np.tanh(0.5 * a),
    "relu": lambda a: np.maximum(a, 0),
    "sigmoid": lambda a: 0.5 + 0.5 * np.tanh(0.5 * a),
    "softplus": lambda a: np.logaddexp(0, a),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}


class Interval:
    """The numbers from low to high."""

    __array_ufunc__ = None

    def __init__(self, low: Any, high: Any) -> None:
        self.low: Array = np.asarray(low, float)
        self.high: Array = np.asarray(high, float)

    @staticmethod
    def of(a: Any) -> "Interval":
        return a if isinstance(a, Interval) else Interval(a, a)

    def __add__(self, other: Any) -> "Interval":
        other = Interval.of(other)
        return Interval(self.low + other.low, self.high + other.high)  # (1)

    __radd__ = __add__

    def __neg__(self) -> "Interval":
        return Interval(-self.high, -self.low)

    def __sub__(self, other: Any) -> "Interval":
        return self + -Interval.of(other)

    def __rsub__(self, other: Any) -> "Interval":
        return -self + other

    def __mul__(self, other: Any) -> "Interval":
        other = Interval.of(other)
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(np.minimum.reduce(ends), np.maximum.reduce(ends))  # (2)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Interval":
        other = Interval.of(other)
        through_zero = (other.low <= 0) & (other.high >= 0)
        inverse = Interval(
            np.where(through_zero, -np.inf, 1 / other.high), np.where(through_zero, np.inf, 1 / other.low)
        )
        return self * inverse

    def __rtruediv__(self, other: Any) -> "Interval":
        return Interval.of(other) / self

    def __pow__(self, exponent: Any) -> "Interval":
        if isinstance(exponent, Interval):
            return (exponent * self.apply("log")).apply("exp")
        if exponent < 0:
            return 1 / self**-exponent
        if exponent == int(exponent) and exponent % 2 == 0:
            size = self.apply("abs")
            return Interval(size.low**exponent, size.high**exponent)
        return Interval(self.low**exponent, self.high**exponent)

    def apply(self, name: str) -> "Interval":
        """Return the bounds of a function on this interval."""
        if name in MONOTONE:
            return Interval(MONOTONE[name](self.low), MONOTONE[name](self.high))  # (3)
        if name == "abs":
            inside = (self.low <= 0) & (self.high >= 0)
            ends = np.abs(self.low), np.abs(self.high)
            return Interval(np.where(inside, 0, np.minimum(*ends)), np.maximum(*ends))
        shifted = self if name == "sin" else self + np.pi / 2
        ends = np.sin(shifted.low), np.sin(shifted.high)
        top, bottom = shifted.contains_angle(np.pi / 2), shifted.contains_angle(-np.pi / 2)
        return Interval(np.where(bottom, -1, np.minimum(*ends)), np.where(top, 1, np.maximum(*ends)))

    def contains_angle(self, angle: float) -> Any:
        """Return whether the interval contains the angle plus a multiple of 2 pi."""
        return np.floor((self.high - angle) / (2 * np.pi)) >= np.ceil((self.low - angle) / (2 * np.pi))
