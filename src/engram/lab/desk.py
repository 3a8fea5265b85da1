"""A process that answers what pages ask of models: instruments, figures, samples. A slow or broken answer stays there.

    lab -> desk     {"id": 7, "ask": "attention", "with": {…}}   or   {"id": 7, "cancel": true}      a line each
    desk -> lab     7 part {…}      some of an answer, of which more comes
                    7 done {…}      the last of it
                    7 error "…"     a sentence

An ask is stateless: all that an answer depends on is in the ask or in a run folder, so that a desk which died is
replaced by another, and nobody notices. An answer may come in parts, from a generator: between two parts the desk hears
what else is asked, turns to it, and drops what nobody wants any more. Models stay open, the last few of them.
"""

import asyncio
import contextlib
import inspect
import itertools
import json
import os
import queue
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from engram.core.errors import EngramError, unknown
from engram.core.registry import from_json

Answer = dict[str, Any]
LONGEST_LINE = 1 << 28
OPEN = 4
"""models that are kept open"""


class Ask:
    """Something that can be asked: the dataclass of its arguments, and who answers."""

    def __init__(self, cls: type, answer: Callable[..., Any]) -> None:
        self.cls, self.answer = cls, answer


ASKS: dict[str, Ask] = {}


def ask(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function in the list of what can be asked; its first argument's dataclass says with what."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        first = next(iter(inspect.signature(function).parameters.values()))
        cls = first.annotation if isinstance(first.annotation, type) else function.__globals__[first.annotation]
        ASKS[name] = Ask(cls, function)
        return function

    return enter


def must_lie_within(asked: Any, bounds: Mapping[str, tuple[float, float]]) -> None:
    """Refuse a number outside the bounds of its field."""
    for name, (low, high) in bounds.items():
        value = getattr(asked, name, None)
        if value is not None and not low <= value <= high:
            raise EngramError(f"{name} must be from {low:g} to {high:g}, not {value:g}.")


class Models:
    """Runs and checkpoints that were opened lately."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def open(self, source: str, step: int = -1) -> Any:
        """A run of the lab by its name, or a folder with a Hugging Face checkpoint by its path.

        Step -1 is the newest checkpoint.
        """
        from engram.interop import huggingface
        from engram.lab.shelf import Shelf
        from engram.recipes.pretrained import subject

        path = Path(source).expanduser()
        if os.sep in source and path.is_dir() and huggingface.holds_checkpoint(path):
            key: tuple[Any, ...] = (str(path), path.stat().st_mtime_ns)
            return self._kept(key, lambda: subject(str(path)))
        folder = Shelf(self.root).folder(source)
        steps = folder.checkpoints()
        chosen = step if step >= 0 else (steps[-1] if steps else None)
        place = folder.path / "state" / f"{chosen or 0:09d}" / "checkpoint.json"
        key = (str(folder.path), step, chosen, place.stat().st_mtime_ns if place.exists() else 0)
        return self._kept(key, lambda: subject(str(folder.path), step if step >= 0 else None))

    def _kept(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self._open:
            self._open[key] = make()
            while len(self._open) > OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(key)
        return self._open[key]


# ---------------------------------------------------------------------- inside the process


def serve(inbox: "queue.Queue[dict[str, Any]]", say: Callable[[int, str, Any], None], models: Models) -> None:
    """Answer, turn by turn, whatever is under way."""
    under_way: dict[int, Iterator[Answer]] = {}
    while True:
        with contextlib.suppress(queue.Empty):
            while True:
                message = inbox.get(block=not under_way)
                if message is STOP:
                    return
                if message.get("cancel"):
                    under_way.pop(message["id"], None)
                else:
                    under_way[message["id"]] = answers(message, models)
        for number, parts in list(under_way.items()):
            try:
                say(number, "part", next(parts))
                continue
            except StopIteration as end:
                say(number, "done", end.value or {})
            except EngramError as error:
                say(number, "error", str(error))
            except Exception as error:
                traceback.print_exc()
                say(number, "error", f"That could not be computed: {type(error).__name__}: {error}")
            del under_way[number]


STOP: dict[str, Any] = {}


def answers(message: dict[str, Any], models: Models) -> Generator[Answer, None, Answer]:
    """The parts of an answer; one that comes at once has none but the last."""
    if message["ask"] not in ASKS:
        raise unknown("instrument", str(message["ask"]), ASKS)
    known = ASKS[message["ask"]]
    answer = known.answer(from_json(known.cls(), message["with"]), models)
    if isinstance(answer, dict):
        return answer
    return (yield from answer) or {}


def main() -> None:
    root, nice, threads = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    os.nice(nice)
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    from engram.core.registry import catalogue

    torch.set_num_threads(threads)
    catalogue()
    import_instruments()

    def say(number: int, kind: str, value: Any) -> None:
        lines.write(f"{number} {kind} {json.dumps(value)}\n")
        lines.flush()

    inbox: queue.Queue[dict[str, Any]] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            inbox.put(json.loads(line))
        inbox.put(STOP)

    threading.Thread(target=listen, daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        serve(inbox, say, Models(root))
    os._exit(0)


def import_instruments() -> None:
    """Import every instrument and the views, so that each enters what it can be asked."""
    import importlib
    import pkgutil

    from engram.lab import instruments, views  # noqa: F401

    for module in pkgutil.iter_modules(instruments.__path__):
        importlib.import_module(f"engram.lab.instruments.{module.name}")


# ---------------------------------------------------------------------- outside


class Desk:
    """The lab's side: asks, and hands on what comes back, as it comes."""

    def __init__(self, root: Path, nice: int, threads: int) -> None:
        self.words = [sys.executable, "-m", "engram.lab.desk", str(root), str(nice), str(threads)]
        self.child: asyncio.subprocess.Process | None = None
        self.numbers = itertools.count(1)
        self.waiting: dict[int, asyncio.Queue[tuple[str, str]]] = {}
        self.starting = asyncio.Lock()

    async def _alive(self) -> asyncio.subprocess.Process:
        """The process, started if there is none."""
        async with self.starting:
            if self.child is None or self.child.returncode is not None:
                pipe = asyncio.subprocess.PIPE
                self.child = await asyncio.create_subprocess_exec(
                    *self.words, stdin=pipe, stdout=pipe, limit=LONGEST_LINE, start_new_session=True
                )
                self.hearing = asyncio.create_task(self._hear(self.child))
        return self.child

    async def _hear(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        async for line in child.stdout:
            number, kind, value = line.decode().rstrip("\n").split(" ", 2)
            if int(number) in self.waiting:
                self.waiting[int(number)].put_nowait((kind, value))
        await child.wait()
        for box in self.waiting.values():
            box.put_nowait(("error", json.dumps("What computes for the instruments has ended and begins anew.")))

    async def warm(self) -> None:
        await self._alive()

    async def ask(self, name: str, arguments: dict[str, Any], seconds: float) -> AsyncIterator[tuple[str, str]]:
        """(«part», JSON) as often as there are parts, then («done», JSON) or («error», JSON)."""
        child = await self._alive()
        number = next(self.numbers)
        box = self.waiting[number] = asyncio.Queue()
        assert child.stdin is not None
        child.stdin.write(json.dumps({"id": number, "ask": name, "with": arguments}).encode() + b"\n")
        try:
            while True:
                kind, value = await asyncio.wait_for(box.get(), seconds)
                yield kind, value
                if kind != "part":
                    return
        except TimeoutError:
            child.kill()  # it is inside something long: only an end helps, and the next ask begins anew
            yield "error", json.dumps(f"There was no answer within {seconds:g} seconds.")
        finally:
            del self.waiting[number]
            if child.returncode is None:
                child.stdin.write(json.dumps({"id": number, "cancel": True}).encode() + b"\n")

    async def close(self) -> None:
        if self.child is not None and self.child.returncode is None:
            self.child.kill()
            await self.child.wait()


if __name__ == "__main__":
    from engram.lab.desk import main as own  # not this module's twin, in which nothing would be entered

    own()
