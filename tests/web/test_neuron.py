"""The neuron bench, in a browser."""

import re

from playwright.sync_api import expect


def bench(page, lab):
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{lab.base}/instruments/neuron")
    expect(said(page)).to_have_text(re.compile(r"\d+ spikes? in 200 ms"))


def said(page):
    return page.locator(".instrument p[role=status]").first


def test_a_step_makes_it_fire_and_no_sodium_keeps_it_silent(page, lab):
    bench(page, lab)
    expect(said(page)).to_contain_text("9 spikes in 200 ms, 68 Hz")
    page.get_by_label("g_Na (mS/cm²)").fill("0")
    expect(said(page)).to_have_text("0 spikes in 200 ms")
    expect(page).to_have_url(re.compile("g_Na"))
    page.reload()
    expect(page.get_by_label("g_Na (mS/cm²)")).to_have_value("0")
    expect(said(page)).to_have_text("0 spikes in 200 ms")


def test_draw_a_current_with_the_pointer_and_go_on_with_the_keys(page, lab):
    bench(page, lab)
    hand = page.get_by_role("application", name="injected current")
    hand.scroll_into_view_if_needed()
    box = hand.bounding_box()
    x, y = box["x"], box["y"]
    page.mouse.move(x + 50, y + 40)
    page.mouse.down()
    page.mouse.move(x + box["width"] - 15, y + 40, steps=8)
    expect(said(page)).not_to_contain_text("9 spikes")  # it answers before the hand is lifted
    page.mouse.up()
    expect(page.get_by_label("current", exact=True)).to_have_value("drawn")
    expect(said(page)).to_have_text(re.compile("(19|2[01]) spikes"))
    page.get_by_role("button", name="clear the drawing").click()
    expect(said(page)).to_have_text("0 spikes in 200 ms")
    hand.focus()
    for key in ["ArrowLeft", *["Shift+ArrowUp"] * 4]:
        page.keyboard.press(key)
    expect(said(page)).to_contain_text("1 spike in 200 ms")
    expect(page.get_by_text(re.compile(r"pen at 19\d ms, 30"))).to_be_visible()
    expect(page).to_have_url(re.compile("drawn="))
    page.wait_for_timeout(400)
    page.reload()
    expect(said(page)).to_contain_text("1 spike in 200 ms")
    expect(page.get_by_label("current", exact=True)).to_have_value("drawn")


def test_scrub_through_time(page, lab):
    bench(page, lab)
    reading = page.locator("#reading")
    page.get_by_label("time cursor").fill("0")
    expect(reading).to_contain_text("J 0.0 µA/cm², V −65.0 mV, m 0.05, h 0.60, n 0.32")
    page.get_by_label("time cursor").fill("500")
    expect(reading).to_contain_text("J 10.0 µA/cm²")
    voltage = page.get_by_role("img", name="membrane potential over time")
    voltage.scroll_into_view_if_needed()
    voltage.click(position={"x": voltage.bounding_box()["width"] - 12, "y": 50})
    expect(reading).to_have_text(re.compile(r"^(199|200)\.\d ms: J 0\.0"))


def test_a_leaky_neuron_fires_as_its_formula_says(page, lab):
    bench(page, lab)
    page.get_by_label("neuron", exact=True).select_option("lif")
    expect(said(page)).to_contain_text("5 spikes in 200 ms, 42 Hz")
    expect(page.locator("#fi-caption")).to_contain_text("differs by less than 0.001 Hz")
    expect(page.get_by_label("gates over time")).to_be_hidden()
    page.get_by_role("button", name="below threshold").click()
    expect(said(page)).to_have_text("0 spikes in 200 ms")
    expect(page.locator(".copyable pre")).to_contain_text(
        "engram run lif --steps 200 --neurons 1 --stimulus step --amplitude 0.95"
    )


def test_rates_of_hodgkin_and_huxley_s_neuron_begin_at_the_rheobase(page, lab):
    bench(page, lab)
    expect(page.locator("#fi-caption")).to_contain_text("2.24 µA/cm² for a single spike, 6.26 for repetitive firing")
    expect(page.locator(".fi-curve .points path")).to_have_count(33)
