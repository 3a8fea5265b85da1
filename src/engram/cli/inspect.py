"""engram inspect: look inside the model of a run."""

from collections.abc import Sequence
from typing import Any

from engram.cli.subject import StepOptions, open_run, with_run


def command(argv: Sequence[str]) -> int:
    description = "Look inside a model: a page of what happens in it while one input passes through."
    return with_run(argv, "inspect", description, StepOptions(), lambda cls: cls.InspectArgs, inspect)


def inspect(source: str, args: Any, options: StepOptions) -> None:
    """Write the page, and say where it is."""
    from engram.plots.report import write_inspection

    print(write_inspection(open_run(source, options.step), args))
