r"""Functions of Vars beyond arithmetic.

    \sigma(a) = 1 / (1 + e^{-a}), \quad \text{softplus}(a) = \log(1 + e^a)         computed without overflow         (1)
    y_i = e^{a_i} / \sum_j e^{a_j}, \quad s \to y (s - \sum_j s_j y_j)           softmax and its gradient          (2)
    E = -\frac{1}{B} \sum_b \log y_{b t_b}, \quad s \to s (y - 1_t) / B         cross-entropy and its gradient    (3)
    z_{n,h,w} = \sum_{c,i,j} x_{c,h+i,w+j} k_{n,c,i,j}                             convolution                       (4)

    Symbols:
        s             gradient of the output
        t, 1_t        target class, its one-hot vector
        B             batch
        C, N          channels of the input and of the output
        H, W, K, L    height and width of the image and of the kernel

(4) is linear in x and in k. Its two gradients are linear too, and each of the three is the gradient of the other two.
"""

from typing import Any

import numpy as np

from engram.foundations.autodiff.graph import keepdims_shape
from engram.foundations.autodiff.var import Array, Op, Var, apply

# ---------------------------------------------------------------------- elementwise


class Exp(Op):
    __slots__ = ()
    symbol = "exp"

    def forward(self, a: Any) -> Any:
        return np.exp(a)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s * y


class Log(Op):
    __slots__ = ()
    symbol = "log"

    def forward(self, a: Any) -> Any:
        return np.log(a)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s / a


class Sin(Op):
    __slots__ = ()
    symbol = "sin"

    def forward(self, a: Any) -> Any:
        return np.sin(a)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s * apply(Cos(), a)


class Cos(Op):
    __slots__ = ()
    symbol = "cos"

    def forward(self, a: Any) -> Any:
        return np.cos(a)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return -s * apply(Sin(), a)


class Arctan(Op):
    __slots__ = ()
    symbol = "arctan"

    def forward(self, a: Any) -> Any:
        return np.arctan(a)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s / (1 + a * a)


class Tanh(Op):
    __slots__ = ()
    symbol = "tanh"

    def forward(self, a: Any) -> Any:
        return np.tanh(a)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s * (1 - y * y)


class Logistic(Op):
    __slots__ = ()
    symbol = "σ"

    def forward(self, a: Any) -> Any:
        return 0.5 + 0.5 * np.tanh(0.5 * a)  # (1)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s * (y * (1 - y))


class Relu(Op):
    __slots__ = ()
    symbol = "relu"

    def forward(self, a: Any) -> Any:
        return np.maximum(a, 0)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s * (a > 0)


class Softplus(Op):
    __slots__ = ()
    symbol = "softplus"

    def forward(self, a: Any) -> Any:
        return np.logaddexp(0, a)  # (1)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s * apply(Logistic(), a)


class Abs(Op):
    __slots__ = ()
    symbol = "| |"

    def forward(self, a: Any) -> Any:
        return np.abs(a)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        return s * np.sign(value(a))


# ---------------------------------------------------------------------- along axes


class Max(Op):
    """Maximum along axes; ties share the gradient."""

    __slots__ = ("axis", "keepdims")
    symbol = "max"

    def __init__(self, axis: Any = None, keepdims: bool = False) -> None:
        super().__init__()
        self.axis, self.keepdims = axis, keepdims

    def forward(self, a: Any) -> Any:
        return np.max(a, self.axis, keepdims=self.keepdims)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        shape = keepdims_shape(a.shape, self.axis)
        largest = value(a) == value(y).reshape(shape)
        return s.reshape(shape) * (largest / largest.sum(self.axis, keepdims=True)).astype(value(a).dtype)


class Softmax(Op):
    __slots__ = ("axis",)
    symbol = "softmax"

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, a: Any) -> Any:
        e = np.exp(a - a.max(self.axis, keepdims=True))
        return e / e.sum(self.axis, keepdims=True)  # (2)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        sy = s * y
        return sy - y * sy.sum(self.axis, keepdims=True)  # (2)


class CrossEntropy(Op):
    """Mean cross-entropy of logits, N × classes, and target classes."""

    __slots__ = ("target",)
    symbol = "cross-entropy"

    def __init__(self, target: Array) -> None:
        super().__init__()
        self.target = target

    def forward(self, a: Any) -> Any:
        a = a - a.max(1, keepdims=True)
        chosen = a[np.arange(len(a)), self.target]
        return np.log(np.exp(a).sum(1)).mean() - chosen.mean()  # (3)

    def partial(self, i: int, s: Any, y: Any, a: Any) -> Any:
        p = apply(Softmax(), a)
        if p.__class__ is Var:
            one_hot = np.zeros(a.shape, a.val.dtype)
            one_hot[np.arange(len(one_hot)), self.target] = 1
            return (p - one_hot) * (s / len(one_hot))
        p[np.arange(len(p)), self.target] -= 1
        p *= s / len(p)
        return p  # (3)


class Concatenate(Op):
    __slots__ = ("axis",)
    symbol = "concatenate"

    def __init__(self, axis: int = 0) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, *parts: Any) -> Any:
        return np.concatenate(parts, self.axis)

    def partial(self, i: int, s: Any, y: Any, *parts: Any) -> Any:
        begin = sum(part.shape[self.axis] for part in parts[:i])
        where = (slice(None),) * (self.axis % len(s.shape))
        return s[(*where, slice(begin, begin + parts[i].shape[self.axis]))]


# ---------------------------------------------------------------------- convolution


