"""Views of runs: their responses and errors are those of the command line."""

import pytest

from engram.core.errors import EngramError
from engram.lab import inference_worker


@pytest.mark.parametrize("wrong", [{"count": -1}, {"seed": -1}])
@pytest.mark.parametrize("name", ["mlp", "gpt", "rbm", "vae"])
def test_samples_that_cannot_be_are_refused_as_the_command_line_refuses_them(name, wrong, finished, refused):
    inference_worker.import_endpoints()
    run = finished(name)
    models = inference_worker.Models(run.parent)
    (flag, value), *_ = wrong.items()
    with pytest.raises(EngramError, match=f"{flag} must be") as said:
        list(inference_worker.respond({"endpoint": "views.sample", "params": {"run": name, **wrong}}, models))
    assert str(said.value) in refused("sample", run, f"--{flag}", value)


def test_the_number_of_samples_is_limited(finished):
    inference_worker.import_endpoints()
    run = finished("mlp")
    with pytest.raises(EngramError, match="at most 1000 samples at once"):
        list(
            inference_worker.respond(
                {"endpoint": "views.sample", "params": {"run": "mlp", "count": 1001}},
                inference_worker.Models(run.parent),
            )
        )
