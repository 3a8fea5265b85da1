"""Memory of this machine: how much is available, and one sentence instead of an allocator's error."""

import contextlib
import ctypes
import os
import re
from pathlib import Path

from engram.core.errors import EngramError

CGROUP = Path("/sys/fs/cgroup")
"""where Linux keeps the memory limit of a container"""
MEMINFO = Path("/proc/meminfo")
FAILURES = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "unable to allocate",
    "storage size calculation overflowed",
    "integer multiplication overflow",
    "too large to convert to c long",
    "overflow when unpacking long",
    "maximum allowed dimension exceeded",
    "array is too big",
)
"""what the allocators of torch, numpy and CUDA say, in lower case"""
ADVICE = "take a smaller model, --batch, --context or --count"


def available_memory() -> int | None:
    """Return the bytes that this process can still take; None where the system does not say."""
    known = [size for size in (_free_memory(), _free_in_container()) if size is not None]
    return min(known) if known else None


def _free_memory() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return sum(1024 * int(lines[name].split()[0]) for name in ("MemAvailable", "SwapFree") if name in lines)
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def _free_in_container() -> int | None:
    """Return what the memory limit of the container leaves; the cache of files gives way."""
    with contextlib.suppress(OSError, ValueError):
        used = int((CGROUP / "memory.current").read_text())
        cached = re.search(r"^inactive_file (\d+)", (CGROUP / "memory.stat").read_text(), re.MULTILINE)
        return int((CGROUP / "memory.max").read_text()) - used + (int(cached[1]) if cached else 0)
    return None


def check_memory(needed: float, what: str, advice: str = ADVICE) -> None:
    """Refuse what needs more bytes than are available."""
    available = available_memory()
    if available is not None and needed > available:
        has = f"{gigabytes(available)} are available"
        raise EngramError(f"{what} would take at least {gigabytes(needed)} of memory, and {has}: {advice}.")


def gigabytes(size: float) -> str:
    """Return bytes as GB: 2.5e9 -> 2.5 GB."""
    return f"{size / 1e9:,.1f} GB" if size < 1e11 else f"{size / 1e9:,.0f} GB"


def is_allocation_failure(error: BaseException) -> bool:
    """Return whether an error of Python, numpy, torch or CUDA says that memory could not be allocated."""
    if isinstance(error, MemoryError):
        return True
    kinds = (RuntimeError, ValueError, OverflowError)
    return isinstance(error, kinds) and any(words in str(error).lower() for words in FAILURES)


def allocation_error(error: BaseException) -> EngramError:
    """Return the sentence for a failed allocation, with its size where the error names it."""
    wanted = re.search(r"tried to allocate (\d+) bytes|allocate (\S+ [KMGTPE]i?B)", str(error))
    size = (gigabytes(int(wanted[1])) if wanted[1] else wanted[2]) if wanted else "more"
    available = available_memory()
    has = "" if available is None else f", and {gigabytes(available)} are available"
    return EngramError(f"The memory is not enough: {size} was asked for at once{has}; {ADVICE}.")


def trim_heap() -> None:
    """Return free memory of the heap to the system, where the C library can."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
