"""Recurrent cells: their steps, their quick ways, and torch's own."""

import pytest
import torch
from torch import nn

from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.sequences.bptt import gradient_by_distance, unroll, weighted_loss
from engram.sequences.cell import Cell
from engram.sequences.gru.model import GRU, GatedRNN, OriginalGRU
from engram.sequences.lstm.model import LSTM
from engram.sequences.mingru.model import MinGRU, MinLSTM
from engram.sequences.network import CELLS
from engram.sequences.rnn.model import RNN

EVERY = pytest.mark.parametrize("name", CELLS)
TWINS = pytest.mark.parametrize(("kind", "peer"), [(RNN, nn.RNN), (LSTM, nn.LSTM), (GRU, nn.GRU)])


def made(name: str, inputs: int = 3, hidden: int = 5) -> Cell:
    """A cell in which no two weights are the same, and no bias is zero."""
    torch.manual_seed(0)
    cell = CELLS[name](inputs, hidden)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return cell


def sequences(B: int = 2, T: int = 7, inputs: int = 3) -> torch.Tensor:
    return torch.randn(B, T, inputs, generator=torch.Generator().manual_seed(1)).requires_grad_()


def started(cell: Cell, B: int = 2) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(2)
    return tuple(torch.randn(part.shape, generator=generator).requires_grad_() for part in cell.initial_state(B))


