"""engram lab: open the lab."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from engram.cli.flags import call


def command(argv: Sequence[str]) -> int:
    return call(lab, argv, "lab")


def lab(
    runs: Path = Path("runs"),
    port: int = 0,
    browser: bool = True,
    max_jobs: int = 0,
    memory_gb: float = 8.0,
) -> None:
    """Open the lab: a web page with live runs of every system.

    Args:
        runs: folder of the runs
        port: port on this machine; 0 means 8765, or a free one
        browser: open the page in a browser
        max_jobs: runs that train at the same time, while others are queued; 0 means half of the cores
        memory_gb: memory limit of one run, in GB
    """
    from engram.lab.scheduler import Limits
    from engram.lab.server import serve

    limits = Limits(memory_gb=memory_gb, **({"max_jobs": max_jobs} if max_jobs else {}))
    console = Console(highlight=False, soft_wrap=True)

    def announce(address: str) -> None:
        console.print(
            f"The lab is open at [cyan]{escape(address)}[/cyan]\nIts runs are in {escape(str(runs))}. "
            "Ctrl-C saves active runs and closes the lab."
        )

    serve(runs, port, limits, browser, announce)
