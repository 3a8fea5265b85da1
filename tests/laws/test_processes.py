"""A run in several processes is the run of one: the same losses, the same weights, whole or divided (FSDP2)."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file

from engram.core.registry import registry
from engram.training.run import Run
from tests.conftest import RECIPES, content, tiny
from tests.laws.company import in_double
from tests.processes import Process

LONGEST = 500
"""seconds that torchrun may take: sixty tiny runs from an empty cache, beside other tests on two cores"""
pytestmark = [  # who starts them waits for them, and both tests share them
    pytest.mark.xdist_group("processes"),
    pytest.mark.timeout(LONGEST + 60),
]
EQUAL = 2e-6
"""relative difference of a measurement: six digits"""
NEAR = 5e-6
"""difference of a weight after twenty steps"""
NOISY = {"regularization": "dropout|best"}
"""one of its networks has dropout, and may be the best of them"""
WEIGHTS_NEAR = {"diffusion": 2e-4, "vit": 2e-5}
"""weights with gradients of nearly nothing, whose rounding Adam makes as large as others; averaged in diffusion"""
UNDETERMINED = ("k.bias",)
"""a bias of all keys changes no attention: its gradient is nothing but rounding, which Adam makes as large as others"""
PLAIN = {"cnn": {"dropout": 0.0}}
"""noise of each process's own is left out"""
DIVIDED = ["gpt", "cnn", "vae", "rbm", "clip", "diffusion", "gan", "predictive-coding"]
DOUBLE = ["gpt", "cnn", "vae", "rbm"]
OTHERS = {
    "uneven": ("gpt", {"batch": 5, "grad_accum": 2, "clip_grad_norm": 0.5}, False),
    "uneven-divided": ("gpt", {"batch": 5, "grad_accum": 2, "clip_grad_norm": 0.5, "grad_checkpointing": True}, True),
    "epochs": ("gpt", {"windows": "epoch"}, False),
    "tempered": ("rbm", {"temperatures": 3}, False),
    "contrast": ("rbm", {"persistent": False, "momentum": 0.5, "centered": False}, False),
    "turns": ("gan", {"batch": 22, "loss": "hinge", "discriminator_steps": 2}, False),
    "patience": ("mlp", {"eval_every": 5, "patience": 1, "lr": 0.0}, True),
}


