import numpy as np
import pytest
import torch
from scipy import signal

from engram.nn.convolution import Convolution


@pytest.mark.parametrize("flip_kernel", [False, True])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_equals_scipy(flip_kernel, kernel, stride):
    torch.manual_seed(0)
    layer = Convolution(2, 3, kernel, stride=stride, flip_kernel=flip_kernel).double()
    x = torch.randn(4, 2, 9, 8, dtype=torch.float64)
    operation = signal.convolve2d if flip_kernel else signal.correlate2d
    weight = layer.weight.detach().numpy()
    expected = np.stack(
        [
            [sum(operation(x[b, i], weight[o, i], mode="same") for i in range(2))[::stride, ::stride] for o in range(3)]
            for b in range(4)
        ]
    )
    np.testing.assert_allclose(layer(x).detach().numpy(), expected, atol=1e-12)
