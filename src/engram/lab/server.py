"""`engram lab`: find a free port, print the address and serve until Ctrl-C."""

import contextlib
import socket
import webbrowser
from collections.abc import Callable
from pathlib import Path

import uvicorn

from engram.core.errors import EngramError
from engram.core.files import writing
from engram.lab.api import Lab
from engram.lab.app import application
from engram.lab.auth import new_token
from engram.lab.scheduler import Limits

PORT, LAST_PORT = 8765, 65535
MAX_MESSAGE_BYTES = 1 << 20
BACKLOG = 512
"""connections that may wait to be accepted"""


def serve(root: Path, port: int, limits: Limits, open_browser: bool, print_address: Callable[[str], None]) -> None:
    """Serve the lab of a folder of runs."""
    with bind(port) as server_socket:
        with writing(root):
            root.mkdir(parents=True, exist_ok=True)
        serve_on(server_socket, root, limits, open_browser, print_address)


def serve_on(
    server_socket: socket.socket, root: Path, limits: Limits, open_browser: bool, print_address: Callable[[str], None]
) -> None:
    """Serve the lab on a listening socket until Ctrl-C."""
    port = server_socket.getsockname()[1]
    token = new_token()
    config = uvicorn.Config(
        application(Lab(root.resolve(), limits), port, token), ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False, log_level="warning",
        access_log=False, server_header=False, date_header=False, timeout_graceful_shutdown=2, backlog=BACKLOG,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}/?token={token}"
    print_address(address)
    if open_browser:
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(address)
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([server_socket])


def bind(port: int) -> socket.socket:
    """A listening socket on 127.0.0.1: on the given port, or with port 0 on 8765 or any free one."""
    if not 0 <= port <= LAST_PORT:
        raise EngramError(f"port must be from 1 to {LAST_PORT}, not {port}.")
    for attempt in [port] if port else [PORT, 0]:
        server_socket = socket.socket(
            proto=socket.IPPROTO_TCP
        )  # asyncio sets TCP_NODELAY only where the protocol is named
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server_socket.bind(("127.0.0.1", attempt))
        except OSError:
            server_socket.close()
            continue
        server_socket.listen(BACKLOG)  # before the address is printed
        return server_socket
    raise EngramError(f"Port {port} is in use by another program. Choose another, or leave --port out.")
