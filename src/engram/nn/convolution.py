r"""Convolution of images.

    y_o[m, n] = b_o + \sum_{iuv} x_i[s m + u - p, s n + v - p]\, k_{oi}[u, v]            cross-correlation       (1)
    y_o[m, n] = b_o + \sum_{iuv} x_i[s m - u + p, s n - v + p]\, k_{oi}[u, v]            convolution             (2)

    Symbols:
        x, y       input and output feature maps
        k, b       kernel and bias
        s, p       stride, zero padding
        B, I, O    batch, input channels, output channels
        H, W, K    height, width, kernel size

(2) is (1) with the kernel rotated by 180 degrees. A network learns either equally well, so deep-learning libraries
compute (1) and call it convolution.
"""

from torch import Tensor, nn
from torch.nn import functional as F


class Convolution(nn.Conv2d):
    """Convolutional layer.

    `flip_kernel` computes the true convolution (2) instead of cross-correlation (1).
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, flip_kernel: bool = False) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.flip_kernel = flip_kernel

    def forward(self, x_BIHW: Tensor) -> Tensor:
        kernel_OIKK = self.weight.flip(-1, -2) if self.flip_kernel else self.weight
        return F.conv2d(x_BIHW, kernel_OIKK, self.bias, self.stride, self.padding)  # (1), (2)
