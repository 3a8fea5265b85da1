"""The tanh form of GELU, beside torch's in double precision."""

import torch
from torch.nn import functional as F

from engram.nn.gelu import GELUTanh, gelu_tanh

Z = torch.cat([torch.linspace(-40, 40, 4001), torch.tensor([0.0, 1e-30, -1e-30, 4.83, -4.83, 1e4, -1e4])])


def test_value_and_derivative_over_the_whole_line():
    z, exact = Z.clone().requires_grad_(), Z.double().requires_grad_()
    mine, theirs = gelu_tanh(z), F.gelu(exact, approximate="tanh")
    assert mine.grad_fn.name().startswith(GELUTanh.__name__)
    torch.testing.assert_close(mine.double(), theirs, atol=4e-6, rtol=1e-6)
    (slope,) = torch.autograd.grad(mine.sum(), z)
    (exact_slope,) = torch.autograd.grad(theirs.sum(), exact)
    torch.testing.assert_close(slope.double(), exact_slope, atol=2e-5, rtol=0)


def test_a_slope_that_is_not_contiguous():
    z = torch.randn(6, 5, requires_grad=True)
    weight = torch.randn(5, 6)
    (slope,) = torch.autograd.grad((gelu_tanh(z).T * weight).sum(), z)
    (theirs,) = torch.autograd.grad((F.gelu(z, approximate="tanh").T * weight).sum(), z)
    torch.testing.assert_close(slope, theirs, atol=1e-5, rtol=1e-5)


def test_in_other_precisions_torch_does_it():
    z = torch.randn(8, dtype=torch.float64, requires_grad=True)
    assert torch.equal(gelu_tanh(z), F.gelu(z, approximate="tanh"))
    assert torch.autograd.gradcheck(gelu_tanh, z)
