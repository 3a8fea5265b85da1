r"""Backpropagation through time (BPTT), and truncated BPTT (Werbos 1990; Williams & Peng 1990).

    E = \sum_t \alpha_t L(\hat{y}_t, y_t)                                                   loss            (1)
    dE/dh_t = \alpha_t dL_t/dh_t + dE/dh_{t+1} dh_{t+1}/dh_t                                BPTT            (2)
    dh_T/dx_t = dh_T/dh_{T-1} \cdots dh_{t+1}/dh_t dh_t/dx_t                                Jacobian        (3)

    Symbols:
        \alpha_t      weight of step t in the loss
        \hat{y}_t, y_t  output and target at time t
        h_t, x_t      hidden state and input at time t
        B, T, I, H    batch, time steps, inputs, hidden units

(3) is a product of T - t factors: it vanishes or explodes. Truncated BPTT drops the second term of (2) after every k
steps: memory is bounded by k steps, and dependencies over more steps are not learned.
"""

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.sequences.cell import Cell, State


def unroll(cell: Cell, x_BTI: Tensor, state: State | None = None, bptt: int = 0) -> tuple[Tensor, State]:
    """Run a cell over a sequence by truncated BPTT; return all outputs and the last state.

    The state is detached after every `bptt` steps; 0 backpropagates through the whole sequence.
    """
    if bptt < 0:
        raise EngramError(f"bptt must be at least 0, not {bptt}.")
    if not bptt:
        return cell(x_BTI, state)  # type: ignore[no-any-return]
    state, outputs = cell.initial_state(len(x_BTI)) if state is None else state, []
    for n, x_BtI in enumerate(x_BTI.split(bptt, 1)):
        h_BtH, state = cell(x_BtI, tuple(part.detach() for part in state) if n else state)  # (2)
        outputs.append(h_BtH)
    return torch.cat(outputs, 1), state


def weighted_loss(loss_BT: Tensor, alpha_T: Tensor | None = None) -> Tensor:
    """Return the loss (1), averaged over the batch; without weights, the mean over time."""
    return loss_BT.mean() if alpha_T is None else (loss_BT @ alpha_T).mean()  # (1)


def gradient_by_distance(cell: Cell, x_BTI: Tensor) -> Tensor:
    """Return the Frobenius norm of the Jacobian (3) of the last state for d = T - t = 0 … T - 1.

    The squared norm is averaged over the batch.
    """
    with torch.enable_grad():
        x_BTI = x_BTI.detach().requires_grad_()
        h_BH = cell(x_BTI)[0][:, -1]
        square_T = x_BTI.new_zeros(x_BTI.shape[1])
        for h_B in h_BH.unbind(1):
            (dh_BTI,) = torch.autograd.grad(h_B.sum(), x_BTI, retain_graph=True)  # (3)
            square_T += dh_BTI.square().sum(2).mean(0)
    return square_T.sqrt().flip(0)
