"""Look for inputs that break the law, for as many minutes as asked: `make fuzz MINUTES=60`.

Each file of tests here has its turn in a process of its own, with as many inputs as take about a minute, again and
again until the time is over. What one finds is printed with the input that shows it, and remembered in `.hypothesis`,
where the next run begins. A process that dies says so, and its last input is printed.
"""

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz.law import COUNT, LAST

HERE = Path(__file__).parent
INPUTS = 8
"""times as many as in the suite, in one turn"""
LONGEST = 20 * 60
"""seconds after which a turn is ended that should have taken one minute"""


def turn(file: Path) -> bool:
    """One turn of one file; whether all was well."""
    words = [sys.executable, "-m", "pytest", str(file), "-p", "no:cacheprovider", "--tb=short"]
    try:
        done = subprocess.run(
            words,
            env={**os.environ, "ENGRAM_FUZZ": str(INPUTS)},
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"{file.name} did not end. Its last input was:\n{LAST.read_text()}")
        return False
    if done.returncode == 0:
        return True
    print(done.stdout, done.stderr)
    if done.returncode != 1:  # not of pytest's own: a crash
        print(f"{file.name} ended with {done.returncode}. Its last input was:\n{LAST.read_text()}")
    return False


def main(minutes: float) -> int:
    end, wrong = time.monotonic() + 60 * minutes, set()
    COUNT.unlink(missing_ok=True)
    for file in itertools.cycle(sorted(HERE.glob("test_*.py"))):
        if time.monotonic() >= end:
            break
        began = time.monotonic()
        well = turn(file)
        wrong |= set() if well else {file.name}
        print(f"{file.name:24} {time.monotonic() - began:5.0f} s   {'well' if well else 'BROKEN'}", flush=True)
    tried = COUNT.stat().st_size if COUNT.exists() else 0
    print(f"{tried:,} inputs in {minutes:g} minutes: {'nothing found' if not wrong else ', '.join(sorted(wrong))}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0))
