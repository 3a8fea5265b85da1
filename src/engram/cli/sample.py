"""engram sample: sample from the model of a run."""

import json as jsonlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge

from engram.cli.subject import StepOptions, open_run, with_run


@dataclass(frozen=True, kw_only=True)
class SampleOptions(StepOptions):
    """Flags of every recipe."""

    count: Annotated[int, Ge(0)] = 0
    """number of samples; 0 means as many as the recipe usually draws"""
    seed: int = 0
    """seed of the random numbers"""
    json: bool = False
    """print JSON: the samples with their fields, and the files of arrays and images"""


def command(argv: Sequence[str]) -> int:
    description = "Sample from a model: images, text, predictions. The samples are kept in the run's folder samples/."
    return with_run(argv, "sample", description, SampleOptions(), lambda cls: cls.SampleArgs, sample)


def sample(source: str, args: Any, options: SampleOptions) -> None:
    """Draw samples, print text as it comes, and say where the files are."""
    from engram.plots.report import write_sample

    streamed: list[str] = []

    def print_text(text: str) -> None:
        streamed.append(text)
        if not options.json:
            print(text, end="", flush=True)

    result, paths = write_sample(open_run(source, options.step), options.count or None, options.seed, args, print_text)
    if options.json:
        found = {"samples": [dict(row) for row in result.rows], "files": [str(path) for path in paths]}
        print(jsonlib.dumps(found, ensure_ascii=False))
    else:
        print("\n".join([*([] if streamed else [result.text]), *map(str, paths)]))
