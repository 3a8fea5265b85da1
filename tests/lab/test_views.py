"""What a page asks of a run: its answers are those of the command line, and so are its refusals."""

import pytest

from engram.core.errors import EngramError
from engram.lab import desk


@pytest.mark.parametrize("wrong", [{"count": -1}, {"seed": -1}])
@pytest.mark.parametrize("name", ["mlp", "gpt", "rbm", "vae"])
def test_samples_that_cannot_be_are_refused_as_the_command_line_refuses_them(name, wrong, finished, refused):
    desk.import_instruments()
    run = finished(name)
    models = desk.Models(run.parent)
    (flag, value), *_ = wrong.items()
    with pytest.raises(EngramError, match=f"{flag} must be") as said:
        list(desk.answers({"ask": "views.sample", "with": {"run": name, **wrong}}, models))
    assert str(said.value) in refused("sample", run, f"--{flag}", value)


def test_a_page_is_made_so_much_and_no_more(finished):
    desk.import_instruments()
    run = finished("mlp")
    with pytest.raises(EngramError, match="1000 things at once at most"):
        list(desk.answers({"ask": "views.sample", "with": {"run": "mlp", "count": 1001}}, desk.Models(run.parent)))
