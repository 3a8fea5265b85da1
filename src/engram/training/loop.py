"""The one loop, whatever is being learnt.

    until the steps, the minutes or the patience are used up:
        step
        now and then: a line of metrics
        every so often: evaluate, judge, checkpoint
    finally: test, checkpoint

Ctrl-C and SIGTERM are heard between two steps, never inside one: the run is saved where it stands.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from engram.core import together
from engram.training.progress import Progress
from engram.training.run import Run


class Interrupted(Exception):
    """The run was asked to stop, and has been saved."""


def train(run: Run, progress: Progress) -> None:
    """Drive a run to its end, or save it and raise Interrupted when a signal comes."""
    recipe = run.recipe
    log_every = max(1, recipe.every // 10)
    with listening() as asked, progress.of(run, asked):
        run.start_clock()
        while run.step < recipe.steps and not run.stopped and not run.finished:
            run.advance()
            late = bool(recipe.minutes) and run.tick() >= 60 * recipe.minutes
            (run.stopped,) = together.any_of(late) if recipe.minutes else (False,)
            last = run.stopped or run.step == recipe.steps
            if run.step % log_every == 0 or last:
                progress.show(run.record())
            if run.step % recipe.every == 0 or last:
                line = run.evaluate("valid")
                progress.show(line, important=True)
                run.judge(line)
                run.save()
            progress.moved()
            if any(together.any_of(bool(asked))) and not last:
                run.tick()
                run.save()
                raise Interrupted(f"{run.folder.path} was interrupted and saved at step {run.step}.")
        if not run.finished:
            progress.show(run.finish(), important=True)


@contextmanager
def listening() -> Iterator[list[int]]:
    """The signals received so far; a second Ctrl-C interrupts at once, and loses what was not yet saved."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if heard:
            raise KeyboardInterrupt
        heard.append(number)

    try:
        before: dict[int, Any] = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever runs us there has other ways to stop us
        before = {}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
