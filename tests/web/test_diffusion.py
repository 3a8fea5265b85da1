"""Out of the noise, in a browser."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.web.conftest import wait_until


def drawn(page: Page, label: str) -> str:
    """What a canvas shows."""
    return page.get_by_label(label).evaluate("canvas => canvas.toDataURL()")


def time(page: Page) -> Locator:
    return page.locator(".slider", has_text="from noise to").locator("output")


def end(page: Page) -> None:
    expect(time(page)).to_have_text("t = 0 of 1000")
    expect(page.get_by_role("button", name="▶ play")).to_be_visible()


@pytest.fixture
def pictures(shelved):
    return shelved("diffusion", "classes", conditional=True)


def test_it_comes_out_of_the_noise_by_itself_and_can_be_scrubbed(page, lab, pictures):
    page.goto(f"{lab.base}/instruments/diffusion?run={pictures}")
    end(page)
    made = drawn(page, "what there is, A")
    assert made == drawn(page, "what the model expects, A")
    scrub = page.get_by_label("from noise to picture")
    scrub.focus()
    page.keyboard.press("Home")
    expect(page.locator("[data-level]")).to_contain_text("noise is 100 %")
    assert drawn(page, "what there is, A") != made
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    shown = time(page).inner_text()
    expect(page).to_have_url(re.compile(r"[?&]t=\d+"))
    page.reload()
    expect(time(page)).to_have_text(shown)
    page.get_by_label("from noise to picture").focus()
    page.keyboard.press("End")
    expect(time(page)).to_have_text("t = 0 of 1000")
    assert drawn(page, "what there is, A") == made


def test_two_ways_from_the_same_noise(page, lab, pictures):
    page.goto(f"{lab.base}/instruments/diffusion?run={pictures}&t=1000&steps=5&b_steps=5&sampler=ddim&b_sampler=ddim")
    page.get_by_label("compare with B").check()
    expect(page.get_by_label("film of picture 1, B")).to_be_visible()
    expect(page).to_have_url(re.compile("compare=1"))
    wait_until(lambda: page.get_by_label("what there is, B").evaluate("canvas => canvas.width") > 1)
    wait_until(lambda: drawn(page, "what there is, A") == drawn(page, "what there is, B"))
    page.get_by_label("from noise to picture").fill("5")
    expect(time(page)).to_have_text("t = 0 of 1000")
    wait_until(lambda: drawn(page, "what there is, A") != drawn(page, "what there is, B"))


def test_settings_are_in_the_address_and_in_the_command(page, lab, pictures):
    page.goto(f"{lab.base}/instruments/diffusion?run={pictures}")
    page.get_by_label("sampler").select_option("ancestral")
    page.get_by_label("class").select_option("7")
    page.get_by_label("guidance").fill("2")
    page.get_by_label("seed of the noise").fill("11")
    expect(page.locator("pre")).to_contain_text("--sampler ancestral --sampler-steps 10 --guidance 2 --label 7")
    expect(page).to_have_url(re.compile("seed=11"))
    page.reload()
    expect(page.get_by_label("sampler")).to_have_value("ancestral")
    expect(page.get_by_label("class")).to_have_value("7")
    expect(page.get_by_label("guidance")).to_have_value("2")
    expect(page.get_by_label("seed of the noise")).to_have_value("11")
    end(page)


def test_a_picture_that_is_clicked_has_its_film(page, lab, pictures):
    page.goto(f"{lab.base}/instruments/diffusion?run={pictures}")
    end(page)
    canvas = page.get_by_label("what there is, A")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 0.6, "y": box["height"] * 0.75})
    expect(page.get_by_label("film of picture 7, A")).to_be_visible()
    expect(page.get_by_label("film of picture", exact=True)).to_have_value("6")


def test_points_move_out_of_the_noise(page, lab, shelved):
    name = shelved("diffusion", "diffusion-points", data="points", hidden=8)
    page.goto(f"{lab.base}/instruments/diffusion?run={name}")
    end(page)
    made = drawn(page, "what there is, A")
    page.get_by_label("from noise to points").focus()
    page.keyboard.press("Home")
    expect(page.locator("[data-level]")).to_contain_text("noise is 100 %")
    assert drawn(page, "what there is, A") != made
