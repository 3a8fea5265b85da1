"""Diffusion sampling in a browser."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.web.conftest import wait_until


def drawn(page: Page, label: str) -> str:
    """What a canvas shows."""
    return page.get_by_label(label).evaluate("canvas => canvas.toDataURL()")


def time(page: Page) -> Locator:
    return page.locator(".slider", has_text="time step").locator("output")


def end(page: Page) -> None:
    expect(time(page)).to_have_text("t = 0 of 1000")
    expect(page.get_by_role("button", name="▶ play")).to_be_visible()


@pytest.fixture
def images(add_run):
    return add_run("diffusion", "classes", conditional=True)


def test_the_trajectory_plays_and_can_be_scrubbed(page, lab, images):
    page.goto(f"{lab.base}/instruments/diffusion?run={images}")
    end(page)
    made = drawn(page, "noisy samples, A")
    assert made == drawn(page, "predicted clean samples, A")
    scrub = page.get_by_label("time step")
    scrub.focus()
    page.keyboard.press("Home")
    expect(page.locator("[data-level]")).to_contain_text("noise level 100 %")
    assert drawn(page, "noisy samples, A") != made
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    shown = time(page).inner_text()
    expect(page).to_have_url(re.compile(r"[?&]t=\d+"))
    page.reload()
    expect(time(page)).to_have_text(shown)
    page.get_by_label("time step").focus()
    page.keyboard.press("End")
    expect(time(page)).to_have_text("t = 0 of 1000")
    assert drawn(page, "noisy samples, A") == made


def test_two_trajectories_from_the_same_noise(page, lab, images):
    page.goto(f"{lab.base}/instruments/diffusion?run={images}&t=1000&steps=5&b_steps=5&sampler=ddim&b_sampler=ddim")
    page.get_by_label("compare with B").check()
    expect(page.get_by_label("trajectory of image 1, B")).to_be_visible()
    expect(page).to_have_url(re.compile("compare=1"))
    wait_until(lambda: page.get_by_label("noisy samples, B").evaluate("canvas => canvas.width") > 1)
    wait_until(lambda: drawn(page, "noisy samples, A") == drawn(page, "noisy samples, B"))
    page.get_by_label("time step").fill("5")
    expect(time(page)).to_have_text("t = 0 of 1000")
    wait_until(lambda: drawn(page, "noisy samples, A") != drawn(page, "noisy samples, B"))


def test_settings_are_in_the_address_and_in_the_command(page, lab, images):
    page.goto(f"{lab.base}/instruments/diffusion?run={images}")
    page.get_by_label("sampler").select_option("ddpm")
    page.get_by_label("class").select_option("7")
    page.get_by_label("guidance").fill("2")
    page.get_by_label("seed of the noise").fill("11")
    expect(page.locator("pre")).to_contain_text("--sampler ddpm --sampler-steps 10 --guidance 2 --label 7")
    expect(page).to_have_url(re.compile("seed=11"))
    page.reload()
    expect(page.get_by_label("sampler")).to_have_value("ddpm")
    expect(page.get_by_label("class")).to_have_value("7")
    expect(page.get_by_label("guidance")).to_have_value("2")
    expect(page.get_by_label("seed of the noise")).to_have_value("11")
    end(page)


def test_the_trajectory_of_an_image_that_is_clicked(page, lab, images):
    page.goto(f"{lab.base}/instruments/diffusion?run={images}")
    end(page)
    canvas = page.get_by_label("noisy samples, A")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 0.6, "y": box["height"] * 0.75})
    expect(page.get_by_label("trajectory of image 7, A")).to_be_visible()
    expect(page.get_by_label("trajectory of image", exact=True)).to_have_value("6")


def test_points_move_out_of_the_noise(page, lab, add_run):
    name = add_run("diffusion", "diffusion-points", data="points", hidden=8)
    page.goto(f"{lab.base}/instruments/diffusion?run={name}")
    end(page)
    made = drawn(page, "noisy samples, A")
    page.get_by_label("time step").focus()
    page.keyboard.press("Home")
    expect(page.locator("[data-level]")).to_contain_text("noise level 100 %")
    assert drawn(page, "noisy samples, A") != made
