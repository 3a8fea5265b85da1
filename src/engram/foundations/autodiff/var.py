r"""Automatic differentiation in reverse mode: expressions that record how they are computed.

    y = f(a, b, \dots)                                                                   forward                   (1)
    \frac{\partial E}{\partial a} = \sum_f s_f \frac{\partial f}{\partial a}             backward                  (2)

    Symbols:
        f             an Op; `y.creator` is f, `f.args` are its arguments, `f.output` is y
        E             the expression whose gradient is wanted
        s_f           \partial E / \partial y of the output y of f; the sum is over all Ops that use a

Arguments are created before the output. So one pass from the last Var to the first computes (2): there is no recursion,
and every Op is visited once.

An Op computes its output in `forward` and the gradient of its i-th argument in `partial`. Partials use only operators
that arrays and Vars share: with arrays they are fast, with Vars they are expressions, whose gradients are second
derivatives.

    x = Var(2.0)
    y = x * x * x
    y.backward()                      # x.grad = 12
    (dy,) = gradients(y, x)           # 12, a Var: gradients(dy, x) is 12 as well, the second derivative
"""

import itertools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from engram.foundations.autodiff.graph import backpropagate, is_basic, keepdims_shape, topological_order

Array = NDArray[Any]
_indices = itertools.count()
_recording = [True]


class Var:
    """A value, its gradient, and the Op that computed it."""

    __slots__ = ("__weakref__", "index", "creator", "grad", "name", "val", "requires_grad")
    __array_ufunc__ = None  # array + Var calls Var.__radd__

    def __init__(self, val: Any, name: str = "", *, requires_grad: bool = True) -> None:
        self.val: Any = np.asarray(val) if requires_grad else val  # constants may stay numbers
        self.grad: Any = None
        self.creator: Op | None = None
        self.index = next(_indices)
        self.name, self.requires_grad = name, requires_grad

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.val)

    @property
    def ndim(self) -> int:
        return np.ndim(self.val)

    def __len__(self) -> int:
        return len(self.val)

    def __repr__(self) -> str:
        return f"Var({self.name + ' = ' if self.name else ''}{self.val})"

    def backward(self, s: Any = None) -> None:
        """Add the gradients of this Var, times s, to the grad of every Var it depends on."""
        for y, g in backpropagate(self, np.ones_like(self.val) if s is None else np.asarray(s)):
            y.grad = g if y.grad is None else y.grad + g

    def zero_grad(self) -> None:
        """Clear the gradients of this Var and of all Vars it depends on."""
        for y in topological_order(self):
            y.grad = None

    # ------------------------------------------------------------------ arithmetic

    def __add__(self, other: Any) -> "Var":
        return Add()(self, other)

    def __radd__(self, other: Any) -> "Var":
        return Add()(other, self)

    def __sub__(self, other: Any) -> "Var":
        return Subtract()(self, other)

    def __rsub__(self, other: Any) -> "Var":
        return Subtract()(other, self)

    def __mul__(self, other: Any) -> "Var":
        return Multiply()(self, other)

    def __rmul__(self, other: Any) -> "Var":
        return Multiply()(other, self)

    def __truediv__(self, other: Any) -> "Var":
        return Divide()(self, other)

    def __rtruediv__(self, other: Any) -> "Var":
        return Divide()(other, self)

    def __neg__(self) -> "Var":
        return Negate()(self)

    def __pow__(self, exponent: float) -> "Var":
        return Power(exponent)(self)

    def __matmul__(self, other: Any) -> "Var":
        return MatrixProduct()(self, other)

    def __rmatmul__(self, other: Any) -> "Var":
        return MatrixProduct()(other, self)

    def __gt__(self, other: Any) -> Any:
        return self.val > other

    def __getitem__(self, index: Any) -> "Var":
        return Index(index)(self)

    def sum(self, axis: Any = None, keepdims: bool = False) -> "Var":
        return Sum(axis, keepdims)(self)

    def mean(self, axis: Any = None, keepdims: bool = False) -> "Var":
        total = self.sum(axis, keepdims)
        return total / (self.val.size / max(1, total.val.size))

    def reshape(self, *shape: Any) -> "Var":
        return Reshape(shape[0] if len(shape) == 1 else shape)(self)

    def transpose(self, *axes: int) -> "Var":
        return Transpose(axes or tuple(reversed(range(self.ndim))))(self)

    def swapaxes(self, i: int, j: int) -> "Var":
        axes = list(range(self.ndim))
        axes[i], axes[j] = axes[j], axes[i]
        return Transpose(tuple(axes))(self)

    @property
    def T(self) -> "Var":
        return self.transpose()


class Op:
    """An operation: arguments, output and gradients."""

    __slots__ = ("_output", "args")
    symbol: ClassVar[str] = ""
    """label in drawings of the graph"""

    def __init__(self) -> None:
        self.args: tuple[Var, ...] = ()

    def __call__(self, *args: Any) -> Var:
        inputs = tuple([a if a.__class__ is Var else Var(a, requires_grad=False) for a in args])
        y = Var(
            self.forward(*[a.val for a in inputs]), requires_grad=_recording[0] and any(a.requires_grad for a in inputs)
        )
        if y.requires_grad:
            self.args, y.creator, self._output = inputs, self, weakref.ref(y)  # (1)
        return y

    @property
    def output(self) -> Var | None:
        """Return the output, unless it was garbage-collected."""
        return self._output()

    def forward(self, *values: Any) -> Any:
        raise NotImplementedError

    def partial(self, i: int, s: Any, y: Any, *args: Any) -> Any:
        """Return the gradient of argument i given that of the output, s, before summing broadcast axes."""
        raise NotImplementedError


