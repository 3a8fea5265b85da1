"""The network around recurrent cells: it goes on where it stopped, writes like any writer, and can be opened."""

import pytest
import torch

from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.generation.sampling import SamplingParams
from engram.sequences.network import CELLS, RecurrentNetwork

CELL_NAMES = list(CELLS)


def model_of(cell: str, **changes) -> RecurrentNetwork:
    torch.manual_seed(0)
    model = RecurrentNetwork(
        RecurrentNetwork.Config(**{"cell": cell, "width": 16, "vocabulary": 11, "outputs": 11, **changes})
    )
    for weight in model.parameters():  # what begins at zero says nothing
        torch.nn.init.normal_(weight, std=0.3)
    return model.eval()


@pytest.mark.parametrize("cell", CELL_NAMES)
def test_reading_in_pieces_is_reading_at_once(cell):
    model, x = model_of(cell), torch.randint(11, (3, 20))
    whole, states = model.forward_from(x)
    first, between = model.forward_from(x[:, :7])
    second, after = model.forward_from(x[:, 7:], between)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    for one, other in zip(states, after, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("cell", CELL_NAMES)
def test_what_comes_later_changes_nothing_before(cell):
    model, x = model_of(cell), torch.randint(11, (1, 12))
    other = x.clone()
    other[0, 8:] = (other[0, 8:] + 1) % 11
    torch.testing.assert_close(model(x)[:, :8], model(other)[:, :8])
    assert not torch.allclose(model(x)[:, 8:], model(other)[:, 8:])


@pytest.mark.parametrize("cell", ["lstm", "mingru"])
def test_writing_with_states_is_writing_by_reading_all_again(cell):
    model, prompts = model_of(cell), [[1, 2, 3], [4], [5, 6, 7, 8, 9]]
    greedy = SamplingParams(temperature=0.0)
    together = model.generate(prompts, 15, greedy)
    assert together == model.generate(prompts, 15, greedy, cached=False)
    assert together == [model.generate([prompt], 15, greedy)[0] for prompt in prompts]


def test_greedy_text_is_the_likeliest_symbol_each_time():
    model, row = model_of("gru"), [3]
    (written,) = model.generate([row], 10, SamplingParams(temperature=0.0))
    for symbol in written:
        assert symbol == model(torch.tensor([row]))[0, -1].argmax()
        row = [*row, symbol]


def test_beams_find_nothing_less_likely_than_greed():
    model = model_of("minlstm")

    def likelihood(tokens):
        with torch.no_grad():
            log_p = model(torch.tensor([[2, *tokens]])).log_softmax(-1)[0, :-1]
        return float(log_p.gather(1, torch.tensor(tokens)[:, None]).sum())

    (greedy,) = model.generate([[2]], 8, SamplingParams(temperature=0.0))
    assert likelihood(model.beam_search([2], 8, 6)[0].tokens) >= likelihood(greedy) - 1e-5


def test_truncation_cuts_the_way_back_and_not_the_way_forward():
    x = torch.randn(1, 12, 3)
    for bptt, reached in ((0, True), (4, False)):
        model = model_of("gru", vocabulary=0, inputs=3, bptt=bptt)
        inputs = x.clone().requires_grad_()
        model(inputs)[:, -1].sum().backward()
        assert bool(inputs.grad[:, :8].abs().sum() > 0) == reached
    whole, cut = (model_of("gru", vocabulary=0, inputs=3, bptt=k)(x) for k in (0, 4))
    torch.testing.assert_close(whole, cut)


def test_a_long_memory_is_held_from_the_beginning():
    x = torch.randn(1, 500, 3)
    for cell in ("lstm", "gated", "gru", "original_gru", "mingru", "minlstm"):
        size = []
        for longest in (0, 500):
            torch.manual_seed(1)
            model = RecurrentNetwork(
                RecurrentNetwork.Config(cell=cell, width=16, layers=1, vocabulary=0, inputs=3, chrono_init=longest)
            )
            inputs = x.clone().requires_grad_()
            model.blocks[0].cell(model.projection(inputs))[0][:, -1].sum().backward()
            size.append(float(inputs.grad[:, 0].norm()))
        assert size[1] > max(1e-4, 1e6 * size[0]), cell


def test_gates_are_found_by_name_and_can_be_shut():
    model, x = model_of("mingru"), torch.randint(11, (1, 5))
    with watch(model, "blocks.*.cell.gate") as seen:
        model(x)
    assert {name: len(seen.all(name)) for name in seen} == {"blocks.0.cell.gate": 5, "blocks.1.cell.gate": 5}
    with watch(model, "*.cell.state", replace={"*.cell.gate": torch.zeros_like}) as seen:
        model(x)
    assert not any(value.any() for name in seen for value in seen.all(name))


@pytest.mark.parametrize(
    ("wrong", "word"), [({"cell": "lsmt"}, "cell"), ({"width": 0}, "width"), ({"bptt": -1}, "bptt")]
)
def test_what_cannot_be_is_named(wrong, word):
    with pytest.raises(EngramError, match=word):
        RecurrentNetwork.Config(**wrong)
