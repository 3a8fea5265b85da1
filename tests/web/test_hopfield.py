"""The Hopfield memory, in a browser."""

import re

import pytest
from playwright.sync_api import expect

MOON = 'Converged to "moon", without error.'


@pytest.fixture
def memory(page, lab):
    """The instrument as somebody sees it who wants nothing to move."""
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{lab.base}/instruments/hopfield")
    expect(page.get_by_text(MOON)).to_be_visible()
    return page


def pixel(page, row, column, **how):
    """Click on a pixel of the drawing."""
    box = page.get_by_role("application").bounding_box()
    page.mouse.click(box["x"] + (column + 0.5) * box["width"] / 10, box["y"] + (row + 0.5) * box["height"] / 10, **how)


def test_at_first_a_corrupted_moon_comes_back_flip_by_flip(page, lab):
    page.goto(f"{lab.base}/instruments/hopfield")
    expect(page.get_by_text(re.compile(r"step \d+ of \d+: unit \d+ flips"))).to_be_visible()
    expect(page.get_by_text(MOON)).to_be_visible()
    expect(page.locator(".bars").first).to_contain_text("1.00")
    page.get_by_label("back to the cue").click()
    expect(page.get_by_text(re.compile(r"step 0 of \d+: the cue"))).to_be_visible()
    page.get_by_role("button", name="step ▶").click()
    expect(page.get_by_text(re.compile(r"step 1 of \d+: unit \d+ flips, sweep 1"))).to_be_visible()


def test_draw_with_the_mouse_and_with_keys_and_reload(memory):
    memory.get_by_role("button", name="clear").click()
    expect(memory).to_have_url(re.compile(f"drawing={'0' * 25}"))
    pixel(memory, 0, 0)
    pixel(memory, 0, 3)
    expect(memory).to_have_url(re.compile(f"drawing=9{'0' * 24}"))
    pixel(memory, 0, 3, button="right")
    expect(memory).to_have_url(re.compile(f"drawing=8{'0' * 24}"))
    canvas = memory.get_by_role("application")
    canvas.focus()
    for key in ["Home", *["ArrowUp"] * 9, "ArrowRight", " "]:
        canvas.press(key)
    expect(memory.get_by_text("row 1, column 2: full")).to_be_visible()
    expect(memory).to_have_url(re.compile(f"drawing=c{'0' * 24}"))
    memory.get_by_label("learning rule").select_option("storkey")
    memory.reload()
    expect(memory).to_have_url(re.compile(f"drawing=c{'0' * 24}"))
    expect(memory.get_by_label("learning rule")).to_have_value("storkey")
    expect(memory.get_by_text("without error").or_(memory.get_by_text("spurious")).first).to_be_visible()


def test_store_more_than_it_holds_and_then_by_a_better_rule(memory):
    memory.get_by_label("take a pattern").select_option("moon")
    memory.get_by_role("button", name="all", exact=True).click()
    expect(memory.get_by_text("above 0.138")).to_be_visible()
    expect(memory.get_by_text("α = M / N = 36 / 100 = 0.36")).to_be_visible()
    expect(memory.get_by_text("a spurious state")).to_be_visible()
    memory.get_by_label("learning rule").select_option("pseudo-inverse")
    expect(memory.get_by_text("36 of the 36 stored patterns are fixed points.")).to_be_visible()
    expect(memory.get_by_text(MOON)).to_be_visible()


def test_choose_what_is_stored_and_store_a_drawing(memory):
    moon = memory.get_by_role("button", name="moon")
    moon.click()
    expect(moon).to_have_attribute("aria-pressed", "false")
    expect(memory.get_by_text(MOON)).to_have_count(0)
    memory.get_by_label("take a pattern").select_option("T")
    memory.get_by_role("button", name="store this drawing").click()
    expect(memory.get_by_text('Converged to "own 1", without error.')).to_be_visible()
    memory.get_by_role("button", name="nothing").click()
    expect(memory.get_by_text("Nothing is stored: choose a pattern.")).to_be_visible()


def test_beta_sharpens_attention(memory):
    beta = memory.get_by_label("inverse temperature β")
    beta.fill("-10")
    expect(memory.get_by_text(re.compile(r"\"moon\" has 2\d\.\d% of the attention"))).to_be_visible()
    beta.fill("0")
    expect(memory.get_by_text('"moon" has 100.0% of the attention')).to_be_visible()


def test_corrupt_and_cover(memory):
    memory.get_by_label("take a pattern").select_option("key")
    expect(memory.get_by_text('Converged to "key", without error.')).to_be_visible()
    memory.get_by_label("half to cover").select_option("right")
    memory.get_by_role("button", name="cover").click()
    expect(memory.get_by_text(re.compile(r"step \d+ of [1-9]"))).to_be_visible()
    before = memory.url
    memory.get_by_role("button", name="flip them").click()
    expect(memory).not_to_have_url(before)
    expect(memory.get_by_label("seed")).to_have_value("2")
