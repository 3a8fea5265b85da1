"""Worker processes of a sweep, seen from the sweep.

They are started, spoken to, and ended whatever happens.
"""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from engram.core.files import writing
from engram.training.sweep.worker import SAVE_SECONDS

CHUNK = 1 << 16
KILL_SECONDS = 10.0
"""how long the system may take to end a process that is killed"""
MAX_LOG = 300
"""characters of the log that explain why a worker has ended"""
TORCHRUN = ("WORLD_SIZE", "RANK", "LOCAL_RANK")
"""environment variables that would make a worker one of several processes of a run"""


class Worker:
    """Handle of a worker process."""

    def __init__(self, log: Path, threads: int, device: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in TORCHRUN}
        environment["OMP_NUM_THREADS"] = str(threads)
        with writing(log), log.open("ab") as file:
            self.log, self.log_start = log, file.seek(0, os.SEEK_END)
            self.process = subprocess.Popen(
                [sys.executable, "-m", "engram.training.sweep.worker", device], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=file, env=environment, start_new_session=True,
            )  # fmt: skip
        self.trial: int | None = None
        self.rest = b""

    def send(self, message: dict[str, Any]) -> None:
        """Write a message to its standard input."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which is noticed when it is read from
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def receive(self) -> list[dict[str, Any]] | None:
        """Messages that have arrived; None once it has ended."""
        assert self.process.stdout is not None
        chunk = os.read(self.process.stdout.fileno(), CHUNK)
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        return [json.loads(line) for line in lines] if chunk else None

    def stop(self) -> None:
        """Close its standard input: it saves its trial and ends."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def end(self) -> str:
        """Kill it if it is still alive; return what it said last."""
        if self.process.poll() is None:
            self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(KILL_SECONDS)
        self.stop()
        assert self.process.stdout is not None
        self.process.stdout.close()
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(self.log_start)
            return file.read().decode(errors="replace")[-MAX_LOG:].strip()
        return ""


class WorkerPool:
    """Up to `jobs` worker processes; leaving its `with` block lets them save, and ends them."""

    def __init__(self, folder: Path, jobs: int, device: str) -> None:
        self.folder, self.jobs, self.device = folder, jobs, device
        self.threads = max(1, torch.get_num_threads() // jobs)
        self.workers: list[Worker] = []
        self.selector = selectors.DefaultSelector()

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = 0.0 if kind is not None and issubclass(kind, KeyboardInterrupt) else SAVE_SECONDS
        deadline = time.monotonic() + seconds
        try:
            for worker in self.workers:
                worker.stop()
            for worker in self.workers:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for worker in self.workers:
                worker.end()
            self.selector.close()

    def idle(self) -> Worker | None:
        """A worker without a trial, which is started if there may be another one."""
        for worker in self.workers:
            if worker.trial is None:
                return worker
        if len(self.workers) == self.jobs:
            return None
        used = {worker.log for worker in self.workers}
        logs = (self.folder / f"worker-{number}.txt" for number in range(1, self.jobs + 1))
        worker = Worker(next(log for log in logs if log not in used), self.threads, self.device)
        self.workers.append(worker)
        self.selector.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
        return worker

    def busy(self) -> bool:
        """Whether a worker has a trial."""
        return any(worker.trial is not None for worker in self.workers)

    def receive(self, seconds: float) -> Iterator[tuple[Worker, dict[str, Any] | None]]:
        """Messages that arrive within a time, and None of a worker that has ended."""
        for key, _ in self.selector.select(seconds):
            messages = key.data.receive()
            for message in [None] if messages is None else messages:
                yield key.data, message

    def remove(self, worker: Worker) -> str:
        """Forget a worker that has ended; return why."""
        self.selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        self.workers.remove(worker)
        said = worker.end()
        return f"Its process ended with exit code {worker.process.returncode}. {said}".strip()
