"""Auto-differentiation (note 003 §9): an expression that remembers how it was made.

    y = f(a, b, …)           applying an Op f to Vars makes a Var: y.creator = f, f.args = (a, b, …), f.output = y  (1)
    dE/da = sum_f s_f df/da  over all Ops f that a went into, where s_f = dE/dy of the Var y that f made         (2)

A Var is made after all that it is made of. So (2) is done in one walk from the last Var to the first, and every Var has
heard of all its uses before it hands its gradient on: no recursion, however deep the expression, and no part of it
visited twice, however often it is used.

An Op says how it computes in `forward`, and what its output's gradient s is for its i-th argument in `partial`.
Partials are written with operators that arrays and Vars have in common: given arrays they are quick, given Vars they
are themselves expressions, whose gradients are second derivatives.

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

Array = NDArray[Any]
_births = itertools.count()
_recording = [True]


class Var:
    """A value, its gradient, and the Op that made it."""

    __slots__ = ("__weakref__", "birth", "creator", "grad", "name", "val", "wanted")
    __array_ufunc__ = None  # arrays on the left leave the work to us

    def __init__(self, val: Any, name: str = "", *, wanted: bool = True) -> None:
        self.val: Any = np.asarray(val) if wanted else val  # what is wanted by nobody may stay a number
        self.grad: Any = None
        self.creator: Op | None = None
        self.birth = next(_births)
        self.name, self.wanted = name, wanted
        """`wanted` says whether a gradient is"""

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
        """Add to every Var's grad what this one's change by s would be worth."""
        for y, flow in walk(self, np.ones_like(self.val) if s is None else np.asarray(s)):
            y.grad = flow if y.grad is None else y.grad + flow

    def zero_grad(self) -> None:
        """Forget the gradients of this Var and of all that it is made of."""
        for y in history(self):
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
    """One step of a computation: what goes in, what comes out, and how a gradient goes back."""

    __slots__ = ("_output", "args")
    sign: ClassVar[str] = ""
    """how it is drawn"""

    def __init__(self) -> None:
        self.args: tuple[Var, ...] = ()

    def __call__(self, *args: Any) -> Var:
        inputs = tuple([a if a.__class__ is Var else Var(a, wanted=False) for a in args])
        y = Var(self.forward(*[a.val for a in inputs]), wanted=_recording[0] and any(a.wanted for a in inputs))
        if y.wanted:
            self.args, y.creator, self._output = inputs, self, weakref.ref(y)  # (1)
        return y

    @property
    def output(self) -> Var | None:
        """What it made, if that is still used."""
        return self._output()

    def forward(self, *values: Any) -> Any:
        raise NotImplementedError

    def partial(self, i: int, s: Any, y: Any, *args: Any) -> Any:
        """The gradient of argument i, where s is that of the output y; a number for every one that was spread out."""
        raise NotImplementedError


def apply(op: Op, *args: Any) -> Any:
    """op on arrays if they are arrays, and as a part of an expression if there are Vars among them."""
    return op(*args) if any(a.__class__ is Var for a in args) else op.forward(*args)


# ---------------------------------------------------------------------- walking back


def history(root: Var) -> list[Var]:
    """All Vars with a gradient that `root` is made of, the last made first."""
    seen, stack = {root}, [root]
    while stack:
        creator = stack.pop().creator
        if creator is not None:
            for a in creator.args:
                if a.wanted and a not in seen:
                    seen.add(a)
                    stack.append(a)
    return sorted(seen, key=lambda y: y.birth, reverse=True)


def walk(root: Var, s: Any) -> Iterator[tuple[Var, Any]]:
    """Every Var of an expression with its gradient, in the order in which they become known (2).

    With a Var as s, gradients are Vars too."""
    flow, expressive = {root: s}, s.__class__ is Var
    for y in history(root):
        s = flow.pop(y)
        yield y, s
        op = y.creator
        if op is None:
            continue
        values = op.args if expressive else [a.val for a in op.args]
        for i, a in enumerate(op.args):
            if a.wanted:
                g = op.partial(i, s, y if expressive else y.val, *values)
                if g.shape != a.val.shape:
                    g = gathered(g, a.val.shape)
                if a in flow:
                    flow[a] = flow[a] + g
                elif expressive or a.creator is not None or (g is not s and g.flags.owndata):
                    flow[a] = g
                else:
                    flow[a] = g.copy()  # a gradient that people may change must not be that of others


def gathered(g: Any, shape: tuple[int, ...]) -> Any:
    """The gradient of an argument that was spread out by broadcasting: the sum over all places it was spread to."""
    g = g.sum(tuple(range(len(g.shape) - len(shape)))) if len(g.shape) > len(shape) else g
    axes = tuple(i for i, (many, one) in enumerate(zip(g.shape, shape, strict=True)) if many != one)
    return g.sum(axes, keepdims=True) if axes else g


def gradients(y: Var, *xs: Var) -> tuple[Var, ...]:
    """dy/dx of every x as Vars, of which gradients can be taken again; no Var's grad is touched."""
    found = {x: Var(np.zeros_like(x.val)) for x in xs}
    for one, s in walk(y, Var(np.ones_like(y.val), wanted=False)):
        if one in found:
            found[one] = s
    return tuple(found[x] for x in xs)


