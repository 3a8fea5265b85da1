"""Inference worker: a process that serves requests about models (instruments, figures, samples).

    lab -> worker     {"id": 7, "endpoint": "attention", "params": {…}}   or   {"id": 7, "cancel": true}     a line each
    worker -> lab     7 part {…}      part of a response, more follow
                      7 done {…}      the last part
                      7 error "…"     a sentence

Requests are stateless: a response depends only on its parameters and on run folders, so a worker that died is replaced
by another. A response may come in parts, from a generator: between two parts the worker serves other requests and drops
canceled ones. The last few models stay loaded.
"""

import asyncio
import contextlib
import itertools
import json
import os
import queue
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

from engram.core.config import from_json
from engram.core.errors import EngramError, unknown
from engram.plots.instrument import ENDPOINTS, Response

MAX_LINE_BYTES = 1 << 28
MAX_MODELS = 4
"""models that stay loaded"""


class Models:
    """Cache of the most recently used runs and checkpoints."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._cache: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def open(self, source: str, step: int = -1) -> Any:
        """Load a run by its name, or a Hugging Face checkpoint by its folder.

        Step -1 is the newest checkpoint.
        """
        from engram.hub import huggingface
        from engram.hub.load import open_run
        from engram.lab.run_store import RunStore

        path = Path(source).expanduser()
        if os.sep in source and path.is_dir() and huggingface.is_checkpoint(path):
            key: tuple[Any, ...] = (str(path), path.stat().st_mtime_ns)
            return self._cached(key, lambda: open_run(str(path)))
        folder = RunStore(self.root).folder(source)
        steps = folder.checkpoints()
        chosen = step if step >= 0 else (steps[-1] if steps else None)
        place = folder.path / "state" / f"{chosen or 0:09d}" / "checkpoint.json"
        key = (str(folder.path), step, chosen, place.stat().st_mtime_ns if place.exists() else 0)
        return self._cached(key, lambda: open_run(str(folder.path), step if step >= 0 else None))

    def _cached(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self._cache:
            self._cache[key] = make()
            while len(self._cache) > MAX_MODELS:
                self._cache.popitem(last=False)
        self._cache.move_to_end(key)
        return self._cache[key]


# ---------------------------------------------------------------------- inside the process


def serve(inbox: "queue.Queue[dict[str, Any]]", send: Callable[[int, str, Any], None], models: Models) -> None:
    """Serve all active requests in turn, one part of each at a time."""
    active: dict[int, Iterator[Response]] = {}
    while True:
        with contextlib.suppress(queue.Empty):
            while True:
                message = inbox.get(block=not active)
                if message is STOP:
                    return
                if message.get("cancel"):
                    active.pop(message["id"], None)
                else:
                    active[message["id"]] = respond(message, models)
        for number, parts in list(active.items()):
            try:
                send(number, "part", next(parts))
                continue
            except StopIteration as end:
                send(number, "done", end.value or {})
            except EngramError as error:
                send(number, "error", str(error))
            except Exception as error:
                traceback.print_exc()
                send(number, "error", f"The computation failed: {type(error).__name__}: {error}")
            del active[number]


STOP: dict[str, Any] = {}


def respond(message: dict[str, Any], models: Models) -> Generator[Response, None, Response]:
    """Yield the parts of a response and return the last one."""
    if message["endpoint"] not in ENDPOINTS:
        raise unknown("instrument", str(message["endpoint"]), ENDPOINTS)
    endpoint = ENDPOINTS[message["endpoint"]]
    response = endpoint.function(from_json(endpoint.args(), message["params"]), models)
    if isinstance(response, dict):
        return response
    return (yield from response) or {}


def main() -> None:
    root, nice, threads = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    os.nice(nice)
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    from engram.core.registry import registry

    torch.set_num_threads(threads)
    registry()
    import_endpoints()

    def send(number: int, kind: str, value: Any) -> None:
        lines.write(f"{number} {kind} {json.dumps(value)}\n")
        lines.flush()

    inbox: queue.Queue[dict[str, Any]] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            inbox.put(json.loads(line))
        inbox.put(STOP)

    threading.Thread(target=listen, daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        serve(inbox, send, Models(root))
    os._exit(0)


def import_endpoints() -> None:
    """Import the views and every instrument, which register their endpoints."""
    from engram.core.registry import discover
    from engram.lab import views  # noqa: F401

    discover("instrument")


# ---------------------------------------------------------------------- outside


class InferenceWorker:
    """The lab's side: starts the process, sends requests and yields responses."""

    def __init__(self, root: Path, nice: int, threads: int) -> None:
        self.command = [sys.executable, "-m", "engram.lab.inference_worker", str(root), str(nice), str(threads)]
        self.child: asyncio.subprocess.Process | None = None
        self.ids = itertools.count(1)
        self.responses: dict[int, asyncio.Queue[tuple[str, str]]] = {}
        self.start_lock = asyncio.Lock()

    async def _ensure_started(self) -> asyncio.subprocess.Process:
        """Start the process unless it is running."""
        async with self.start_lock:
            if self.child is None or self.child.returncode is not None:
                pipe = asyncio.subprocess.PIPE
                self.child = await asyncio.create_subprocess_exec(
                    *self.command, stdin=pipe, stdout=pipe, limit=MAX_LINE_BYTES, start_new_session=True
                )
                self.reading = asyncio.create_task(self._read(self.child))
        return self.child

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        async for line in child.stdout:
            number, kind, value = line.decode().rstrip("\n").split(" ", 2)
            if int(number) in self.responses:
                self.responses[int(number)].put_nowait((kind, value))
        await child.wait()
        for box in self.responses.values():
            box.put_nowait(("error", json.dumps("The inference worker ended and is restarted.")))

    async def start(self) -> None:
        """Start the process before the first request."""
        await self._ensure_started()

    async def request(self, endpoint: str, params: dict[str, Any], timeout: float) -> AsyncIterator[tuple[str, str]]:
        """Yield ("part", JSON) any number of times, then ("done", JSON) or ("error", JSON)."""
        child = await self._ensure_started()
        number = next(self.ids)
        box = self.responses[number] = asyncio.Queue()
        assert child.stdin is not None
        child.stdin.write(json.dumps({"id": number, "endpoint": endpoint, "params": params}).encode() + b"\n")
        try:
            while True:
                kind, value = await asyncio.wait_for(box.get(), timeout)
                yield kind, value
                if kind != "part":
                    return
        except TimeoutError:
            child.kill()  # it is busy; the next request starts a new process
            yield "error", json.dumps(f"There was no response within {timeout:g} seconds.")
        finally:
            del self.responses[number]
            if child.returncode is None:
                child.stdin.write(json.dumps({"id": number, "cancel": True}).encode() + b"\n")

    async def close(self) -> None:
        if self.child is not None and self.child.returncode is None:
            self.child.kill()
            await self.child.wait()


if __name__ == "__main__":
    from engram.lab.inference_worker import main as run_main  # not __main__, whose registry would be empty

    run_main()
