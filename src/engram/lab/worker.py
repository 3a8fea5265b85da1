"""A process that trains one run for the lab, and can be paused, slowed down, stepped and stopped while it does.

    lab -> worker     a JSON object a line on standard input:   {"do": "start", …}, pause, go, step, pace, stop
    worker -> lab     a JSON object a line on standard output:  {"state": "running"}, {"step": 12, "values": {…}}

It belongs to the lab: when standard input closes, because the lab stopped or was killed, the run is saved and ends.
A worker begins by importing everything, and then waits for its run: a lab keeps one that is ready.
"""

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from engram.core.errors import EngramError
from engram.core.registry import catalogue, find, from_json
from engram.recipes import carry_on
from engram.training.loop import Interrupted
from engram.training.progress import Progress
from engram.training.run import Run

SECONDS_BETWEEN_WORDS = 0.15
NICE = 5
"""how far training stands back behind the lab that shows it"""
Say = Callable[[dict[str, Any]], None]


class Obedient(Progress):
    """Tells the lab how a run goes, and does between two steps what the lab says."""

    def __init__(self, inbox: "queue.Queue[dict[str, Any]]", say: Say) -> None:
        super().__init__(quiet=True)
        self.inbox, self.say = inbox, say
        self.paused = False
        self.allowed = 0  # single steps while paused
        self.seconds_a_step = 0.0  # slow motion

    @contextlib.contextmanager
    def of(self, run: Run, asked: Sequence[int] = ()) -> Iterator[None]:
        self.moved_at = time.perf_counter()
        self.say({"state": "running"})
        with super().of(run, asked):
            yield
        self.say({"state": "drawing"})

    def moved(self, always: bool = False) -> None:
        self.tell(always)
        while not self.inbox.empty():
            self.obey(self.inbox.get())
        self.allowed = max(0, self.allowed - 1)
        if self.paused and not self.allowed or self.seconds_a_step:
            self.wait()

    def tell(self, always: bool = False) -> None:
        """Where the run is, a few times a second, or after every step of a slow run."""
        now = time.perf_counter()
        if not (always or self.paused or self.seconds_a_step or now - self.said > SECONDS_BETWEEN_WORDS):
            return
        self.said = now
        newest = self.run.window[-1] if self.run.window else {}
        values = {name: float(value) for name, value in newest.items()}
        self.say({"step": self.run.step, "values": values, "pace": self.pace()})

    def wait(self) -> None:
        """Nothing happens until the next step may be taken; this time does not count as the run's."""
        self.run.tick()
        if self.paused and not self.allowed:
            self.tell(always=True)
        while not self.asked:
            left = self.moved_at + self.seconds_a_step - time.perf_counter()
            if (not self.paused and left <= 0) or (self.paused and self.allowed):
                break
            try:
                self.obey(self.inbox.get(timeout=0.1 if self.paused else min(0.1, left)))
            except queue.Empty:
                continue
        self.moved_at = time.perf_counter()
        self.run.start_clock()

    def obey(self, message: dict[str, Any]) -> None:
        match message["do"]:
            case "pause":
                self.paused, self.allowed = True, 0
                self.tell(always=True)  # first: whoever reads that it is paused reads at which step, too
                self.say({"state": "paused"})
            case "go":
                self.paused = False
                self.say({"state": "running"})
            case "step":
                self.paused, self.allowed = True, self.allowed + 1
                self.say({"state": "paused"})
            case "pace":
                self.seconds_a_step = message["seconds"]
            case "stop":
                signal.raise_signal(signal.SIGTERM)


def begun(order: dict[str, Any]) -> Run:
    """The run that the lab asks for: a new one, or one to go on with."""
    folder = Path(order["folder"])
    if order["do"] == "resume":
        return Run.resume(folder, **order["changes"])
    return Run.start(from_json(find(order["recipe"])(), order["fields"]), folder)


def work(inbox: "queue.Queue[dict[str, Any]]", say: Say) -> None:
    """One run, from its order to its end."""
    say({"state": "ready"})
    order = inbox.get()
    if order["do"] == "stop":
        return
    say({"state": "starting"})
    try:
        carry_on(begun(order), Obedient(inbox, say))
        say({"state": "finished"})
    except (Interrupted, KeyboardInterrupt):
        say({"state": "stopped"})
    except EngramError as error:
        say({"state": "failed", "error": str(error)})
    except Exception as error:
        traceback.print_exc()
        say({"state": "failed", "error": f"It ended with {type(error).__name__}: {error}"})


def listen(inbox: "queue.Queue[dict[str, Any]]") -> None:
    """Every line of standard input; its end is an order to stop."""
    for line in sys.stdin:
        inbox.put(json.loads(line))
    inbox.put({"do": "stop"})


def main() -> None:
    os.nice(NICE)
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else prints goes where errors go

    def say(message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the lab is gone: its end of standard input says so too
            print(json.dumps(message), file=lines)

    catalogue()
    inbox: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=listen, args=(inbox,), daemon=True).start()
    work(inbox, say)
    lines.close()
    sys.stdout.flush()
    os._exit(0)  # the thread that reads may be inside a read, where an orderly end would wait for it


if __name__ == "__main__":
    main()
