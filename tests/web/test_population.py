"""The population, in a browser."""

import re

from playwright.sync_api import expect


def opened(page, lab, motion="reduce"):
    page.emulate_media(reduced_motion=motion)
    page.goto(f"{lab.base}/instruments/population")


def value(page):
    """What the running integrator says it holds."""
    found = re.search(r"x = (−?[\d.]+)", page.locator("#simulation-status").inner_text())
    return float(found[1].replace("−", "-")) if found else None


def test_more_neurons_hold_a_value_better(page, lab):
    opened(page, lab)
    held = page.locator("#decoding-error")
    expect(held).to_contain_text("error of 50 neurons")
    before = float(re.search(r"([\d.]+) from noisy rates", held.inner_text())[1])
    page.get_by_label("neurons", exact=True).first.fill("400")
    expect(held).to_contain_text("error of 400 neurons")
    assert float(re.search(r"([\d.]+) from noisy rates", held.inner_text())[1]) < before / 2
    expect(page.locator("#error-scaling")).to_contain_text("The decoding error falls as N to the power −1.")
    expect(page).to_have_url(re.compile("n=400"))
    page.reload()
    expect(held).to_contain_text("error of 400 neurons")


def test_push_the_integrator_by_hand_and_by_key_and_see_it_hold(page, lab):
    opened(page, lab)
    flowing = page.locator("#simulation-status")
    expect(flowing).to_contain_text("the integral of the input is −0.48.")  # after what it shows by itself
    up = page.get_by_role("button", name="hold to push up")
    up.scroll_into_view_if_needed()
    box = up.bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + 10)
    page.mouse.down()
    expect(flowing).to_have_text(re.compile(r"x = 0\.[2-9]"))
    page.mouse.up()
    page.wait_for_timeout(300)
    held = value(page)
    page.wait_for_timeout(1000)
    assert abs(value(page) - held) < 0.15
    page.get_by_role("button", name="pause").click()
    still = flowing.inner_text()
    page.wait_for_timeout(300)
    assert flowing.inner_text() == still
    page.get_by_role("application", name="decoded value over time").focus()
    page.keyboard.down("ArrowDown")
    expect(flowing).to_have_text(re.compile(r"x = −0\.[1-9]"))
    page.keyboard.up("ArrowDown")


def test_it_runs_by_itself_unless_motion_is_unwanted(page, lab):
    opened(page, lab, motion="no-preference")
    expect(page.get_by_role("button", name="pause")).to_be_visible()
    opened(page, lab)
    expect(page.locator("#simulation-status")).to_contain_text("the integral of the input is −0.48.")
    expect(page.get_by_role("button", name="▶ start")).to_be_visible()


def test_an_oscillator_goes_round_at_the_speed_of_its_slider(page, lab):
    opened(page, lab)
    page.get_by_label("system").select_option("oscillator")
    flowing = page.locator("#simulation-status")
    expect(flowing).to_have_text(
        re.compile(r"radius (0\.[6-9]|1\.0).*, frequency (0\.9|1\.0)\d Hz; the target is 1\.00")
    )
    page.get_by_label("frequency (Hz)").fill("2")
    page.get_by_role("button", name="▶ start").click()
    expect(flowing).to_have_text(re.compile(r", frequency (1\.[89]|2\.[01])\d Hz; the target is 2\.00"))
    page.reload()
    expect(page.get_by_label("frequency (Hz)")).to_have_value("2")
    expect(page.locator(".copyable pre")).to_have_text(
        "engram run oscillator --neurons 300 --tau-synapse-ms 100 --frequency-hz 2"
    )
