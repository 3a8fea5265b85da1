"""What happens before the first step: checks, and nothing is left of a run that never began."""

import pytest
import torch
from PIL import Image

from engram.core.errors import EngramError
from engram.core.recipe import choose_items
from engram.core.registry import registry
from engram.training import start_checks
from engram.training.learner import GradientLearner
from engram.training.run import Run


@pytest.fixture
def images(tmp_path):
    """30 images in two classes."""
    for i in range(30):
        place = tmp_path / "images" / ("dark" if i < 15 else "light")
        place.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), i).save(place / f"{i}.png")
    return tmp_path / "images"


@pytest.mark.slow
def test_a_default_batch_that_the_data_do_not_fill_is_said(engram, images, tmp_path):
    line = f"the training set has only 24 images: each batch has all of them, not {registry()['mlp']().batch}"
    call = ("run", "mlp", "--preset", "tiny", "--steps", 2, "--data", images)
    assert f"engram: {line}\n" in engram(*call, "--out", tmp_path / "a").err
    assert engram(*call, "--out", tmp_path / "b", "--quiet").err == ""
    assert line not in engram(*call, "--out", tmp_path / "c", "--json").err


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 2), ("momentum", 3), ("Muon", 3), ("adamw", 4)])
def test_what_training_keeps_of_the_size_of_the_weights(optimizer, copies):
    assert start_checks.weight_copies(registry()["mlp"].from_preset("tiny", optimizer=optimizer)) == copies


def test_a_simulation_and_frozen_weights_have_one_copy():
    assert start_checks.weight_copies(registry()["lif"].from_preset("tiny")) == 1
    assert start_checks.weight_copies(registry()["gpt"].from_preset("tiny", from_="gpt2", lora=4)) == 1


@pytest.mark.parametrize("name", ["gpt", "rnn"])
def test_a_batch_beyond_the_memory_is_refused_before_the_model_is_built(name, tmp_path):
    with pytest.raises(EngramError, match="A training step would take at least .* smaller --batch or --context"):
        Run.start(registry()[name].from_preset("tiny", batch=10**12), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("error", [RuntimeError("DefaultCPUAllocator: can't allocate memory"), MemoryError()])
def test_nothing_is_left_of_a_run_whose_first_step_fails(error, engram, tmp_path, monkeypatch):
    def step(self, batch):
        raise error

    monkeypatch.setattr(GradientLearner, "step", step)
    answer = engram("run", "mlp", "--preset", "tiny", "--out", tmp_path / "run")
    assert answer.code == 2
    assert answer.err.startswith("engram: The memory is not enough")
    assert not (tmp_path / "run").exists()


def test_a_run_that_fails_later_is_kept(engram, tmp_path, monkeypatch):
    step = GradientLearner.step

    def fail_at_15(self, batch):
        if self.done == 15:
            raise MemoryError
        return step(self, batch)

    monkeypatch.setattr(GradientLearner, "step", fail_at_15)
    assert engram("run", "mlp", "--preset", "tiny", "--out", tmp_path / "run").code == 2
    monkeypatch.undo()
    assert Run.open(tmp_path / "run").step == 10


def test_a_folder_in_which_a_run_never_began_is_taken(engram, tmp_path):
    (tmp_path / "run" / "state" / "000000000.partial").mkdir(parents=True)
    for name in (".lock", "config.json", ".recipe.json.1.partial"):
        (tmp_path / "run" / name).touch()
    assert engram("run", "mlp", "--preset", "tiny", "--out", tmp_path / "run").code == 0


def test_random_items_come_once_as_long_as_there_are_enough():
    random = torch.Generator().manual_seed(0)
    assert sorted(choose_items(10, 10, random).tolist()) == list(range(10))
    assert len(set(choose_items(5, 10, random).tolist())) == 5
    drawn = choose_items(25, 10, random).tolist()
    assert sorted(drawn[:10]) == sorted(drawn[10:20]) == list(range(10))
    assert len(set(drawn[20:])) == 5
