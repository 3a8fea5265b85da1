"""Who may come in: the lab answers only to the browser of the person who started it.

    Host      must name this machine and port: a foreign site that points its name here is refused
    Origin    must be the lab's own on every WebSocket and everything that changes something
    token     a secret in the address that is printed; a cookie keeps it, which other sites cannot make a browser send

Every answer forbids the page to load anything from elsewhere, to run script that is not a file of the lab's, and to be
shown inside another page.
"""

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    # plotly writes style sheets of its own into the page, and their hashes change with its releases
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; frame-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Door:
    """ASGI middleware before everything else."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self.app, self.token, self.cookie = app, token, f"engram-lab-{port}"
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if (refusal := self.refusal(scope, headers)) is not None:
            await refuse(scope, receive, send, refusal)
            return
        if scope["type"] == "http" and (given := self.given(scope)) is not None:
            await self.admit(scope, receive, send, given)
            return
        if not self.knows(headers):
            await refuse(scope, receive, send, "Open the address that `engram lab` printed: it holds the key.")
            return
        await self.app(scope, receive, guarded(send))

    def refusal(self, scope: Scope, headers: Headers) -> str | None:
        """Why nobody at that address may come in, whatever they know."""
        if headers.get("host", "") not in self.hosts:
            return "This is not the address of the lab."
        origin = headers.get("origin")
        changes = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD")
        if origin is None:
            return "Something that changes the lab must say where it comes from." if changes else None
        return None if origin.removeprefix("http://") in self.hosts else "Another site asks, and is refused."

    def given(self, scope: Scope) -> str | None:
        """The token in the address, if there is one."""
        return parse_qs(scope["query_string"].decode("latin-1")).get("token", [None])[0]

    async def admit(self, scope: Scope, receive: Receive, send: Send, given: str) -> None:
        """Trade the token for a cookie, and take it out of the address, where others could read it."""
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            await refuse(scope, receive, send, "That is not the key of this lab: it has a new one each time it starts.")
            return
        rest = parse_qs(scope["query_string"].decode("latin-1"))
        rest.pop("token")
        query = f"?{urlencode(rest, doseq=True)}" if rest else ""
        path = "/" + scope["path"].lstrip("/")
        response = RedirectResponse(f"{path}{query}", status_code=303, headers=HEADERS)
        response.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")
        await response(scope, receive, send)

    def knows(self, headers: Headers) -> bool:
        """Whether the cookie holds the token."""
        jar: SimpleCookie = SimpleCookie()
        try:
            jar.load(headers.get("cookie", ""))
        except CookieError:
            return False
        held = jar[self.cookie].value if self.cookie in jar else ""
        return hmac.compare_digest(held.encode(), self.token.encode())


async def refuse(scope: Scope, receive: Receive, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 4403, "reason": why})
    else:
        await PlainTextResponse(f"{why}\n", status_code=403, headers=HEADERS)(scope, receive, send)


def guarded(send: Send) -> Send:
    """Add what every answer says to a browser, unless the answer has its own."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


def new_token() -> str:
    return secrets.token_urlsafe(24)
