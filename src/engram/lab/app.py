"""The lab's server: one page, one socket, files.

    page -> lab     {"id": 3, "do": "start", "with": {"recipe": "gpt", …}}      {"cancel": 3}
    lab -> page     {"id": 3, "part": {…}} …  {"id": 3, "done": {…}}            {"id": 3, "error": "a sentence"}

The server itself computes nothing: workers learn (`workshop`), the desks answer what is asked of models (`desk`).
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
from engram.core.registry import catalogue
from engram.lab.asks import Lab
from engram.lab.door import Door
from engram.lab.uploads import must_fit

SOCKETS = 250
ASKS_A_SOCKET = 32
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; frame-ancestors 'self'"
)


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
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            await self.send(-1, "error", json.dumps("That was no message of the lab's."))
            return
        if type(number) is not int or not (isinstance(do, str) and isinstance(arguments, dict)):
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
        name = request.path_params["name"]
        try:
            must_fit(name, int(request.headers.get("content-length", 0)))
            return JSONResponse(await lab.uploads.receive(name, request.stream(), lab.looked_at))
        except EngramError as error:  # an answer like others: the page says it in its own place
            return JSONResponse({"refused": str(error)})

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
