"""What a page may send to the lab: messages of anything, asks of every instrument, zip files of anything."""

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

from engram.data.own import load_own
from engram.lab.app import Conversation
from engram.lab.asks import DOINGS, Lab
from engram.lab.desk import ASKS, Models, answers, import_instruments
from engram.lab.uploads import Uploads
from engram.lab.workshop import Limits
from tests.conftest import tiny
from tests.fuzz.hostile import anything, changed, damaged, scalars, written
from tests.fuzz.law import lawful, must_be_a_sentence, trials

numbers = itertools.count()
RUNS = ("mlp", "gpt", "rbm", "vae")
FEW = 3
"""parts of an answer that are waited for"""

import_instruments()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of runs."""
    path = tmp_path_factory.mktemp("lab")
    for name in RUNS:
        tiny(name, path / name, steps=2, every=2)
    return path


@pytest.fixture(scope="module")
def models(root):
    return Models(root)


def plain(asked):
    """An ask as a page writes it."""
    return json.loads(json.dumps(dataclasses.asdict(asked)))


def heard(content):
    """What the lab makes of JSON, or nothing where there is none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


@trials(120)
@given(st.data(), st.sampled_from(sorted(ASKS)), st.sampled_from(RUNS))
def test_asks_of_every_instrument(root, models, data, name, run):
    asked = plain(ASKS[name].cls())
    if "run" in asked:
        asked["run"] = run
    value = heard(written(data.draw(changed(asked, most=2))))
    if not isinstance(value, dict):
        return
    with lawful(root, (name, value)):
        for part in itertools.islice(answers({"ask": name, "with": value}, models), FEW):
            json.dumps(part)


ASKED = sorted(set(DOINGS) - {"start", "resume", "systems", "data_about"})
"""all but what begins a process"""


@trials(60)
@given(st.data(), st.sampled_from(ASKED))
def test_asks_of_the_lab(root, data, name):
    asked = plain(DOINGS[name]())
    if "name" in asked:
        asked["name"] = data.draw(st.sampled_from(("mlp", "nothing", "../mlp", "", ".", "a" * 99)))
    if name in ("delete", "rename"):
        asked["name"] = "nothing"
    if name == "check":
        asked |= {
            "recipe": data.draw(st.sampled_from(("gpt", "mlp"))),
            "preset": "tiny",
            "settings": {"steps": 3, "lr": 0.1},
        }
    value = heard(written(data.draw(changed(asked, most=2))))
    if isinstance(value, dict):
        with lawful(root, (name, value)):
            asyncio.run(first_parts(Lab(root, Limits()), name, value))


async def first_parts(lab, name, value):
    parts = lab.answer(name, value)
    try:
        async with asyncio.timeout(5):
            async for _ in parts:
                break
    finally:
        await parts.aclose()


class NoDesk:
    """Stands for the processes that answer: what they would be asked is tried above."""

    async def ask(self, name, arguments, seconds):
        yield "error", json.dumps("There is nobody at the desk.")


class Socket:
    """The lab's end of a connection."""

    application_state = WebSocketState.CONNECTED

    def __init__(self):
        self.sent = []

    async def send_text(self, text):
        self.sent.append(json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")))


message = {"id": 3, "do": "run", "with": {"name": "mlp"}}


@trials(80)
@given(
    st.lists(
        (changed(message) | changed({"cancel": 3}) | anything).map(written) | damaged(written(message)), max_size=3
    )
)
def test_messages_of_anything(root, contents):
    socket = Socket()

    async def talk():
        lab = Lab(root, Limits())
        lab.instruments = lab.viewer = NoDesk()
        conversation = Conversation(lab, socket)
        for content in contents:
            await conversation.hear(content.decode("utf-8", "replace"))
        tasks = list(conversation.under_way.values())
        if tasks:
            await asyncio.wait(tasks, timeout=5)

    with lawful(root, contents):
        asyncio.run(talk())
    for one in socket.sent:
        if "error" in one:
            must_be_a_sentence(one["error"])
            assert "That could not be" not in one["error"], one["error"]


NO_MESSAGES = ('{"cancel": 1e400}', "[" * 10_000, '{"id": NaN, "do": "run"}', '{"id": true, "do": "run"}')


@pytest.mark.parametrize("text", NO_MESSAGES)
def test_what_is_no_message_ends_no_conversation(root, text):
    socket = Socket()
    asyncio.run(Conversation(Lab(root, Limits()), socket).hear(text))
    assert socket.sent == [{"id": -1, "error": "That was no message of the lab's."}]


# ---------------------------------------------------------------------- uploads


def bring(folder, name, content):
    place = Uploads(folder)

    async def parts():
        yield content

    async def look(name):
        return {"kind": load_own(place.folder / name).info.kind}

    with lawful(folder, (name, content)):
        asyncio.run(place.receive(name, parts(), look))
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
"""file, link, folder, pipe and what is none of them"""
CONTENTS = (b"", b"ten letters and more", b"a.png\tx\n", b"\xff")
files = st.lists(st.tuples(*map(st.sampled_from, (NAMES, KINDS, CONTENTS))), max_size=5)


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")  # of the zip files that are made here
@trials(60)
@given(files)
def test_zip_files_of_strange_names(tmp_path, files):
    folder = tmp_path / str(next(numbers))
    folder.mkdir()
    bring(folder, "a.zip", zipped(files))


@trials(60)
@given(damaged(zipped([("a.txt", 0o100644, b"ten letters and more"), ("b.txt", 0o100644, b"ten others " * 9)])))
def test_zip_files_with_damage(tmp_path, content):
    folder = tmp_path / str(next(numbers))
    folder.mkdir()
    bring(folder, "a.zip", content)


@trials(30)
@given(scalars.map(str), st.binary(max_size=30))
def test_uploads_of_any_name(tmp_path, name, content):
    folder = tmp_path / str(next(numbers))
    folder.mkdir()
    bring(folder, name, content)
