"""Authentication: the lab serves only the browser of the person who started it.

    Host      must name this machine and port (protects against DNS rebinding)
    Origin    must be the lab's own on every WebSocket and every request that changes state (protects against CSRF)
    token     a secret in the printed address; a same-site cookie keeps it

Every response carries a content security policy: the page loads nothing from other hosts, runs only script files of the
lab, and is not shown inside another page.
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


class Auth:
    """ASGI middleware that checks host, origin and token."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self.app, self.token, self.cookie = app, token, f"engram-lab-{port}"
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if (reason := self.refusal(scope, headers)) is not None:
            await refuse(scope, receive, send, reason)
            return
        if scope["type"] == "http" and (token := self.query_token(scope)) is not None:
            await self.set_cookie(scope, receive, send, token)
            return
        if not self.has_cookie(headers):
            await refuse(scope, receive, send, "Open the address that `engram lab` printed: it contains the token.")
            return
        await self.app(scope, receive, add_headers(send))

    def refusal(self, scope: Scope, headers: Headers) -> str | None:
        """Why the host or the origin of a request is refused, or None."""
        if headers.get("host", "") not in self.hosts:
            return "This is not the address of the lab."
        origin = headers.get("origin")
        changes = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD")
        if origin is None:
            return "A request that changes the lab must have an Origin header." if changes else None
        return None if origin.removeprefix("http://") in self.hosts else "Requests from other sites are refused."

    def query_token(self, scope: Scope) -> str | None:
        """The token in the query string, or None."""
        return parse_qs(scope["query_string"].decode("latin-1")).get("token", [None])[0]

    async def set_cookie(self, scope: Scope, receive: Receive, send: Send, token: str) -> None:
        """Store the token in a cookie and redirect to the address without it."""
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            await refuse(scope, receive, send, "The token is wrong: the lab has a new one each time it starts.")
            return
        rest = parse_qs(scope["query_string"].decode("latin-1"))
        rest.pop("token")
        query = f"?{urlencode(rest, doseq=True)}" if rest else ""
        path = "/" + scope["path"].lstrip("/")
        response = RedirectResponse(f"{path}{query}", status_code=303, headers=HEADERS)
        response.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")
        await response(scope, receive, send)

    def has_cookie(self, headers: Headers) -> bool:
        """Whether the cookie holds the token."""
        jar: SimpleCookie = SimpleCookie()
        try:
            jar.load(headers.get("cookie", ""))
        except CookieError:
            return False
        held = jar[self.cookie].value if self.cookie in jar else ""
        return hmac.compare_digest(held.encode(), self.token.encode())


async def refuse(scope: Scope, receive: Receive, send: Send, reason: str) -> None:
    """Answer 403, or close the WebSocket."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 4403, "reason": reason})
    else:
        await PlainTextResponse(f"{reason}\n", status_code=403, headers=HEADERS)(scope, receive, send)


def add_headers(send: Send) -> Send:
    """Add the security headers to every response that does not set its own."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers


def new_token() -> str:
    """A random token of 24 bytes."""
    return secrets.token_urlsafe(24)
