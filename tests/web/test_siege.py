"""The lab under hostile load: requests are refused or served, it stays up, and no run is lost."""

import contextlib
import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from engram.lab.app import MAX_SESSIONS
from engram.training.run import Run
from tests.conftest import tiny
from tests.web.conftest import LabProcess


@contextlib.contextmanager
def socket(lab, **changes):
    headers = {"Cookie": lab.cookie}
    with connect(
        f"ws://127.0.0.1:{lab.port}/socket", origin=lab.base, additional_headers=headers, open_timeout=60, **changes
    ) as opened:
        yield opened


def call(opened, method, number=1, **params):
    """Send one request and return its last message."""
    opened.send(json.dumps({"id": number, "method": method, "params": params}))
    while True:
        message = json.loads(opened.recv(60))
        if message["id"] == number:
            return message


def request(lab, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", lab.port, timeout=60)
    connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
    for name, value in {"Cookie": lab.cookie, "Origin": lab.base, **headers}.items():
        if value is not None:
            connection.putheader(name.replace("_", "-"), value)
    if body is not None and "Content_Length" not in headers:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        if body is not None:
            connection.send(body)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def alive(lab):
    with socket(lab) as opened:
        return "systems" in call(opened, "systems")["done"]


@pytest.mark.parametrize(
    "headers",
    [{"Cookie": None}, {"Cookie": "engram-lab=wrong"}, {"Host": "evil.example"}, {"Origin": "http://evil.example"}],
)
def test_strangers_are_refused(lab, headers):
    for path in ("/", "/static/lab.js", "/plotly.js", "/files/x.zip", "/files/x/report.html"):
        assert request(lab, "GET", path, **headers)[0] == 403
    assert request(lab, "PUT", "/uploads/a.txt", b"some text that is long enough", **headers)[0] == 403


@pytest.mark.parametrize(
    ("origin", "cookie"), [("http://evil.example", True), (None, True), ("own", False), ("http://127.0.0.1:1", True)]
)
def test_strangers_get_no_socket(lab, origin, cookie):
    origin = lab.base if origin == "own" else origin
    headers = {"Cookie": lab.cookie} if cookie else {}
    address = f"ws://127.0.0.1:{lab.port}/socket"
    refused = pytest.raises((InvalidStatus, ConnectionClosed))
    with refused, connect(address, origin=origin, additional_headers=headers) as opened:
        call(opened, "systems")


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd",
        "/files/../queue.json", "/files/mlp-tiny/../../../etc/passwd", "/files/mlp-tiny/%2e%2e/%2e%2e/x.json",
        "/files/..%2f..%2fetc/passwd", "/files/.lab/queue.json", "/files/mlp-tiny/.lock", "/files/mlp-tiny/",
        "/files/..zip", "/files/.lab.zip", "/files/%00/x.json", "/files/mlp-tiny/state%00.json",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_a_run(lab, add_run, path):
    add_run("mlp")
    status, content = request(lab, "GET", path)
    assert status in (400, 404, 405) or b"<title>engram lab</title>" in content
    assert b"root:" not in content


def test_files_of_a_run_are_served_and_reports_are_confined(lab, add_run):
    name = add_run("mlp")
    assert request(lab, "GET", f"/files/{name}/metrics.jsonl")[0] == 200
    (lab.runs / name / "evil.html").write_text("<script>alert(1)</script>")
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", lab.port, timeout=60)) as connection:
        connection.request("GET", f"/files/{name}/evil.html", headers={"Cookie": lab.cookie})
        policy = connection.getresponse().getheader("content-security-policy")
    (lab.runs / name / "evil.html").unlink()
    assert policy.startswith("sandbox allow-scripts;")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("source", {"name": "os"}),
        ("source", {"name": "engram/../../etc/passwd"}),
        ("source", {"name": "engram.lab.static"}),
        ("run", {"name": "../../etc"}),
        ("watch", {"name": "../x"}),
        ("rename", {"name": "mlp-tiny", "new": "../../x"}),
        ("delete", {"name": ".."}),
        ("delete", {"name": ".lab"}),
        ("delete", {"name": ""}),
        ("start", {"recipe": "mlp", "settings": {"data": "/etc/passwd"}}),
        ("start", {"recipe": "gpt", "settings": {"data": "hf:somebody"}}),
        ("start", {"recipe": "gpt", "settings": {"from_": "openai/gpt2"}}),
        ("start", {"recipe": "__import__"}),
        ("start", {"recipe": "mlp", "settings": {"steps": 1e400}}),
        ("control", {"name": "mlp-tiny", "action": "explode"}),
        ("control", {"name": "mlp-tiny", "action": "delay", "seconds": -1}),
        ("control", {"name": "mlp-tiny", "action": "delay", "seconds": 1e9}),
        ("delete_data", {"name": "../queue.json"}),
        ("views.figures", {"run": "../../etc"}),
        ("views.data", {"name": "../queue.json"}),
        ("views.nothing", {}),
        ("__init__", {}),
        ("dispatch", {}),
        ("scheduler", {}),
    ],
)
def test_hostile_requests_are_refused_in_a_sentence(lab, add_run, method, params):
    add_run("mlp")
    with socket(lab) as opened:
        answer = call(opened, method, **params)
    assert "error" in answer
    assert "Traceback" not in answer["error"]
    assert (lab.runs / "mlp-tiny" / "recipe.json").exists()


