"""The scheduler: runs in their own processes, which are queued, end, die and are killed without harm to others."""

import asyncio
import json
import time

import pytest

from engram.core.errors import EngramError
from engram.core.registry import get_recipe
from engram.lab.run_store import RunStore
from engram.lab.scheduler import LAB_FOLDER, Limits, Scheduler
from engram.training.run import Run
from tests.conftest import content, tiny


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """Workers as this process: sums over two threads end in other digits."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def recipe(**changes):
    return get_recipe("mlp").from_preset("tiny", **changes)


LONG = {"steps": 1_000_000, "eval_every": 500_000}


def with_scheduler(root, work, **limits):
    """Run `work` with a scheduler, which is closed afterwards; return the states of each run in order."""
    root.mkdir(exist_ok=True)
    states: dict[str, list[str]] = {}

    def on_change(job):
        seen = states.setdefault(job.name, [])
        if seen[-1:] != [job.state]:
            seen.append(job.state)

    async def whole():
        scheduler = Scheduler(RunStore(root), Limits(**{"max_jobs": 1, **limits}), on_change)
        scheduler.restore_queue()
        try:
            await work(scheduler)
        finally:
            await scheduler.close()

    asyncio.run(whole())
    return states


async def until(true, seconds=90):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.02)


def test_a_run_in_a_process_is_the_run_of_the_command_line(tmp_path):
    tiny("mlp", tmp_path / "line")

    async def work(scheduler):
        name = scheduler.start(recipe())
        await until(lambda: scheduler.jobs[name].state == "finished")

    states = with_scheduler(tmp_path / "runs", work)
    assert states["mlp-1"] == ["queued", "starting", "running", "reporting", "finished"]
    assert content(tmp_path / "runs" / "mlp-1") == content(tmp_path / "line")
    assert (tmp_path / "runs" / "mlp-1" / "report.html").exists()


def test_a_run_waits_for_the_one_before_and_then_begins(tmp_path):
    async def work(scheduler):
        first, second = scheduler.start(recipe(**LONG)), scheduler.start(recipe())
        await until(lambda: scheduler.jobs[first].state == "running")
        assert scheduler.jobs[second].state == "queued"
        kept = json.loads((tmp_path / "runs" / LAB_FOLDER / "queue.json").read_text())
        assert [one["name"] for one in kept] == [second]
        scheduler.control(first, "pause")
        await until(lambda: scheduler.jobs[first].state == "paused")
        scheduler.control(first, "stop")
        await until(lambda: scheduler.jobs[first].state == "stopped" and scheduler.jobs[second].state == "finished")

    with_scheduler(tmp_path / "runs", work)
    assert Run.open(tmp_path / "runs" / "mlp-1").step > 0


def test_a_process_that_dies_fails_its_run_alone_and_it_resumes(tmp_path):
    async def work(scheduler):
        name = scheduler.start(recipe(steps=400, eval_every=20, keep_checkpoints=3))
        await until(lambda: scheduler.jobs[name].state == "running")
        scheduler.control(name, "delay", 0.05)
        await until(lambda: max(scheduler.run_store.folder(name).checkpoints()) >= 20)
        scheduler.jobs[name].process.kill()
        await until(lambda: scheduler.jobs[name].state == "failed")
        assert "-9" in scheduler.jobs[name].error
        scheduler.resume(name, {})
        with pytest.raises(EngramError, match="already active"):
            scheduler.resume(name, {})
        await until(lambda: scheduler.jobs[name].state == "finished")

    with_scheduler(tmp_path / "runs", work)
    tiny("mlp", tmp_path / "line", steps=400, eval_every=20, keep_checkpoints=3)
    assert content(tmp_path / "runs" / "mlp-1") == content(tmp_path / "line")


def test_who_takes_too_much_memory_is_ended(tmp_path):
    async def work(scheduler):
        name = scheduler.start(recipe(**LONG))
        await until(lambda: scheduler.jobs[name].state == "failed")
        assert "above the limit of 0.05 GB" in scheduler.jobs[name].error

    with_scheduler(tmp_path / "runs", work, memory_gb=0.05)


def test_there_is_an_end_to_waiting_and_to_runs(tmp_path):
    async def work(scheduler):
        scheduler.start(recipe(**LONG))
        scheduler.start(recipe())
        scheduler.start(recipe())
        with pytest.raises(EngramError, match="2 runs are queued already"):
            scheduler.start(recipe())
        for name in ("mlp-2", "mlp-3"):
            scheduler.control(name, "stop")
        assert not (tmp_path / "runs" / "mlp-3").exists()  # its name is free again
        with pytest.raises(EngramError, match="not active"):
            scheduler.control("mlp-3", "stop")

    with_scheduler(tmp_path / "runs", work, queue_size=2)


def test_what_waited_when_the_lab_was_killed_begins_in_the_next(tmp_path):
    async def leave(scheduler):
        scheduler.start(recipe())
        scheduler.start(recipe())  # and the lab closes before either has begun

    async def work(scheduler):
        await until(lambda: all(scheduler.jobs[name].state == "finished" for name in ("mlp-1", "mlp-2")))

    with_scheduler(tmp_path / "runs", leave)
    assert not (tmp_path / "runs" / "mlp-1" / "recipe.json").exists()
    with_scheduler(tmp_path / "runs", work)


def test_a_damaged_queue_keeps_no_lab_from_opening(tmp_path):
    (tmp_path / LAB_FOLDER).mkdir()

    async def work(scheduler):
        assert scheduler.jobs == {}

    for damage in (b"{", b"3", b'[{"name": "../x", "command": {"command": "start"}}]', b'[{"name": 3}]', b"\xff"):
        (tmp_path / LAB_FOLDER / "queue.json").write_bytes(damage)
        with_scheduler(tmp_path, work)


def test_closing_saves_what_runs(tmp_path):
    async def work(scheduler):
        name = scheduler.start(recipe(**LONG))
        await until(lambda: scheduler.jobs[name].step > 10)

    with_scheduler(tmp_path / "runs", work)
    assert Run.open(tmp_path / "runs" / "mlp-1").step > 10


def test_stopping_what_has_not_begun_leaves_nothing(tmp_path):
    async def work(scheduler):
        name = scheduler.start(recipe(**LONG))
        scheduler.control(name, "stop")
        await until(lambda: scheduler.jobs[name].state == "stopped")

    with_scheduler(tmp_path / "runs", work)
    assert not (tmp_path / "runs" / "mlp-1").exists()


@pytest.mark.parametrize(("limit", "value"), [("max_jobs", 0), ("queue_size", -1), ("memory_gb", 0.0)])
def test_limits_are_checked(limit, value):
    with pytest.raises(EngramError, match=limit):
        Limits(**{limit: value})
