"""The law of hostile input: one sentence or success; no hang, no crash, no flood of memory, no write elsewhere.

with lawful(folder, said):          # `folder` is the one place that may be written to, `said` reproduces the input
    load_user_data(folder / "a.csv")

What is forbidden is watched by an audit hook, which Python calls before it opens, moves or removes a file, starts a
program or a connection, or looks up a name for a pickle. Memory is bounded by the system itself, and time by an alarm;
a library that does not come back to Python in time is ended with its process, and the input is in `.hypothesis/last`.
"""

import contextlib
import faulthandler
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings

from engram.core.errors import EngramError
from engram.data import cache

SECONDS = 20
"""that one input may take: a hundred times what the slowest takes, for the machine may be busy"""
MEMORY = 2 << 30
"""bytes that one input may ask for, though files of some kilobytes come to megabytes at most"""
LAST = Path(".hypothesis/last")
"""the input under way, which is still there when the process is not"""

COUNT = Path(".hypothesis/count")
"""a byte for every input that was tried for long"""
LONG = int(os.environ.get("ENGRAM_FUZZ", "0"))
"""inputs that `make fuzz` tries in a round; 0 in the suite, which tries some, the same ones each time"""

MOVING = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.chmod"}
FORBIDDEN = {
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "socket.getaddrinfo",
}  # fmt: skip

_allowed: Path | None = None
_broken: list[str] = []


class TooSlow(AssertionError):
    """An input took too long."""


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if _allowed is None:
        return
    if event in FORBIDDEN or (event == "pickle.find_class" and not _asked_by_numba()):
        _broken.append(f"{event} {arguments!r}")
    elif event == "open" and _writes(arguments):
        _must_be_inside(event, arguments[0])
    elif event in MOVING:
        *_, within = arguments  # the open folder that a path begins in, or -1
        for path in arguments[: 2 if event in ("os.rename", "os.link") else 1]:
            _must_be_inside(event, path, within)


def _asked_by_numba() -> bool:
    """Whether a pickle is one that numba wrote for itself, of a function that it has compiled."""
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if "/numba/" in frame.f_code.co_filename:
            return True
    return False


def _writes(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))


def _must_be_inside(event: str, path: Any, within: Any = -1) -> None:
    """A link is followed, as the system would follow it, but where the link itself is moved or removed."""
    if isinstance(path, int) or "__pycache__" in str(path):  # a file that is open already; Python's own
        return
    named = Path(f"/proc/self/fd/{within}" if isinstance(within, int) and within >= 0 else "", os.fsdecode(path))
    real = Path(os.path.realpath(named)) if event == "open" else Path(os.path.realpath(named.parent)) / named.name
    compiled = Path(os.environ.get("NUMBA_CACHE_DIR", "/nowhere")).resolve()  # numba keeps what it compiles there
    if not any(real.is_relative_to(place) for place in (_allowed, compiled, cache.cache_folder().resolve())):
        _broken.append(f"{event} {named}")


sys.addaudithook(_heard)


@contextlib.contextmanager
def lawful(folder: Path, said: Any = None) -> Iterator[None]:
    """Everything inside obeys the law."""
    global _allowed
    LAST.parent.mkdir(exist_ok=True)
    LAST.write_text(f"{os.environ.get('PYTEST_CURRENT_TEST', '')}\n{said!r}\n", errors="backslashreplace")
    if LONG:
        with COUNT.open("ab") as file:
            file.write(b".")
    _broken.clear()
    with bounded():
        _allowed = Path(os.path.realpath(folder))
        try:
            yield
        except EngramError as error:
            must_be_a_sentence(str(error))
        finally:
            _allowed = None
    assert not _broken, f"it did what it may not do: {_broken}"


def must_be_a_sentence(said: str) -> None:
    assert said.strip(), "an error says nothing"
    assert "\n" not in said, f"an error has several lines: {said!r}"
    assert len(said) < 3000, f"an error has {len(said)} characters: {said[:300]!r}…"
    assert "Traceback" not in said


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Limit time and memory."""

    def late(*_: Any) -> None:
        raise TooSlow(f"it took more than {SECONDS} seconds")

    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if LINUX else 0
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, late)
    faulthandler.dump_traceback_later(3 * SECONDS, exit=True)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        if LINUX:
            resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, handler)


LINUX = sys.platform == "linux"
"""elsewhere the system bounds no memory of a process, or says not how much it has"""


def trials(some: int) -> settings:
    """How many inputs a test tries in the suite; for long, those that go quickly try more."""
    common: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
    if LONG:
        return settings(max_examples=LONG * some, **common)
    return settings(max_examples=some, derandomize=True, database=None, **common)
