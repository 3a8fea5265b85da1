"""Side by side: contestants do the same work in turns, and the best round of each counts.

A benchmark is a file of the folder benchmarks/ that says what the work is and who does it:

    WORK = "what is done"
    UNIT = "images/s"
    def contestants() -> dict[str, Contestant]: ...

A contestant makes itself ready, which is not timed, and returns its work, which is: a function that does one round and
returns how much it has done, or a Score where that is not what counts. The first contestant is the one that the others
are compared with. A file whose rounds take long says how many there are, ROUNDS = 1, and one whose peer is installed
apart says by what: EXTRA = "brian".
"""

import importlib.util
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from engram.core.errors import EngramError, unknown

SETTLE_SECONDS = 0.3
"""before each turn: threads of the contestant before go on spinning for a while, and would take a core"""

ROUNDS = 5
"""turns of each contestant, where neither the user nor the benchmark says otherwise"""


@dataclass(frozen=True)
class Score:
    """What a contestant says of itself in the benchmark's unit: it keeps its own clock, or is not after speed."""

    value: float
    note: str = ""
    """what else is worth knowing"""


Contestant = Callable[[], Callable[[], float | Score]]


def folder() -> Path:
    """benchmarks/, which an installed package carries inside and a checkout has beside src/."""
    here = Path(__file__).parent
    for place in (here / "benchmarks", here.parents[1] / "benchmarks"):
        if place.is_dir():
            return place
    raise EngramError("The benchmarks were not installed with this copy of engram.")


def names() -> list[str]:
    return sorted(path.stem.replace("_", "-") for path in folder().glob("[a-z]*.py"))


def load(name: str) -> ModuleType:
    if name not in names():
        raise unknown("benchmark", name, names())
    path = folder() / f"{name.replace('-', '_')}.py"
    spec = importlib.util.spec_from_file_location(f"engram_benchmark_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(name: str, rounds: int | None = None) -> dict[str, Any]:
    """Work, unit, and for every contestant its best rate, or score, and its ratio to the first."""
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
    """What is done in a second, or what the contestant says."""
    began = time.perf_counter()
    done = work()
    return done if isinstance(done, Score) else Score(done / (time.perf_counter() - began))