def torchrun(*words, processes=2, **variables):
    """`torchrun WORDS`, with environment variables."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--rdzv-backend", "c10d",
        "--rdzv-endpoint", "localhost:0", *map(str, words),
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return Process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def together(jobs, place, *words, **variables):
    """Let two processes work on a list of runs; what they print as errors."""
    place.write_text(json.dumps(jobs))
    with torchrun(*words, "-m", "tests.laws.company", place, **variables) as started:
        _, err = started.communicate(timeout=LONGEST)
    assert started.returncode == 0, err
    return err


@pytest.fixture(scope="module")
def company(tmp_path_factory):
    """All runs that are compared, in two processes that are started once, where engram has never run."""
    root = tmp_path_factory.mktemp("company")
    jobs = [{"name": name, "out": f"{root}/whole-{name}", "changes": PLAIN.get(name, {})} for name in RECIPES]
    jobs += [
        {"name": name, "out": f"{root}/divided-{name}", "changes": PLAIN.get(name, {}), "shard": True}
        for name in DIVIDED
    ]
    jobs += [
        {"name": name, "out": f"{root}/{key}", "changes": changes, "shard": shard}
        for key, (name, changes, shard) in OTHERS.items()
    ]
    jobs += [
        {"name": name, "out": f"{root}/double-{name}", "changes": PLAIN.get(name, {}), "double": True}
        for name in DOUBLE
    ]
    jobs += [{"name": "gpt", "out": f"{root}/begun", "changes": {"steps": 10, "batch": 6}, "shard": True}]
    jobs += [{"name": "mlp", "out": f"{root}/whole-gpt"}]  # where there is a run already
    (root / "errors").write_text(together(jobs, root / "jobs.json", ENGRAM_DATA=str(root / "empty")))
    return root


def must_be_equal(one, other, near=NEAR, equal=EQUAL, noisy=""):
    """Every measurement to six digits or to more, every weight nearly; but for what has `noisy` in its name."""
    before, after = (
        [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()] for folder in (one, other)
    )
    assert [line.keys() for line in before] == [line.keys() for line in after]
    for first, second in zip(before, after, strict=True):
        for name in first.keys() - {"seconds"}:
            if not noisy or not re.search(noisy, name):
                assert math.isclose(first[name], second[name], rel_tol=equal, abs_tol=equal), (name, first, second)
    weights = [load_file(folder / "model.safetensors") for folder in (one, other)]
    assert weights[0].keys() == weights[1].keys()
    for name, weight in weights[0].items():
        if not name.endswith(UNDETERMINED) and not (noisy and re.search(noisy, name)):
            assert (weights[1][name] - weight).abs().max() <= near, name


@pytest.fixture
def alone(finished, tmp_path):
    """The tiny run of one process, without noise of its own."""

    def path(name):
        if name not in PLAIN:
            return finished(name)
        tiny(name, tmp_path / "alone", **PLAIN[name])
        return tmp_path / "alone"

    return path


@pytest.mark.parametrize("name", RECIPES)
def test_two_processes_are_one(name, company, alone):
    """Although nothing was cached when they began: what one of them makes, it makes alone."""
    must_be_equal(alone(name), company / f"whole-{name}", near=WEIGHTS_NEAR.get(name, NEAR), noisy=NOISY.get(name))


def test_what_is_cached_was_made_once(company):
    errors = (company / "errors").read_text()
    assert errors.count("training the classifier that scores images of digits") == 1
    assert errors.count("downloading digits") == 1


@pytest.mark.parametrize("name", DOUBLE)
def test_in_64_bits_there_is_hardly_any_difference_left(name, company, tmp_path):
    """What two processes do otherwise than one is to round."""
    started = Run.start(registry()[name].from_preset("tiny", **PLAIN.get(name, {})), tmp_path / "alone")
    in_double(started)
    started.folder.release()
    must_be_equal(tmp_path / "alone", company / f"double-{name}", near=1e-11, equal=1e-11)


@pytest.mark.parametrize("name", DIVIDED)
def test_a_divided_model_is_the_whole_one(name, company, alone):
    must_be_equal(alone(name), company / f"divided-{name}", near=WEIGHTS_NEAR.get(name, NEAR))


@pytest.mark.parametrize("key", OTHERS)
def test_batches_that_do_not_divide_and_other_ways_to_learn(key, company, tmp_path):
    name, changes, _ = OTHERS[key]
    tiny(name, tmp_path / "alone", **changes)
    must_be_equal(tmp_path / "alone", company / key)


@pytest.mark.parametrize("processes", [1, 3])
def test_a_checkpoint_is_readable_on_any_number_of_processes(processes, company, engram, tmp_path):
    """Begun in two and divided, ended in one or in three."""
    shutil.copytree(company / "begun", tmp_path / "run")
    words = ("run", "--resume", tmp_path / "run", "--steps", 20)
    if processes == 1:
        assert engram(*words).code == 0
    else:
        with torchrun("-m", "engram", *words, processes=processes) as ended:
            _, err = ended.communicate(timeout=LONGEST)
        assert ended.returncode == 0, err
    tiny("gpt", tmp_path / "straight", steps=10, batch=6)
    assert engram("run", "--resume", tmp_path / "straight", "--steps", 20).code == 0
    must_be_equal(tmp_path / "straight", tmp_path / "run")


def test_a_process_that_dies_is_started_again_and_nothing_is_lost(company, tmp_path):
    """torchrun starts all anew from the newest checkpoint; the end is that of an undisturbed run, byte for byte."""
    job = {"name": "gpt", "out": f"{tmp_path}/run", "dies": 13}
    together([job], tmp_path / "jobs.json", "--max-restarts", "1")
    assert (tmp_path / "run" / "died").exists()
    assert content(tmp_path / "run") == content(company / "whole-gpt")


def test_a_scheduler_s_signal_saves_all_at_one_step(tmp_path):
    words = ("run", "mlp", "--preset", "tiny", "--steps", 100_000, "--eval-every", 1000, "--out", tmp_path / "run")
    with torchrun("-m", "engram", *words) as started:
        metrics, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 60
        while not metrics.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        started.send_signal(signal.SIGTERM)
        out, err = started.communicate(timeout=60)
    assert "Saved at step" in out, err
    assert Run.open(tmp_path / "run").step > 0


def test_what_is_wrong_is_said_once_in_a_sentence(company):
    """The first process cannot begin, and the other does not wait for it for ever, nor repeat what it says."""
    first, other = ((company / f"refused-{rank}").read_text() for rank in range(2))
    assert first.startswith("EngramError: ")
    assert "already holds a run" in first
    assert other.startswith("RemoteError: ")


def test_shard_without_company_is_refused(refused, tmp_path):
    assert "start them with torchrun" in refused("run", "mlp", "--preset", "tiny", "--shard", "--out", tmp_path / "run")
