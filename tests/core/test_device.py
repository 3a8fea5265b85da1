"""Learning on another device, as far as it can be seen without one: "meta" has no numbers, but it is elsewhere."""

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from engram.core.device import CPU, DevicePromotion, resolve_device, to_device
from engram.core.errors import EngramError
from engram.core.registry import registry

ELSEWHERE = torch.device("meta")
LEARNING = ["gpt", "mlp", "cnn", "resnet", "vit", "vae", "autoencoder", "diffusion", "gan", "lstm", "clip"]
"""recipes whose step asks for no number on the way"""


class Strict(TorchFunctionMode):
    """No two tensors meet from different devices, as a GPU would not let them either; single numbers may."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        places = {one.device for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor) and one.ndim}
        assert len(places) < 2 or getattr(function, "__name__", "") == "copy_", f"{function} of tensors on {places}"
        return function(*args, **(kwargs or {}))


@pytest.mark.download
@pytest.mark.parametrize("name", LEARNING)
def test_a_step_makes_nothing_in_memory(name):
    recipe = registry()[name].from_preset("tiny", **({"optimizer": "adamw"} if name in ("gpt", "vit", "clip") else {}))
    data = recipe.load()
    learner, batch = recipe.learner(data), next(recipe.batches(data))
    learner.to(ELSEWHERE)
    with Strict():
        metrics = learner.step(to_device(batch, ELSEWHERE))
    assert all(value.device == ELSEWHERE for value in metrics.values() if isinstance(value, Tensor))
    assert all(weight.device == ELSEWHERE for weight in learner.model.parameters())


def test_batches_go_as_a_whole_and_lists_stay():
    batch = to_device({"x": torch.zeros(3), "name": ["a", "b", "c"]}, ELSEWHERE)
    assert batch["x"].device == ELSEWHERE
    assert batch["name"] == ["a", "b", "c"]


def test_what_meets_on_two_devices_meets_on_one():
    here, there = torch.ones(3), torch.ones(3, device=ELSEWHERE)
    with DevicePromotion(ELSEWHERE):
        assert (here + there).device == ELSEWHERE
        assert torch.cat([here, there]).device == ELSEWHERE
        assert torch.nn.functional.linear(here, torch.ones(2, 3, device=ELSEWHERE)).device == ELSEWHERE
        assert (here + here).device == CPU
    with pytest.raises(RuntimeError):
        torch.cat([here, there])


def test_what_is_changed_stays_where_it_is_and_a_generator_draws_at_home():
    there = torch.ones(3, device=ELSEWHERE)
    with DevicePromotion(ELSEWHERE):
        there += torch.ones(3)
        assert there.device == ELSEWHERE
        there[1:] = torch.zeros(2)
        assert there.device == ELSEWHERE
    with DevicePromotion(CPU):  # a generator in memory, and chances that are there too
        assert torch.multinomial(torch.ones(3), 1, generator=torch.Generator()).device == CPU


def test_a_gpu_that_is_not_there_is_refused(refused, tmp_path):
    assert resolve_device("cpu") == CPU
    if torch.cuda.is_available():
        pytest.skip("There is a GPU.")
    assert resolve_device("auto") == CPU
    with pytest.raises(EngramError, match="no GPU here"):
        resolve_device("cuda")
    assert "no GPU here" in refused("run", "mlp", "--preset", "tiny", "--device", "cuda", "--out", tmp_path / "run")
