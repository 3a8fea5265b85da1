"""The lab's server: one page, one socket, files. What it can be asked is one method each of `Lab`.

    page -> lab     {"id": 3, "do": "start", "with": {"recipe": "gpt", …}}      {"cancel": 3}
    lab -> page     {"id": 3, "part": {…}} …  {"id": 3, "done": {…}}            {"id": 3, "error": "a sentence"}

The server itself computes nothing: workers learn (`workshop`), the desks answer what is asked of models (`desk`).
"""

import asyncio
import contextlib
import json
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from engram.core.errors import EngramError
from engram.core.registry import catalogue, find, from_json
from engram.figures.report import command, python
from engram.lab.controls import controls, preset_values, recipe_from
from engram.lab.desk import Desk
from engram.lab.door import Door
from engram.lab.instruments import INSTRUMENTS
from engram.lab.shelf import Shelf
from engram.lab.systems import source, system, systems
from engram.lab.uploads import Uploads, must_fit
from engram.lab.workshop import Job, Limits, Workshop

SOCKETS = 250
ASKS_A_SOCKET = 32
SECONDS_BETWEEN_LOOKS = 0.1
PATIENCE = 60.0
"""seconds that an instrument may think about one part of an answer; views may take five times as long"""
KEPT = 10
"""checkpoints that the lab's runs keep to look back at"""
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; frame-ancestors 'self'"
)

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
        self.changed = 0  # counts what happened to any run
        self.sockets = 0

    def _heard(self, job: Job) -> None:
        self.changed += 1

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
        elif chosen is not None and any(mark in str(chosen) for mark in "/\\"):
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
                part["lines"] = [json.loads(line) for line in lines]
            job = self.workshop.jobs.get(asked.name)
            if job is not None and (points := [point for point in list(job.live) if point[0] > at]):
                at, part["live"] = points[-1][0], points
            now: dict[str, Any] = {"status": self._status(asked.name)}
            if turn % 5 == 0 or now["status"] != told.get("status"):
                now["checkpoints"] = self._checkpoints(asked.name)
            part |= {name: value for name, value in now.items() if told.get(name) != value}
            told |= now
            if part:
                yield part
            turn += 1
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

    def _checkpoints(self, name: str) -> list[int]:
        with contextlib.suppress(EngramError):
            return self.shelf.folder(name).checkpoints()
        return []

    # ------------------------------------------------------------------ data

    async def data(self, asked: Nothing) -> dict[str, Any]:
        from engram import data as datasets

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


class Conversation:
    """One open page."""

    def __init__(self, lab: Lab, socket: WebSocket) -> None:
        self.lab, self.socket = lab, socket
        self.under_way: dict[int, asyncio.Task[None]] = {}
        self.sending = asyncio.Lock()

    async def go_on(self) -> None:
        try:
            while True:
                await self.hear(await self.socket.receive_text())
        except WebSocketDisconnect:
            pass
        finally:
            for task in self.under_way.values():
                task.cancel()

    async def hear(self, text: str) -> None:
        try:
            message = json.loads(text)
            if "cancel" in message:
                if task := self.under_way.pop(int(message["cancel"]), None):
                    task.cancel()
                return
            number, do, arguments = message["id"], message["do"], message.get("with", {})
        except (ValueError, KeyError, TypeError, RecursionError):
            await self.send(-1, "error", json.dumps("That was no message of the lab's."))
            return
        if not (isinstance(number, int) and isinstance(do, str) and isinstance(arguments, dict)):
            await self.send(-1, "error", json.dumps("That was no message of the lab's."))
        elif number in self.under_way or len(self.under_way) >= ASKS_A_SOCKET:
            await self.send(number, "error", json.dumps(f"A page may ask {ASKS_A_SOCKET} things at once."))
        else:
            self.under_way[number] = asyncio.create_task(self.answer(number, do, arguments))

    async def answer(self, number: int, do: str, arguments: dict[str, Any]) -> None:
        try:
            async with contextlib.aclosing(self.lab.answer(do, arguments)) as parts:  # type: ignore[type-var]
                async for kind, value in parts:
                    await self.send(number, kind, value)
        except EngramError as error:
            await self.send(number, "error", json.dumps(str(error)))
        except (WebSocketDisconnect, asyncio.CancelledError):  # nobody waits for it any more
            pass
        except Exception as error:
            traceback.print_exc()
            await self.send(number, "error", json.dumps(f"That could not be done: {type(error).__name__}: {error}"))
        finally:
            self.under_way.pop(number, None)

    async def send(self, number: int, kind: str, value: str) -> None:
        async with self.sending:
            if self.socket.application_state is not WebSocketState.CONNECTED:
                raise WebSocketDisconnect
            await self.socket.send_text(f'{{"id":{number},"{kind}":{value}}}')


def application(lab: Lab, port: int, token: str) -> Door:
    """The ASGI application."""

    async def talk(socket: WebSocket) -> None:
        if lab.sockets >= SOCKETS:
            await socket.close(1013, f"The lab has {SOCKETS} pages open already.")
            return
        lab.sockets += 1
        try:
            await socket.accept()
            await Conversation(lab, socket).go_on()
        finally:
            lab.sockets -= 1

    async def run_file(request: Request) -> Response:
        path = lab.shelf.file(request.path_params["name"], request.path_params["inside"])
        headers = {"content-security-policy": REPORT_POLICY} if path.suffix == ".html" else {}
        return FileResponse(path, headers=headers)

    async def run_zip(request: Request) -> Response:
        name = request.path_params["name"]
        lab.shelf.folder(name)
        headers = {"content-disposition": f'attachment; filename="{name}.zip"'}
        return StreamingResponse(lab.shelf.zipped(name), media_type="application/zip", headers=headers)

    async def bring(request: Request) -> Response:
        must_fit(request.path_params["name"], int(request.headers.get("content-length", 0)))
        made = await lab.uploads.receive(request.path_params["name"], request.stream(), lab.looked_at)
        return JSONResponse(made)

    async def refused(request: Request, error: Exception) -> Response:
        return PlainTextResponse(f"{error}\n", status_code=400)

    static = files("engram.lab").joinpath("static")
    plotly = files("plotly").joinpath("package_data", "plotly.min.js")

    async def shell(request: Request) -> Response:
        return FileResponse(str(static.joinpath("index.html")))

    async def charts(request: Request) -> Response:
        return FileResponse(str(plotly), headers={"cache-control": "max-age=86400"})

    @contextlib.asynccontextmanager
    async def living(app: Starlette) -> AsyncIterator[None]:
        lab.workshop.recall()
        await asyncio.gather(lab.instruments.warm(), lab.viewer.warm())
        yield
        await asyncio.gather(lab.workshop.close(), lab.instruments.close(), lab.viewer.close())

    catalogue()
    routes = [
        WebSocketRoute("/socket", talk),
        Mount("/static", StaticFiles(directory=str(static))),
        Route("/plotly.js", charts),
        Route("/files/{name}.zip", run_zip),
        Route("/files/{name}/{inside:path}", run_file),
        Route("/bring/{name}", bring, methods=["PUT"]),
        Route("/{path:path}", shell),
    ]
    app = Starlette(routes=routes, lifespan=living, exception_handlers={EngramError: refused})
    return Door(app, port, token)
