"""Worker process: trains one run for the lab, and can be paused, slowed down, stepped and stopped.

    lab -> worker     a JSON object per line on standard input:   {"command": "start", …}, pause, continue, step, …
    worker -> lab     a JSON object per line on standard output:  {"state": "running"}, {"step": 12, "values": {…}}

When standard input closes, because the lab stopped or was killed, the run is saved and ends. A worker imports
everything and then waits for its command: the lab keeps one spare worker.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engram.core.config import from_json
from engram.core.errors import EngramError
from engram.core.registry import get_recipe, registry
from engram.plots.report import WriteReport
from engram.training.progress import Throughput
from engram.training.run import Run
from engram.training.train import Callback, Interrupted, train

REPORT_SECONDS = 0.15
"""interval between progress messages"""
NICE = 5
"""niceness of training, so that the lab stays responsive"""
Send = Callable[[dict[str, Any]], None]


class RunController(Callback):
    """Reports the progress of a run to the lab, and carries out its commands between two steps."""

    def __init__(self, inbox: "queue.Queue[dict[str, Any]]", send: Send) -> None:
        self.inbox, self.send = inbox, send
        self.paused = False
        self.steps_left = 0  # single steps while paused
        self.delay_seconds = 0.0  # slow motion

    def on_start(self, run: Run, signals: Sequence[int]) -> None:
        self.run, self.signals, self.throughput = run, signals, Throughput(run)
        self.stepped_at, self.reported_at = time.perf_counter(), 0.0
        self.send({"state": "running"})

    def on_step(self, run: Run) -> None:
        self.report()
        while not self.inbox.empty():
            self.execute(self.inbox.get())
        self.steps_left = max(0, self.steps_left - 1)
        if self.paused and not self.steps_left or self.delay_seconds:
            self.wait()

    def on_finish(self, run: Run) -> None:
        self.report(force=True)
        self.send({"state": "reporting"})

    def report(self, force: bool = False) -> None:
        """Send step and metrics a few times a second, or after every step of a slow run."""
        now = time.perf_counter()
        if not (force or self.paused or self.delay_seconds or now - self.reported_at > REPORT_SECONDS):
            return
        self.reported_at = now
        newest = self.run.window[-1] if self.run.window else {}
        values = {name: float(value) for name, value in newest.items()}
        self.send({"step": self.run.step, "values": values, "throughput": str(self.throughput)})

    def wait(self) -> None:
        """Wait until the next step may run; the time is not counted as training time."""
        self.run.tick()
        if self.paused and not self.steps_left:
            self.report(force=True)
        while not self.signals:
            left = self.stepped_at + self.delay_seconds - time.perf_counter()
            if (not self.paused and left <= 0) or (self.paused and self.steps_left):
                break
            try:
                self.execute(self.inbox.get(timeout=0.1 if self.paused else min(0.1, left)))
            except queue.Empty:
                continue
        self.stepped_at = time.perf_counter()
        self.run.start_clock()

    def execute(self, message: dict[str, Any]) -> None:
        """Carry out a command of the lab."""
        match message["command"]:
            case "pause":
                self.paused, self.steps_left = True, 0
                self.report(force=True)  # first, so that a page that shows "paused" shows the right step
                self.send({"state": "paused"})
            case "continue":
                self.paused = False
                self.send({"state": "running"})
            case "step":
                self.paused, self.steps_left = True, self.steps_left + 1
                self.send({"state": "paused"})
            case "delay":
                self.delay_seconds = message["seconds"]
            case "stop":
                signal.raise_signal(signal.SIGTERM)


def open_run(command: dict[str, Any]) -> Run:
    """Start a new run, or load the one to resume."""
    folder = Path(command["folder"])
    if command["command"] == "resume":
        return Run.resume(folder, **command["changes"])
    return Run.start(from_json(get_recipe(command["recipe"])(), command["fields"]), folder)


def work(inbox: "queue.Queue[dict[str, Any]]", send: Send) -> None:
    """Wait for a command and train its run to the end."""
    send({"state": "ready"})
    command = inbox.get()
    if command["command"] == "stop":
        return
    send({"state": "starting"})
    try:
        train(open_run(command), [RunController(inbox, send), WriteReport()])
        send({"state": "finished"})
    except (Interrupted, KeyboardInterrupt):
        send({"state": "stopped"})
    except EngramError as error:
        send({"state": "failed", "error": str(error)})
    except Exception as error:
        traceback.print_exc()
        send({"state": "failed", "error": f"The run failed with {type(error).__name__}: {error}"})


def listen(inbox: "queue.Queue[dict[str, Any]]") -> None:
    """Read commands from standard input; its end is the command to stop."""
    for line in sys.stdin:
        inbox.put(json.loads(line))
    inbox.put({"command": "stop"})


def main() -> None:
    os.nice(NICE)
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # anything else that is printed goes to standard error

    def send(message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the lab is gone, and standard input is closed too
            print(json.dumps(message), file=lines)

    registry()
    inbox: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=listen, args=(inbox,), daemon=True).start()
    work(inbox, send)
    lines.close()
    sys.stdout.flush()
    os._exit(0)  # the listening thread may be blocked in a read, which sys.exit would wait for


if __name__ == "__main__":
    main()
