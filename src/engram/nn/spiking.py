r"""Layers of leaky integrate-and-fire neurons, trained with surrogate gradients (Neftci et al. 2019).

    u_t = \beta u_{t-1} + I_t - \theta s_{t-1}                                   membrane; a spike subtracts \theta  (1)
    s_t = [u_t > \theta]                                                         spikes                              (2)
    ds/du := g(u - \theta)                                                       surrogate gradient                  (3)
    \lambda_t = g(u_t - \theta) dL/ds_t + dL/du_t + \beta \lambda_{t+1} = dL/dI_t      backward pass                 (4)
    g(x) = 1 / (1 + k |x|)^2                                                     fast_sigmoid                        (5)
    g(x) = k / (2 (1 + (\pi k x / 2)^2))                                         arctan                              (6)
    g(x) = k \sigma(k x) (1 - \sigma(k x))                                       sigmoid                             (7)
    g(x) = \max(0, 1 - k |x|)                                                    triangle                            (8)
    g(x) = 1                                                                     straight-through                    (9)

    Symbols:
        u, s, I      membrane potential, spikes, input current
        \beta        decay of the membrane per time step
        \theta       threshold
        k            slope of the surrogate gradient
        \lambda      gradient of the loss with respect to the membrane
        T, B, N      time steps, batch, neurons
        M            B N

The reset in (1) is not differentiated. With `truncate`, \lambda does not pass back over every so many steps. The kernel
takes blocks of neurons through all time steps while they are in the cache, on all cores, and back by (4).
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from annotated_types import Ge, Gt, Le, Lt
from numba import njit, prange
from torch import Tensor

from engram.core.config import Settings
from engram.core.errors import EngramError, unknown
from engram.core.threads import parallel_njit

Array = npt.NDArray[np.float32]
Surrogate = Literal["fast_sigmoid", "arctan", "sigmoid", "triangle", "straight"]
CODE = {name: code for code, name in enumerate(get_args(Surrogate))}
BLOCK = 2048
"""neurons of one block of the kernel"""
f32 = np.float32


@dataclass(frozen=True, kw_only=True)
class Leaky(Settings):
    """Settings of a layer of leaky integrate-and-fire neurons."""

    beta: Annotated[float, Ge(0), Le(1)] = 0.95
    """decay of the membrane potential per time step"""
    theta: Annotated[float, Gt(0), Lt(math.inf)] = 1.0
    """threshold of the membrane potential, above which a neuron spikes"""
    surrogate: Surrogate = "arctan"
    """surrogate gradient of a spike"""
    surrogate_slope: Annotated[float, Gt(0), Lt(math.inf)] = 2.0
    """slope of the surrogate gradient (k)"""
    truncate: Annotated[int, Ge(0)] = 0
    """truncated BPTT: time steps after which the gradient is cut; 0 disables"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.surrogate not in CODE:
            raise unknown("surrogate", self.surrogate, list(CODE))


def leaky(I: Tensor, config: Leaky, steps: int | None = None) -> tuple[Tensor, Tensor]:  # noqa: E741
    """Spikes and membranes, T × B × N, for a current T × B × N, or for a constant one B × N over `steps`."""
    constant = I.ndim == 2
    if constant == (steps is None):
        raise EngramError("A constant current needs a number of steps, and one of T × B × N has its own.")
    if I.is_cpu and I.dtype == torch.float32 and not torch.compiler.is_compiling():
        return Scan.apply(I, config, steps if steps is not None else len(I))
    return reference_leaky(I.expand(steps or 0, *I.shape) if constant else I, config)


def reference_leaky(I_TBN: Tensor, config: Leaky) -> tuple[Tensor, Tensor]:
    """Spikes and membranes step by step, by operations of torch."""
    u_BN, s_BN = torch.zeros_like(I_TBN[0]), torch.zeros_like(I_TBN[0])
    membranes, spikes = [], []
    for t, I_BN in enumerate(I_TBN):
        if config.truncate and t % config.truncate == 0:
            u_BN = u_BN.detach()
        u_BN = config.beta * u_BN + I_BN - config.theta * s_BN.detach()  # (1)
        s_BN = Spike.apply(u_BN - config.theta, config)
        membranes.append(u_BN)
        spikes.append(s_BN)
    return torch.stack(spikes), torch.stack(membranes)


