r"""Fast GELU in its tanh form (Hendrycks & Gimpel 2016): one pass over memory in each direction.

    g(z) = z (1 + t) / 2,\quad t = \tanh(a z + b z^3)                         GELU, tanh form           (1)
    g'(z) = (1 + t + z (1 - t^2) (a + 3 b z^2)) / 2                           derivative                (2)
    \tanh u = u P(u^2) / Q(u^2)                                               rational approximation    (3)

    Symbols:
        z       input
        a, b    \sqrt{2 / \pi} and 0.044715 a
        P, Q    polynomials

(3) is Eigen's, exact to a few units in the last place, and used for |z| < 4.83; beyond, t is 1 to six digits. torch
calls tanh of a library number by number; the rational function is computed for eight numbers at once. It runs on one
core: waking a second pool of threads beside torch's costs more than it saves. It is used in training, on a CPU.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

Array = npt.NDArray[Any]
f32 = np.float32
A, B = f32((2 / np.pi) ** 0.5), f32(0.044715 * (2 / np.pi) ** 0.5)
LIMIT = f32(4.83)
"""beyond, tanh is 1"""
P = tuple(map(f32, (4.89352455891786e-03, 6.37261928875436e-04, 1.48572235717979e-05, 5.12229709037114e-08,
                    -8.60467152213735e-11, 2.00018790482477e-13, -2.76076847742355e-16)))  # fmt: skip
Q = tuple(map(f32, (4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06)))


class GELUTanh(torch.autograd.Function):
    """GELU (1) with its derivative (2), recomputed from z."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(z)
        y = torch.empty_like(z)
        _gelu(flat(z), flat(y))
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> Tensor:  # type: ignore[override]
        (z,) = ctx.saved_tensors
        grad_z = torch.empty_like(z)
        _derivative(flat(z), flat(grad_y.contiguous()), flat(grad_z))
        return grad_z


def gelu_tanh(z: Tensor) -> Tensor:
    """GELU in its tanh form."""
    fast = z.requires_grad and z.is_cpu and z.dtype == torch.float32 and z.is_contiguous()
    return GELUTanh.apply(z) if fast and not torch.compiler.is_compiling() else F.gelu(z, approximate="tanh")


def flat(x: Tensor) -> Array:
    return x.detach().view(-1).numpy()


@numba.njit(cache=True, fastmath=True, error_model="numpy", inline="always")
def _tanh(u: Any) -> Any:
    s = u * u
    p = ((((((P[6] * s + P[5]) * s + P[4]) * s + P[3]) * s + P[2]) * s + P[1]) * s + P[0]) * u
    return p / (((Q[3] * s + Q[2]) * s + Q[1]) * s + Q[0])  # (3)


@numba.njit(cache=True, fastmath=True, error_model="numpy")
def _gelu(z_N: Array, y_N: Array) -> None:
    for n in range(len(z_N)):
        z = min(max(z_N[n], -LIMIT), LIMIT)
        beyond = max(z_N[n] - LIMIT, f32(0))
        y_N[n] = f32(0.5) * z * (f32(1) + _tanh(z * (A + B * z * z))) + beyond  # (1)


@numba.njit(cache=True, fastmath=True, error_model="numpy")
def _derivative(z_N: Array, grad_y_N: Array, grad_z_N: Array) -> None:
    for n in range(len(z_N)):
        z = min(max(z_N[n], -LIMIT), LIMIT)
        t = _tanh(z * (A + B * z * z))
        grad_z_N[n] = grad_y_N[n] * f32(0.5) * (f32(1) + t + z * (f32(1) - t * t) * (A + f32(3) * B * z * z))  # (2)
