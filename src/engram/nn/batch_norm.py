r"""Batch normalization over the global batch of all processes (Ioffe & Szegedy 2015).

    m = 1/N \sum x,\quad v = 1/N \sum (x - m)^2                                      batch statistics           (1)
    y = \gamma (x - m) / \sqrt{v + \epsilon} + \beta                                 normalization              (2)
    M \leftarrow (1 - a) M + a m,\quad V \leftarrow (1 - a) V + a v N / (N - 1)      running statistics         (3)
    dx = \gamma / \sqrt{v + \epsilon} (dy - 1/N \sum dy - z / N \sum z dy)           backward pass              (4)

    Symbols:
        x, y                inputs and outputs
        z                   normalized inputs, before gain and bias
        \gamma, \beta       gain and bias of a channel
        m, v                mean and variance of a channel
        M, V, a             running mean and variance, momentum
        N                   values of a channel in all processes
        B, C, H, W          batch, channels, height, width

One process uses torch. torch.nn.SyncBatchNorm does the same on GPUs only.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from engram.core.global_batch import batch_sum, is_split


class BatchNorm1d(nn.BatchNorm1d):
    """Batch normalization of B × C."""

    def forward(self, x: Tensor) -> Tensor:
        return global_batch_norm(self, x) if self.training and is_split() else super().forward(x)


class BatchNorm2d(nn.BatchNorm2d):
    """Batch normalization of B × C × H × W."""

    def forward(self, x: Tensor) -> Tensor:
        return global_batch_norm(self, x) if self.training and is_split() else super().forward(x)


def global_batch_norm(norm: nn.BatchNorm1d | nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Apply (1) to (3) with sums over all processes: kernels of torch, and one all-reduce each way."""
    y, m_C, v_C, N = GlobalBatchNorm.apply(x, norm.weight, norm.bias, norm.eps)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    norm.running_mean.lerp_(m_C, norm.momentum)
    norm.running_var.lerp_(v_C * (N / max(1, N - 1)), norm.momentum)  # (3)
    norm.num_batches_tracked += 1
    return y


class GlobalBatchNorm(torch.autograd.Function):
    """Forward pass (1), (2) and backward pass (4)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gamma_C: Tensor, beta_C: Tensor, eps: float) -> Any:  # type: ignore[override]
        n = x.numel() // x.shape[1]
        _, local_C, inverse_C = torch.native_batch_norm(x, None, None, None, None, True, 0.0, eps)
        local_C = local_C.double()
        square_C = inverse_C.double() ** -2 - eps + local_C**2
        total = batch_sum(torch.cat([n * local_C, n * square_C, local_C.new_tensor([n])]))
        N = total[-1].item()
        m_C, square_C = total[:-1].div_(N).chunk(2)
        v_C = (square_C - m_C**2).clamp_(min=0)  # in double precision, as the difference may cancel
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
        mean_C, weighted_C = batch_sum(torch.cat([dbeta_C, dgamma_C])).div_(ctx.N).chunk(2)
        inverse_C = torch.rsqrt(v_C + ctx.eps)
        along_C = gamma_C * inverse_C**2 * weighted_C
        shape = [1, -1, *[1] * (x.ndim - 2)]
        dx.sub_((gamma_C * inverse_C * mean_C - along_C * m_C).view(shape)).addcmul_(
            x, along_C.view(shape), value=-1
        )  # (4)
        return dx, dgamma_C, dbeta_C, None
