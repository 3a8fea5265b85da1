"""Every Op against central differences and against torch.autograd, once and twice."""

import inspect

import numpy as np
import pytest
import torch

from engram.foundations import autodiff as ad
from engram.foundations.autodiff import functions, var
from engram.foundations.autodiff.graph import topological_order
from engram.foundations.autodiff.var import Op, Var, gradients

random = np.random.default_rng(0)


def normal(*shape):
    return random.standard_normal(shape)


def positive(*shape):
    return random.uniform(0.5, 2.0, shape)


TARGET = np.array([1, 0, 2])
PLACES = np.array([0, 2, 2, 1])

CASES = {
    "add": (lambda a, b: a + b, [normal(3, 4), normal(3, 4)]),
    "add, spread": (lambda a, b: a + b, [normal(3, 1, 4), normal(2, 1)]),
    "add a number": (lambda a: 2 + a + 1, [normal(3)]),
    "subtract": (lambda a, b: 1 - (a - b), [normal(3, 4), normal(4)]),
    "negate": (lambda a: -a, [normal(3)]),
    "multiply": (lambda a, b: a * b, [normal(3, 4), normal(3, 4)]),
    "multiply, spread": (lambda a, b: a * b * 3, [normal(3, 1), normal(4)]),
    "multiply by itself": (lambda a: a * a * a, [normal(3)]),
    "divide": (lambda a, b: 2 / (a / b), [positive(3, 4), positive(4)]),
    "power": (lambda a: a**3 + a**-0.5, [positive(3, 4)]),
    "matrices": (lambda a, b: a @ b, [normal(3, 4), normal(4, 5)]),
    "stacks of matrices": (lambda a, b: a @ b, [normal(2, 3, 4), normal(2, 4, 5)]),
    "a stack by a matrix": (lambda a, b: a @ b, [normal(2, 3, 4), normal(4, 5)]),
    "vector by matrix": (lambda a, b: a @ b, [normal(4), normal(4, 5)]),
    "matrix by vector": (lambda a, b: a @ b, [normal(3, 4), normal(4)]),
    "vector by vector": (lambda a, b: a @ b, [normal(4), normal(4)]),
    "vector by stack": (lambda a, b: a @ b, [normal(4), normal(2, 4, 5)]),
    "stack by vector": (lambda a, b: a @ b, [normal(2, 3, 4), normal(4)]),
    "sum": (lambda a: a.sum(), [normal(3, 4)]),
    "sum over an axis": (lambda a: a.sum(1) * 2, [normal(3, 4)]),
    "sum over axes": (lambda a: a.sum((0, 2), True), [normal(3, 4, 2)]),
    "mean": (lambda a: a.mean(-1), [normal(3, 4)]),
    "reshape": (lambda a: a.reshape(2, 6) * 2, [normal(3, 4)]),
    "reshape to a tuple": (lambda a: a.reshape((2, 6)), [normal(3, 4)]),
    "transpose": (lambda a: a.T, [normal(3, 4)]),
    "permute": (lambda a: a.transpose(2, 0, 1), [normal(3, 4, 2)]),
    "swapaxes": (lambda a: a.swapaxes(-1, -2), [normal(3, 4, 2)]),
    "slice": (lambda a: a[1:, ::2], [normal(3, 4)]),
    "one row": (lambda a: a[-1], [normal(3, 4)]),
    "rows, some twice": (lambda a: a[PLACES], [normal(3, 4)]),
    "new axis": (lambda a: a[:, None] * 2, [normal(3)]),
}
FUNCTIONS = {
    "exp": (ad.exp, torch.exp, [normal(3, 4)]),
    "log": (ad.log, torch.log, [positive(3, 4)]),
    "sqrt": (ad.sqrt, torch.sqrt, [positive(3, 4)]),
    "sin": (ad.sin, torch.sin, [normal(3, 4)]),
    "cos": (ad.cos, torch.cos, [normal(3, 4)]),
    "arctan": (ad.arctan, torch.arctan, [normal(3, 4)]),
    "tanh": (ad.tanh, torch.tanh, [normal(3, 4)]),
    "logistic": (ad.logistic, torch.sigmoid, [normal(3, 4)]),
    "relu": (ad.relu, torch.relu, [normal(3, 4)]),
    "softplus": (ad.softplus, torch.nn.functional.softplus, [normal(3, 4)]),
    "absolute": (ad.absolute, torch.abs, [normal(3, 4)]),
    "softmax": (ad.softmax, lambda a: a.softmax(-1), [normal(3, 4)]),
    "softmax, first axis": (lambda a: ad.softmax(a, 0), lambda a: a.softmax(0), [normal(3, 4)]),
    "max": (ad.maximum, torch.amax, [normal(3, 4)]),
    "max over an axis": (lambda a: ad.maximum(a, 1), lambda a: a.amax(1), [normal(3, 4)]),
    "max with ties": (lambda a: ad.maximum(a, 1), lambda a: a.amax(1), [np.array([[1.0, 2, 2], [3, 3, 3]])]),
    "concatenate": (
        lambda a, b: ad.concatenate([a, b, a], -1), lambda a, b: torch.cat([a, b, a], -1), [normal(3, 4), normal(3, 2)],
    ),
    "cross-entropy": (
        lambda a: ad.cross_entropy(a, TARGET), lambda a: torch.nn.functional.cross_entropy(a, torch.tensor(TARGET)),
        [normal(3, 4)],
    ),
    "Bernoulli": (
        lambda a: ad.bernoulli_cross_entropy(a, np.eye(3)),
        lambda a: torch.nn.functional.binary_cross_entropy_with_logits(a, torch.eye(3).double(), reduction="sum") / 3,
        [normal(3, 3)],
    ),
    "squared error": (
        lambda a: ad.squared_error(a, np.eye(3)), lambda a: (a - torch.eye(3)).square().sum() / 6, [normal(3, 3)],
    ),
    **{
        f"convolution, stride {stride}, padding {padding}, {size}": (
            lambda x, k, stride=stride, padding=padding: ad.convolve(x, k, stride, padding),
            lambda x, k, stride=stride, padding=padding: torch.nn.functional.conv2d(x, k, None, stride, padding),
            [normal(2, 3, size, size + 1), normal(4, 3, 3, 2)],
        )
        for stride in (1, 2, 3) for padding in (0, 1) for size in (5, 6)
    },
}  # fmt: skip
ALL = {name: (f, f, arrays) for name, (f, arrays) in CASES.items()} | FUNCTIONS


