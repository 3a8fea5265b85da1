"""Authentication: token, cookie, host and origin, and the security headers of every response."""

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from engram.lab.auth import HEADERS, Auth

HOST = "127.0.0.1:8765"


async def hello(request):
    return PlainTextResponse(f"hello {request.url.path}")


async def talk(socket):
    await socket.accept()
    await socket.send_text("hello")
    await socket.close()


@pytest.fixture
def client():
    app = Starlette(
        routes=[WebSocketRoute("/socket", talk), Route("/{path:path}", hello, methods=["GET", "PUT", "POST"])]
    )
    return TestClient(Auth(app, 8765, "secret"), base_url=f"http://{HOST}", follow_redirects=False)


def admitted(client):
    assert client.get("/?token=secret").status_code == 303
    return client


def test_the_token_is_traded_for_a_cookie_and_leaves_the_address(client):
    answer = client.get("/systems/gpt?token=secret&run=gpt-1")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/systems/gpt?run=gpt-1"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/x").text == "hello /x"


@pytest.mark.parametrize("address", ["//evil.example", "/\\evil.example"])
def test_the_redirect_never_leaves_the_lab(client, address):
    answer = client.get(f"http://{HOST}{address}?token=secret")
    assert answer.headers["location"].startswith("/")
    assert not answer.headers["location"].startswith(("//", "/\\"))


@pytest.mark.parametrize("address", ["/", "/?token=", "/?token=wrong", "/?token=secre", "/files/x/report.html"])
def test_requests_without_the_token_are_refused(client, address):
    assert client.get(address).status_code == 403


def test_a_wrong_cookie_is_refused(client):
    assert client.get("/", headers={"cookie": "engram-lab-8765=wrong"}).status_code == 403
    assert client.get("/", headers={"cookie": "engram-lab-8765"}).status_code == 403
    assert client.get("/", headers={"cookie": "a=b; =; engram-lab-8765=sécret".encode()}).status_code == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1:9999", "127.0.0.1", ""])
def test_a_foreign_host_is_refused_whatever_it_knows(client, host):
    admitted(client)
    assert client.get("/", headers={"host": host}).status_code == 403


def test_localhost_is_this_machine_too(client):
    assert client.get("/?token=secret", headers={"host": "localhost:8765"}).status_code == 303


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1:8765", "null", "http://127.0.0.1:9999"])
def test_a_foreign_origin_is_refused(client, origin):
    admitted(client)
    assert client.get("/", headers={"origin": origin}).status_code == 403
    assert client.put("/uploads/a.txt", headers={"origin": origin}, content=b"x").status_code == 403


def test_what_changes_something_must_say_where_it_comes_from(client):
    admitted(client)
    assert client.put("/uploads/a.txt", content=b"x").status_code == 403
    assert client.put("/uploads/a.txt", content=b"x", headers={"origin": f"http://{HOST}"}).status_code == 200


@pytest.mark.parametrize(
    ("known", "headers"),
    [
        (False, {"origin": f"http://{HOST}"}),
        (True, {"origin": "http://evil.example"}),
        (True, {}),
        (True, {"origin": f"http://{HOST}", "host": "evil.example"}),
    ],
)
def test_a_socket_is_refused_as_a_page_is(client, known, headers):
    headers = {"host": HOST, **headers, **({"cookie": "engram-lab-8765=secret"} if known else {})}
    with pytest.raises(WebSocketDisconnect) as refused, client.websocket_connect("/socket", headers=headers):
        pass
    assert refused.value.code == 4403


def test_a_socket_of_the_lab_itself_is_served(client):
    admitted(client)
    headers = {"origin": f"http://{HOST}", "host": HOST, "cookie": "engram-lab-8765=secret"}
    with client.websocket_connect("/socket", headers=headers) as socket:
        assert socket.receive_text() == "hello"


def test_every_answer_forbids_what_the_lab_does_not_need(client):
    for answer in (client.get("/"), admitted(client).get("/x")):
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
    assert "script-src 'self';" in HEADERS["content-security-policy"]
    assert "default-src 'none'" in HEADERS["content-security-policy"]
