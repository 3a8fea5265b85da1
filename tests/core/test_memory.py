import math

import numpy as np
import pytest
import torch
from torch import nn

from engram.core import memory, model_size
from engram.core.errors import EngramError


def failure(allocate):
    with pytest.raises((MemoryError, RuntimeError, ValueError)) as error:
        allocate()
    return error.value


@pytest.mark.parametrize(
    "allocate",
    [
        lambda: torch.empty(10**15),
        lambda: torch.empty(2**62, 2**62),
        lambda: np.empty(10**15),
        lambda: np.empty(2**62),
        lambda: bytearray(2**60),
    ],
)
def test_an_allocation_that_fails_is_a_sentence(allocate):
    error = failure(allocate)
    assert memory.is_allocation_failure(error), error
    assert str(memory.allocation_error(error)).startswith("The memory is not enough: ")


def test_the_sentence_names_what_was_asked_for():
    assert "4,000,000 GB was asked for at once" in str(memory.allocation_error(failure(lambda: torch.empty(10**15))))
    assert "7.11 PiB was asked for at once" in str(memory.allocation_error(failure(lambda: np.empty(10**15))))


@pytest.mark.parametrize(
    "allocate", [lambda: torch.zeros(2) @ torch.zeros(3), lambda: int("five"), lambda: np.zeros(3).reshape(2)]
)
def test_other_errors_are_not_of_the_memory(allocate):
    assert not memory.is_allocation_failure(failure(allocate))


def test_memory_is_known_here():
    assert 1e7 < memory.available_memory() < 1e15


def test_memory_is_read_from_the_system_and_from_the_container(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\nSwapFree: 500 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert memory.available_memory() == 8500 * 1024
    (tmp_path / "memory.current").write_text("3000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 1000\n")
    (tmp_path / "memory.max").write_text("7000\n")
    assert memory.available_memory() == 5000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_memory() == 8500 * 1024


def test_too_much_is_refused_with_both_sizes(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 2_500_000_000)
    memory.check_memory(2e9, "A batch")
    with pytest.raises(EngramError, match=r"A batch would take at least 314 GB of memory, and 2\.5 GB are available"):
        memory.check_memory(3.14e11, "A batch")
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    memory.check_memory(math.inf, "A batch")


def test_a_model_beyond_the_memory_is_not_built(monkeypatch):
    monkeypatch.setattr(model_size, "available_memory", lambda: 4 * 4 * 1000)
    with model_size.limit_to_memory(copies=4):
        nn.Linear(30, 30)
    too_large = pytest.raises(EngramError, match="The model is too large: its weights, their gradients")
    with too_large, model_size.limit_to_memory(copies=4):
        nn.Sequential(*(nn.Linear(30, 30) for _ in range(3)))
    with model_size.limit_to_memory(copies=1):
        nn.Linear(60, 60)
    too_large = pytest.raises(EngramError, match="its weights take more than the 0.0 GB")
    with too_large, model_size.limit_to_memory(copies=1):
        nn.Linear(70, 70)


def test_without_random_weights_a_model_is_built_and_no_number_is_drawn():
    before = torch.get_rng_state()
    with model_size.SkipRandomWeights():
        made = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 7), nn.Conv2d(1, 2, 3), nn.LayerNorm(7), nn.GRU(3, 4))
        for initialize in (nn.init.trunc_normal_, nn.init.xavier_uniform_, nn.init.normal_, nn.init.uniform_):
            made[1].weight.data.fill_(torch.nan)  # as memory may be that nothing was written into
            assert initialize(made[1].weight) is made[1].weight
        assert made[1].weight.data.normal_().eq(0).all()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(made[3].weight, torch.ones(7))


def test_trimming_the_heap_changes_nothing():
    kept = torch.arange(10)
    memory.trim_heap()
    assert kept.tolist() == list(range(10))
