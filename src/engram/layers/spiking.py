"""Leaky neurons that learn: spikes forward, a surrogate of their derivative backward (Neftci et al. 2019).

T time steps, B batch, N neurons, M = B N

    u_t = beta u_(t-1) + I_t - theta s_(t-1)                membrane; a spike takes the threshold off it        (1)
    s_t = 1 where u_t > theta, otherwise 0                  spikes                                              (2)
    ds/du := g(u - theta)                                   in place of the derivative, which is 0 or infinite  (3)

        fast_sigmoid   1 / (1 + k|x|)^2          arctan     k / (2 (1 + (pi k x / 2)^2))
        sigmoid        k s(kx) (1 - s(kx))       triangle   max(0, 1 - k|x|)            straight   1

    lambda_t = g(u_t - theta) dL/ds_t + dL/du_t + beta lambda_(t+1),   dL/dI_t = lambda_t                       (4)

The reset in (1) is not differentiated. With `truncate`, lambda does not pass back over every so many steps. The kernel
takes whole sequences: neurons side by side through all of time while they are in the cache, on all cores, and (4)
backward.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from numba import njit, prange
from torch import Tensor

from engram.core.errors import EngramError, unknown
from engram.core.threads import parallel_njit

Array = npt.NDArray[np.float32]
Surrogate = Literal["fast_sigmoid", "arctan", "sigmoid", "triangle", "straight"]
CODE = {name: code for code, name in enumerate(get_args(Surrogate))}
TOGETHER = 2048
"""neurons that are taken through time at once"""
f32 = np.float32


@dataclass(frozen=True, kw_only=True)
class Leaky:
    """What a spiking layer is made of."""

    beta: float = 0.95
    """part of the membrane's voltage that is left after a time step"""
    theta: float = 1.0
    """voltage above which a neuron fires"""
    surrogate: Surrogate = "arctan"
    """what stands for the derivative of a spike"""
    slope: float = 2.0
    """how steep that is (k)"""
    truncate: int = 0
    """time steps after which the gradient goes no further back; 0 means that it goes all the way"""

    def __post_init__(self) -> None:
        if not 0 <= self.beta <= 1:
            raise EngramError(f"beta is a part, from 0 to 1, not {self.beta}.")
        if not 0 < self.theta < math.inf:
            raise EngramError(f"theta must be greater than 0, not {self.theta}.")
        if self.surrogate not in CODE:
            raise unknown("surrogate", self.surrogate, list(CODE))
        if not 0 < self.slope < math.inf:
            raise EngramError(f"slope must be greater than 0, not {self.slope}.")
        if self.truncate < 0:
            raise EngramError(f"truncate must not be negative, and is {self.truncate}.")


def leaky(I: Tensor, leak: Leaky, steps: int | None = None) -> tuple[Tensor, Tensor]:  # noqa: E741
    """Spikes and membranes, T×B×N, of an input T×B×N, or of one B×N that stays the same for `steps`."""
    held = I.ndim == 2
    if held == (steps is None):
        raise EngramError("An input that stays the same needs a number of steps, and one that does not has its own.")
    if I.is_cpu and I.dtype == torch.float32 and not torch.compiler.is_compiling():
        return Scan.apply(I, leak, steps if steps is not None else len(I))
    return clear_leaky(I.expand(steps or 0, *I.shape) if held else I, leak)


def clear_leaky(I_TBN: Tensor, leak: Leaky) -> tuple[Tensor, Tensor]:
    """The same step by step, as the equations say it."""
    u_BN, s_BN = torch.zeros_like(I_TBN[0]), torch.zeros_like(I_TBN[0])
    membranes, spikes = [], []
    for t, I_BN in enumerate(I_TBN):
        if leak.truncate and t % leak.truncate == 0:
            u_BN = u_BN.detach()
        u_BN = leak.beta * u_BN + I_BN - leak.theta * s_BN.detach()  # (1)
        s_BN = Spike.apply(u_BN - leak.theta, leak)
        membranes.append(u_BN)
        spikes.append(s_BN)
    return torch.stack(spikes), torch.stack(membranes)


