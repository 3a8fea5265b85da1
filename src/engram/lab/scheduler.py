"""Job scheduler: starts, queues and controls the runs of the lab.

    queued -> starting -> running <-> paused -> reporting -> finished | stopped | failed

Each run has its own process (`worker`). A limited number run at once; the others wait in a queue that is kept on disk.
A process that dies or exceeds its memory limit ends only its own run, which can be resumed from its last checkpoint.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.files import read_json, write, writing
from engram.core.recipe import AnyRecipe
from engram.lab.run_store import RunStore
from engram.training.run import next_folder

LAB_FOLDER = ".lab"
"""files of the lab itself, inside the folder of runs"""
MAX_STDERR = 2000
"""characters of a process's error output that are kept"""
MAX_LIVE = 600
"""points between two evaluations that a newly opened page receives"""
MAX_LINE_BYTES = 1 << 22
SHUTDOWN_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Limits(Settings):
    """Resource limits of the lab."""

    max_jobs: Annotated[int, Ge(1)] = max(1, (os.cpu_count() or 2) // 2)
    """runs that train at the same time; others are queued"""
    queue_size: Annotated[int, Ge(1)] = 20
    """runs in the queue"""
    max_runs: Annotated[int, Ge(1)] = 1000
    """runs in the folder"""
    memory_gb: Annotated[float, Gt(0)] = 8.0
    """memory limit of one run, in GB"""


@dataclass
class Job:
    """A run started by the lab, from the request to its end."""

    name: str
    command: dict[str, Any]
    state: str = "queued"
    error: str = ""
    step: int = 0
    throughput: str = ""
    delay_seconds: float = 0.0
    canceled: bool = False  # stopped before it started
    live: deque[tuple[int, dict[str, float]]] = field(default_factory=lambda: deque(maxlen=MAX_LIVE))
    process: "Process | None" = None

    @property
    def active(self) -> bool:
        """Whether it has a process."""
        return self.state in ("starting", "running", "paused", "reporting")

    def status(self) -> dict[str, Any]:
        """State and progress, as JSON."""
        return {
            "state": self.state, "error": self.error, "step": self.step, "throughput": self.throughput,
            "delay": self.delay_seconds,
        }  # fmt: skip


class Process:
    """Handle of a worker process."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.stderr = ""
        self.stderr_task = asyncio.create_task(self._read_stderr())

    @classmethod
    async def spawn(cls) -> "Process":
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "engram.lab.worker", stdin=pipe, stdout=pipe, stderr=pipe, limit=MAX_LINE_BYTES,
            start_new_session=True,
        )  # fmt: skip
        return cls(child)

    def send(self, message: dict[str, Any]) -> None:
        """Write a message to its standard input."""
        assert self.child.stdin is not None
        if not self.child.stdin.is_closing():
            self.child.stdin.write(json.dumps(message).encode() + b"\n")

    async def next_message(self) -> dict[str, Any]:
        """Its next message; empty once it has ended."""
        assert self.child.stdout is not None
        line = await self.child.stdout.readline()
        return dict(json.loads(line)) if line else {}

    async def _read_stderr(self) -> None:
        assert self.child.stderr is not None
        while part := await self.child.stderr.read(4096):
            self.stderr = (self.stderr + part.decode(errors="replace"))[-MAX_STDERR:]

    def memory_gb(self) -> float:
        """Resident memory in GB, 0 where /proc is missing."""
        try:
            pages = int(Path(f"/proc/{self.child.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return 0.0
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e9

    def kill(self) -> None:
        if self.child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.child.kill()

    async def close(self) -> None:
        """Kill it if necessary and release its pipes."""
        self.kill()
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.close()
        await self.child.stdout.read()
        await self.stderr_task
        await self.child.wait()


class Scheduler:
    """Starts runs in worker processes, sends them commands and receives their progress."""

    def __init__(self, run_store: RunStore, limits: Limits, on_change: Callable[[Job], None]) -> None:
        self.run_store, self.limits, self.on_change = run_store, limits, on_change
        self.jobs: dict[str, Job] = {}
        self.spare: Process | None = None
        self.spawn_lock = asyncio.Lock()
        self.tasks: set[asyncio.Task[None]] = set()
        self.open = True

    # ------------------------------------------------------------------ requests

    def start(self, recipe: AnyRecipe) -> str:
        """Start or queue a new run and return its name."""
        self._check_queue_size()
        if len(self.run_store.names()) >= self.limits.max_runs:
            raise EngramError(f"The lab holds {self.limits.max_runs} runs already: delete some first.")
        name = next_folder(recipe.name, self.run_store.root).name
        command = {"command": "start", "recipe": recipe.name, "fields": asdict(recipe)}
        self._enqueue(Job(name, command))
        return name

    def resume(self, name: str, changes: dict[str, Any]) -> None:
        """Queue an existing run again, with changed limits."""
        self.run_store.folder(name)
        if name in self.jobs and (self.jobs[name].active or self.jobs[name].state == "queued"):
            raise EngramError(f"{name} is already active.")
        if self.run_store.folder(name).in_use():
            raise EngramError(f"{name} is being run by another process.")
        self._check_queue_size()
        self._enqueue(Job(name, {"command": "resume", "changes": changes}))

    def control(self, name: str, action: str, seconds: float = 0.0) -> None:
        """Pause, continue, step, delay or stop an active run."""
        job = self.jobs.get(name)
        if job is None or not (job.active or job.state == "queued"):
            raise EngramError(f"{name} is not active in this lab.")
        if job.state == "queued":
            if action == "stop":
                self._finish(job, "stopped")
            return
        if action == "delay":
            job.delay_seconds = seconds
        if job.state == "starting" and action == "stop":
            job.canceled = True
            if job.process is None:
                self._finish(job, "stopped")
            else:
                job.process.kill()
        elif job.process is not None:
            job.process.send({"command": action, "seconds": seconds})
        self.on_change(job)

    def drop(self, name: str) -> None:
        """Drop the job of a run that was renamed or deleted."""
        self.jobs.pop(name, None)

    def _check_queue_size(self) -> None:
        queued = sum(job.state == "queued" for job in self.jobs.values())
        if queued >= self.limits.queue_size:
            raise EngramError(f"{queued} runs are queued already: stop some, or let them finish first.")

    def _enqueue(self, job: Job) -> None:
        job.command["folder"] = str(self.run_store.path(job.name))
        self.jobs.pop(job.name, None)  # a resumed run goes to the end of the queue
        self.jobs[job.name] = job
        self._save_queue()
        self.on_change(job)
        self._start_queued()

    # ------------------------------------------------------------------ the queue

    def _start_queued(self) -> None:
        """Start queued jobs, first come first served, up to the limit."""
        running = sum(job.active for job in self.jobs.values())
        for job in [job for job in self.jobs.values() if job.state == "queued"]:
            if running >= self.limits.max_jobs or not self.open:
                return
            job.state, running = "starting", running + 1
            self._create_task(self._run(job))

    def _create_task(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _save_queue(self) -> None:
        """Save the jobs that have not started to disk, for a lab that is restarted."""
        queued = [job for job in self.jobs.values() if job.state in ("queued", "starting")]
        saved = [{"name": job.name, "command": job.command} for job in queued]
        write(self.run_store.root / LAB_FOLDER / "queue.json", json.dumps(saved).encode())

    def restore_queue(self) -> None:
        """Load the queue that an earlier lab saved, and start a spare worker."""
        with writing(self.run_store.root / LAB_FOLDER):
            (self.run_store.root / LAB_FOLDER).mkdir(parents=True, exist_ok=True)
        path = self.run_store.root / LAB_FOLDER / "queue.json"
        saved = []
        if path.exists():
            with contextlib.suppress(EngramError):
                saved = read_json(path)
        for entry in saved if isinstance(saved, list) else []:
            with contextlib.suppress(EngramError, KeyError, TypeError):
                started = (self.run_store.path(entry["name"]) / "recipe.json").exists()
                if not (started and entry["command"]["command"] == "start"):
                    self._enqueue(Job(entry["name"], dict(entry["command"])))
        self._create_task(self._prepare_spare())

    async def _prepare_spare(self) -> None:
        """Keep one idle worker that has imported everything."""
        async with self.spawn_lock:
            if self.open and (self.spare is None or self.spare.child.returncode is not None):
                self.spare = await Process.spawn()
                if not self.open:
                    self.spare.kill()
                await self.spare.next_message()

    async def _run(self, job: Job) -> None:
        """Run one job in one process until it ends."""
        self._save_queue()
        self.on_change(job)
        await self._prepare_spare()
        if job.canceled or not self.open or self.spare is None:  # a closing lab keeps it in the queue
            return
        process, self.spare = self.spare, None
        job.process = process
        process.send(job.command)
        memory_task = asyncio.create_task(self._limit_memory(job, process))
        end = ""
        while message := await process.next_message():
            if message.get("state") in ("finished", "stopped", "failed"):
                end, job.error = message["state"], message.get("error", job.error)
            else:
                self._update(job, message)
        code = await process.child.wait()
        await process.close()
        memory_task.cancel()
        if not end and job.canceled:
            end = "stopped"
        elif not end:
            end = "failed"
            job.error = job.error or f"The process ended with exit code {code}. {process.stderr[-300:].strip()}".strip()
        job.process = None
        self._finish(job, end)
        await self._prepare_spare()

    def _update(self, job: Job, message: dict[str, Any]) -> None:
        """Apply a message of the worker."""
        if "step" in message:
            job.step, job.throughput = message["step"], message["throughput"]
            if message["values"]:
                job.live.append((message["step"], message["values"]))
        else:
            was_starting, job.state = job.state == "starting", message["state"]
            if was_starting and job.state != "starting":
                self._save_queue()
        self.on_change(job)

    async def _limit_memory(self, job: Job, process: Process) -> None:
        """Kill the process if it exceeds the memory limit."""
        while True:
            await asyncio.sleep(1)
            if (used := process.memory_gb()) > self.limits.memory_gb:
                job.error = f"It used {used:.1f} GB of memory, above the limit of {self.limits.memory_gb:g} GB."
                process.kill()
                return

    def _finish(self, job: Job, state: str) -> None:
        job.state = state
        if job.command["command"] == "start":
            self.run_store.release(job.name)  # unless it has written a run
        self._save_queue()
        self.on_change(job)
        self._start_queued()

    # ------------------------------------------------------------------ closing

    async def close(self) -> None:
        """Stop all workers, which save their runs first."""
        self.open = False
        if self.spare is not None:
            self.spare.kill()
        processes = [job.process for job in self.jobs.values() if job.process is not None]
        for process in processes:
            assert process.child.stdin is not None
            process.child.stdin.close()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=SHUTDOWN_SECONDS)
        for process in filter(None, [*processes, self.spare]):
            await process.close()
