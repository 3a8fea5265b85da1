"""The lab's own runs: which are under way, which wait, and what they are told.

    waiting -> starting -> running <-> paused -> drawing -> finished | stopped | failed

Each run has a process of its own (`worker`); as many run at once as the lab allows, the others wait in a queue that is
kept on disk. A process that dies, or takes more memory than it may, ends its run and nothing else: what it had saved
is in its folder, and it can be resumed.
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
from typing import Any

from engram.core.errors import EngramError
from engram.core.registry import Recipe
from engram.lab.shelf import Shelf
from engram.training.files import read_json, write, writing
from engram.training.run import next_folder

OWN = ".lab"
"""the lab's own files, inside the folder of runs"""
LAST_WORDS = 2000
"""characters of what a process printed that are kept"""
LIVE = 600
"""points between two measurements that a page is given when it is opened"""
LONGEST_LINE = 1 << 22
SECONDS_TO_STOP = 30.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much the lab may do at once."""

    at_once: int = max(1, (os.cpu_count() or 2) // 2)
    """runs that learn at the same time; others wait"""
    waiting: int = 20
    """runs that may wait"""
    runs: int = 1000
    """runs that the folder may hold"""
    memory_gb: float = 8.0
    """memory that one run may take"""

    def __post_init__(self) -> None:
        for name in ("at_once", "waiting", "runs"):
            if getattr(self, name) < 1:
                raise EngramError(f"{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}.")
        if not self.memory_gb > 0:
            raise EngramError(f"memory-gb must be more than 0, not {self.memory_gb}.")


@dataclass
class Job:
    """A run of the lab's, from the click that asked for it until it has ended."""

    name: str
    order: dict[str, Any]
    state: str = "waiting"
    error: str = ""
    step: int = 0
    pace: str = ""
    seconds_a_step: float = 0.0
    unwanted: bool = False  # stopped before it had begun
    live: deque[tuple[int, dict[str, float]]] = field(default_factory=lambda: deque(maxlen=LIVE))
    process: "Process | None" = None

    @property
    def active(self) -> bool:
        return self.state in ("starting", "running", "paused", "drawing")

    def status(self) -> dict[str, Any]:
        return {
            "state": self.state, "error": self.error, "step": self.step, "pace": self.pace,
            "slow": self.seconds_a_step,
        }  # fmt: skip


