"""`engram lab`: find a port, say where the lab is, and serve until Ctrl-C."""

import contextlib
import socket
import webbrowser
from collections.abc import Callable
from pathlib import Path

import uvicorn

from engram.core.errors import EngramError
from engram.lab.app import application
from engram.lab.asks import Lab
from engram.lab.door import new_token
from engram.lab.workshop import Limits
from engram.training.files import writing

PORT, LAST_PORT = 8765, 65535
LARGEST_MESSAGE = 1 << 20
WAITING = 512
"""connections that may wait to be taken"""


def serve(root: Path, port: int, limits: Limits, show: bool, say: Callable[[str], None]) -> None:
    """Serve the lab of a folder of runs; `say` is told its address."""
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
    listening = bound(port)
    port = listening.getsockname()[1]
    token = new_token()
    config = uvicorn.Config(
        application(Lab(root.resolve(), limits), port, token), ws_max_size=LARGEST_MESSAGE,
        ws_per_message_deflate=False, log_level="warning",
        access_log=False, server_header=False, date_header=False, timeout_graceful_shutdown=2, backlog=WAITING,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}/?token={token}"
    say(address)
    if show:
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(address)
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([listening])


def bound(port: int) -> socket.socket:
    """A socket on this machine alone: on the port that was asked for, or else on 8765 or any that is free."""
    if not 0 <= port <= LAST_PORT:
        raise EngramError(f"port must be from 1 to {LAST_PORT}, not {port}.")
    for attempt in [port] if port else [PORT, 0]:
        listening = socket.socket(proto=socket.IPPROTO_TCP)  # asyncio sends at once only where TCP is named
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", attempt))
        except OSError:
            listening.close()
            continue
        listening.listen(WAITING)  # before anybody is told the address
        return listening
    raise EngramError(f"Port {port} cannot be had: another program has it. Name another, or leave --port out.")
