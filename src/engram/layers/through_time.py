"""Back-propagation through time (note 003 §17; Werbos 1990).   B batch, T time, I inputs, H hidden

    E = sum_t alpha_t L(y_t, target_t)                          every step may count as much as one likes           (1)
    dE/dh_t = alpha_t dL_t/dh_t + dE/dh_(t+1) dh_(t+1)/dh_t     what a state did then, and what it did later        (2)
    dh_T/dx_t = dh_T/dh_(T-1) ... dh_(t+1)/dh_t dh_t/dx_t       a product of T - t factors: it fades or explodes    (3)

Truncation leaves out the second term of (2) after every k steps: what is kept for the way back is then k steps long,
and nothing is learnt of what lies further apart.
"""

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.layers.recurrent import Cell, State


def unroll(cell: Cell, x_BTI: Tensor, state: State | None = None, every: int = 0) -> tuple[Tensor, State]:
    """All outputs and the last state; no gradient passes from one piece of `every` steps to that before it.

    With 0 it goes all the way, to the state that was given.
    """
    if every < 0:
        raise EngramError(f"every must not be negative, and is {every}.")
    state, outputs = cell.initial(len(x_BTI)) if state is None else state, []
    for n, x_BtI in enumerate(x_BTI.split(every or max(x_BTI.shape[1], 1), 1)):
        y_BtH, state = cell(x_BtI, tuple(part.detach() for part in state) if n else state)
        outputs.append(y_BtH)
    return torch.cat(outputs, 1), state


def over_time(loss_BT: Tensor, alpha_T: Tensor | None = None) -> Tensor:
    """E, the mean over the batch; without weights, all steps count the same and 1 in all."""
    return loss_BT.mean() if alpha_T is None else (loss_BT @ alpha_T).mean()  # (1)


def gradient_by_distance(cell: Cell, x_BTI: Tensor) -> Tensor:
    """How much the last state depends on the input of d = T - t steps before: the norm of (3) for d = 0, 1, ... T - 1.

    The norm is that of all H × I derivatives, each of which is computed; its square is averaged over the batch.
    """
    with torch.enable_grad():
        x_BTI = x_BTI.detach().requires_grad_()
        h_BH = cell(x_BTI)[0][:, -1]
        square_T = x_BTI.new_zeros(x_BTI.shape[1])
        for h_B in h_BH.unbind(1):
            (dh_BTI,) = torch.autograd.grad(h_B.sum(), x_BTI, retain_graph=True)
            square_T += dh_BTI.square().sum(2).mean(0)
    return square_T.sqrt().flip(0)
