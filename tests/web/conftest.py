"""A lab and a browser; console errors and requests to other hosts fail a test."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.conftest import tiny
from tests.processes import Process

expect.set_options(timeout=45_000)
OWN_LAB = ("test_pages", "test_siege")
"""files whose tests change what runs there are"""
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@dataclass
class LabProcess:
    """The process of `engram lab`."""

    runs: Path
    words: tuple[str, ...] = ()
    address: str = ""
    child: Process | None = field(default=None, repr=False)

    def start(self) -> "LabProcess":
        command = [sys.executable, "-m", "engram", "lab", "--no-browser", "--runs", str(self.runs), *self.words]
        self.child = Process(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "500"}
        )
        assert self.child.stdout is not None
        found = None
        while found is None and (line := self.child.stdout.readline()):
            found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", line)
        assert found is not None, "the lab said no address"
        self.address = found[0]
        return self

    @property
    def base(self) -> str:
        return self.address.partition("/?")[0]

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    @property
    def token(self) -> str:
        return self.address.partition("token=")[2]

    @property
    def cookie(self) -> str:
        return f"engram-lab-{self.port}={self.token}"

    def kill(self) -> None:
        assert self.child is not None
        with self.child:
            self.child.kill()

    def stop(self) -> None:
        assert self.child is not None
        with self.child, contextlib.suppress(subprocess.TimeoutExpired):
            self.child.send_signal(signal.SIGINT)
            self.child.wait(60)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Tests that share a lab stay together in one process; xdist looks at the marks next."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group(item.path.stem if item.path.stem in OWN_LAB else "instruments"))


@pytest.fixture(scope="module")
def browser():
    """A browser for the tests of a file. It keeps an event loop going, beside which no other test could run its own."""
    path = os.environ.get("ENGRAM_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        message = f"no browser: install one of {', '.join(BROWSERS)}, or name one in ENGRAM_BROWSER"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield started
        started.close()


@contextlib.contextmanager
def running(folder: Path) -> Iterator[LabProcess]:
    started = LabProcess(folder / "runs").start()
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def shared_lab(tmp_path_factory):
    with running(tmp_path_factory.mktemp("lab")) as started:
        yield started


@pytest.fixture(scope="module")
def lab(request, tmp_path_factory):
    """A lab: that of all instruments, or one for the tests of this file."""
    if request.path.stem not in OWN_LAB:
        yield request.getfixturevalue("shared_lab")
    else:
        with running(tmp_path_factory.mktemp("lab")) as started:
            yield started


@pytest.fixture
def page(browser, lab):
    """A page of the lab, opened as a person opens it; errors in the console and requests to elsewhere fail the test."""
    with open_page(browser, lab) as (opened, complaints):
        yield opened
    assert not complaints


@pytest.fixture(scope="module")
def shared_page(browser, lab):
    with open_page(browser, lab) as both:
        yield both


@pytest.fixture
def tour(shared_page):
    """A page that the tests of a file share, for those that only look: it is opened once."""
    opened, complaints = shared_page
    complaints.clear()
    yield opened
    assert not complaints


@contextlib.contextmanager
def open_page(browser: Browser, lab: LabProcess) -> Iterator[tuple[Page, list[str]]]:
    """A page of the lab in a new profile, and the list of its errors."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    complaints = watched(opened)
    opened.set_default_timeout(60_000)
    opened.goto(lab.address)
    yield opened, complaints
    context.close()


def watched(page: Page) -> list[str]:
    """The console errors of a page, and its requests to other hosts."""
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None if re.match(r"(http|ws)://127\.0\.0\.1:|data:|blob:", request.url) else complaints.append(request.url)
        ),
    )
    return complaints


def wait_until(true: Callable[[], object], seconds: float = 45.0) -> None:
    """Poll: the content security policy forbids evaluating strings, so a page cannot wait for a condition."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def add_run(lab, once):
    """Put a finished tiny run of a recipe into the lab's folder; return its name."""

    def make(name: str, called: str = "", **changes: object) -> str:
        called = called or f"{name}-tiny"
        if not (lab.runs / called).exists() and changes:
            tiny(name, lab.runs / called, **changes)
        elif not (lab.runs / called).exists():
            once("finished", name, lambda folder: tiny(name, folder), lab.runs / called)
        return called

    return make
