"""The workshop: runs in processes of their own, which wait, end, die and are killed without harm to others."""

import asyncio
import json
import time

import pytest

from engram.core.errors import EngramError
from engram.core.registry import find
from engram.lab.shelf import Shelf
from engram.lab.workshop import OWN, Limits, Workshop
from engram.training.run import Run
from tests.conftest import content, tiny


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """Workers as this process: sums over two threads end in other digits."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def recipe(**changes):
    return find("mlp").from_preset("tiny", **changes)


LONG = {"steps": 1_000_000, "every": 500_000}


def in_workshop(root, work, **limits):
    """Do something in a workshop, which is closed afterwards; every state that a run was in, in order."""
    root.mkdir(exist_ok=True)
    states: dict[str, list[str]] = {}

    def heard(job):
        seen = states.setdefault(job.name, [])
        if seen[-1:] != [job.state]:
            seen.append(job.state)

    async def whole():
        shop = Workshop(Shelf(root), Limits(**{"at_once": 1, **limits}), heard)
        shop.recall()
        try:
            await work(shop)
        finally:
            await shop.close()

    asyncio.run(whole())
    return states


async def until(true, seconds=90):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.02)


def test_a_run_in_a_process_is_the_run_of_the_command_line(tmp_path):
    tiny("mlp", tmp_path / "line")

    async def work(shop):
        name = shop.start(recipe())
        await until(lambda: shop.jobs[name].state == "finished")

    states = in_workshop(tmp_path / "runs", work)
    assert states["mlp-1"] == ["waiting", "starting", "running", "drawing", "finished"]
    assert content(tmp_path / "runs" / "mlp-1") == content(tmp_path / "line")
    assert (tmp_path / "runs" / "mlp-1" / "report.html").exists()


def test_a_run_waits_for_the_one_before_and_then_begins(tmp_path):
    async def work(shop):
        first, second = shop.start(recipe(**LONG)), shop.start(recipe())
        await until(lambda: shop.jobs[first].state == "running")
        assert shop.jobs[second].state == "waiting"
        kept = json.loads((tmp_path / "runs" / OWN / "queue.json").read_text())
        assert [one["name"] for one in kept] == [second]
        shop.tell(first, "pause")
        await until(lambda: shop.jobs[first].state == "paused")
        shop.tell(first, "stop")
        await until(lambda: shop.jobs[first].state == "stopped" and shop.jobs[second].state == "finished")

    in_workshop(tmp_path / "runs", work)
    assert Run.open(tmp_path / "runs" / "mlp-1").step > 0


def test_a_process_that_dies_fails_its_run_alone_and_it_resumes(tmp_path):
    async def work(shop):
        name = shop.start(recipe(steps=400, every=20, keep=3))
        await until(lambda: shop.jobs[name].state == "running")
        shop.tell(name, "pace", 0.05)
        await until(lambda: max(shop.shelf.folder(name).checkpoints()) >= 20)
        shop.jobs[name].process.kill()
        await until(lambda: shop.jobs[name].state == "failed")
        assert "-9" in shop.jobs[name].error
        shop.resume(name, {})
        with pytest.raises(EngramError, match="under way"):
            shop.resume(name, {})
        await until(lambda: shop.jobs[name].state == "finished")

    in_workshop(tmp_path / "runs", work)
    tiny("mlp", tmp_path / "line", steps=400, every=20, keep=3)
    assert content(tmp_path / "runs" / "mlp-1") == content(tmp_path / "line")


def test_who_takes_too_much_memory_is_ended(tmp_path):
    async def work(shop):
        name = shop.start(recipe(**LONG))
        await until(lambda: shop.jobs[name].state == "failed")
        assert "0.05 GB are allowed" in shop.jobs[name].error

    in_workshop(tmp_path / "runs", work, memory_gb=0.05)


def test_there_is_an_end_to_waiting_and_to_runs(tmp_path):
    async def work(shop):
        shop.start(recipe(**LONG))
        shop.start(recipe())
        shop.start(recipe())
        with pytest.raises(EngramError, match="2 runs wait already"):
            shop.start(recipe())
        for name in ("mlp-2", "mlp-3"):
            shop.tell(name, "stop")
        assert not (tmp_path / "runs" / "mlp-3").exists()  # its name is free again
        with pytest.raises(EngramError, match="not under way"):
            shop.tell("mlp-3", "stop")

    in_workshop(tmp_path / "runs", work, waiting=2)


def test_what_waited_when_the_lab_was_killed_begins_in_the_next(tmp_path):
    async def leave(shop):
        shop.start(recipe())
        shop.start(recipe())  # and the lab closes before either has begun

    async def work(shop):
        await until(lambda: all(shop.jobs[name].state == "finished" for name in ("mlp-1", "mlp-2")))

    in_workshop(tmp_path / "runs", leave)
    assert not (tmp_path / "runs" / "mlp-1" / "recipe.json").exists()
    in_workshop(tmp_path / "runs", work)


def test_a_damaged_queue_keeps_no_lab_from_opening(tmp_path):
    (tmp_path / OWN).mkdir()

    async def work(shop):
        assert shop.jobs == {}

    for damage in (b"{", b"3", b'[{"name": "../x", "order": {"do": "start"}}]', b'[{"name": 3}]', b"\xff"):
        (tmp_path / OWN / "queue.json").write_bytes(damage)
        in_workshop(tmp_path, work)


def test_closing_saves_what_runs(tmp_path):
    async def work(shop):
        name = shop.start(recipe(**LONG))
        await until(lambda: shop.jobs[name].step > 10)

    in_workshop(tmp_path / "runs", work)
    assert Run.open(tmp_path / "runs" / "mlp-1").step > 10


def test_stopping_what_has_not_begun_leaves_nothing(tmp_path):
    async def work(shop):
        name = shop.start(recipe(**LONG))
        shop.tell(name, "stop")
        await until(lambda: shop.jobs[name].state == "stopped")

    in_workshop(tmp_path / "runs", work)
    assert not (tmp_path / "runs" / "mlp-1").exists()


@pytest.mark.parametrize(("limit", "value"), [("at_once", 0), ("waiting", -1), ("memory_gb", 0.0)])
def test_limits_are_checked(limit, value):
    with pytest.raises(EngramError, match=limit.replace("_", "-")):
        Limits(**{limit: value})
