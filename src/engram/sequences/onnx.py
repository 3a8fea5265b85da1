"""ONNX signature of recurrent networks.

Ids (B × T) or x (B × T × I) → outputs of each step (B × T × V).

A cell becomes one ONNX Scan of its time step, whose subgraph are the equations of the cell, for any length.
"""

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from engram.hub.onnx import Input, Signature, ids_input, onnx_signature
from engram.sequences.cell import Cell, State
from engram.sequences.network import RecurrentBlock, RecurrentNetwork


@onnx_signature(RecurrentNetwork)
def signature(model: RecurrentNetwork) -> Signature:
    config = model.config
    if config.vocabulary:
        outputs = {"logits": "logits of the token after each step, batch × length × vocabulary"}
        return Signature({"ids": ids_input(config.vocabulary, 4)}, outputs, scan_cells)
    description = (
        f"sequences, float32, batch × length × {config.inputs}: the rows of an image, with pixels from 0 to 1, or "
        "series standardized by mean and standard deviation of the training split"
    )
    x = Input(torch.zeros(2, 4, config.inputs), {0: "batch", 1: "length"}, description)
    outputs = {"output": f"logits of the classes, or predicted values, at each step, batch × length × {config.outputs}"}
    return Signature({"x": x}, outputs, scan_cells, config.outputs)


def scan_cells(model: RecurrentNetwork) -> RecurrentNetwork:
    """Replace the cells of a network by their loops."""
    for block in model.blocks:
        assert isinstance(block, RecurrentBlock)
        block.cell, block.bptt = CellLoop(block.cell), 0  # type: ignore[assignment]
    return model


class CellLoop(nn.Module):
    """Recurrent cell that runs a sequence by a loop of ONNX over its time step."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x_BTI: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        start = self.cell.initial_state(x_BTI.shape[0]) if state is None else state

        def step(state: State, u_BP: Tensor) -> tuple[State, Tensor]:
            state = self.cell.recur(u_BP, state)
            return state, state[0].clone()  # a scan must not return one tensor twice

        u_TBP = self.cell.U(x_BTI).transpose(0, 1)
        last, h_TBH = scan(step, tuple(part.clone() for part in start), u_TBP)
        return h_TBH.transpose(0, 1), last
