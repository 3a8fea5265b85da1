"""Everything that a page can ask of the lab, one method each; what is asked of models goes to the desks.

An ask is a dataclass, and its fields are checked as a recipe's are. An answer is a dictionary, or several, one after
the other, for as long as somebody listens.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.registry import find, from_json
from engram.figures.report import command, python
from engram.lab.controls import controls, preset_values, recipe_from
from engram.lab.desk import Desk
from engram.lab.instruments import INSTRUMENTS
from engram.lab.shelf import Shelf
from engram.lab.systems import source, system, systems
from engram.lab.uploads import Uploads
from engram.lab.workshop import Job, Limits, Workshop

SECONDS_BETWEEN_LOOKS = 0.5
"""at a run of which nothing is heard: one of a terminal"""
PATIENCE = 60.0
"""seconds that an instrument may think about one part of an answer; views may take five times as long"""
KEPT = 10
"""checkpoints that the lab's runs keep to look back at"""

Parts = AsyncIterator[tuple[str, str]]
"""(«part», JSON) …, then («done», JSON) or («error», JSON)"""


@dataclass(frozen=True, kw_only=True)
class Nothing:
    pass


@dataclass(frozen=True, kw_only=True)
class Named:
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run to be."""

    recipe: str = ""
    preset: str = "small"
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Resume:
    name: str = ""
    steps: int = 0
    minutes: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Tell:
    name: str = ""
    order: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.order not in ("", "pause", "go", "step", "pace", "stop"):
            raise EngramError(f"A run can be told pause, go, step, pace and stop, not «{self.order[:80]}».")
        if not 0 <= self.seconds <= 60:
            raise EngramError(f"A step may be made to take 0 to 60 seconds, not {self.seconds}.")


@dataclass(frozen=True, kw_only=True)
class Rename:
    name: str = ""
    new: str = ""


class Lab:
    """Everything that a page can ask for."""

    def __init__(self, root: Path, limits: Limits) -> None:
        self.shelf, self.uploads = Shelf(root), Uploads(root)
        self.workshop = Workshop(self.shelf, limits, self._heard)
        self.instruments, self.viewer = Desk(root, 0, 1), Desk(root, 15, 1)
        self.news = asyncio.Event()
        self.sockets = 0

    def _heard(self, job: Job) -> None:
        self.news.set()  # for all who wait now; whoever waits next waits for the next
        self.news = asyncio.Event()

    # ------------------------------------------------------------------ systems

    async def systems(self, asked: Nothing) -> dict[str, Any]:
        return {"systems": systems(), "instruments": {name: one._asdict() for name, one in INSTRUMENTS.items()}}

    async def system(self, asked: Named) -> dict[str, Any]:
        cls = find(asked.name)
        return {
            **await asyncio.to_thread(system, cls),
            "controls": await asyncio.to_thread(controls, cls()),
            "presets": {name: {**values, "keep": KEPT} for name, values in preset_values(cls).items()},
            "ask": controls(cls.Ask()), "subject": controls(cls.Subject()), "own": self.uploads.names(),
        }  # fmt: skip

    async def source(self, asked: Named) -> dict[str, Any]:
        return source(asked.name)

    # ------------------------------------------------------------------ runs

    async def check(self, asked: Plan) -> dict[str, Any]:
        """Whether a plan can be carried out, and the command line and the Python that do the same."""
        made = self._recipe(asked)
        return {"command": command(made), "python": python(made)}

    async def start(self, asked: Plan) -> dict[str, Any]:
        return {"name": self.workshop.start(self._recipe(asked))}

    def _recipe(self, asked: Plan) -> Any:
        settings = dict(asked.settings)
        if (chosen := settings.get("data")) in self.uploads.names():
            settings["data"] = str(self.uploads.path(chosen).resolve())
        elif chosen is not None and any(mark in str(chosen) for mark in "/\\:"):
            raise EngramError("The lab reads data sets by name: bring your own on the page «Data».")
        if begin := settings.get("from_"):
            settings["from_"] = self._checkpoint(str(begin))
        return recipe_from(find(asked.recipe), asked.preset, settings)

    def _checkpoint(self, source: str) -> str:
        """A run of the lab by name, or a folder on this machine: what is on a hub is not fetched from here."""
        if source in self.shelf.names():
            return str(self.shelf.path(source).resolve())
        if not Path(source).expanduser().is_dir():
            raise EngramError(f"There is neither a run nor a folder «{source[:80]}» to begin from.")
        return source

    async def resume(self, asked: Resume) -> dict[str, Any]:
        limits = {"steps": asked.steps, "minutes": asked.minutes}
        self.workshop.resume(asked.name, {name: value for name, value in limits.items() if value})
        return {}

    async def tell(self, asked: Tell) -> dict[str, Any]:
        self.workshop.tell(asked.name, asked.order, asked.seconds)
        return {}

    async def rename(self, asked: Rename) -> dict[str, Any]:
        self.shelf.rename(asked.name, asked.new)
        self.workshop.forget(asked.name)
        return {}

    async def delete(self, asked: Named) -> dict[str, Any]:
        await asyncio.to_thread(self.shelf.delete, asked.name)
        self.workshop.forget(asked.name)
        return {}

    async def run(self, asked: Named) -> dict[str, Any]:
        return {**self.shelf.details(asked.name), "status": self._status(asked.name)}

    async def runs(self, asked: Nothing) -> AsyncIterator[dict[str, Any]]:
        """Every run, again whenever one of them has changed."""
        before = None
        while True:
            rows = [{**self.shelf.summary(name), "status": self._status(name)} for name in self.shelf.names()]
            known = {row["name"] for row in rows}
            coming = [job for job in self.workshop.jobs.values() if job.name not in known]
            rows = [{"name": job.name, "status": job.status(), "checkpoints": []} for job in coming] + rows
            if rows != before:
                before = rows
                yield {"runs": rows}
            await asyncio.sleep(1)

    def _status(self, name: str) -> dict[str, Any]:
        """What a run is doing: as the workshop knows, or whether somebody else has its folder in use."""
        job = self.workshop.jobs.get(name)
        if job is not None:
            return job.status()
        if not (self.shelf.path(name) / "recipe.json").exists():
            return {"state": "gone", "error": "", "step": 0, "pace": "", "slow": 0.0}
        state = "elsewhere" if self.shelf.in_use(name) else "idle"
        return {"state": state, "error": "", "step": 0, "pace": "", "slow": 0.0}

    async def watch(self, asked: Named) -> AsyncIterator[dict[str, Any]]:
        """How a run goes: its measurements so far and as they come, points between them, state, checkpoints."""
        offset, at, told, turn = 0, -1, {}, 0  # type: int, int, dict[str, Any], int
        while True:
            part: dict[str, Any] = {}
            lines, offset = self.shelf.lines(asked.name, offset)
            if offset < 0:
                offset, at, part["anew"] = 0, -1, True
            if lines:
                part["lines"] = lines
            job = self.workshop.jobs.get(asked.name)
            if job is not None and job.live and job.live[-1][0] > at:
                part["live"] = [point for point in job.live if point[0] > at]
                at = job.live[-1][0]
            now: dict[str, Any] = {"status": self._status(asked.name)}
            if turn % 10 == 0 or now["status"] != told.get("status"):
                now["checkpoints"] = self._checkpoints(asked.name)
            part |= {name: value for name, value in now.items() if told.get(name) != value}
            told |= now
            if part:
                yield part
            turn += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.news.wait(), SECONDS_BETWEEN_LOOKS)

    def _checkpoints(self, name: str) -> list[int]:
        with contextlib.suppress(EngramError):
            return self.shelf.folder(name).checkpoints()
        return []

    # ------------------------------------------------------------------ data

    async def data(self, asked: Nothing) -> dict[str, Any]:
        rows = [
            {
                "name": name, "title": info.title, "kind": info.kind, "licence": info.licence,
                "sizes": dict(info.sizes), "here": datasets.cached(name),
            }
            for name in datasets.names()
            for info in [datasets.info(name)]
        ]  # fmt: skip
        return {"sets": rows, "own": self.uploads.names()}

    async def data_about(self, asked: Named) -> dict[str, Any]:
        self.uploads.path(asked.name)
        return {**await self.looked_at(asked.name), "name": asked.name}

    async def data_delete(self, asked: Named) -> dict[str, Any]:
        self.uploads.delete(asked.name)
        return {}

    async def looked_at(self, name: str) -> dict[str, Any]:
        async for kind, value in self.viewer.ask("views.data", {"name": name}, PATIENCE):
            if kind == "done":
                return dict(json.loads(value))
            if kind == "error":
                raise EngramError(json.loads(value))
        raise AssertionError("an answer ends")

    # ------------------------------------------------------------------ answering

    async def answer(self, do: str, arguments: dict[str, Any]) -> Parts:
        """What comes back for one ask, whoever answers it."""
        if do in DOINGS:
            method: Callable[..., Any] = getattr(self, do)
            answer = method(from_json(DOINGS[do](), arguments))
            if isinstance(answer, Awaitable):
                yield "done", json.dumps(await answer)
                return
            async for part in answer:
                yield "part", json.dumps(part)
        else:
            views = do.startswith("views.")
            desk = self.viewer if views else self.instruments
            async for kind, value in desk.ask(do, arguments, PATIENCE * (5 if views else 1)):
                yield kind, value


DOINGS: dict[str, type] = {
    "systems": Nothing, "system": Named, "source": Named, "check": Plan, "start": Plan, "resume": Resume,
    "tell": Tell, "rename": Rename, "delete": Named, "run": Named, "runs": Nothing, "watch": Named,
    "data": Nothing, "data_about": Named, "data_delete": Named,
}  # fmt: skip
