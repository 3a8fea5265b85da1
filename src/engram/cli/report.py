"""engram report: the report of a run, or a comparison of several."""

from collections.abc import Sequence
from pathlib import Path

from engram.cli.flags import call
from engram.core.errors import EngramError


def command(argv: Sequence[str]) -> int:
    return call(report, argv, "report")


def report(runs: tuple[Path, ...], out: Path | None = None) -> None:
    """Write the report of a run, finished or not, anew; of several runs, a page that compares them.

    Args:
        runs: run folder, or several
        out: where the comparison goes; beside the first run, comparison.html, if not given
    """
    from engram.plots.comparison import write_comparison
    from engram.plots.report import write_report
    from engram.training.run import Run

    if not runs:
        raise EngramError("engram report needs a run folder, or several to compare.")
    if len(runs) > 1:
        print(write_comparison(runs, out or runs[0].resolve().parent / "comparison.html"))
    elif out is not None:
        raise EngramError("The report of one run goes into its folder: --out is for a comparison of several.")
    else:
        print(write_report(Run.open(runs[0])))
