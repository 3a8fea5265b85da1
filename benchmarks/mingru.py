"""minGRU forward and back: torch's GRU, minGRU-pytorch's scan of logarithms, engram's kernel, and the products alone.

The unit is steps/s: where mingru and mingru-long have the same rate, the cost grows as the length does.
"""

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from engram.bench import Contestant, Score
from engram.core.errors import EngramError
from engram.layers.gated_scan import gated_scan
from engram.layers.recurrent import MinGRU

BATCH, WIDTH, LENGTH, TIMES = 8, 256, 2048, 3
WORK = f"forward and backward of a recurrent layer, batch {BATCH}, width {WIDTH}, length {LENGTH}"
UNIT = "steps/s"


def contestants(length: int = LENGTH) -> dict[str, Contestant]:
    from minGRU_pytorch.minGRU import minGRU

    torch.manual_seed(0)
    x_BTI = torch.randn(BATCH, length, WIDTH, requires_grad=True)
    gru, logs, mine = nn.GRU(WIDTH, WIDTH, batch_first=True), minGRU(WIDTH), MinGRU(WIDTH, WIDTH)
    check(logs, x_BTI[:, :500].detach().requires_grad_())
    return {
        "torch.nn.GRU": lambda: there_and_back(lambda: gru(x_BTI)[0], (x_BTI, *gru.parameters())),
        "minGRU-pytorch": lambda: there_and_back(lambda: logs(x_BTI), (x_BTI, *logs.parameters())),
        "engram": lambda: there_and_back(lambda: mine(x_BTI)[0], (x_BTI, *mine.parameters())),
        "products alone": lambda: there_and_back(lambda: mine.U(x_BTI), (x_BTI, *mine.parameters())),
    }


def there_and_back(forward: Callable[[], Tensor], inputs: tuple[Tensor, ...]) -> Callable[[], Score]:
    first, kept_mb = keeping(forward)
    slope = torch.randn(first.shape)
    torch.autograd.grad(first, inputs, slope)

    def work() -> Score:
        began = time.perf_counter()
        for _ in range(TIMES):
            torch.autograd.grad(forward(), inputs, slope)
        rate = TIMES * slope[..., 0].numel() / (time.perf_counter() - began)
        return Score(rate, f"{kept_mb:.0f} MB kept for the way back")

    return work


def keeping(forward: Callable[[], Tensor]) -> tuple[Tensor, float]:
    """What comes out, and how much memory is held until the way back has been gone."""
    bytes_by_place: dict[int, int] = {}

    def pack(kept: Tensor) -> Tensor:
        storage = kept.untyped_storage()
        bytes_by_place[storage.data_ptr()] = storage.nbytes()
        return kept

    with saved_tensors_hooks(pack, lambda kept: kept):
        result = forward()
    return result, sum(bytes_by_place.values()) / 1e6


def check(peer: Any, x_BTI: Tensor) -> None:
    """The peer in double precision, for its logarithms are coarse in single, and the kernel from the same projections.

    The peer's proposals must be positive, and it makes them so by a function of its own.
    """
    from minGRU_pytorch.minGRU import g

    double = copy.deepcopy(peer).double()
    n_BTH, z_BTH = peer.to_hidden_and_gate(x_BTI).chunk(2, -1)
    mine = gated_scan(torch.cat([z_BTH, g(n_BTH)], -1), x_BTI.new_zeros(BATCH, WIDTH))
    theirs = double(x_BTI.double())
    slopes = [
        torch.autograd.grad(h_BTH.square().sum(), (x_BTI, *net.parameters()))
        for h_BTH, net in ((mine, peer), (theirs, double))
    ]
    for a, b in ((mine, theirs), *zip(*slopes, strict=True)):
        apart = ((a - b).abs().max() / b.abs().max()).item()
        if apart > 1e-5:
            raise EngramError(f"States and gradients are to be the same, and differ by {apart:.1e} of the largest.")
