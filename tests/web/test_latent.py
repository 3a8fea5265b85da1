"""Latent spaces in a browser."""

import re

from playwright.sync_api import Page, expect

from tests.web.conftest import wait_until

DECODED = "[data-decoded] img"


def opened(page: Page, lab, run: str, more: str = "") -> None:
    page.goto(f"{lab.base}/instruments/latent?run={run}{more}")
    expect(page.locator("canvas[data-rows='15']")).to_be_visible()
    expect(page.locator("[data-decoded] > *")).to_be_visible()


def test_walk_over_the_map_with_arrow_keys_and_come_back(page, lab, add_run):
    where = page.locator("[data-latent]")
    opened(page, lab, add_run("vae"), "&at=-1.5,0.5")
    there, picture = where.inner_text(), page.locator(DECODED).get_attribute("src")
    opened(page, lab, add_run("vae"))
    expect(where).not_to_have_text(there)
    page.get_by_label("map of latents").focus()
    for _ in range(5):
        page.keyboard.press("Shift+ArrowLeft")
    expect(where).to_have_text(there)
    expect(page.locator(DECODED)).to_have_attribute("src", picture)
    expect(page).to_have_url(re.compile(r"at=-1\.50%2C0\.50"))
    page.reload()
    expect(where).to_have_text(there)


def test_a_pointer_over_the_map_looks_and_a_click_stays(page, lab, add_run):
    opened(page, lab, add_run("vae"))
    page.get_by_label("test samples").uncheck()
    where, canvas = page.locator("[data-latent]"), page.get_by_label("map of latents")
    first = where.inner_text()
    canvas.hover(position={"x": 30, "y": 30})
    expect(where).not_to_have_text(first)
    page.mouse.move(5, 5)
    expect(where).to_have_text(first)
    canvas.click(position={"x": 30, "y": 30})
    page.mouse.move(5, 5)
    expect(page).to_have_url(re.compile(r"at=-2\.\d"))
    expect(where).not_to_have_text(first)


def test_a_sample_that_is_clicked_shows_its_reconstruction(page, lab, add_run):
    opened(page, lab, add_run("vae"), "&extent=6")
    canvas = page.get_by_label("map of latents")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] / 2, "y": box["height"] / 2})
    expect(page.get_by_text(re.compile(r"test sample \d+"))).to_be_visible()
    expect(page.get_by_alt_text("original")).to_be_visible()
    again = page.get_by_alt_text("reconstruction").get_attribute("src")
    page.mouse.move(5, 5)
    expect(page.locator(DECODED)).to_have_attribute("src", again)
    page.get_by_role("button", name="interpolate from here").click()
    number = re.search(r"\d+", page.get_by_text(re.compile(r"test sample \d+")).inner_text())[0]
    expect(page.get_by_label("from", exact=True)).to_have_value(number)
    expect(page).to_have_url(re.compile(f"item={number}"))
    page.reload()
    expect(page.get_by_text(f"test sample {number}")).to_be_visible()


def test_sliders_change_coordinates(page, lab, add_run):
    opened(page, lab, add_run("autoencoder"))
    before = page.locator(DECODED).get_attribute("src")
    number = page.get_by_label("coordinate 2")
    number.focus()
    page.keyboard.press("End")
    expect(page.locator(DECODED)).not_to_have_attribute("src", before)
    expect(page).to_have_url(re.compile("changes=1%3A"))
    value = float(number.input_value())
    page.reload()
    expect(page.locator("[data-latent]")).to_contain_text(f"{value:.2f}")


def test_interpolation_between_two_samples(page, lab, add_run):
    opened(page, lab, add_run("vae"), "&item=8")
    expect(page.get_by_text("test sample 8")).to_be_visible()
    again = page.get_by_alt_text("reconstruction").get_attribute("src")
    expect(page.locator(DECODED)).to_have_attribute("src", again)
    where = page.locator("[data-latent]")
    there = where.inner_text()
    page.get_by_label("position").focus()
    page.keyboard.press("ArrowRight")
    expect(where).not_to_have_text(there)
    page.keyboard.press("End")
    expect(page.get_by_text("100 %")).to_be_visible()
    page.get_by_label("to", exact=True).fill("8")
    expect(where).to_have_text(there)
    expect(page.get_by_alt_text("interpolation")).to_be_visible()
    expect(page).to_have_url(re.compile("last=8"))
    page.reload()
    expect(page.get_by_label("to", exact=True)).to_have_value("8")
    expect(where).to_have_text(there)


def test_a_gan_has_random_planes_and_a_discriminator(page, lab, add_run):
    opened(page, lab, add_run("gan"))
    expect(page.get_by_label("plane", exact=True)).to_have_value("random")
    expect(page.locator("[data-latent]")).to_contain_text("discriminator: real with probability")
    before = page.locator("[data-latent]").inner_text()
    page.get_by_role("button", name="another plane").click()
    expect(page.locator("[data-latent]")).not_to_have_text(before)


def test_points_show_the_decoded_plane(page, lab, add_run):
    opened(page, lab, add_run("vae", "vae-points", data="points", latent_dim=2, hidden=(8,)))
    canvas = page.get_by_label("decoded points of the map")
    before = canvas.evaluate("canvas => canvas.toDataURL()")
    page.get_by_label("map of latents").focus()
    page.keyboard.press("Shift+ArrowUp")
    wait_until(lambda: page.locator("[data-decoded] canvas").evaluate("canvas => canvas.toDataURL()") != before)
