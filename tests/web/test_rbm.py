"""The restricted Boltzmann machine, in a browser."""

import re

import pytest
from playwright.sync_api import expect


@pytest.fixture
def machine(page, lab, add_run):
    """The instrument with a tiny model, with reduced motion."""
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{lab.base}/instruments/rbm?run={add_run('rbm')}")
    expect(page.get_by_text("step 400: energy")).to_be_visible()
    return page


def test_step_by_step_and_back(machine):
    machine.get_by_role("button", name="reset", exact=True).click()
    expect(machine.get_by_text("Step 0")).to_be_visible()
    machine.get_by_role("button", name="one step").click()
    expect(machine.get_by_text("step 1: energy")).to_be_visible()
    machine.get_by_role("button", name="20 steps").click()
    expect(machine.get_by_text("step 21: energy")).to_be_visible()
    machine.get_by_label("frame").fill("4")
    expect(machine.get_by_text("step 5: energy")).to_be_visible()


def test_take_corrupt_clamp_and_reload(machine):
    machine.get_by_label("next test image").click()
    expect(machine.get_by_label("test image", exact=True)).to_have_value("1")
    taken = re.search(r"drawing=(\w{64})", machine.url)[1]
    machine.get_by_role("button", name="cover").click()
    expect(machine).to_have_url(re.compile(f"drawing={taken[:32]}{'0' * 32}"))
    machine.get_by_role("button", name="add noise").click()
    expect(machine).not_to_have_url(re.compile(f"drawing={taken[:32]}{'0' * 32}"))
    machine.get_by_label("clamp, and sample the rest").select_option("nothing")
    machine.get_by_label("temperature").fill("2")
    expect(machine.get_by_text("T = 2.00")).to_be_visible()
    drawn = re.search(r"drawing=(\w{64})", machine.url)[1]
    machine.reload()
    expect(machine.get_by_text("step 400: energy")).to_be_visible()
    expect(machine).to_have_url(re.compile(f"drawing={drawn}"))
    expect(machine.get_by_label("clamp, and sample the rest")).to_have_value("nothing")
    expect(machine.get_by_label("temperature")).to_have_value("2")


def test_draw_with_keys_in_black_and_white(machine):
    machine.get_by_label("pen").select_option("binary")
    machine.get_by_role("button", name="clear").click()
    expect(machine).to_have_url(re.compile(f"drawing={'0' * 64}"))
    canvas = machine.get_by_role("application")
    canvas.focus()
    for key in ["Home", *["ArrowUp"] * 7, " "]:
        canvas.press(key)
    expect(machine.get_by_text("row 1, column 1: full")).to_be_visible()
    expect(machine).to_have_url(re.compile(f"drawing=f{'0' * 63}"))
    canvas.press("x")
    expect(machine.get_by_text("row 1, column 1: empty")).to_be_visible()


def test_hidden_units_show_what_they_look_for(machine):
    machine.get_by_label("unit", exact=True).fill("7")
    expect(machine.get_by_label("weights of hidden unit 7").first).to_be_visible()
    expect(machine.get_by_text("The free energy of the drawing is")).to_be_visible()
    expect(machine.locator("[aria-label^='hidden unit']")).to_have_count(12)
    machine.locator("[aria-label^='hidden unit']").first.click()
    expect(machine.get_by_label("unit", exact=True)).not_to_have_value("7")


def test_a_chain_can_be_stopped(page, lab, add_run):
    page.goto(f"{lab.base}/instruments/rbm?run={add_run('rbm')}&clamp=nothing")
    expect(page.get_by_text(re.compile(r"step \d+: energy"))).to_be_visible()
    page.get_by_role("button", name="stop").click()
    expect(page.get_by_role("button", name="stop")).to_be_disabled()
    stopped = page.get_by_text(re.compile(r"step \d+: energy")).inner_text()
    page.get_by_role("button", name="one step").click()
    following = int(re.search(r"\d+", stopped)[0]) + 1
    expect(page.get_by_text(f"step {following}: energy")).to_be_visible()
