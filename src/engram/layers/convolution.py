"""Convolution of pictures (note 003 §14).   B batch, I inputs, O outputs, H × W picture, K kernel size

    cross-correlation  y_o[m, n] = b_o + sum_iuv x_i[s m + u - p, s n + v - p] k_oi[u, v]       (1)
    convolution        y_o[m, n] = b_o + sum_iuv x_i[s m - u + ..., s n - v + ...] k_oi[u, v]   (2)

with stride s and zero padding p. (2) is (1) with the kernel turned by 180 degrees; a net learns either equally well,
so deep-learning libraries compute (1) and call it convolution.
"""

from torch import Tensor, nn
from torch.nn import functional as F


class Convolution(nn.Conv2d):
    """A layer of kernels. `turned` computes the true convolution (2) instead of the cross-correlation (1)."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, turned: bool = False) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.turned = turned

    def forward(self, x_BIHW: Tensor) -> Tensor:
        kernel_OIKK = self.weight.flip(-1, -2) if self.turned else self.weight
        return F.conv2d(x_BIHW, kernel_OIKK, self.bias, self.stride, self.padding)  # (1), (2)
