"""engram bench: contestants do the same work in turns, and the best round of each counts.

A benchmark is a file of the folder benchmarks/ that says what the work is and who does it:

    WORK = "what is done"
    UNIT = "images/s"
    def contestants() -> dict[str, Contestant]: ...

Each contestant does untimed setup and returns the function to time, which does one round and returns the number of
units done, or a Score. The others are compared with the first contestant. Optional: ROUNDS, the default number of
rounds, for instance 1 where they take long; EXTRA, the extra of the package that installs the peer, such as "brian".
"""

import importlib.util
import itertools
import json as jsonlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from engram.cli.flags import call
from engram.cli.table import print_table
from engram.core.errors import EngramError, unknown

SETTLE_SECONDS = 0.3
"""before each turn: threads of the contestant before go on spinning for a while, and would take a core"""

ROUNDS = 5
"""turns of each contestant, where neither the user nor the benchmark says otherwise"""


@dataclass(frozen=True)
class Score:
    """Score reported by a contestant that times itself or measures quality, in the benchmark's unit."""

    value: float
    note: str = ""
    """further result, shown in the last column"""


Contestant = Callable[[], Callable[[], float | Score]]


def command(argv: Sequence[str]) -> int:
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), argv))

    def bench(rounds: int | None = None, json: bool = False) -> None:
        """Compare engram with other libraries: contestants take turns on the same work.

        The best round of each counts.

        Without a name, the benchmarks are listed.

        Args:
            rounds: turns of each contestant; if not given, as many as the benchmark says, or 5
            json: print JSON instead of a table
        """
        if not names:
            print_table([{"name": name, "work": load(name).WORK} for name in benchmarks()], json)
        for name in names:
            print_result(measure(name, rounds), json)

    return call(bench, argv[len(names) :], "bench [NAME …]")


def print_result(result: dict[str, Any], json: bool) -> None:
    """Print the work and, for every contestant, its rate, its ratio to the first, and its note if any."""
    if json:
        print(jsonlib.dumps(result))
        return
    print(result["work"])
    rows = [
        {"contestant": c["name"], result["unit"]: f"{c['rate']:,.1f}", "ratio": f"{c['ratio']:.2f}", "": c["note"]}
        for c in result["contestants"]
    ]
    print_table(rows if any(row[""] for row in rows) else [dict(list(row.items())[:-1]) for row in rows], json)


def folder() -> Path:
    """Return the folder benchmarks/: inside an installed package, beside src/ in a checkout."""
    here = Path(__file__).parents[1]
    for place in (here / "benchmarks", here.parents[1] / "benchmarks"):
        if place.is_dir():
            return place
    raise EngramError("The benchmarks were not installed with this copy of engram.")


def benchmarks() -> list[str]:
    """Return the names of all benchmarks."""
    return sorted(path.stem.replace("_", "-") for path in folder().glob("[a-z]*.py"))


def load(name: str) -> ModuleType:
    if name not in benchmarks():
        raise unknown("benchmark", name, benchmarks())
    path = folder() / f"{name.replace('-', '_')}.py"
    spec = importlib.util.spec_from_file_location(f"engram_benchmark_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(name: str, rounds: int | None = None) -> dict[str, Any]:
    """Return work, unit, and for every contestant its best rate or score and its ratio to the first."""
    module = load(name)
    if rounds is None:
        rounds = getattr(module, "ROUNDS", ROUNDS)
    if rounds < 1:
        raise EngramError(f"rounds must be at least 1, not {rounds}.")
    try:
        contestants = module.contestants()
    except ImportError as error:
        extra = getattr(module, "EXTRA", "bench")
        raise EngramError(f"A peer of this benchmark is missing ({error.name}): pip install engram[{extra}].") from None
    best = dict.fromkeys(contestants, Score(0.0))
    for _ in range(rounds):
        for who, ready in contestants.items():
            work = ready()
            time.sleep(SETTLE_SECONDS)
            best[who] = max(best[who], score(work), key=lambda one: one.value)
    first = next(iter(best.values())).value or math.nan
    table = [
        {"name": who, "rate": one.value, "ratio": one.value / first, "note": one.note} for who, one in best.items()
    ]
    return {"benchmark": name, "work": module.WORK, "unit": module.UNIT, "contestants": table}


def score(work: Callable[[], float | Score]) -> Score:
    """Return the rate in units per second, or the reported Score."""
    began = time.perf_counter()
    done = work()
    return done if isinstance(done, Score) else Score(done / (time.perf_counter() - began))
