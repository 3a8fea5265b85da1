"""Compiled kernels that run on as many threads as torch does, and never change that number.

numba and torch share one OpenMP runtime. Launching numba's thread pool sets the number of OpenMP threads of the thread
that launches it, and with it torch's: products before and after would be summed in another order, and a process that
was given one core would take them all. The pool is therefore launched from a thread of its own.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import torch

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def parallel_njit(**options: Any) -> Callable[[Kernel], Kernel]:
    """Decorator: `numba.njit(parallel=True, cache=True)` for kernels that are called from Python."""

    def compile_kernel(function: Kernel) -> Kernel:
        kernel = numba.njit(cache=True, parallel=True, **options)(function)

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            match_torch_threads()
            return kernel(*arguments)

        return call  # type: ignore[return-value]

    return compile_kernel


def match_torch_threads() -> None:
    """Let the kernels that this thread calls use as many threads as torch does in it."""
    launch_pool()
    threads = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    if numba.get_num_threads() != threads:
        numba.set_num_threads(threads)


@functools.cache
def launch_pool() -> None:
    """Launch numba's thread pool, once per process."""
    launcher = threading.Thread(target=numba.get_num_threads)
    launcher.start()
    launcher.join()