class Torch(torch.Tensor):
    """A tensor with NumPy's names for what they name otherwise."""

    def transpose(self, *axes):
        return self.permute(*axes)


def weighted(y, seed=1):
    """A number that depends on every part of y differently."""
    w = np.random.default_rng(seed).standard_normal(tuple(y.shape))
    return (y * (torch.tensor(w) if isinstance(y, torch.Tensor) else w)).sum()


@pytest.mark.parametrize("name", ALL)
def test_values_and_gradients_are_torchs(name):
    f, theirs, arrays = ALL[name]
    ours = [Var(a) for a in arrays]
    tensors = [torch.tensor(a).as_subclass(Torch).requires_grad_() for a in arrays]
    y, expected = f(*ours), theirs(*tensors)
    np.testing.assert_allclose(y.val, expected.detach().numpy(), atol=1e-10)
    weighted(y).backward()
    weighted(expected).backward()
    for one, other in zip(ours, tensors, strict=True):
        assert one.grad.shape == one.val.shape
        np.testing.assert_allclose(one.grad, other.grad.numpy(), atol=1e-10)


@pytest.mark.parametrize("name", [name for name in ALL if name != "max with ties"])
def test_gradients_are_central_differences(name):
    f, _, arrays = ALL[name]
    ours = [Var(a.copy()) for a in arrays]
    weighted(f(*ours)).backward()
    for x in ours:
        for place in np.ndindex(x.val.shape):
            here = x.val[place]
            x.val[place] = here + 1e-6
            up = weighted(f(*ours)).val
            x.val[place] = here - 1e-6
            down = weighted(f(*ours)).val
            x.val[place] = here
            assert abs((up - down) / 2e-6 - x.grad[place]) < 1e-7


@pytest.mark.parametrize("name", [name for name in ALL if name != "max with ties"])
def test_second_derivatives_are_torchs(name):
    f, theirs, arrays = ALL[name]
    ours = [Var(a) for a in arrays]
    tensors = [torch.tensor(a).as_subclass(Torch).requires_grad_() for a in arrays]
    first = gradients(weighted(f(*ours)) ** 2, *ours)
    expected = torch.autograd.grad(weighted(theirs(*tensors)) ** 2, tensors, create_graph=True)
    total = sum((weighted(g, 2) for g in first[1:]), weighted(first[0], 2))
    total.backward()
    sum(weighted(g, 2) for g in expected).backward()
    for one, other in zip(ours, tensors, strict=True):
        np.testing.assert_allclose(one.grad, other.grad.numpy(), atol=1e-9)


def test_no_op_is_left_out():
    """Every Op of the two files is made by some case, or by the gradient of one."""
    used = set()

    def note(y):
        for one in topological_order(y):
            if one.creator is not None:
                used.add(type(one.creator))

    for f, _, arrays in ALL.values():
        xs = [Var(a) for a in arrays]
        y = weighted(f(*xs)) ** 2
        note(y)
        for g in gradients(y, *xs):
            note(g)
    ops = {
        one
        for file in (var, functions)
        for one in vars(file).values()
        if inspect.isclass(one) and issubclass(one, Op) and "forward" in vars(one)
    }
    assert used >= ops - {Op}


@pytest.mark.parametrize("f", [ad.logistic, ad.softplus, ad.tanh])
def test_large_inputs_neither_overflow_nor_lose_their_gradient(f):
    x = Var(np.array([-1e4, 1e4]))
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        y = f(x)
        y.sum().backward()
    assert np.isfinite(y.val).all()
    assert np.isfinite(x.grad).all()


def test_cross_entropy_of_large_logits_is_finite():
    x = Var(np.array([[1e4, -1e4], [1e4, -1e4]]))
    loss = ad.cross_entropy(x, [0, 1])
    loss.backward()
    assert loss.val == 1e4
    assert np.isfinite(x.grad).all()
