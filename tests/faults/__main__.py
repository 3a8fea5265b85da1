"""Every fault, and what becomes of a run: `python -m tests.faults [--kills 300] [--seed 0] [--only NAME …]`."""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.faults import clock, contest, disk, signals
from tests.faults.driver import Absent, Different, Row, Starter, starter
from tests.faults.kills import WORKS, Tally, torment

FAULTS: dict[Callable[[int, int, Path, Starter], Row], int] = {
    disk.full: 20,
    disk.limited: 10,
    disk.read_only: 4,
    disk.frozen: 6,
    disk.slow: 20,
    disk.output: 4,
    clock.jumps: 8,
    clock.jumps_in_python: 10,
    clock.limit: 3,
    signals.terminated: 42,
    signals.while_importing: 10,
    signals.then_killed: 8,
    signals.twice: 10,
    contest.contestants: 10,
    contest.intruder: 9,
    contest.readers: 4,
}
"""each fault, and how often it is tried"""


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m tests.faults")
    words.add_argument("--kills", type=int, default=300, help="how often runs of five recipes are killed")
    words.add_argument("--seed", type=int, default=0, help="number that the moments are drawn from")
    words.add_argument("--only", nargs="*", help="only these: kills, or names of faults")
    asked = words.parse_args()
    console, began, broken = Console(width=200, highlight=False), time.perf_counter(), 0
    base = Path(tempfile.mkdtemp(prefix="engram-faults-"))
    with starter(base) as made:
        if not asked.only or "kills" in asked.only:
            broken += kill_all(asked.kills, asked.seed, base, made, console)
        for fault, tries in FAULTS.items():
            if not asked.only or fault.__name__ in asked.only:
                broken += provoke(fault, tries, asked.seed, base, made, console)
    console.print(f"{time.perf_counter() - began:.0f} seconds; {broken or 'nothing'} broken.")
    if not broken:
        shutil.rmtree(base)
    return 1 if broken else 0


def kill_all(kills: int, seed: int, base: Path, made: Starter, console: Console) -> int:
    """Kills, shared among the recipes."""
    tallies, broken = list[Tally](), 0
    for i, work in enumerate(WORKS):
        began = time.perf_counter()
        try:
            share = kills // len(WORKS) + (i < kills % len(WORKS))
            tallies.append(torment(work, share, seed, base / work.name, made))
            console.print(f"{work.name}: {tallies[-1].kills} kills, {time.perf_counter() - began:.0f} s")
        except Different as error:
            broken += 1
            console.print(f"{work.name} is different: {error} (see {base / work.name})", markup=False)
    table = Table("recipe", "kills", "where they fell", "resumed", "begun again", "runs", "equal to the undisturbed")
    for tally in tallies:
        table.add_row(
            tally.name, str(tally.kills), disk.spread(tally.phases), str(tally.resumes),
            str(tally.kills - tally.resumes), str(tally.runs), f"{tally.kills} of {tally.kills}",
        )  # fmt: skip
    console.print(table)
    return broken


def provoke(
    fault: Callable[[int, int, Path, Starter], Row], tries: int, seed: int, base: Path, made: Starter, console: Console
) -> int:
    began, place = time.perf_counter(), base / fault.__name__
    place.mkdir()
    try:
        row = fault(tries, seed, place, made)
    except Absent as error:
        console.print(f"{fault.__name__}: left out, for {error}.")
        return 0
    except Different as error:
        console.print(f"{fault.__name__} broke the law: {error}", markup=False)
        return 1
    took = time.perf_counter() - began
    console.print(f"{row.fault} | {row.provoked} | {row.tries} | {row.found} | {took:.0f} s", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
