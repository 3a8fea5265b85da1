"""Side by side: contestants do the same work in turns, and the best round of each counts.

A benchmark is a file of the folder benchmarks/ that says what the work is and who does it:

    WORK = "what is done"
    UNIT = "images/s"
    def contestants() -> dict[str, Contestant]: ...

A contestant makes itself ready, which is not timed, and returns its work, which is: a function that does one round and
returns how much it has done. The first contestant is the one that the others are compared with.
"""

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from engram.core.errors import EngramError, unknown

SETTLE_SECONDS = 0.3
"""before each turn: threads of the contestant before go on spinning for a while, and would take a core"""

Contestant = Callable[[], Callable[[], float]]


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


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Work, unit, and for every contestant its best rate and its ratio to the first."""
    if rounds < 1:
        raise EngramError(f"rounds must be at least 1, not {rounds}.")
    module = load(name)
    try:
        contestants = module.contestants()
    except ImportError as error:
        raise EngramError(f"A peer of this benchmark is missing ({error.name}): pip install engram[bench].") from None
    best = dict.fromkeys(contestants, 0.0)
    for _ in range(rounds):
        for who, ready in contestants.items():
            work = ready()
            time.sleep(SETTLE_SECONDS)
            began = time.perf_counter()
            done = work()
            best[who] = max(best[who], done / (time.perf_counter() - began))
    reference = next(iter(best.values()))
    table = [{"name": who, "rate": rate, "ratio": rate / reference} for who, rate in best.items()]
    return {"benchmark": name, "work": module.WORK, "unit": module.UNIT, "contestants": table}