@contextmanager
def no_grad() -> Iterator[None]:
    """Compute without remembering how."""
    before, _recording[0] = _recording[0], False
    try:
        yield
    finally:
        _recording[0] = before


# ---------------------------------------------------------------------- arithmetic


class Add(Op):
    __slots__ = ()
    sign = "+"

    def forward(self, a: Any, b: Any) -> Any:
        return a + b

    def partial(self, i: int, s: Any, y: Any, a: Any, b: Any) -> Any:
        return s


class Subtract(Op):
    __slots__ = ()
    sign = "−"

    def forward(self, a: Any, b: Any) -> Any:
        return a - b

    def partial(self, i: int, s: Any, y: Any, a: Any, b: Any) -> Any:
        return s if i == 0 else -s


class Negate(Op):
    __slots__ = ()
    sign = "−"

    def forward(self, a: Any) -> Any:
        return -a

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return -s


class Multiply(Op):
    __slots__ = ()
    sign = "×"

    def forward(self, a: Any, b: Any) -> Any:
        return a * b

    def partial(self, i: int, s: Any, y: Any, a: Any, b: Any) -> Any:
        return s * (b if i == 0 else a)


class Divide(Op):
    __slots__ = ()
    sign = "÷"

    def forward(self, a: Any, b: Any) -> Any:
        return a / b

    def partial(self, i: int, s: Any, y: Any, a: Any, b: Any) -> Any:
        return s / b if i == 0 else -s * y / b


class Power(Op):
    """a to a fixed exponent."""

    __slots__ = ("exponent",)

    def __init__(self, exponent: float) -> None:
        super().__init__()
        self.exponent = exponent

    @property
    def sign(self) -> str:  # type: ignore[override]
        return f"^{self.exponent:g}"

    def forward(self, a: Any) -> Any:
        return a**self.exponent

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s * (self.exponent * a ** (self.exponent - 1))


class MatrixProduct(Op):
    """a @ b, as NumPy has it: vectors, matrices, stacks of matrices."""

    __slots__ = ()
    sign = "@"

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
    sign = "Σ"

    def __init__(self, axis: Any = None, keepdims: bool = False) -> None:
        super().__init__()
        self.axis, self.keepdims = axis, keepdims

    def forward(self, a: Any) -> Any:
        return np.sum(a, self.axis, keepdims=self.keepdims)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return apply(Spread(a.shape), s if self.keepdims else s.reshape(kept(a.shape, self.axis)))


class Spread(Op):
    """The same numbers at all places along axes of length 1."""

    __slots__ = ("shape",)
    sign = "spread"

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, a: Any) -> Any:
        return np.broadcast_to(a, self.shape)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s  # which `gathered` adds up


class Reshape(Op):
    __slots__ = ("shape",)
    sign = "reshape"

    def __init__(self, shape: Any) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, a: Any) -> Any:
        return a.reshape(self.shape)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s.reshape(a.shape)


class Transpose(Op):
    __slots__ = ("axes",)
    sign = "ᵀ"

    def __init__(self, axes: tuple[int, ...]) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, a: Any) -> Any:
        return np.transpose(a, self.axes)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s.transpose(*np.argsort(self.axes))


class Index(Op):
    """Some places of an array, each as often as it is named."""

    __slots__ = ("index",)
    sign = "[ ]"

    def __init__(self, index: Any) -> None:
        super().__init__()
        self.index = index

    def forward(self, a: Any) -> Any:
        return a[self.index]

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return apply(Place(self.index, a.shape), s)


class Place(Op):
    """The other way round: numbers at their places among zeros, added up where a place is named twice."""

    __slots__ = ("index", "shape")
    sign = "place"

    def __init__(self, index: Any, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.index, self.shape = index, shape

    def forward(self, a: Any) -> Any:
        placed = np.zeros(self.shape, np.asarray(a).dtype)
        if simple(self.index):
            placed[self.index] = a
        else:
            np.add.at(placed, self.index, a)
        return placed

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s[self.index]


def simple(index: Any) -> bool:
    """Whether no place can be named twice."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is None or part is ... or isinstance(part, (int, slice)) for part in parts)


def kept(shape: tuple[int, ...], axis: Any) -> tuple[int, ...]:
    """A shape with the axes that were summed over at length 1."""
    if axis is None:
        return (1,) * len(shape)
    summed = {a % len(shape) for a in (axis if isinstance(axis, tuple) else (axis,))}
    return tuple(1 if i in summed else n for i, n in enumerate(shape))
