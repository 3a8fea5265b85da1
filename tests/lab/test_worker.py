"""A worker trains as the command line does, and executes commands between two steps."""

import queue
import threading
import time

import pytest

from engram.core.registry import get_recipe
from engram.lab.worker import RunController, work
from engram.training.run import Run
from engram.training.train import Interrupted, train
from tests.conftest import content, tiny


class Commands(queue.Queue):
    """A queue that holds the commands for each step: {step: [command, …]}."""

    def __init__(self, at):
        super().__init__()
        self.at, self.run = at, None

    def empty(self):
        for command in self.at.pop(self.run.step, []) if self.run else []:
            self.put(command)
        return super().empty()


def trained(path, at):
    """Train a tiny run that receives commands; return it and the messages that it sent."""
    run = Run.start(get_recipe("mlp").from_preset("tiny"), path)
    inbox, sent = Commands(at), []
    inbox.run = run
    try:
        train(run, [RunController(inbox, sent.append)])
    finally:
        run.folder.release()
    return run, sent


def test_it_does_what_the_command_line_does_bit_for_bit(tmp_path):
    tiny("mlp", tmp_path / "line")
    at = {
        3: [{"command": "pause"}, {"command": "step"}, {"command": "step"}, {"command": "continue"}],
        8: [{"command": "delay", "seconds": 0.01}],
    }
    trained(tmp_path / "lab", at)
    assert content(tmp_path / "lab") == content(tmp_path / "line")


def test_single_steps_are_single(tmp_path):
    at = {3: [{"command": "pause"}]}
    run = Run.start(get_recipe("mlp").from_preset("tiny"), tmp_path / "run")
    inbox, sent = Commands(at), []
    inbox.run = run
    training = threading.Thread(target=train, args=(run, [RunController(inbox, sent.append)]))
    training.start()
    wait_for(lambda: {"state": "paused"} in sent)
    time.sleep(0.3)
    assert run.step == 3
    for step in (4, 5):
        inbox.put({"command": "step"})
        wait_for(lambda step=step: run.step == step)
        time.sleep(0.2)
        assert run.step == step
    inbox.put({"command": "continue"})
    training.join(60)
    assert run.finished


def test_time_that_is_waited_does_not_count(tmp_path):
    run = Run.start(get_recipe("mlp").from_preset("tiny"), tmp_path / "run")
    inbox, sent = Commands({3: [{"command": "pause"}]}), []
    inbox.run = run
    training = threading.Thread(target=train, args=(run, [RunController(inbox, sent.append)]))
    training.start()
    wait_for(lambda: {"state": "paused"} in sent)
    time.sleep(0.3)
    run._clock -= 10_000  # as if it had been paused for hours
    inbox.put({"command": "continue"})
    training.join(60)
    assert run.finished
    assert run.seconds < 10_000


def test_it_is_slow_when_asked_to_be(tmp_path):
    before = time.perf_counter()
    trained(tmp_path / "run", {10: [{"command": "delay", "seconds": 0.2}], 15: [{"command": "delay", "seconds": 0.0}]})
    assert time.perf_counter() - before > 0.8  # five steps of 0.2 s, of which the first begins at once


@pytest.mark.parametrize("commands", [[{"command": "stop"}], [{"command": "pause"}, {"command": "stop"}]])
def test_stopping_saves_where_it_stands(tmp_path, commands):
    with pytest.raises(Interrupted):
        trained(tmp_path / "run", {7: commands})
    assert Run.open(tmp_path / "run").step == 7


def test_it_says_how_it_goes(tmp_path):
    _, sent = trained(tmp_path / "run", {1: [{"command": "delay", "seconds": 0.001}]})
    steps = [one["step"] for one in sent if "step" in one]
    assert steps == sorted(steps)
    assert steps[-1] == 20
    assert all("loss" in one["values"] for one in sent if one.get("values"))
    assert sent[-1] == {"state": "reporting"}


def test_a_command_that_fails_is_reported_in_a_sentence(tmp_path):
    inbox, sent = queue.Queue(), []
    inbox.put({"command": "resume", "folder": str(tmp_path / "nothing"), "changes": {}})
    work(inbox, sent.append)
    assert sent[-1]["state"] == "failed"
    assert "nothing is not a run folder" in sent[-1]["error"]


def wait_for(true, seconds=30):
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)
