"""Description of the machine that a run is trained on, and a warning where it resumes on another."""

import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from engram.training.run_folder import RunFolder


def machine() -> dict[str, Any]:
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_GB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def processor() -> str:
    """Return the model of the processor, or its architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def warn_of_other_threads(folder: RunFolder) -> None:
    """Warn that bits may differ if a run resumes with another number of threads."""
    recorded = folder.read_json("recipe.json").get("machine")
    before = recorded.get("threads") if isinstance(recorded, dict) else None
    if isinstance(before, int) and before != (threads := torch.get_num_threads()):
        print(
            f"engram: {folder.path} was started with {before} thread{'s'[: before != 1]} and resumes with {threads}: "
            f"its numbers may differ in their last bits from an uninterrupted run; set OMP_NUM_THREADS={before} "
            "to keep them",
            file=sys.stderr,
        )