class Process:
    """A worker."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.printed = ""
        self.hearing = asyncio.create_task(self._hear_errors())

    @classmethod
    async def spawn(cls) -> "Process":
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "engram.lab.worker", stdin=pipe, stdout=pipe, stderr=pipe, limit=LONGEST_LINE,
            start_new_session=True,
        )  # fmt: skip
        return cls(child)

    def tell(self, message: dict[str, Any]) -> None:
        assert self.child.stdin is not None
        if not self.child.stdin.is_closing():
            self.child.stdin.write(json.dumps(message).encode() + b"\n")

    async def next_message(self) -> dict[str, Any]:
        """What it says next; nothing, once it has ended."""
        assert self.child.stdout is not None
        line = await self.child.stdout.readline()
        return dict(json.loads(line)) if line else {}

    async def _hear_errors(self) -> None:
        assert self.child.stderr is not None
        while part := await self.child.stderr.read(4096):
            self.printed = (self.printed + part.decode(errors="replace"))[-LAST_WORDS:]

    def memory_gb(self) -> float:
        """What it holds in memory, where the system tells."""
        try:
            pages = int(Path(f"/proc/{self.child.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return 0.0
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e9

    def kill(self) -> None:
        if self.child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.child.kill()

    async def end(self) -> None:
        """Let go of it, dead or alive."""
        self.kill()
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.close()
        await self.child.stdout.read()
        await self.hearing
        await self.child.wait()


class Workshop:
    """Starts runs, tells them what to do and hears how they go."""

    def __init__(self, shelf: Shelf, limits: Limits, heard: Callable[[Job], None]) -> None:
        self.shelf, self.limits, self.heard = shelf, limits, heard
        self.jobs: dict[str, Job] = {}
        self.spare: Process | None = None
        self.preparing = asyncio.Lock()
        self.tasks: set[asyncio.Task[None]] = set()
        self.open = True

    # ------------------------------------------------------------------ what people ask for

    def start(self, recipe: Recipe) -> str:
        """A new run, at once or as soon as there is room; its name."""
        self._must_have_room()
        if len(self.shelf.names()) >= self.limits.runs:
            raise EngramError(f"The lab holds {self.limits.runs} runs already: delete some first.")
        name = next_folder(recipe.name, self.shelf.root).name
        order = {"do": "start", "recipe": recipe.name, "fields": asdict(recipe)}
        self._enqueue(Job(name, order))
        return name

    def resume(self, name: str, changes: dict[str, Any]) -> None:
        self.shelf.folder(name)
        if name in self.jobs and (self.jobs[name].active or self.jobs[name].state == "waiting"):
            raise EngramError(f"{name} is under way already.")
        if self.shelf.folder(name).in_use():
            raise EngramError(f"{name} is being run by another process.")
        self._must_have_room()
        self._enqueue(Job(name, {"do": "resume", "changes": changes}))

    def tell(self, name: str, do: str, seconds: float = 0.0) -> None:
        """pause, go, step, pace or stop."""
        job = self.jobs.get(name)
        if job is None or not (job.active or job.state == "waiting"):
            raise EngramError(f"{name} is not under way in this lab.")
        if job.state == "waiting":
            if do == "stop":
                self._ended(job, "stopped")
            return
        if do == "pace":
            job.seconds_a_step = seconds
        if job.state == "starting" and do == "stop":
            job.unwanted = True
            if job.process is None:
                self._ended(job, "stopped")
            else:
                job.process.kill()
        elif job.process is not None:
            job.process.tell({"do": do, "seconds": seconds})
        self.heard(job)

    def forget(self, name: str) -> None:
        """A run that was renamed or deleted."""
        self.jobs.pop(name, None)

    def _must_have_room(self) -> None:
        waiting = sum(job.state == "waiting" for job in self.jobs.values())
        if waiting >= self.limits.waiting:
            raise EngramError(f"{waiting} runs wait already: stop some, or let them finish first.")

    def _enqueue(self, job: Job) -> None:
        job.order["folder"] = str(self.shelf.path(job.name))
        self.jobs.pop(job.name, None)  # a resumed run waits behind the others
        self.jobs[job.name] = job
        self._remember()
        self.heard(job)
        self._fill()

    # ------------------------------------------------------------------ the queue

    def _fill(self) -> None:
        """Let those begin for whom there is room, in the order in which they came."""
        running = sum(job.active for job in self.jobs.values())
        for job in [job for job in self.jobs.values() if job.state == "waiting"]:
            if running >= self.limits.at_once or not self.open:
                return
            job.state, running = "starting", running + 1
            self._spawn(self._run(job))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _remember(self) -> None:
        """Keep on disk what has not begun yet: a lab that is killed finds it again."""
        coming = [job for job in self.jobs.values() if job.state in ("waiting", "starting")]
        kept = [{"name": job.name, "order": job.order} for job in coming]
        write(self.shelf.root / OWN / "queue.json", json.dumps(kept).encode())

    def recall(self) -> None:
        """Take up the queue that an earlier lab left behind, and make a worker ready."""
        with writing(self.shelf.root / OWN):
            (self.shelf.root / OWN).mkdir(parents=True, exist_ok=True)
        path = self.shelf.root / OWN / "queue.json"
        kept = []
        if path.exists():
            with contextlib.suppress(EngramError):
                kept = read_json(path)
        for one in kept if isinstance(kept, list) else []:
            with contextlib.suppress(EngramError, KeyError, TypeError):
                began = (self.shelf.path(one["name"]) / "recipe.json").exists()
                if not (began and one["order"]["do"] == "start"):
                    self._enqueue(Job(one["name"], dict(one["order"])))
        self._spawn(self._make_ready())

    async def _make_ready(self) -> None:
        """Have a worker that has imported everything and waits for an order."""
        async with self.preparing:
            if self.open and (self.spare is None or self.spare.child.returncode is not None):
                self.spare = await Process.spawn()
                if not self.open:
                    self.spare.kill()
                await self.spare.next_message()

    async def _run(self, job: Job) -> None:
        """One run in one process, from the order to the end."""
        self._remember()
        self.heard(job)
        await self._make_ready()
        if job.unwanted or not self.open or self.spare is None:  # in a lab that closes it stays in the queue
            return
        process, self.spare = self.spare, None
        job.process = process
        process.tell(job.order)
        guard = asyncio.create_task(self._guard(job, process))
        end = ""
        while message := await process.next_message():
            if message.get("state") in ("finished", "stopped", "failed"):
                end, job.error = message["state"], message.get("error", job.error)
            else:
                self._hear(job, message)
        code = await process.child.wait()
        await process.end()
        guard.cancel()
        if not end and job.unwanted:
            end = "stopped"
        elif not end:
            end = "failed"
            job.error = job.error or f"Its process ended (code {code}). {process.printed[-300:].strip()}".strip()
        job.process = None
        self._ended(job, end)
        await self._make_ready()

    def _hear(self, job: Job, message: dict[str, Any]) -> None:
        if "step" in message:
            job.step, job.pace = message["step"], message["pace"]
            if message["values"]:
                job.live.append((message["step"], message["values"]))
        else:
            began, job.state = job.state == "starting", message["state"]
            if began and job.state != "starting":
                self._remember()
        self.heard(job)

    async def _guard(self, job: Job, process: Process) -> None:
        """Whoever takes more memory than allowed is ended before the machine is."""
        while True:
            await asyncio.sleep(1)
            if (taken := process.memory_gb()) > self.limits.memory_gb:
                job.error = f"It took {taken:.1f} GB of memory, and {self.limits.memory_gb:g} GB are allowed."
                process.kill()
                return

    def _ended(self, job: Job, state: str) -> None:
        job.state = state
        if job.order["do"] == "start":
            self.shelf.free(job.name)  # if it has not got so far as to leave a run
        self._remember()
        self.heard(job)
        self._fill()

    # ------------------------------------------------------------------ closing

    async def close(self) -> None:
        """Save what runs, and go."""
        self.open = False
        if self.spare is not None:
            self.spare.kill()
        processes = [job.process for job in self.jobs.values() if job.process is not None]
        for process in processes:
            assert process.child.stdin is not None
            process.child.stdin.close()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=SECONDS_TO_STOP)
        for process in filter(None, [*processes, self.spare]):
            await process.end()
