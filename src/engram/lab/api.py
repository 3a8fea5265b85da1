"""API of the lab: one method for each route of `ROUTES`.

Requests about models go to the inference workers.

The parameters of a route are a dataclass, checked as a recipe's fields are. A route returns one JSON object, or yields
several until the page cancels the request.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from engram import data as datasets
from engram.core.config import Settings, controls, from_json
from engram.core.errors import EngramError
from engram.core.registry import get_recipe
from engram.lab.controls import preset_values, recipe_from
from engram.lab.inference_worker import InferenceWorker
from engram.lab.run_store import RunStore
from engram.lab.scheduler import Job, Limits, Scheduler
from engram.lab.systems import source, system, systems
from engram.lab.uploads import Uploads
from engram.plots.instrument import INSTRUMENTS, Instrument
from engram.plots.report import command, python

POLL_SECONDS = 0.5
"""interval at which the folder of a run started in a terminal is read"""
TIMEOUT_SECONDS = 60.0
"""time limit for one part of an instrument's response; views have five times as long"""
KEEP_CHECKPOINTS = 10
"""checkpoints that the lab's runs keep"""

Parts = AsyncIterator[tuple[str, str]]
"""("part", JSON) any number of times, then ("done", JSON) or ("error", JSON)"""


@dataclass(frozen=True, kw_only=True)
class NoArgs(Settings):
    """A request without parameters."""


@dataclass(frozen=True, kw_only=True)
class NameArgs(Settings):
    """A request about one run, recipe, module or data set."""

    name: str = ""


@dataclass(frozen=True, kw_only=True)
class RunArgs(Settings):
    """Recipe, preset and settings of a new run."""

    recipe: str = ""
    preset: str = "small"
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ResumeArgs(Settings):
    """A run to resume, with new limits; 0 keeps the old ones."""

    name: str = ""
    steps: int = 0
    minutes: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ControlArgs(Settings):
    """A command for an active run."""

    name: str = ""
    action: Literal["pause", "continue", "step", "delay", "stop"] = "pause"
    seconds: Annotated[float, Ge(0), Le(60)] = 0.0
    """least duration of a training step, for the action "delay" """


@dataclass(frozen=True, kw_only=True)
class RenameArgs(Settings):
    """A run and its new name."""

    name: str = ""
    new: str = ""


def describe(instrument: Instrument) -> dict[str, Any]:
    """Title, description and recipes of an instrument, as JSON."""
    return {name: getattr(instrument, name) for name in ("title", "about", "recipes", "needs_run")}


