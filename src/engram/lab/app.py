"""ASGI application of the lab: one page, one WebSocket, files.

    page -> lab     {"id": 3, "method": "start", "params": {"recipe": "gpt", …}}     {"cancel": 3}
    lab -> page     {"id": 3, "part": {…}} …  {"id": 3, "done": {…}}                 {"id": 3, "error": "a sentence"}

The server computes nothing: workers train (`scheduler`), inference workers answer requests about models.
"""

import asyncio
import contextlib
import json
import traceback
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from engram.core.errors import EngramError
from engram.core.registry import discover, registry
from engram.lab.api import Lab
from engram.lab.auth import Auth
from engram.lab.uploads import check_file_size
from engram.plots.instrument import INSTRUMENTS

MAX_SESSIONS = 250
MAX_REQUESTS = 32
"""requests of one session at the same time"""
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; frame-ancestors 'self'"
)


class Session:
    """WebSocket session of one open page."""

    def __init__(self, lab: Lab, socket: WebSocket) -> None:
        self.lab, self.socket = lab, socket
        self.requests: dict[int, asyncio.Task[None]] = {}
        self.send_lock = asyncio.Lock()

    async def run(self) -> None:
        """Handle messages until the page disconnects."""
        try:
            while True:
                await self.handle(await self.socket.receive_text())
        except WebSocketDisconnect:
            pass
        finally:
            for task in self.requests.values():
                task.cancel()

    async def handle(self, text: str) -> None:
        """Start or cancel a request."""
        try:
            message = json.loads(text)
            if "cancel" in message:
                if task := self.requests.pop(int(message["cancel"]), None):
                    task.cancel()
                return
            number, method, params = message["id"], message["method"], message.get("params", {})
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            await self.send(-1, "error", json.dumps("The message is not a request of the lab."))
            return
        if type(number) is not int or not (isinstance(method, str) and isinstance(params, dict)):
            await self.send(-1, "error", json.dumps("The message is not a request of the lab."))
        elif number in self.requests or len(self.requests) >= MAX_REQUESTS:
            await self.send(number, "error", json.dumps(f"A page may have {MAX_REQUESTS} requests at once."))
        else:
            self.requests[number] = asyncio.create_task(self.respond(number, method, params))

    async def respond(self, number: int, method: str, params: dict[str, Any]) -> None:
        """Send every part of the response of one request."""
        try:
            async with contextlib.aclosing(self.lab.dispatch(method, params)) as parts:  # type: ignore[type-var]
                async for kind, value in parts:
                    await self.send(number, kind, value)
        except EngramError as error:
            await self.send(number, "error", json.dumps(str(error)))
        except (WebSocketDisconnect, asyncio.CancelledError):  # canceled or disconnected
            pass
        except Exception as error:
            traceback.print_exc()
            await self.send(number, "error", json.dumps(f"The request failed: {type(error).__name__}: {error}"))
        finally:
            self.requests.pop(number, None)

    async def send(self, number: int, kind: str, value: str) -> None:
        async with self.send_lock:
            if self.socket.application_state is not WebSocketState.CONNECTED:
                raise WebSocketDisconnect
            await self.socket.send_text(f'{{"id":{number},"{kind}":{value}}}')


STATIC = files("engram.lab").joinpath("static")
PLOTLY = files("plotly").joinpath("package_data", "plotly.min.js")


async def open_socket(socket: WebSocket) -> None:
    lab: Lab = socket.app.state.lab
    if lab.sessions >= MAX_SESSIONS:
        await socket.close(1013, f"The lab has {MAX_SESSIONS} pages open already.")
        return
    lab.sessions += 1
    try:
        await socket.accept()
        await Session(lab, socket).run()
    finally:
        lab.sessions -= 1


async def send_run_file(request: Request) -> Response:
    path = request.app.state.lab.run_store.file(request.path_params["name"], request.path_params["inside"])
    headers = {"content-security-policy": REPORT_POLICY} if path.suffix == ".html" else {}
    return FileResponse(path, headers=headers)


async def send_run_zip(request: Request) -> Response:
    store, name = request.app.state.lab.run_store, request.path_params["name"]
    store.folder(name)
    headers = {"content-disposition": f'attachment; filename="{name}.zip"'}
    return StreamingResponse(store.stream_zip(name), media_type="application/zip", headers=headers)


async def receive_upload(request: Request) -> Response:
    lab, name = request.app.state.lab, request.path_params["name"]
    try:
        check_file_size(name, int(request.headers.get("content-length", 0)))
        return JSONResponse(await lab.uploads.receive(name, request.stream(), lab.inspect_upload))
    except EngramError as error:  # the page shows it beside the file
        return JSONResponse({"error": str(error)})


async def send_index(request: Request) -> Response:
    return FileResponse(str(STATIC.joinpath("index.html")))


async def send_instrument_script(request: Request) -> Response:
    name, file = request.path_params["name"], f"{request.path_params['script']}.js"
    if name not in INSTRUMENTS or file not in {path.name for path in INSTRUMENTS[name].folder.glob("*.js")}:
        return PlainTextResponse("Script not found.\n", status_code=404)
    return FileResponse(INSTRUMENTS[name].folder / file)


async def send_plotly(request: Request) -> Response:
    return FileResponse(str(PLOTLY), headers={"cache-control": "max-age=86400"})


async def bad_request(request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", status_code=400)


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    lab: Lab = app.state.lab
    lab.scheduler.restore_queue()
    await asyncio.gather(lab.instrument_worker.start(), lab.view_worker.start())
    yield
    await asyncio.gather(lab.scheduler.close(), lab.instrument_worker.close(), lab.view_worker.close())


def application(lab: Lab, port: int, token: str) -> Auth:
    """Build the ASGI application, behind authentication."""
    registry()
    discover("instrument")
    routes = [
        WebSocketRoute("/socket", open_socket),
        Route("/static/instruments/{name}/{script}.js", send_instrument_script),
        Mount("/static", StaticFiles(directory=str(STATIC))),
        Route("/plotly.js", send_plotly),
        Route("/files/{name}.zip", send_run_zip),
        Route("/files/{name}/{inside:path}", send_run_file),
        Route("/uploads/{name}", receive_upload, methods=["PUT"]),
        Route("/{path:path}", send_index),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={EngramError: bad_request})
    app.state.lab = lab
    return Auth(app, port, token)
