"""Child process of a sweep: trains trials, one after the other, each in a run folder of its own.

    sweep -> worker    {"number": 3, "folder": …, "recipe": "mlp", "fields": {…}}, and {"prune": false} to every report
    worker -> sweep    {"number": 3, "step": 400, "value": 0.91}, and at the end {"number": 3, "state": "complete", …}

When standard input closes, because the sweep is interrupted or was killed, the trial is saved and the worker ends.
"""

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
from engram.core.registry import get_recipe
from engram.training import process_group
from engram.training.run import NotFinite, Run
from engram.training.run_folder import RunFolder
from engram.training.train import Callback, Interrupted, train

SAVE_SECONDS = 20.0
"""after standard input has closed, how long saving may take before the worker ends at once"""
REPLY_SECONDS = 600.0
"""how long the sweep may take to reply to a report"""
LOCK_SECONDS = 2 * SAVE_SECONDS
"""how long the worker of an earlier sweep, which was killed, may take to let go of a run folder"""

Inbox = queue.Queue[dict[str, Any] | None]
Send = Callable[[dict[str, Any]], None]


class Pruned(Exception):
    """ASHA has ended the trial."""


class Report(Callback):
    """Reports the metric of every evaluation to the sweep, and ends the run if the reply is to prune it."""

    def __init__(self, number: int, inbox: Inbox, send: Send) -> None:
        self.number, self.inbox, self.send = number, inbox, send
        self.value: float | None = None

    def on_start(self, run: Run, signals: Sequence[int]) -> None:
        for step, value in evaluations(run).items():  # of a run that is resumed
            self.exchange(step, value)

    def on_metrics(self, run: Run, metrics: dict[str, Any], evaluated: bool) -> None:
        self.value = metrics.get(run.recipe.best[0]) if evaluated else None

    def on_step(self, run: Run) -> None:
        """Report after the checkpoint of an evaluation; the last is reported with the result."""
        if self.value is not None and run.step < run.recipe.steps and not run.stopped:
            self.exchange(run.step, self.value)
        self.value = None

    def exchange(self, step: int, value: float) -> None:
        """Send a metric and wait for the reply."""
        self.send({"number": self.number, "step": step, "value": value})
        try:
            reply = self.inbox.get(timeout=REPLY_SECONDS)
        except queue.Empty:
            signal.raise_signal(signal.SIGTERM)  # the run is saved after the next step
            return
        if reply is None:  # standard input has closed, and the signal to stop is on its way
            self.inbox.put(None)
        elif reply["prune"]:
            raise Pruned


def evaluations(run: Run) -> dict[int, float]:
    """The metric that the sweep compares, by step."""
    name = run.recipe.best[0]
    return {line["step"]: line[name] for line in run.folder.metrics() if name in line}


def open_run(order: dict[str, Any]) -> Run:
    """Start the run of a trial, or resume one that was interrupted."""
    folder = RunFolder(Path(order["folder"]))
    deadline = time.monotonic() + LOCK_SECONDS
    while folder.path.exists() and folder.in_use() and time.monotonic() < deadline:
        time.sleep(0.1)
    if folder.holds_run():
        return Run.resume(folder.path)
    return Run.start(from_json(get_recipe(order["recipe"])(), order["fields"]), folder.path)


def train_trial(order: dict[str, Any], inbox: Inbox, send: Send) -> dict[str, Any]:
    """Train one trial; return its state, and its metric or what went wrong."""
    run = None
    try:
        run = open_run(order)
        train(run, [Report(order["number"], inbox, send)])
    except Pruned:
        return {"state": "pruned", "seconds": run.seconds if run else 0.0}
    except (Interrupted, KeyboardInterrupt):
        return {"state": "stopped"}
    except NotFinite as error:
        return {"state": "diverged", "error": str(error), "seconds": run.seconds if run else 0.0}
    except EngramError as error:
        return {"state": "failed", "error": str(error)}
    except Exception as error:
        traceback.print_exc()
        return {"state": "failed", "error": f"{type(error).__name__}: {error}"}
    finally:
        if run is not None:
            run.folder.release()
    values = evaluations(run)
    if run.result_step not in values:
        return {"state": "failed", "error": f"{run.recipe.best[0]} is not among the metrics of {run.recipe.name}."}
    return {"state": "complete", "value": values[run.result_step], "step": run.step, "seconds": run.seconds}


def listen(inbox: Inbox) -> None:
    """Read orders and replies; at their end stop, in time."""
    for line in sys.stdin:
        inbox.put(json.loads(line))
    inbox.put(None)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SAVE_SECONDS)
    os._exit(1)


def main() -> None:
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # anything else that is printed goes to the log
    inbox: Inbox = queue.Queue()

    def send(message: dict[str, Any]) -> None:
        try:
            print(json.dumps(message), file=lines)
        except OSError:  # the sweep is gone, and standard input is closed too
            inbox.put(None)

    threading.Thread(target=listen, args=(inbox,), daemon=True).start()
    with process_group.join(device=sys.argv[1]):
        while order := inbox.get():  # until standard input closes
            send({"number": order["number"], **train_trial(order, inbox, send)})
    os._exit(0)  # the listening thread may be blocked in a read, which sys.exit would wait for


if __name__ == "__main__":
    main()