MALFORMED = [
    "", "{", "null", "3", "[]", '"method"', "{}", '{"id": 1}', '{"id": "x", "method": "systems"}',
    '{"id": 1, "method": 7}', '{"id": 1, "method": "systems", "params": []}',
    '{"id": 1, "method": "systems", "params": {"x": 1}}', "[" * 100_000, '{"cancel": "x"}', '{"cancel": null}',
    '{"cancel": 99}', '{"id": 1e400, "method": "systems"}', "\x00", "é" * 1000,
]  # fmt: skip


def test_messages_that_are_none_are_answered_and_the_socket_lives(lab):
    with socket(lab) as opened:
        for text in MALFORMED:
            opened.send(text)
        opened.send(b"\x00\x01\x02")  # ends this socket, at worst
    with socket(lab) as opened:
        for text in MALFORMED:
            opened.send(text)
        assert "done" in call(opened, "systems", number=77)
    assert alive(lab)


def test_a_message_that_is_too_large_closes_its_socket_alone(lab):
    with pytest.raises(ConnectionClosed), socket(lab) as opened:
        call(opened, "autodiff", text="x" * (2 << 20))
    assert alive(lab)


def test_a_page_that_asks_too_much_is_told_so(lab):
    with socket(lab) as opened:
        for number in range(100):
            opened.send(json.dumps({"id": number, "method": "runs", "params": {}}))
        answers = [json.loads(opened.recv(60)) for _ in range(100)]
    assert sum("error" in answer for answer in answers) == 100 - 32
    assert alive(lab)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a.pkl", b"\x80\x04."), ("..%2fa.txt", b"some text that is long enough"), ("a.txt", b"\xff\xfe"),
        ("a.zip", b"PK\x03\x04" + b"\x00" * 100), ("a.npz", b"PK"), ("a.csv", b"\x00" * 1000), ("%00.txt", b"text"),
    ],
)  # fmt: skip
def test_uploads_that_are_refused_leave_nothing(lab, name, body):
    status, content = request(lab, "PUT", f"/uploads/{name}", body)
    assert status in (404, 405) or b'"error"' in content
    assert b"Traceback" not in content
    assert not list((lab.runs / ".lab").glob("data/*"))


def test_an_upload_that_says_it_is_huge_is_refused_before_it_comes(lab):
    status, content = request(lab, "PUT", "/uploads/huge.txt", b"x" * 1000, Content_Length=str(10**12))
    assert status == 200
    assert b'"error"' in content
    assert b"200 MB" in content
    assert alive(lab)


