"""minGRU, forward and backward: torch's GRU, minGRU-pytorch's log-space scan, engram's kernel, the input projection.

The unit is steps/s: where mingru and mingru-long have the same rate, the cost grows as the length does.
"""

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from engram.cli.bench import Contestant, Score
from engram.core.errors import EngramError
from engram.nn.gated_scan import gated_scan
from engram.sequences.mingru.model import MinGRU

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
        "torch.nn.GRU": lambda: forward_and_backward(lambda: gru(x_BTI)[0], (x_BTI, *gru.parameters())),
        "minGRU-pytorch": lambda: forward_and_backward(lambda: logs(x_BTI), (x_BTI, *logs.parameters())),
        "engram": lambda: forward_and_backward(lambda: mine(x_BTI)[0], (x_BTI, *mine.parameters())),
        "input projection only (lower bound)": lambda: forward_and_backward(
            lambda: mine.U(x_BTI), (x_BTI, *mine.parameters())
        ),
    }


def forward_and_backward(forward: Callable[[], Tensor], inputs: tuple[Tensor, ...]) -> Callable[[], Score]:
    first, kept_mb = keeping(forward)
    slope = torch.randn(first.shape)
    torch.autograd.grad(first, inputs, slope)

    def work() -> Score:
        began = time.perf_counter()
        for _ in range(TIMES):
            torch.autograd.grad(forward(), inputs, slope)
        rate = TIMES * slope[..., 0].numel() / (time.perf_counter() - began)
        return Score(rate, f"{kept_mb:.0f} MB saved for backward")

    return work


def keeping(forward: Callable[[], Tensor]) -> tuple[Tensor, float]:
    """Return the output and the memory saved for the backward pass."""
    bytes_by_place: dict[int, int] = {}

    def pack(kept: Tensor) -> Tensor:
        storage = kept.untyped_storage()
        bytes_by_place[storage.data_ptr()] = storage.nbytes()
        return kept

    with saved_tensors_hooks(pack, lambda kept: kept):
        result = forward()
    return result, sum(bytes_by_place.values()) / 1e6


def check(peer: Any, x_BTI: Tensor) -> None:
    """Check the kernel against minGRU-pytorch in double precision (its log-space scan is inaccurate in float32).

    Both start from the same projections; g makes the candidate states positive, as minGRU-pytorch requires.
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