class Spike(torch.autograd.Function):
    """(2) with (3) for its derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, leak: Leaky) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x)
        ctx.leak = leak
        return (x > 0).to(x.dtype)  # (2)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return slope * surrogate(x, ctx.leak), None


def surrogate(x: Tensor, leak: Leaky) -> Tensor:
    """g."""
    k = leak.slope
    match leak.surrogate:  # (3)
        case "fast_sigmoid":
            return 1 / (1 + k * x.abs()) ** 2
        case "arctan":
            return k / 2 / (1 + (math.pi / 2 * k * x) ** 2)
        case "sigmoid":
            return k * torch.sigmoid(k * x) * torch.sigmoid(-k * x)
        case "triangle":
            return (1 - k * x.abs()).clamp(min=0)
        case _:
            return torch.ones_like(x)


class Scan(torch.autograd.Function):
    """All of time in one kernel, and (4) in another."""

    @staticmethod
    def forward(ctx: Any, I: Tensor, leak: Leaky, steps: int) -> tuple[Tensor, Tensor]:  # type: ignore[override] # noqa: E741
        shape = (steps, *I.shape[-2:])
        s_TBN, u_TBN = I.new_empty(shape), I.new_empty(shape)
        _forward(flat(I), flat(s_TBN), flat(u_TBN), f32(leak.beta), f32(leak.theta))
        ctx.save_for_backward(u_TBN)
        ctx.set_materialize_grads(False)
        ctx.leak, ctx.shape = leak, I.shape
        return s_TBN, u_TBN

    @staticmethod
    def backward(ctx: Any, ds_TBN: Tensor | None, du_TBN: Tensor | None) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (u_TBN,), leak = ctx.saved_tensors, ctx.leak
        dI, none = u_TBN.new_empty(ctx.shape), u_TBN.new_empty(0, *u_TBN.shape[1:])  # of what nobody used
        ds_TM, du_TM = (flat(none if slope is None else slope.contiguous()) for slope in (ds_TBN, du_TBN))
        _backward(
            flat(u_TBN), ds_TM, du_TM, flat(dI), f32(leak.beta), f32(leak.theta), CODE[leak.surrogate],
            f32(leak.slope), leak.truncate,
        )  # fmt: skip
        return dI, None, None


def flat(x: Tensor) -> Array:
    """T×M, where T is 1 for what has no time."""
    x = x.detach().contiguous()
    return x.view(len(x), x.shape[1] * x.shape[2]).numpy() if x.ndim == 3 else x.view(1, -1).numpy()


@parallel_njit(error_model="numpy", nogil=True)
def _forward(I_TM: Array, s_TM: Array, u_TM: Array, beta: Any, theta: Any) -> None:
    T, M = s_TM.shape
    for block in prange((M + TOGETHER - 1) // TOGETHER):
        here = slice(block * TOGETHER, min(M, (block + 1) * TOGETHER))
        u_L, s_L = np.zeros(TOGETHER, f32), np.zeros(TOGETHER, f32)
        for t in range(T):
            I, s, u = I_TM[t if len(I_TM) > 1 else 0, here], s_TM[t, here], u_TM[t, here]  # noqa: E741
            for i in range(len(s)):
                u_L[i] = beta * u_L[i] + I[i] - theta * s_L[i]  # (1)
                s_L[i] = f32(1) if u_L[i] > theta else f32(0)  # (2)
                u[i], s[i] = u_L[i], s_L[i]


@parallel_njit(error_model="numpy", nogil=True, fastmath=True)
def _backward(
    u_TM: Array, ds_TM: Array, du_TM: Array, dI_TM: Array, beta: Any, theta: Any, code: int, k: Any, truncate: int
) -> None:
    T, M = u_TM.shape
    held = len(dI_TM) == 1 and T > 1
    for block in prange((M + TOGETHER - 1) // TOGETHER):
        here, back_L = slice(block * TOGETHER, min(M, (block + 1) * TOGETHER)), np.zeros(TOGETHER, f32)
        if held:
            dI_TM[0, here] = 0
        for t in range(T - 1, -1, -1):
            u, dI = u_TM[t, here], dI_TM[0 if held else t, here]
            kept = f32(0) if truncate and (t + 1) % truncate == 0 else beta
            for i in range(len(u)):
                back_L[i] *= kept
            if len(du_TM):
                du = du_TM[t, here]
                for i in range(len(u)):
                    back_L[i] += du[i]
            if len(ds_TM):
                _through_spikes(back_L, u, ds_TM[t, here], theta, code, k)
            for i in range(len(u)):
                dI[i] = dI[i] + back_L[i] if held else back_L[i]


@njit(cache=True, error_model="numpy", nogil=True, fastmath=True)
def _through_spikes(back_L: Array, u: Array, ds: Array, theta: Any, code: int, k: Any) -> None:
    """The part of (4) with the surrogate (3)."""
    if code == 0:
        for i in range(len(u)):
            back_L[i] += ds[i] / (f32(1) + k * abs(u[i] - theta)) ** 2
    elif code == 1:
        for i in range(len(u)):
            x = f32(np.pi / 2) * k * (u[i] - theta)
            back_L[i] += k * f32(0.5) / (f32(1) + x * x) * ds[i]
    elif code == 2:
        for i in range(len(u)):
            s = f32(1) / (f32(1) + math.exp(-k * (u[i] - theta)))
            back_L[i] += k * s * (f32(1) - s) * ds[i]
    elif code == 3:
        for i in range(len(u)):
            back_L[i] += max(f32(1) - k * abs(u[i] - theta), f32(0)) * ds[i]
    else:
        for i in range(len(u)):
            back_L[i] += ds[i]
