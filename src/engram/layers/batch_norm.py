"""Batch normalisation over the whole batch, in how many processes it may lie (Ioffe & Szegedy 2015).

N numbers of each channel in all processes, B batch, C channels

    m = 1/N sum x,    v = 1/N sum (x - m)^2                                   (1)
    y = gamma (x - m) / sqrt(v + eps) + beta                                  (2)
    M <- (1 - a) M + a m,   V <- (1 - a) V + a N / (N - 1) v                  what counts once it has learnt   (3)

One process alone leaves this to torch. torch.nn.SyncBatchNorm does the same on GPUs only.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from engram.core import together


class BatchNorm1d(nn.BatchNorm1d):
    """B × C."""

    def forward(self, x: Tensor) -> Tensor:
        return over_all(self, x) if self.training and together.world() > 1 else super().forward(x)


class BatchNorm2d(nn.BatchNorm2d):
    """B × C × H × W."""

    def forward(self, x: Tensor) -> Tensor:
        return over_all(self, x) if self.training and together.world() > 1 else super().forward(x)


def over_all(norm: nn.BatchNorm1d | nn.BatchNorm2d, x: Tensor) -> Tensor:
    """(1) to (3) with sums over all processes: torch's own kernels, and one message each way."""
    y, m_C, v_C, N = OverAll.apply(x, norm.weight, norm.bias, norm.eps)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    norm.running_mean.lerp_(m_C, norm.momentum)
    norm.running_var.lerp_(v_C * (N / max(1, N - 1)), norm.momentum)  # (3)
    norm.num_batches_tracked += 1
    return y


class OverAll(torch.autograd.Function):
    """(1), (2) and the way back, with z for what y is before gamma and beta.

    dx = gamma / sqrt(v + eps) (dy - 1/N sum dy - z 1/N sum dy z)
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gamma_C: Tensor, beta_C: Tensor, eps: float) -> Any:  # type: ignore[override]
        n = x.numel() // x.shape[1]
        _, own_C, inverse_C = torch.native_batch_norm(x, None, None, None, None, True, 0.0, eps)
        own_C = own_C.double()
        square_C = inverse_C.double() ** -2 - eps + own_C**2
        total = together.summed(torch.cat([n * own_C, n * square_C, own_C.new_tensor([n])]))
        N = total[-1].item()
        m_C, square_C = total[:-1].div_(N).chunk(2)
        v_C = (square_C - m_C**2).clamp_(min=0)  # in twice the digits, of which the difference may cost half
        m_C, v_C = m_C.to(x.dtype), v_C.to(x.dtype)  # (1)
        ctx.save_for_backward(x, gamma_C, m_C, v_C)
        ctx.eps, ctx.N = eps, N
        y = F.batch_norm(x, m_C, v_C, gamma_C, beta_C, False, 0.0, eps)  # (2)
        ctx.mark_non_differentiable(m_C, v_C)
        return y, m_C, v_C, N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, *others: Any) -> Any:  # type: ignore[override]
        x, gamma_C, m_C, v_C = ctx.saved_tensors
        dx, dgamma_C, dbeta_C = torch.ops.aten.native_batch_norm_backward(
            dy, x, gamma_C, m_C, v_C, None, None, False, ctx.eps, [True, True, True]
        )
        mean_C, slope_C = together.summed(torch.cat([dbeta_C, dgamma_C])).div_(ctx.N).chunk(2)
        inverse_C = torch.rsqrt(v_C + ctx.eps)
        along_C = gamma_C * inverse_C**2 * slope_C
        shape = [1, -1, *[1] * (x.ndim - 2)]
        dx.sub_((gamma_C * inverse_C * mean_C - along_C * m_C).view(shape)).addcmul_(x, along_C.view(shape), value=-1)
        return dx, dgamma_C, dbeta_C, None