def mixture(y: torch.Tensor, state: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """One number that depends on every output and on the last state."""
    generator = torch.Generator().manual_seed(3)
    return sum((part * torch.randn(part.shape, generator=generator)).sum() for part in (y, *state))


def learnt(cell: Cell, result: tuple, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(mixture(*result), (*cell.parameters(), *inputs))


@TWINS
def test_outputs_and_gradients_are_those_of_torch(kind, peer):
    torch.manual_seed(0)
    theirs, mine, x = peer(3, 5, batch_first=True), kind(3, 5), sequences()
    with torch.no_grad():
        mine.U.weight.copy_(theirs.weight_ih_l0)
        mine.W.weight.copy_(theirs.weight_hh_l0)
        if mine.recurrent_bias:
            mine.U.bias.copy_(theirs.bias_ih_l0)
            mine.W.bias.copy_(theirs.bias_hh_l0)
        else:
            mine.U.bias.copy_(theirs.bias_ih_l0 + theirs.bias_hh_l0)
    state = started(mine)
    before = tuple(part[None] for part in state)
    y, last = theirs(x, before if kind is LSTM else before[0])
    last = tuple(part[0] for part in last) if kind is LSTM else (last[0],)
    slopes = torch.autograd.grad(
        mixture(y, last),
        (
            theirs.weight_ih_l0,
            theirs.bias_ih_l0,
            theirs.weight_hh_l0,
            *[theirs.bias_hh_l0] * mine.recurrent_bias,
            x,
            *state,
        ),
    )
    for way in (mine.sequence, mine.loop):
        result = way(x, state)
        torch.testing.assert_close(result, (y, last), atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(learnt(mine, result, x, *state), slopes, atol=2e-6, rtol=1e-6)


@EVERY
@pytest.mark.parametrize("T", [1, 2, 40])
def test_the_quick_way_is_the_steps(name, T):
    cell, x = made(name), sequences(T=T)
    state = started(cell)
    whole, now, outputs = cell(x, state), state, []
    for x_BI in x.unbind(1):
        y_BH, now = cell.step(x_BI, now)
        outputs.append(y_BH)
    steps = torch.stack(outputs, 1), now
    torch.testing.assert_close(whole, steps, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(learnt(cell, whole, x, *state), learnt(cell, steps, x, *state), atol=1e-5, rtol=1e-4)


@EVERY
def test_the_quick_way_in_double_precision(name):
    cell, x = made(name).double(), sequences().double()
    torch.testing.assert_close(cell(x), cell.loop(x, cell.initial_state(2)), atol=1e-14, rtol=1e-12)


@EVERY
def test_in_pieces_as_in_one(name):
    cell, x = made(name), sequences(T=11)
    y, state = cell(x)
    first, between = cell(x[:, :4])
    second, last = cell(x[:, 4:], between)
    torch.testing.assert_close((torch.cat([first, second], 1), last), (y, state), atol=1e-6, rtol=1e-5)


@EVERY
def test_the_output_is_the_state_and_nothing_read_changes_nothing(name):
    cell, x = made(name), sequences()
    y, state = cell(x)
    assert torch.equal(y[:, -1], state[0])
    nothing, same = cell(x[:, :0], state)
    assert nothing.shape == (2, 0, 5)
    assert same is state


@EVERY
def test_who_watches_sees_every_step_and_the_same_result(name):
    cell, x = made(name), sequences()
    with watch(cell) as seen:
        y, _ = cell(x)
    assert set(seen) == set(cell.taps)
    assert all(len(seen.all(name)) == 7 for name in seen)
    torch.testing.assert_close(torch.stack(seen.all("state"), 1), y)
    torch.testing.assert_close(y, cell(x)[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "gates"),
    [
        ("gated", {"gate": 0.0}),
        ("gru", {"update": 1.0}),
        ("original_gru", {"update": 1.0}),
        ("mingru", {"gate": 0.0}),
        ("minlstm", {"forget": 1.0, "input": 0.0}),
    ],
)
def test_with_its_gate_held_a_cell_keeps_its_state(name, gates):
    cell, x = made(name), sequences()
    state = started(cell)
    with watch(cell, replace={gate: torch.tensor(value) for gate, value in gates.items()}):
        y, _ = cell(x, state)
    assert torch.equal(y, state[0][:, None].expand_as(y))
    assert not torch.allclose(cell(x, state)[0], y)


def test_an_lstm_whose_gates_are_held_counts():
    cell, x = made("lstm"), sequences()
    held = dict.fromkeys(("input", "forget", "output"), torch.ones(())) | {"candidate": torch.tensor(0.25)}
    with watch(cell, "cell", replace=held) as seen:
        cell(x)
    torch.testing.assert_close(torch.stack(seen.all("cell")), (torch.arange(1.0, 8) / 4).view(7, 1, 1).expand(7, 2, 5))


@pytest.mark.parametrize(("kind", "gate"), [(GatedRNN, "gate"), (OriginalGRU, "update")])
def test_both_gated_units_of_the_note_against_its_equations(kind, gate):
    torch.manual_seed(0)
    cell = kind(3, 4).double()
    x, h = torch.randn(2, 3).double(), torch.randn(2, 4).double()
    U, W, b = (part.chunk(cell.parts) for part in (cell.U.weight, cell.W.weight, cell.U.bias))

    def says(part: int, past: torch.Tensor) -> torch.Tensor:
        return x @ U[part].T + past @ W[part].T + b[part]

    if kind is GatedRNN:
        g, n = torch.sigmoid(says(0, h)), torch.tanh(says(1, h))
    else:
        r, g = torch.sigmoid(says(0, h)), 1 - torch.sigmoid(says(1, h))
        n = torch.tanh(says(2, h * r))
    torch.testing.assert_close(cell.step(x, (h,))[0], g * n + (1 - g) * h)


def test_a_minimal_lstm_against_its_equations_and_where_both_gates_are_shut():
    cell = made("minlstm").double()
    x, h = torch.randn(2, 3).double(), torch.randn(2, 5).double()
    f, i, n = cell.U(x).chunk(3, -1)
    f, i = torch.sigmoid(f), torch.sigmoid(i)
    torch.testing.assert_close(cell.step(x, (h,))[0], f / (f + i) * h + i / (f + i) * n)
    cell = cell.float()
    nn.init.constant_(cell.U.bias, -200.0)
    nn.init.zeros_(cell.U.weight)
    y, _ = cell(x.float()[:, None], (h.float(),))
    torch.testing.assert_close(y[:, 0], h.float() / 2 - 100)


def test_gates_of_the_minimal_units_do_not_look_at_the_state():
    for cell in (MinGRU(3, 4), MinLSTM(3, 4)):
        x, gates = sequences(), []
        for state in (torch.zeros(2, 4), torch.ones(2, 4)):
            with watch(cell) as seen:
                cell(x, (state,))
            gates.append(seen[cell.taps[0]])
        assert torch.equal(*gates)


@EVERY
def test_cut_nowhere_it_is_the_whole_way_back(name):
    cell, x = made(name), sequences()
    state = started(cell)
    whole = learnt(cell, cell(x, state), x, *state)
    for every in (0, 7, 100):
        torch.testing.assert_close(learnt(cell, unroll(cell, x, state, every), x, *state), whole)


@EVERY
def test_cut_every_three_steps_the_pieces_learn_by_themselves(name):
    cell, x = made(name), sequences()
    result = unroll(cell, x, None, 3)
    torch.testing.assert_close(result[0], cell(x)[0], atol=1e-6, rtol=1e-5)
    parameters = (*cell.parameters(), x)
    together = torch.autograd.grad(result[0].square().sum(), parameters)
    state, apart = cell.initial_state(2), [torch.zeros_like(parameter) for parameter in parameters]
    for start in (0, 3, 6):
        y, state = cell(x[:, start : start + 3], tuple(part.detach() for part in state))
        for total, slope in zip(apart, torch.autograd.grad(y.square().sum(), parameters), strict=True):
            total += slope
    torch.testing.assert_close(together, tuple(apart), atol=1e-5, rtol=1e-5)
    (last,) = torch.autograd.grad(unroll(cell, x, None, 3)[0][:, -1].sum(), x)
    assert not last[:, :6].any()
    assert last[:, 6].any()


def test_steps_that_do_not_count_teach_nothing():
    loss = torch.rand(4, 3, requires_grad=True)
    weighted = weighted_loss(loss, torch.tensor([0.0, 0.0, 1.0]))
    torch.testing.assert_close(weighted, loss[:, 2].mean())
    assert not torch.autograd.grad(weighted, loss)[0][:, :2].any()
    torch.testing.assert_close(weighted_loss(loss), weighted_loss(loss, torch.full((3,), 1 / 3)))


@pytest.mark.parametrize("w", [0.8, 1.0, 1.1])
def test_in_a_plain_network_gradients_fade_or_explode_with_the_distance(w):
    """Where tanh is straight, dh_T/dx_t = w^(T-t) Q^(T-t) U', and Q does not change a length."""
    torch.manual_seed(0)
    cell = RNN(3, 5)
    with torch.no_grad():
        cell.W.weight *= w
    fall = gradient_by_distance(cell, torch.zeros(2, 30, 3))
    torch.testing.assert_close(fall, cell.U.weight.norm() * w ** torch.arange(30.0), rtol=1e-4, atol=1e-6)


def test_in_a_minimal_unit_they_fade_as_its_gate_says():
    cell = MinGRU(3, 5)
    nn.init.zeros_(cell.U.weight[:5])
    nn.init.constant_(cell.U.bias[:5], -3.0)
    fall = gradient_by_distance(cell, torch.zeros(1, 20, 3))
    g = torch.sigmoid(torch.tensor(-3.0))
    torch.testing.assert_close(fall, g * cell.U.weight[5:].norm() * (1 - g) ** torch.arange(20.0), rtol=1e-4, atol=1e-7)


@EVERY
def test_the_gradient_by_distance_is_the_jacobian(name):
    cell, x = made(name).double(), sequences(B=1, T=6).detach().double()
    with torch.no_grad():
        fall = gradient_by_distance(cell, x)
    jacobian = torch.autograd.functional.jacobian(lambda x: cell(x)[0][0, -1], x)[:, 0]  # H × T × I
    torch.testing.assert_close(fall, jacobian.norm(dim=(0, 2)).flip(0))


@EVERY
def test_a_new_cell(name):
    torch.manual_seed(0)
    cell = CELLS[name](4, 6)
    if hasattr(cell, "W"):
        for W in cell.W.weight.chunk(cell.parts):
            torch.testing.assert_close(W @ W.T, torch.eye(6), atol=1e-5, rtol=0)
    biases = cell.U.bias.chunk(cell.parts)
    assert [bias.unique().tolist() for bias in biases] == [
        [1.0 if name == "lstm" and n == 1 else 0.0] for n in range(cell.parts)
    ]
    torch.manual_seed(0)
    again = CELLS[name](4, 6)
    assert all(map(torch.equal, cell.parameters(), again.parameters()))


def test_what_cannot_be_is_refused():
    with pytest.raises(EngramError, match="hidden unit"):
        GRU(3, 0)
    with pytest.raises(EngramError, match="bptt"):
        unroll(MinGRU(2, 2), torch.zeros(1, 3, 2), None, -1)


def test_a_minimal_gru_is_that_of_minGRU_pytorch():
    """Whose proposals are made positive by a function of its own, which takes the place of ours."""
    theirs = pytest.importorskip("minGRU_pytorch.minGRU")
    torch.manual_seed(0)
    peer, mine, x = theirs.minGRU(3, proj_out=False).double(), MinGRU(3, 3).double(), sequences(T=50).double()
    with torch.no_grad():
        mine.U.weight.copy_(peer.to_hidden_and_gate.weight.roll(3, 0))  # theirs has the proposal first
    with watch(mine, replace={"candidate": theirs.g}):
        y, _ = mine(x)
    torch.testing.assert_close(y, peer(x), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(peer(x).sum(), x))


@pytest.mark.parametrize("name", ["gru", "mingru", "minlstm"])
def test_an_exported_cell(name):
    """Without kernels that only this machine has."""
    cell, x = made(name), sequences(T=9).detach()
    exported = torch.export.export(cell, (x,)).module()
    torch.testing.assert_close(exported(x), cell(x), atol=1e-6, rtol=1e-5)
