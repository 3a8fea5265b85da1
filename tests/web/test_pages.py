"""The pages of the lab in a browser."""

import json
import re
import subprocess
import sys
import zipfile

import pytest
from playwright.sync_api import expect

from engram.core.registry import registry
from engram.plots.instrument import INSTRUMENTS
from tests.conftest import RECIPES
from tests.processes import Process
from tests.web.conftest import LabProcess


def set_field(page, key, value):
    """Set a field of the form."""
    if not page.locator(f"[data-field={key}]").is_visible():
        page.get_by_text("All settings").click()
    page.locator(f"[data-field={key}] input, [data-field={key}] select").first.fill(str(value))


def begin(page, lab, recipe="mlp", preset="tiny", **settings):
    """Start a run from the page of its system; its name."""
    page.goto(f"{lab.base}/systems/{recipe}")
    page.locator("[data-field=preset] select").select_option(preset)
    for key, value in settings.items():
        set_field(page, key, value)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".run h2")).to_be_visible()
    return re.match(r"[\w-]+", page.locator(".run h2").inner_text())[0]


def test_home_is_a_map_of_the_course(page):
    expect(page.locator("[data-system]")).to_have_count(len(RECIPES))
    page.get_by_label("find a system").fill("hopfield")
    expect(page.locator("[data-system]:visible")).to_have_count(2)
    page.locator("[data-system=hopfield]").click()
    expect(page.get_by_role("heading", name="Hopfield network", level=1)).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Systems", exact=True)).to_be_visible()


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_page(tour, lab, name):
    tour.goto(f"{lab.base}/systems/{name}")
    expect(tour.get_by_role("heading", level=1)).to_have_text(registry()[name].title)
    assert tour.locator("math, .equations span").count() > 0, "no equation"
    assert tour.locator("[data-field]").count() >= 8
    expect(tour.get_by_text(f"engram run {name}", exact=False).first).to_be_visible()
    expect(tour.get_by_role("button", name="Run", exact=True)).to_be_enabled()


@pytest.mark.parametrize("name", list(INSTRUMENTS))
def test_every_instrument_opens(tour, lab, name):
    tour.goto(f"{lab.base}/instruments")
    tour.get_by_role("link", name=INSTRUMENTS[name].title).first.click()
    expect(tour.get_by_role("heading", level=1)).to_have_text(INSTRUMENTS[name].title)
    expect(tour.locator(f"[data-instrument={name}]")).not_to_be_empty()


def test_a_run_is_watched_paused_stepped_stopped_and_resumed(page, lab):
    name = begin(page, lab, steps=100_000, eval_every=2000)
    state = page.locator(".run .state")
    expect(state).to_have_text("running")
    expect(page.locator("canvas[data-curve=loss][data-points]")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(state).to_have_text("paused")
    where = page.locator(".run > .soft")
    before = int(re.search(r"step (\d+)", where.inner_text())[1])
    page.get_by_role("button", name="One step").click()
    expect(where).to_contain_text(f"step {before + 1} of 100000")
    page.reload()  # it belongs to the lab, not to the page
    expect(state).to_have_text("paused")
    expect(where).to_contain_text(f"step {before + 1} of 100000")
    page.get_by_label("slow motion").check()
    page.get_by_role("button", name="Continue").click()
    expect(state).to_have_text("running")
    page.get_by_role("button", name="Stop").click()
    expect(state).to_have_text("stopped")
    recipe = json.loads((lab.runs / name / "recipe.json").read_text())
    assert recipe["fields"]["keep_checkpoints"] == 10
    page.get_by_role("button", name="Resume").click()
    expect(state).to_have_text("running")
    page.get_by_role("button", name="Stop").click()
    expect(state).to_have_text("stopped")


def test_figures_samples_and_looks_follow_the_checkpoint(page, lab):
    name = begin(page, lab, steps=40, eval_every=10)
    expect(page.locator(".run .state")).to_have_text("finished")
    page.locator(".figures").scroll_into_view_if_needed()
    figures = page.locator(".figures figure")
    expect(figures.first.locator(".plot-container")).to_be_visible()
    expect(figures.nth(2)).to_be_attached()
    where = page.locator("output[for=checkpoint]")
    expect(where).to_contain_text("step 40, the newest")
    page.locator("#checkpoint").focus()
    page.keyboard.press("Home")
    expect(where).to_have_text("checkpoint of step 0")
    expect(page.locator(".figures")).not_to_have_attribute("aria-busy", "true")
    page.get_by_text("Sample", exact=True).click()
    page.get_by_role("button", name="Draw samples").click()
    expect(page.locator("img[alt='samples']")).to_be_visible()
    expect(page.locator(".run pre").filter(has_text="predicted")).to_be_visible()
    page.get_by_text("Inspect", exact=True).click()
    page.get_by_role("button", name="Show activations").click()
    page.locator("details .halves figure").first.scroll_into_view_if_needed()
    expect(page.locator("details .halves figure .plot-container").first).to_be_visible()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="report").click()
    report = opened.value
    expect(report.get_by_role("heading", level=1)).to_have_text("Multi-layer perceptron")
    report.close()
    assert sorted(path.name for path in (lab.runs / name / "state").iterdir())[0] == "000000000"


def test_what_cannot_be_is_said_at_the_field(page, lab):
    page.goto(f"{lab.base}/systems/gpt")
    set_field(page, "steps", 0)
    expect(page.locator("[data-field=steps] .error")).to_have_text("steps must be at least 1, not 0.")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    set_field(page, "steps", 7)
    expect(page.locator(".copyable pre").first).to_contain_text("engram run gpt --steps 7")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    page.reload()
    expect(page.locator("[data-field=steps] input")).to_have_value("7")


