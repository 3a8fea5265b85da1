import pytest
import torch
from torch import nn

from engram.core.errors import EngramError
from engram.core.tap import is_watched, is_watching, tap, watch


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return tap("out", self.linear(x))


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Inner(), Inner()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return tap("sum", x.sum())


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Outer()


X = torch.ones(2, 3)


def test_records_what_the_patterns_match_under_full_names(model):
    with watch(model, "blocks.*.out") as seen:
        y = model(X)
    assert set(seen) == {"blocks.0.out", "blocks.1.out"}
    assert torch.equal(seen["blocks.1.out"].sum(), y)


def test_records_everything_without_a_pattern(model):
    with watch(model) as seen:
        model(X)
    assert list(seen) == ["blocks.0.out", "blocks.1.out", "sum"]


def test_records_every_pass_and_gives_the_last(model):
    with watch(model, "sum") as seen:
        first, second = model(X), model(2 * X)
    assert [value.item() for value in seen.all("sum")] == [first.item(), second.item()]
    assert seen["sum"] == second


def test_replaces_by_a_function_or_a_tensor(model):
    with watch(model, replace={"blocks.0.out": torch.zeros_like}) as seen:
        silenced = model(X)
    assert not seen
    expected = model.blocks[1].linear(torch.zeros(2, 3)).sum()
    assert torch.equal(silenced, expected)
    with watch(model, "blocks.1.out", replace={"blocks.1.out": torch.tensor(2.0)}) as seen:
        assert model(X) == 12
    assert torch.equal(seen["blocks.1.out"], torch.full((2, 3), 2.0))


def test_gradients_flow_through_a_replacement(model):
    with watch(model, replace={"blocks.0.out": lambda value: 3 * value}):
        model(X).backward()
    tripled = model.blocks[0].linear.weight.grad.clone()
    model.zero_grad()
    model(X).backward()
    torch.testing.assert_close(tripled, 3 * model.blocks[0].linear.weight.grad)


def test_two_watches_at_once_and_nothing_left_behind(model):
    with watch(model, "sum") as outer:
        with watch(model, "blocks.0.*") as inner:
            model(X)
        model(X)
    model(X)
    assert len(outer.all("sum")) == 2
    assert len(inner.all("blocks.0.out")) == 1
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_an_error_inside_the_model_leaves_names_right(model):
    with watch(model) as seen:
        with pytest.raises(RuntimeError):
            model(torch.ones(2, 7))
        model(X)
    assert list(seen) == ["blocks.0.out", "blocks.1.out", "sum"]


def test_works_through_compile(model):
    compiled = torch.compile(model, backend="aot_eager")
    plain = compiled(X)
    with watch(compiled, "blocks.*.out", replace={"blocks.0.out": torch.zeros_like}) as seen:
        silenced = compiled(X)
    assert set(seen) == {"blocks.0.out", "blocks.1.out"}
    assert torch.equal(silenced, model.blocks[1].linear(torch.zeros(2, 3)).sum())
    assert torch.equal(compiled(X), plain)


def test_compiles_to_one_graph_when_nobody_watches(model):
    assert torch._dynamo.explain(model)(X).graph_break_count == 0


class Costly(nn.Module):
    """Makes something only for those who look."""

    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.made = []

    def forward(self, x):
        self.made.append(is_watched("weights"))
        return self.inner(tap("weights", x) if self.made[-1] else x)


def test_watched_only_where_a_pattern_matches_the_full_name():
    model = nn.ModuleList([Costly(), Costly()])
    with watch(model, "0.weights"):
        for part in model:
            part(X)
    assert [part.made for part in model] == [[True], [False]]


def test_a_replacement_that_nothing_met_is_named(model):
    with pytest.raises(EngramError, match=r"blocks\.9\.out"), watch(model, replace={"blocks.9.out": torch.zeros_like}):
        model(X)


def test_watched_by_whoever_would_replace():
    model = Costly()
    with watch(model, replace={"weights": torch.zeros_like}):
        model(X)
    assert model.made == [True]


def test_not_watched_by_those_who_look_elsewhere_or_no_longer():
    model = Costly()
    with watch(model, "inner.*"):
        model(X)
    with watch(model):
        pass
    model(X)
    assert model.made == [False, False]


def test_watching_while_anybody_does():
    model = Costly()
    before = is_watching()
    with watch(model, "nothing"):
        with watch(model):
            pass
        during = is_watching()
    assert (before, during, is_watching()) == (False, True, False)


def test_watching_ends_with_an_error():
    with pytest.raises(RuntimeError), watch(Costly()) as seen:
        seen.model(torch.ones(2, 7))
    assert not is_watching()
