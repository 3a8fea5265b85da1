"""Expressions that people type: "sin(3*x) + x^2 / 2", read into a tree and never executed as code.

sum      = product (("+" | "-") product)*          product = sign (("*" | "/") sign)*
sign     = "-" sign | power                        power   = atom ("^" sign | "**" sign)?
atom     = number | name | name "(" sum ")" | "(" sum ")"
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from engram.foundations.autodiff import functions as f
from engram.foundations.autodiff.interval import Interval
from engram.foundations.autodiff.var import Var

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "abs": f.absolute, "arctan": f.arctan, "cos": f.cos, "exp": f.exp, "log": f.log, "logistic": f.logistic,
    "relu": f.relu, "sigmoid": f.logistic, "sin": f.sin, "softplus": f.softplus, "sqrt": f.sqrt, "tanh": f.tanh,
}  # fmt: skip
CONSTANTS = {"pi": math.pi, "e": math.e}
Tree = Callable[[Mapping[str, Any]], Any]
"""from values of the variables to the value of a part"""
LONGEST = 1000
DEEPEST = 50
TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(\*\*|[-+*/^()]))")


class ExpressionError(ValueError):
    """An expression that cannot be read, in one sentence."""


class Expression:
    """A function of some variables."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > LONGEST:
            raise ExpressionError(f"An expression has at most {LONGEST} characters, not {len(text)}.")
        self._tokens, self._at, self._depth = tokens(text), 0, 0
        self._tree = self._sum()
        if self._at < len(self._tokens):
            raise self._wrong(f'"{self._tokens[self._at]}" was not expected here')
        self.names = tuple(sorted({token for token in self._tokens if is_variable(token)}))
        """its variables"""

    def __call__(self, **values: Any) -> Any:
        """Its value for numbers, arrays or Vars."""
        missing = [name for name in self.names if name not in values]
        if missing:
            raise ExpressionError(f'"{self.text}" needs a value for {missing[0]}.')
        return self._tree(values)

    def numbers(self, **values: Any) -> Any:
        """Its values as an array."""
        shape = np.broadcast_shapes(*[np.shape(value) for value in values.values()])
        with np.errstate(all="ignore"):
            found = self(**{name: Var(np.asarray(value, float)) for name, value in values.items()})
        return np.broadcast_to(found.val if isinstance(found, Var) else found, shape)

    def within(self, **bounds: tuple[Any, Any]) -> Interval:
        """Between what it certainly lies where its variables are within bounds."""
        with np.errstate(all="ignore"):
            return Interval.of(self(**{name: Interval(*ends) for name, ends in bounds.items()}))

    # ------------------------------------------------------------------ reading

    def _wrong(self, what: str) -> ExpressionError:
        return ExpressionError(f'"{self.text}" cannot be read: {what}.')

    def _next(self, *wanted: str) -> str | None:
        """The next token if it is one of these."""
        if self._at < len(self._tokens) and self._tokens[self._at] in wanted:
            self._at += 1
            return self._tokens[self._at - 1]
        return None

    def _sum(self) -> Tree:
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._wrong(f"it is more than {DEEPEST} levels deep")
        tree = self._product()
        while sign := self._next("+", "-"):
            tree = both(sign, tree, self._product())
        self._depth -= 1
        return tree

    def _product(self) -> Tree:
        tree = self._sign()
        while sign := self._next("*", "/"):
            tree = both(sign, tree, self._sign())
        return tree

    def _sign(self) -> Tree:
        negative = False
        while sign := self._next("-", "+"):
            negative ^= sign == "-"
        tree = self._power()
        return (lambda values: -tree(values)) if negative else tree

    def _power(self) -> Tree:
        base = self._atom()
        if not self._next("^", "**"):
            return base
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._wrong(f"it is more than {DEEPEST} levels deep")
        exponent = self._sign()
        self._depth -= 1
        return lambda values: power(base(values), exponent(values))

    def _atom(self) -> Tree:
        if self._at == len(self._tokens):
            raise self._wrong("it ends too early")
        token = self._tokens[self._at]
        self._at += 1
        if token == "(":
            return self._parenthesized()
        if token[0].isdigit() or token[0] == ".":
            number = float(token)
            return lambda values: number
        if token in CONSTANTS:
            return lambda values: CONSTANTS[token]
        if is_variable(token):
            if self._next("("):
                raise self._wrong(f'there is no function "{token}", only {", ".join(FUNCTIONS)}')
            return lambda values: values[token]
        if token in FUNCTIONS:
            if not self._next("("):
                raise self._wrong(f'"{token}" needs brackets after it')
            inner = self._parenthesized()
            return lambda values: apply_function(token, inner(values))
        raise self._wrong(f'"{token}" was not expected here')

    def _parenthesized(self) -> Tree:
        tree = self._sum()
        if not self._next(")"):
            raise self._wrong("a bracket is not closed")
        return tree


def tokens(text: str) -> list[str]:
    found, at = [], 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        if match is None:
            raise ExpressionError(f'"{text}" cannot be read: "{text[at:].strip()[0]}" means nothing here.')
        found.append(match.group().strip())
        at = match.end()
    if not found:
        raise ExpressionError("An expression must not be empty.")
    return found


def is_variable(token: str) -> bool:
    return (token[0].isalpha() or token[0] == "_") and token not in FUNCTIONS and token not in CONSTANTS


def both(sign: str, a: Tree, b: Tree) -> Tree:
    operation = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": divide}[sign]
    return lambda values: operation(a(values), b(values))


def divide(a: Any, b: Any) -> Any:
    return np.divide(a, b) if isinstance(b, (int, float)) and isinstance(a, (int, float)) else a / b


def power(a: Any, b: Any) -> Any:
    """a^b; an exponent that is itself an expression goes by way of exp and log."""
    if isinstance(b, Var):
        return f.exp(b * (f.log(a) if isinstance(a, Var) else np.log(a)))
    if isinstance(b, Interval):
        return Interval.of(a) ** b
    return np.power(a, b) if isinstance(a, (int, float)) else a**b


def apply_function(name: str, a: Any) -> Any:
    """A function of a Var is a Var, of an interval an interval, of a number a number."""
    if isinstance(a, Interval):
        return a.apply(name)
    return FUNCTIONS[name](a) if isinstance(a, Var) else FUNCTIONS[name](Var(a)).val
