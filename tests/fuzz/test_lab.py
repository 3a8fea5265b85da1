"""Hostile input of a page: arbitrary messages, requests to every endpoint and route, arbitrary zip files."""

import asyncio
import dataclasses
import io
import itertools
import json
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.websockets import WebSocketState

from engram.data.user_data import load_user_data
from engram.lab.api import ROUTES, Lab
from engram.lab.app import Session
from engram.lab.inference_worker import Models, import_endpoints, respond
from engram.lab.scheduler import Limits
from engram.lab.uploads import Uploads
from engram.plots.instrument import ENDPOINTS
from tests.conftest import tiny
from tests.fuzz.hostile import anything, changed, damaged, scalars, written
from tests.fuzz.law import lawful, must_be_a_sentence, trials

numbers = itertools.count()
RUNS = ("mlp", "gpt", "rbm", "vae")
FEW = 3
"""parts of a response that are awaited"""

import_endpoints()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of runs."""
    path = tmp_path_factory.mktemp("lab")
    for name in RUNS:
        tiny(name, path / name, steps=2, eval_every=2)
    return path


@pytest.fixture(scope="module")
def models(root):
    return Models(root)


def to_json(args):
    """Arguments as a page sends them."""
    return json.loads(json.dumps(dataclasses.asdict(args)))


def parse(content):
    """The JSON of a message, or None."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


@trials(120)
@given(st.data(), st.sampled_from(sorted(ENDPOINTS)), st.sampled_from(RUNS))
def test_requests_to_every_endpoint(root, models, data, name, run):
    params = to_json(ENDPOINTS[name].args())
    if "run" in params:
        params["run"] = run
    value = parse(written(data.draw(changed(params, most=2))))
    if not isinstance(value, dict):
        return
    with lawful(root, (name, value)):
        for part in itertools.islice(respond({"endpoint": name, "params": value}, models), FEW):
            json.dumps(part)


TESTED_ROUTES = sorted(set(ROUTES) - {"start", "resume", "systems", "describe_data"})
"""all routes but those that start a process"""


@trials(60)
@given(st.data(), st.sampled_from(TESTED_ROUTES))
def test_requests_to_the_routes(root, data, name):
    params = to_json(ROUTES[name]())
    if "name" in params:
        params["name"] = data.draw(st.sampled_from(("mlp", "nothing", "../mlp", "", ".", "a" * 99)))
    if name in ("delete", "rename"):
        params["name"] = "nothing"
    if name == "check":
        params |= {
            "recipe": data.draw(st.sampled_from(("gpt", "mlp"))),
            "preset": "tiny",
            "settings": {"steps": 3, "lr": 0.1},
        }
    value = parse(written(data.draw(changed(params, most=2))))
    if isinstance(value, dict):
        with lawful(root, (name, value)):
            asyncio.run(first_parts(Lab(root, Limits()), name, value))


async def first_parts(lab, name, value):
    parts = lab.dispatch(name, value)
    try:
        async with asyncio.timeout(5):
            async for _ in parts:
                break
    finally:
        await parts.aclose()


class NoWorker:
    """Replaces the inference workers, whose endpoints are tested above."""

    async def request(self, endpoint, params, timeout):
        yield "error", json.dumps("There is no inference worker.")


class Socket:
    """The lab's end of a connection."""

    application_state = WebSocketState.CONNECTED

    def __init__(self):
        self.sent = []

    async def send_text(self, text):
        self.sent.append(json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")))


message = {"id": 3, "method": "run", "params": {"name": "mlp"}}


@trials(80)
@given(
    st.lists(
        (changed(message) | changed({"cancel": 3}) | anything).map(written) | damaged(written(message)), max_size=3
    )
)
def test_messages_of_anything(root, contents):
    socket = Socket()

    async def send_all():
        lab = Lab(root, Limits())
        lab.instrument_worker = lab.view_worker = NoWorker()
        session = Session(lab, socket)
        for content in contents:
            await session.handle(content.decode("utf-8", "replace"))
        tasks = list(session.requests.values())
        if tasks:
            await asyncio.wait(tasks, timeout=5)

    with lawful(root, contents):
        asyncio.run(send_all())
    for one in socket.sent:
        if "error" in one:
            must_be_a_sentence(one["error"])
            assert "The request failed" not in one["error"], one["error"]


INVALID_MESSAGES = ('{"cancel": 1e400}', "[" * 10_000, '{"id": NaN, "method": "run"}', '{"id": true, "method": "run"}')


@pytest.mark.parametrize("text", INVALID_MESSAGES)
def test_invalid_messages_do_not_end_the_session(root, text):
    socket = Socket()
    asyncio.run(Session(Lab(root, Limits()), socket).handle(text))
    assert socket.sent == [{"id": -1, "error": "The message is not a request of the lab."}]


# ---------------------------------------------------------------------- uploads


def upload(folder, name, content):
    place = Uploads(folder)

    async def parts():
        yield content

    async def inspect(name):
        return {"kind": load_user_data(place.folder / name).info.kind}

    with lawful(folder, (name, content)):
        asyncio.run(place.receive(name, parts(), inspect))
    kept = [path.name for path in place.folder.iterdir()] if place.folder.exists() else []
    assert not [name for name in kept if name.startswith(".")], "something is left behind"


def zipped(files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, attributes, text in files:
            entry = zipfile.ZipInfo("x")
            entry.filename, entry.external_attr, entry.compress_type = name, attributes << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, text)
    return content.getvalue()


NAMES = (
    "a.txt", "b/c.txt", "../evil.txt", "/evil.txt", "b/../../evil.txt", "..\\evil.txt", "C:x.txt", "a.png",
    "captions.tsv",
    "b", "b/", "./a.txt", "a\0.txt", "é.txt", "x" * 300 + ".txt", "a/" * 1500 + "x.txt", "a/" * 19 + "x.txt", "", ".",
    ".txt", "a.txt/b.txt", " .txt",
)  # fmt: skip
KINDS = (0o100644, 0o120777, 0o040755, 0o010644, 0, 0o177777)
"""file, link, folder, pipe and others"""
CONTENTS = (b"", b"ten letters and more", b"a.png\tx\n", b"\xff")
files = st.lists(st.tuples(*map(st.sampled_from, (NAMES, KINDS, CONTENTS))), max_size=5)


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")  # of the zip files that are made here
@trials(60)
@given(files)
def test_zip_files_of_strange_names(tmp_path, files):
    folder = tmp_path / str(next(numbers))
    folder.mkdir()
    upload(folder, "a.zip", zipped(files))


@trials(60)
@given(damaged(zipped([("a.txt", 0o100644, b"ten letters and more"), ("b.txt", 0o100644, b"ten others " * 9)])))
def test_zip_files_with_damage(tmp_path, content):
    folder = tmp_path / str(next(numbers))
    folder.mkdir()
    upload(folder, "a.zip", content)


@trials(30)
@given(scalars.map(str), st.binary(max_size=30))
def test_uploads_of_any_name(tmp_path, name, content):
    folder = tmp_path / str(next(numbers))
    folder.mkdir()
    upload(folder, name, content)