def test_a_run_that_fails_says_why(page, lab):
    begin(page, lab, data="moby-dck")
    expect(page.locator(".run .state")).to_have_text("failed")
    expect(page.locator(".run [role=alert]").first).to_contain_text('Did you mean "moby-dick"?')


def test_a_run_of_a_terminal_appears_live(page, lab):
    page.goto(f"{lab.base}/runs")
    words = [
        "run",
        "mlp",
        "--preset",
        "tiny",
        "--steps",
        "1000000",
        "--eval-every",
        "1000",
        "--out",
        lab.runs / "by-hand",
    ]
    with Process([sys.executable, "-m", "engram", *words], stderr=subprocess.DEVNULL) as terminal:
        row = page.locator("[data-run=by-hand]")
        expect(row).to_contain_text("running outside the lab")
        row.get_by_role("link", name="by-hand").click()
        expect(page.locator("canvas[data-curve=loss][data-points]")).to_be_visible()
        expect(page.locator(".run .state")).to_have_text("running outside the lab")
        terminal.terminate()
        terminal.wait(60)
    expect(page.locator(".run .state")).to_have_text("stopped")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()


def test_runs_are_compared_renamed_downloaded_and_deleted(page, lab, add_run, tmp_path):
    add_run("mlp", "first-run")
    add_run("mlp", "second-run", lr=0.05)
    page.goto(f"{lab.base}/runs")
    for name in ("first-run", "second-run"):
        page.get_by_label(f"compare {name}").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("[data-metric=loss] .scatterlayer .trace")).to_have_count(2)
    expect(page.locator("tr", has_text="lr").locator("td.set")).to_have_text(["0.002", "0.05"])
    page.go_back()
    row = page.locator("[data-run=first-run]")
    with page.expect_download() as download:
        row.get_by_role("link", name="download").click()
    download.value.save_as(tmp_path / "run.zip")
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        assert archive.testzip() is None
        assert "first-run/recipe.json" in archive.namelist()
    page.once("dialog", lambda dialog: dialog.accept("renamed"))
    row.get_by_role("button", name="rename").click()
    expect(page.locator("[data-run=renamed]")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept("../out"))
    page.locator("[data-run=renamed]").get_by_role("button", name="rename").click()
    expect(page.locator(".notice")).to_contain_text("is not a valid run name")
    page.once("dialog", lambda dialog: dialog.accept())
    page.locator("[data-run=renamed]").get_by_role("button", name="delete").click()
    expect(page.locator("[data-run=renamed]")).to_have_count(0)
    assert not (lab.runs / "renamed").exists()
    assert (lab.runs / "second-run").exists()


def test_data_of_ones_own_are_brought_and_learnt_from(page, lab, tmp_path):
    (tmp_path / "My Poem.txt").write_text("so much depends upon a red wheel barrow\n" * 200)
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n1,x,3\n")
    page.goto(f"{lab.base}/data")
    page.set_input_files("#file", tmp_path / "My Poem.txt")
    expect(page.locator("p[role=status]")).to_contain_text("my-poem.txt: text")
    page.set_input_files("#file", tmp_path / "bad.csv")
    expect(page.locator(".notice")).to_contain_text("bad.csv")
    begin(page, lab, "gpt", data="my-poem.txt", steps=10)
    expect(page.locator(".run .state")).to_have_text("finished")
    page.goto(f"{lab.base}/data")
    page.locator("[data-upload='my-poem.txt']").get_by_role("button", name="delete").click()
    expect(page.locator("[data-upload]")).to_have_count(0)


def test_an_equation_leads_to_the_line_that_computes_it(page, lab):
    page.goto(f"{lab.base}/systems/hopfield")
    page.locator(".equations a", has_text="(4)").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("engram.memory.hopfield.model")
    marked = page.locator(".code .here")
    expect(marked.first).to_be_visible()
    assert all("(4)" in line for line in marked.all_inner_texts())


def test_light_and_dark(page, lab):
    page.emulate_media(color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_label("toggle light and dark theme").click()
    assert page.evaluate(paper) != light
    page.reload()
    assert page.evaluate(paper) != light


@pytest.mark.parametrize(
    "address", ["/", "/systems/gpt", "/runs", "/data", "/instruments", "/source/engram.transformers.gpt.model"]
)
def test_narrow_screens_need_no_sideways_scrolling(page, lab, address, add_run):
    add_run("mlp", "first-run")
    page.set_viewport_size({"width": 380, "height": 800})
    page.goto(f"{lab.base}{address}")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 380


def test_the_keyboard_is_enough_to_start_a_run(page, lab):
    page.goto(f"{lab.base}/systems/mlp?preset=tiny")
    button = page.get_by_role("button", name="Run", exact=True)
    expect(button).to_be_enabled()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Run":
            break
    page.keyboard.press("Enter")
    expect(page.locator(".run .state")).to_have_text("finished")


def test_a_page_that_is_none(page, lab):
    page.goto(f"{lab.base}/nowhere")
    expect(page.get_by_text("Page not found")).to_be_visible()
    page.goto(f"{lab.base}/systems/nothing")
    expect(page.get_by_text('There is no recipe "nothing".')).to_be_visible()


def test_a_page_says_when_the_lab_is_gone(browser, tmp_path):
    lab = LabProcess(tmp_path / "runs").start()
    opened = browser.new_context().new_page()
    try:
        opened.goto(lab.address)
        expect(opened.locator("[data-system]").first).to_be_visible()
        expect(opened.get_by_text("disconnected from the lab")).to_be_hidden()
    finally:
        lab.kill()
    expect(opened.get_by_text("disconnected from the lab")).to_be_visible()
    opened.context.close()