class Spike(torch.autograd.Function):
    """Spike (2) with the surrogate gradient (3)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, config: Leaky) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x)
        ctx.config = config
        return (x > 0).to(x.dtype)  # (2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return grad * surrogate(x, ctx.config), None  # (3)


def surrogate(x: Tensor, config: Leaky) -> Tensor:
    """Surrogate gradient g at a distance x from the threshold."""
    k = config.surrogate_slope
    match config.surrogate:
        case "fast_sigmoid":
            return 1 / (1 + k * x.abs()) ** 2  # (5)
        case "arctan":
            return k / 2 / (1 + (math.pi / 2 * k * x) ** 2)  # (6)
        case "sigmoid":
            return k * torch.sigmoid(k * x) * torch.sigmoid(-k * x)  # (7)
        case "triangle":
            return (1 - k * x.abs()).clamp(min=0)  # (8)
        case _:
            return torch.ones_like(x)  # (9)


class Scan(torch.autograd.Function):
    """Kernels of (1), (2) over all time steps, and of (4)."""

    @staticmethod
    def forward(ctx: Any, I: Tensor, config: Leaky, steps: int) -> tuple[Tensor, Tensor]:  # type: ignore[override] # noqa: E741
        shape = (steps, *I.shape[-2:])
        s_TBN, u_TBN = I.new_empty(shape), I.new_empty(shape)
        _forward(flat(I), flat(s_TBN), flat(u_TBN), f32(config.beta), f32(config.theta))
        ctx.save_for_backward(u_TBN)
        ctx.set_materialize_grads(False)
        ctx.config, ctx.shape = config, I.shape
        return s_TBN, u_TBN

    @staticmethod
    def backward(ctx: Any, ds_TBN: Tensor | None, du_TBN: Tensor | None) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (u_TBN,), config = ctx.saved_tensors, ctx.config
        dI, empty = u_TBN.new_empty(ctx.shape), u_TBN.new_empty(0, *u_TBN.shape[1:])  # for an output that was not used
        ds_TM, du_TM = (flat(empty if grad is None else grad.contiguous()) for grad in (ds_TBN, du_TBN))
        _backward(
            flat(u_TBN), ds_TM, du_TM, flat(dI), f32(config.beta), f32(config.theta), CODE[config.surrogate],
            f32(config.surrogate_slope), config.truncate,
        )  # fmt: skip
        return dI, None, None


def flat(x: Tensor) -> Array:
    """Array T × M; T is 1 for a constant current."""
    x = x.detach().contiguous()
    return x.view(len(x), x.shape[1] * x.shape[2]).numpy() if x.ndim == 3 else x.view(1, -1).numpy()


@parallel_njit(error_model="numpy", nogil=True)
def _forward(I_TM: Array, s_TM: Array, u_TM: Array, beta: Any, theta: Any) -> None:
    T, M = s_TM.shape
    for n in prange((M + BLOCK - 1) // BLOCK):
        neurons = slice(n * BLOCK, min(M, (n + 1) * BLOCK))
        u_L, s_L = np.zeros(BLOCK, f32), np.zeros(BLOCK, f32)
        for t in range(T):
            I, s, u = I_TM[t if len(I_TM) > 1 else 0, neurons], s_TM[t, neurons], u_TM[t, neurons]  # noqa: E741
            for i in range(len(s)):
                u_L[i] = beta * u_L[i] + I[i] - theta * s_L[i]  # (1)
                s_L[i] = f32(1) if u_L[i] > theta else f32(0)  # (2)
                u[i], s[i] = u_L[i], s_L[i]


@parallel_njit(error_model="numpy", nogil=True, fastmath=True)
def _backward(
    u_TM: Array, ds_TM: Array, du_TM: Array, dI_TM: Array, beta: Any, theta: Any, code: int, k: Any, truncate: int
) -> None:
    T, M = u_TM.shape
    constant = len(dI_TM) == 1 and T > 1
    for n in prange((M + BLOCK - 1) // BLOCK):
        neurons, lambda_L = slice(n * BLOCK, min(M, (n + 1) * BLOCK)), np.zeros(BLOCK, f32)
        if constant:
            dI_TM[0, neurons] = 0
        for t in range(T - 1, -1, -1):
            u, dI = u_TM[t, neurons], dI_TM[0 if constant else t, neurons]
            decay = f32(0) if truncate and (t + 1) % truncate == 0 else beta
            for i in range(len(u)):
                lambda_L[i] *= decay
            if len(du_TM):
                du = du_TM[t, neurons]
                for i in range(len(u)):
                    lambda_L[i] += du[i]
            if len(ds_TM):
                _add_surrogate(lambda_L, u, ds_TM[t, neurons], theta, code, k)
            for i in range(len(u)):
                dI[i] = dI[i] + lambda_L[i] if constant else lambda_L[i]  # (4)


@njit(cache=True, error_model="numpy", nogil=True, fastmath=True)
def _add_surrogate(lambda_L: Array, u: Array, ds: Array, theta: Any, code: int, k: Any) -> None:
    """Add the part of (4) with the surrogate gradient."""
    if code == 0:
        for i in range(len(u)):
            lambda_L[i] += ds[i] / (f32(1) + k * abs(u[i] - theta)) ** 2
    elif code == 1:
        for i in range(len(u)):
            x = f32(np.pi / 2) * k * (u[i] - theta)
            lambda_L[i] += k * f32(0.5) / (f32(1) + x * x) * ds[i]
    elif code == 2:
        for i in range(len(u)):
            s = f32(1) / (f32(1) + math.exp(-k * (u[i] - theta)))
            lambda_L[i] += k * s * (f32(1) - s) * ds[i]
    elif code == 3:
        for i in range(len(u)):
            lambda_L[i] += max(f32(1) - k * abs(u[i] - theta), f32(0)) * ds[i]
    else:
        for i in range(len(u)):
            lambda_L[i] += ds[i]
