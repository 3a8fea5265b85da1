"""A worker trains as the command line does, and obeys between two steps."""

import queue
import threading
import time

import pytest

from engram.core.registry import find
from engram.lab.worker import Obedient, work
from engram.training.loop import Interrupted, train
from engram.training.run import Run
from tests.conftest import content, tiny


class Told(queue.Queue):
    """Gives the orders that are due after each step: {step: [order, …]}."""

    def __init__(self, at):
        super().__init__()
        self.at, self.run = at, None

    def empty(self):
        for order in self.at.pop(self.run.step, []) if self.run else []:
            self.put(order)
        return super().empty()


def trained(path, at):
    """A tiny run that hears orders on its way, with all that it said."""
    run = Run.start(find("mlp").from_preset("tiny"), path)
    inbox, said = Told(at), []
    inbox.run = run
    try:
        train(run, Obedient(inbox, said.append))
    finally:
        run.folder.release()
    return run, said


def test_it_does_what_the_command_line_does_bit_for_bit(tmp_path):
    tiny("mlp", tmp_path / "line")
    at = {3: [{"do": "pause"}, {"do": "step"}, {"do": "step"}, {"do": "go"}], 8: [{"do": "pace", "seconds": 0.01}]}
    trained(tmp_path / "lab", at)
    assert content(tmp_path / "lab") == content(tmp_path / "line")


def test_single_steps_are_single(tmp_path):
    at = {3: [{"do": "pause"}]}
    run = Run.start(find("mlp").from_preset("tiny"), tmp_path / "run")
    inbox, said = Told(at), []
    inbox.run = run
    training = threading.Thread(target=train, args=(run, Obedient(inbox, said.append)))
    training.start()
    wait_for(lambda: {"state": "paused"} in said)
    time.sleep(0.3)
    assert run.step == 3
    for step in (4, 5):
        inbox.put({"do": "step"})
        wait_for(lambda step=step: run.step == step)
        time.sleep(0.2)
        assert run.step == step
    inbox.put({"do": "go"})
    training.join(60)
    assert run.finished


def test_time_that_is_waited_does_not_count(tmp_path):
    run = Run.start(find("mlp").from_preset("tiny"), tmp_path / "run")
    inbox, said = Told({3: [{"do": "pause"}]}), []
    inbox.run = run
    training = threading.Thread(target=train, args=(run, Obedient(inbox, said.append)))
    training.start()
    wait_for(lambda: {"state": "paused"} in said)
    time.sleep(0.3)
    run._clock -= 10_000  # as if it had been paused for hours
    inbox.put({"do": "go"})
    training.join(60)
    assert run.finished
    assert run.seconds < 10_000


def test_it_is_slow_when_asked_to_be(tmp_path):
    before = time.perf_counter()
    trained(tmp_path / "run", {10: [{"do": "pace", "seconds": 0.2}], 15: [{"do": "pace", "seconds": 0.0}]})
    assert time.perf_counter() - before > 0.8  # five steps of 0.2 s, of which the first begins at once


@pytest.mark.parametrize("orders", [[{"do": "stop"}], [{"do": "pause"}, {"do": "stop"}]])
def test_stopping_saves_where_it_stands(tmp_path, orders):
    with pytest.raises(Interrupted):
        trained(tmp_path / "run", {7: orders})
    assert Run.open(tmp_path / "run").step == 7


def test_it_says_how_it_goes(tmp_path):
    _, said = trained(tmp_path / "run", {1: [{"do": "pace", "seconds": 0.001}]})
    steps = [one["step"] for one in said if "step" in one]
    assert steps == sorted(steps)
    assert steps[-1] == 20
    assert all("loss" in one["values"] for one in said if one.get("values"))
    assert said[-1] == {"state": "drawing"}


def test_an_order_that_cannot_be_carried_out_is_a_sentence(tmp_path):
    inbox, said = queue.Queue(), []
    inbox.put({"do": "resume", "folder": str(tmp_path / "nothing"), "changes": {}})
    work(inbox, said.append)
    assert said[-1]["state"] == "failed"
    assert "nothing is not a run folder" in said[-1]["error"]


def wait_for(true, seconds=30):
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)