class Lab:
    """State of the lab and its routes."""

    def __init__(self, root: Path, limits: Limits) -> None:
        self.run_store, self.uploads = RunStore(root), Uploads(root)
        self.scheduler = Scheduler(self.run_store, limits, self._notify)
        self.instrument_worker, self.view_worker = InferenceWorker(root, 0, 1), InferenceWorker(root, 15, 1)
        self.job_changed = asyncio.Event()
        self.sessions = 0

    def _notify(self, job: Job) -> None:
        self.job_changed.set()  # wakes all subscribers; later ones wait for the next event
        self.job_changed = asyncio.Event()

    # ------------------------------------------------------------------ systems

    async def systems(self, args: NoArgs) -> dict[str, Any]:
        return {"systems": systems(), "instruments": {name: describe(one) for name, one in INSTRUMENTS.items()}}

    async def system(self, args: NameArgs) -> dict[str, Any]:
        cls = get_recipe(args.name)
        presets = preset_values(cls)
        return {
            **await asyncio.to_thread(system, cls),
            "controls": await asyncio.to_thread(controls, cls()),
            "presets": {name: values | {"keep_checkpoints": KEEP_CHECKPOINTS} for name, values in presets.items()},
            "sample_args": controls(cls.SampleArgs()), "inspect_args": controls(cls.InspectArgs()),
        }  # fmt: skip

    async def source(self, args: NameArgs) -> dict[str, Any]:
        return source(args.name)

    # ------------------------------------------------------------------ runs

    async def check(self, args: RunArgs) -> dict[str, Any]:
        """Check the settings of a run; return the equivalent command line and Python."""
        recipe = self._recipe(args)
        return {"command": command(recipe), "python": python(recipe)}

    async def start(self, args: RunArgs) -> dict[str, Any]:
        return {"name": self.scheduler.start(self._recipe(args))}

    def _recipe(self, args: RunArgs) -> Any:
        settings = dict(args.settings)
        if (name := settings.get("data")) in self.uploads.names():
            settings["data"] = str(self.uploads.path(name).resolve())
        elif name is not None and any(mark in str(name) for mark in "/\\:"):
            raise EngramError('The lab reads data sets by name: upload your own on the page "Data".')
        if checkpoint := settings.get("from_"):
            settings["from_"] = self._checkpoint(str(checkpoint))
        return recipe_from(get_recipe(args.recipe), args.preset, settings)

    def _checkpoint(self, source: str) -> str:
        """Path of a run by its name, or of a checkpoint folder on this machine; the lab downloads none."""
        if source in self.run_store.names():
            return str(self.run_store.path(source).resolve())
        if not Path(source).expanduser().is_dir():
            raise EngramError(f'There is neither a run nor a folder "{source[:80]}" to start from.')
        return source

    async def resume(self, args: ResumeArgs) -> dict[str, Any]:
        limits = {"steps": args.steps, "minutes": args.minutes}
        self.scheduler.resume(args.name, {name: value for name, value in limits.items() if value})
        return {}

    async def control(self, args: ControlArgs) -> dict[str, Any]:
        self.scheduler.control(args.name, args.action, args.seconds)
        return {}

    async def rename(self, args: RenameArgs) -> dict[str, Any]:
        self.run_store.rename(args.name, args.new)
        self.scheduler.drop(args.name)
        return {}

    async def delete(self, args: NameArgs) -> dict[str, Any]:
        await asyncio.to_thread(self.run_store.delete, args.name)
        self.scheduler.drop(args.name)
        return {}

    async def run(self, args: NameArgs) -> dict[str, Any]:
        return {**self.run_store.details(args.name), "status": self._status(args.name)}

    async def runs(self, args: NoArgs) -> AsyncIterator[dict[str, Any]]:
        """All runs, sent again whenever one of them changes."""
        sent = None
        while True:
            rows = [{**self.run_store.summary(name), "status": self._status(name)} for name in self.run_store.names()]
            known = {row["name"] for row in rows}
            queued = [job for job in self.scheduler.jobs.values() if job.name not in known]
            rows = [{"name": job.name, "status": job.status(), "checkpoints": []} for job in queued] + rows
            if rows != sent:
                sent = rows
                yield {"runs": rows}
            await asyncio.sleep(1)

    def _status(self, name: str) -> dict[str, Any]:
        """State of a run: as the scheduler knows it, or whether another process uses its folder."""
        job = self.scheduler.jobs.get(name)
        if job is not None:
            return job.status()
        if not (self.run_store.path(name) / "recipe.json").exists():
            state = "deleted"
        else:
            state = "external" if self.run_store.in_use(name) else "idle"
        return {"state": state, "error": "", "step": 0, "throughput": "", "delay": 0.0}

    async def watch(self, args: NameArgs) -> AsyncIterator[dict[str, Any]]:
        """Progress of a run: metrics as they are written, live points between them, state, checkpoints."""
        offset, last_step, sent, turn = 0, -1, {}, 0  # type: int, int, dict[str, Any], int
        while True:
            part: dict[str, Any] = {}
            lines, offset = self.run_store.lines(args.name, offset)
            if offset < 0:
                offset, last_step, part["reset"] = 0, -1, True
            if lines:
                part["lines"] = lines
            job = self.scheduler.jobs.get(args.name)
            if job is not None and job.live and job.live[-1][0] > last_step:
                part["live"] = [point for point in job.live if point[0] > last_step]
                last_step = job.live[-1][0]
            now: dict[str, Any] = {"status": self._status(args.name)}
            if turn % 10 == 0 or now["status"] != sent.get("status"):
                now["checkpoints"] = self._checkpoints(args.name)
            part |= {name: value for name, value in now.items() if sent.get(name) != value}
            sent |= now
            if part:
                yield part
            turn += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.job_changed.wait(), POLL_SECONDS)

    def _checkpoints(self, name: str) -> list[int]:
        with contextlib.suppress(EngramError):
            return self.run_store.folder(name).checkpoints()
        return []

    # ------------------------------------------------------------------ data

    async def data(self, args: NoArgs) -> dict[str, Any]:
        rows = [
            {
                "name": name, "title": info.title, "kind": info.kind, "license": info.license,
                "sizes": dict(info.sizes), "cached": datasets.is_cached(name),
            }
            for name in datasets.list_names()
            for info in [datasets.get_info(name)]
        ]  # fmt: skip
        return {"sets": rows, "uploads": self.uploads.names()}

    async def describe_data(self, args: NameArgs) -> dict[str, Any]:
        self.uploads.path(args.name)
        return {**await self.inspect_upload(args.name), "name": args.name}

    async def delete_data(self, args: NameArgs) -> dict[str, Any]:
        self.uploads.delete(args.name)
        return {}

    async def inspect_upload(self, name: str) -> dict[str, Any]:
        """Kind, sizes and columns of an uploaded data set, read in the worker process."""
        async for kind, value in self.view_worker.request("views.data", {"name": name}, TIMEOUT_SECONDS):
            if kind == "done":
                return dict(json.loads(value))
            if kind == "error":
                raise EngramError(json.loads(value))
        raise AssertionError("a response has an end")

    # ------------------------------------------------------------------ dispatch

    async def dispatch(self, method: str, params: dict[str, Any]) -> Parts:
        """Call a route of the lab, or an endpoint of the inference workers, and yield its response."""
        if method in ROUTES:
            route: Callable[..., Any] = getattr(self, method)
            response = route(from_json(ROUTES[method](), params))
            if isinstance(response, Awaitable):
                yield "done", json.dumps(await response)
                return
            async for part in response:
                yield "part", json.dumps(part)
        else:
            is_view = method.startswith("views.")
            worker = self.view_worker if is_view else self.instrument_worker
            async for kind, value in worker.request(method, params, TIMEOUT_SECONDS * (5 if is_view else 1)):
                yield kind, value


ROUTES: dict[str, type] = {
    "systems": NoArgs, "system": NameArgs, "source": NameArgs, "check": RunArgs, "start": RunArgs,
    "resume": ResumeArgs, "control": ControlArgs, "rename": RenameArgs, "delete": NameArgs, "run": NameArgs,
    "runs": NoArgs, "watch": NameArgs, "data": NoArgs, "describe_data": NameArgs, "delete_data": NameArgs,
}  # fmt: skip