class _Convolution(Op):
    __slots__ = ("padding", "stride")

    def __init__(self, stride: int = 1, padding: int = 0) -> None:
        super().__init__()
        self.stride, self.padding = stride, padding

    def windows(self, x_BCHW: Any, K: int, L: int) -> Array:
        """Return the windows of all outputs, B × C × height × width × K × L, as a view."""
        p = self.padding
        padded = np.pad(x_BCHW, ((0, 0), (0, 0), (p, p), (p, p))) if p else x_BCHW
        windows = np.lib.stride_tricks.sliding_window_view(padded, (K, L), (2, 3))
        return windows[:, :, :: self.stride, :: self.stride]


class Convolve(_Convolution):
    """Convolution (4) of x, B × C × H × W, with k, N × C × K × L."""

    __slots__ = ()
    symbol = "∗"

    def forward(self, x: Any, k: Any) -> Any:
        N, C, K, L = k.shape
        windows = self.windows(x, K, L)
        B, _, height, width, _, _ = windows.shape
        rows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(B * height * width, C * K * L)
        return (rows @ k.reshape(N, -1).T).reshape(B, height, width, N).transpose(0, 3, 1, 2)  # (4)

    def partial(self, i: int, s: Any, y: Any, x: Any, k: Any) -> Any:
        if i == 0:
            return apply(ConvolveInputGrad(x.shape, self.stride, self.padding), s, k)
        return apply(ConvolveKernelGrad(k.shape, self.stride, self.padding), x, s)


class ConvolveInputGrad(_Convolution):
    """Gradient of a convolution with respect to x: the transposed convolution of s with k."""

    __slots__ = ("shape",)
    symbol = "∗ᵀ"

    def __init__(self, shape: tuple[int, ...], stride: int, padding: int) -> None:
        super().__init__(stride, padding)
        self.shape = shape

    def forward(self, s: Any, k: Any) -> Any:
        N, C, K, L = k.shape
        B, _, height, width = s.shape
        parts = (s.transpose(0, 2, 3, 1).reshape(-1, N) @ k.reshape(N, -1)).reshape(B, height, width, C, K, L)
        H, W, p, stride = *self.shape[2:], self.padding, self.stride
        x = np.zeros((B, C, H + 2 * p, W + 2 * p), parts.dtype)
        for i in range(K):
            for j in range(L):
                window = x[:, :, i : i + stride * height : stride, j : j + stride * width : stride]
                window += parts[..., i, j].transpose(0, 3, 1, 2)
        return x[:, :, p : p + H, p : p + W]

    def partial(self, i: int, s: Any, y: Any, a: Any, k: Any) -> Any:
        if i == 0:
            return apply(Convolve(self.stride, self.padding), s, k)
        return apply(ConvolveKernelGrad(k.shape, self.stride, self.padding), s, a)


class ConvolveKernelGrad(_Convolution):
    """Gradient of a convolution with respect to k."""

    __slots__ = ("shape",)
    symbol = "∗ₖ"

    def __init__(self, shape: tuple[int, ...], stride: int, padding: int) -> None:
        super().__init__(stride, padding)
        self.shape = shape

    def forward(self, x: Any, s: Any) -> Any:
        N, C, K, L = self.shape
        windows = self.windows(x, K, L)[:, :, : s.shape[2], : s.shape[3]]
        rows = windows.transpose(1, 4, 5, 0, 2, 3).reshape(C * K * L, -1)
        return (s.transpose(1, 0, 2, 3).reshape(N, -1) @ rows.T).reshape(self.shape)

    def partial(self, i: int, s: Any, y: Any, x: Any, a: Any) -> Any:
        if i == 0:
            return apply(ConvolveInputGrad(x.shape, self.stride, self.padding), a, s)
        return apply(Convolve(self.stride, self.padding), x, s)


# ---------------------------------------------------------------------- functions


def exp(a: Any) -> Var:
    return Exp()(a)


def log(a: Any) -> Var:
    return Log()(a)


def sqrt(a: Any) -> Var:
    return a**0.5


def sin(a: Any) -> Var:
    return Sin()(a)


def cos(a: Any) -> Var:
    return Cos()(a)


def arctan(a: Any) -> Var:
    return Arctan()(a)


def tanh(a: Any) -> Var:
    return Tanh()(a)


def logistic(a: Any) -> Var:
    return Logistic()(a)


def relu(a: Any) -> Var:
    return Relu()(a)


def softplus(a: Any) -> Var:
    return Softplus()(a)


def absolute(a: Any) -> Var:
    return Abs()(a)


def maximum(a: Any, axis: Any = None, keepdims: bool = False) -> Var:
    return Max(axis, keepdims)(a)


def softmax(a: Any, axis: int = -1) -> Var:
    return Softmax(axis)(a)


def concatenate(parts: Any, axis: int = 0) -> Var:
    return Concatenate(axis)(*parts)


def convolve(x: Any, k: Any, stride: int = 1, padding: int = 0) -> Var:
    return Convolve(stride, padding)(x, k)


def cross_entropy(logits: Any, target: Any) -> Var:
    """Return the mean cross-entropy over the rows of logits."""
    return CrossEntropy(np.asarray(target))(logits)


def bernoulli_cross_entropy(logits: Any, target: Any) -> Var:
    """Return -t log y - (1 - t) log(1 - y), y = logistic(logits), summed, as a mean over the first axis."""
    return (softplus(logits) - logits * target).sum() / len(logits)


def squared_error(y: Any, target: Any) -> Var:
    """Return 1/2 |y - t|^2 as a mean over the first axis."""
    return ((y - target) ** 2).sum() / (2 * len(y))


def value(a: Any) -> Any:
    return a.val if a.__class__ is Var else a