def apply(op: Op, *args: Any) -> Any:
    """Apply an Op: recorded if an argument is a Var, plain numbers otherwise."""
    return op(*args) if any(a.__class__ is Var for a in args) else op.forward(*args)


def gradients(y: Var, *xs: Var) -> tuple[Var, ...]:
    """Return dy/dx of every x as Vars, which can be differentiated again; no grad is changed."""
    found = {x: Var(np.zeros_like(x.val)) for x in xs}
    for one, s in backpropagate(y, Var(np.ones_like(y.val), requires_grad=False)):
        if one in found:
            found[one] = s
    return tuple(found[x] for x in xs)


@contextmanager
def no_grad() -> Iterator[None]:
    """Compute without recording."""
    before, _recording[0] = _recording[0], False
    try:
        yield
    finally:
        _recording[0] = before


# ---------------------------------------------------------------------- arithmetic


class Add(Op):
    __slots__ = ()
    symbol = "+"

    def forward(self, a: Any, b: Any) -> Any:
        return a + b

    def partial(self, i: int, s: Any, y: Any, a: Any, b: Any) -> Any:
        return s


class Subtract(Op):
    __slots__ = ()
    symbol = "−"

    def forward(self, a: Any, b: Any) -> Any:
        return a - b

    def partial(self, i: int, s: Any, y: Any, a: Any, b: Any) -> Any:
        return s if i == 0 else -s


class Negate(Op):
    __slots__ = ()
    symbol = "−"

    def forward(self, a: Any) -> Any:
        return -a

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return -s


class Multiply(Op):
    __slots__ = ()
    symbol = "×"

    def forward(self, a: Any, b: Any) -> Any:
        return a * b

    def partial(self, i: int, s: Any, y: Any, a: Any, b: Any) -> Any:
        return s * (b if i == 0 else a)


class Divide(Op):
    __slots__ = ()
    symbol = "÷"

    def forward(self, a: Any, b: Any) -> Any:
        return a / b

    def partial(self, i: int, s: Any, y: Any, a: Any, b: Any) -> Any:
        return s / b if i == 0 else -s * y / b


class Power(Op):
    """a to the power of a constant."""

    __slots__ = ("exponent",)

    def __init__(self, exponent: float) -> None:
        super().__init__()
        self.exponent = exponent

    @property
    def symbol(self) -> str:  # type: ignore[override]
        return f"^{self.exponent:g}"

    def forward(self, a: Any) -> Any:
        return a**self.exponent

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s * (self.exponent * a ** (self.exponent - 1))


class MatrixProduct(Op):
    """a @ b of vectors, matrices or stacks of matrices, as in NumPy."""

    __slots__ = ()
    symbol = "@"

    def forward(self, a: Any, b: Any) -> Any:
        return a @ b

    def partial(self, i: int, s: Any, y: Any, a: Any, b: Any) -> Any:
        shape = (a, b)[i].shape
        if len(b.shape) == 1:  # a column
            s, b = s.reshape((*s.shape, 1)), b.reshape((-1, 1))
        if len(a.shape) == 1:  # a row
            s, a = s.reshape((*s.shape[:-1], 1, s.shape[-1])), a.reshape((1, -1))
        g = s @ b.swapaxes(-1, -2) if i == 0 else a.swapaxes(-1, -2) @ s
        return g if len(shape) > 1 else g.reshape((*g.shape[:-2], *shape))


# ---------------------------------------------------------------------- shapes


class Sum(Op):
    __slots__ = ("axis", "keepdims")
    symbol = "Σ"

    def __init__(self, axis: Any = None, keepdims: bool = False) -> None:
        super().__init__()
        self.axis, self.keepdims = axis, keepdims

    def forward(self, a: Any) -> Any:
        return np.sum(a, self.axis, keepdims=self.keepdims)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return apply(Broadcast(a.shape), s if self.keepdims else s.reshape(keepdims_shape(a.shape, self.axis)))


class Broadcast(Op):
    """Broadcast to a shape."""

    __slots__ = ("shape",)
    symbol = "broadcast"

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, a: Any) -> Any:
        return np.broadcast_to(a, self.shape)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s  # `sum_to_shape` sums it


class Reshape(Op):
    __slots__ = ("shape",)
    symbol = "reshape"

    def __init__(self, shape: Any) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, a: Any) -> Any:
        return a.reshape(self.shape)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s.reshape(a.shape)


class Transpose(Op):
    __slots__ = ("axes",)
    symbol = "ᵀ"

    def __init__(self, axes: tuple[int, ...]) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, a: Any) -> Any:
        return np.transpose(a, self.axes)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s.transpose(*np.argsort(self.axes))


class Index(Op):
    """Elements of an array; an index may repeat."""

    __slots__ = ("index",)
    symbol = "[ ]"

    def __init__(self, index: Any) -> None:
        super().__init__()
        self.index = index

    def forward(self, a: Any) -> Any:
        return a[self.index]

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return apply(Scatter(self.index, a.shape), s)


class Scatter(Op):
    """The transpose of `Index`: values scattered into zeros, summed where an index repeats."""

    __slots__ = ("index", "shape")
    symbol = "scatter"

    def __init__(self, index: Any, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.index, self.shape = index, shape

    def forward(self, a: Any) -> Any:
        out = np.zeros(self.shape, np.asarray(a).dtype)
        if is_basic(self.index):
            out[self.index] = a
        else:
            np.add.at(out, self.index, a)
        return out

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s[self.index]
