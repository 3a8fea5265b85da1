"""The training loop: one for every system, from the command line, from Python and in the lab.

    until the steps, the minutes or the patience are used up:
        train step
        every eval_every / 10 steps: log metrics
        every eval_every steps: evaluate, update the best, save a checkpoint
    finally: evaluate on the test split, save

SIGINT (Ctrl-C) and SIGTERM take effect between two steps: the run is saved where it stands.
"""

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

from engram.training import distributed
from engram.training.run import Run


class Interrupted(Exception):
    """The run received a signal to stop, and has been saved."""


class Callback:
    """Base of callbacks of the training loop."""

    def on_start(self, run: Run, signals: Sequence[int]) -> None:
        """Before the first step; `signals` fills with the stop signals that arrive."""

    def on_step(self, run: Run) -> None:
        """After every step."""

    def on_metrics(self, run: Run, metrics: dict[str, Any], evaluated: bool) -> None:
        """After every line of metrics; `evaluated` where they are of the validation or test split."""

    def on_finish(self, run: Run) -> None:
        """After the last step and the test."""

    def on_exit(self) -> None:
        """At the end, also after an error."""


def train(run: Run, callbacks: Sequence[Callback] = ()) -> None:
    """Train a run to its end.

    On a stop signal, save it and raise Interrupted. Its folder is unlocked at the end.
    """
    with ExitStack() as stack:
        stack.callback(run.folder.release)
        signals = stack.enter_context(catch_signals())
        for callback in callbacks:
            stack.callback(callback.on_exit)
            callback.on_start(run, signals)
        _loop(run, callbacks, signals)
        for callback in callbacks:
            callback.on_finish(run)


def _loop(run: Run, callbacks: Sequence[Callback], signals: Sequence[int]) -> None:
    recipe = run.recipe
    log_every = max(1, recipe.eval_every // 10)

    def log(metrics: dict[str, Any], evaluated: bool = True) -> dict[str, Any]:
        for callback in callbacks:
            callback.on_metrics(run, metrics, evaluated)
        return metrics

    run.start_clock()
    while run.step < recipe.steps and not run.stopped and not run.finished:
        run.train_step()
        late = bool(recipe.minutes) and run.tick() >= 60 * recipe.minutes
        (run.stopped,) = distributed.any_rank(late) if recipe.minutes else (False,)
        last = run.stopped or run.step == recipe.steps
        if run.step % log_every == 0 or last:
            log(run.record(), evaluated=False)
        if run.step % recipe.eval_every == 0 or last:
            run.update_best(log(run.evaluate("valid")))
            run.save()
        for callback in callbacks:
            callback.on_step(run)
        if any(distributed.any_rank(bool(signals))) and not last:
            run.tick()
            run.save()
            raise Interrupted(f"{run.folder.path} was interrupted and saved at step {run.step}.")
    if not run.finished:
        log(run.finish())


@contextmanager
def catch_signals() -> Iterator[list[int]]:
    """Collect stop signals; a second Ctrl-C interrupts at once, without saving."""
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    try:
        before: dict[int, Any] = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever runs us there has other ways to stop us
        before = {}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
