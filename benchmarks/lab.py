"""The lab during training: cost of an open page, latency of requests, and update rate of the curves.

The run of the command line and the run of the lab take the same steps with the same threads. A browser has the page of
the system open and sends two requests now and then: the check of a setting, and one to an instrument.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from engram.cli.bench import Contestant, Score

WORK = "GPT on Shakespeare, 400 steps with two evaluations: training time as the run measures it"
UNIT = "steps/s"
EXTRA = "test"
ROUNDS = 2
STEPS, EVERY = 400, 200
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
REQUESTS = """async () => {
    const { request } = await import("/static/socket.js");
    const began = performance.now();
    await request("check", { recipe: "gpt", preset: "small", settings: { steps: 7 } });
    const middle = performance.now();
    await request("autodiff", { text: "x * y + sin(x)" });
    return [middle - began, performance.now() - middle];
}"""


def rate(folder: Path) -> float:
    """Steps per second of a run, from its first evaluation to the last before the test."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if "loss" in line]
    return float((lines[-1]["step"] - lines[0]["step"]) / (lines[-1]["seconds"] - lines[0]["seconds"]))


def contestants() -> dict[str, Contestant]:
    words = ["--steps", str(STEPS), "--eval-every", str(EVERY), "--keep-checkpoints", "10"]

    def line() -> Callable[[], Score]:
        folder = tempfile.TemporaryDirectory()

        def work() -> Score:
            out = Path(folder.name) / "run"
            subprocess.run(
                [sys.executable, "-m", "engram", "run", "gpt", "--quiet", "--out", str(out), *words],
                check=True, capture_output=True,
            )  # fmt: skip
            score = Score(rate(out))
            folder.cleanup()
            return score

        return work

    def lab() -> Callable[[], Score]:
        folder = tempfile.TemporaryDirectory()

        def work() -> Score:
            score = train_in_lab(Path(folder.name))
            folder.cleanup()
            return score

        return work

    return {"engram run gpt": line, "in the lab, with its page open": lab}


def train_in_lab(runs: Path) -> Score:
    """A run of the lab with its page open."""
    command = [sys.executable, "-m", "engram", "lab", "--no-browser", "--runs", str(runs)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "500"})
    try:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None
        with sync_playwright() as playwright:
            chromium = os.environ.get("ENGRAM_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
            page = browser.new_page()
            page.goto(found[0])
            note = use_page(page, found[0].partition("/?")[0])
            browser.close()
        return Score(rate(runs / "gpt-1"), note)
    finally:
        server.terminate()
        server.wait(60)


def use_page(page: Page, base: str) -> str:
    """Start a run, send requests while its page is open, and return latencies and the update rate."""
    settings = json.dumps({"steps": STEPS, "eval_every": EVERY})
    page.goto(f"{base}/systems/gpt?set={settings}")
    page.get_by_role("button", name="Run", exact=True).click()
    state = page.locator(".run .state")
    state.filter(has_text="running").wait_for(timeout=120_000)
    page.locator("[data-updates]").wait_for(timeout=120_000)
    began, first = time.perf_counter(), updates(page)
    latencies: list[Any] = []
    while state.inner_text() == "running":
        latencies.append(page.evaluate(REQUESTS))
        time.sleep(1.0)
        last, passed = updates(page), time.perf_counter() - began
    state.filter(has_text="finished").wait_for(timeout=120_000)
    server, instrument = (statistics.median(times) for times in zip(*latencies, strict=True))
    rate_hz = (last - first) / passed
    return f"check {server:.0f} ms, instrument {instrument:.0f} ms (medians), curves {rate_hz:.1f} updates/s"


def updates(page: Page) -> int:
    return int(page.locator(".curves").get_attribute("data-updates") or 0)