def test_an_upload_that_breaks_off_leaves_nothing(lab):
    connection = http.client.HTTPConnection("127.0.0.1", lab.port, timeout=60)
    connection.putrequest("PUT", "/uploads/broken.txt")
    for name, value in {"Cookie": lab.cookie, "Origin": lab.base, "Content-Length": "100000"}.items():
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(b"x" * 1000)
    connection.close()
    assert alive(lab)
    assert not list((lab.runs / ".lab").glob("data/*"))


def test_two_hundred_sockets_are_served_and_more_than_enough_are_refused(lab):
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket(lab)) for _ in range(200)]
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda one: call(one, "autodiff", text="x * x"), opened))
        assert all("done" in answer for answer in answers)
        more = [stack.enter_context(socket(lab)) for _ in range(MAX_SESSIONS - 200)]
        assert "done" in call(more[-1], "systems")
        with pytest.raises((InvalidStatus, ConnectionClosed)), socket(lab) as one_too_many:
            call(one_too_many, "systems")
    until(lambda: alive(lab))


def test_a_thousand_clicks_on_run_and_stop(lab):
    """Every click is answered; what has begun is there and can be opened, what has not leaves nothing."""
    started, refused = [], 0
    with socket(lab) as opened:
        for number in range(500):
            answer = call(opened, "start", 2 * number, recipe="mlp", preset="tiny", settings={"steps": 100_000})
            if "error" in answer:
                refused += 1
                assert "queued already" in answer["error"]
                continue
            started.append(answer["done"]["name"])
            call(opened, "control", 2 * number + 1, name=started[-1], action="stop")
        names = set(started)
        until(lambda: not busy(opened, names), 120)
    assert len(started) + refused == 500
    for name in names:
        if (lab.runs / name / "recipe.json").exists():
            Run.open(lab.runs / name)
        else:
            assert not (lab.runs / name).exists(), name
    assert alive(lab)


def busy(opened, names):
    opened.send(json.dumps({"id": 10**6, "method": "runs", "params": {}}))
    rows = json.loads(opened.recv(60))["part"]["runs"]
    opened.send(json.dumps({"cancel": 10**6}))
    active = ("queued", "starting", "running", "paused", "reporting")
    return [row["name"] for row in rows if row["name"] in names and row["status"]["state"] in active]


def until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.2)


def test_killed_and_started_again_every_run_is_there_and_resumes(tmp_path, monkeypatch):
    """One run is under way, one waits, one is finished; the lab is killed, and nothing of it is lost."""
    lab = LabProcess(tmp_path / "runs").start()
    try:
        tiny("mlp", lab.runs / "done")
        with socket(lab) as opened:
            settings = {"steps": 400, "eval_every": 20}
            under_way = call(opened, "start", recipe="mlp", preset="tiny", settings=settings)["done"]["name"]
            until(lambda: (lab.runs / under_way / "recipe.json").exists())
            call(opened, "control", name=under_way, action="delay", seconds=0.05)
            waiting = call(opened, "start", recipe="mlp", preset="tiny")["done"]["name"]
            until(lambda: len(list((lab.runs / under_way / "state").iterdir())) > 1)
    finally:
        lab.kill()
    again = LabProcess(lab.runs).start()
    try:
        with socket(again) as opened:
            until(lambda: "done" in call(opened, "run", name=waiting), 90)
            until(lambda: not Run.open(lab.runs / under_way).folder.in_use())
            assert "done" in call(opened, "resume", name=under_way)
            until(lambda: finished(opened, under_way) and finished(opened, waiting), 120)
    finally:
        again.stop()
    tiny("mlp", tmp_path / "line", steps=400, eval_every=20)
    mine, other = (json.loads(line) for line in (last(lab.runs / under_way), last(tmp_path / "line")))
    assert mine["test_loss"] == other["test_loss"]


def finished(opened, name):
    answer = call(opened, "run", name=name)
    return "done" in answer and answer["done"]["finished"] and answer["done"]["report"]


def last(folder):
    return (folder / "metrics.jsonl").read_text().splitlines()[-1]
