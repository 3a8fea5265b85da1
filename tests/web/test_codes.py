"""Latent plane, in a browser."""

import re

from playwright.sync_api import Page, expect

from tests.web.conftest import wait_until

LARGE = "[data-large] img"


def opened(page: Page, lab, run: str, more: str = "") -> None:
    page.goto(f"{lab.base}/instruments/codes?run={run}{more}")
    expect(page.locator("canvas[data-rows='15']")).to_be_visible()
    expect(page.locator("[data-large] > *")).to_be_visible()


def test_walk_over_the_map_with_arrow_keys_and_come_back(page, lab, shelved):
    where = page.locator("[data-where]")
    opened(page, lab, shelved("vae"), "&at=-1.5,0.5")
    there, picture = where.inner_text(), page.locator(LARGE).get_attribute("src")
    opened(page, lab, shelved("vae"))
    expect(where).not_to_have_text(there)
    page.get_by_label("map of codes").focus()
    for _ in range(5):
        page.keyboard.press("Shift+ArrowLeft")
    expect(where).to_have_text(there)
    expect(page.locator(LARGE)).to_have_attribute("src", picture)
    expect(page).to_have_url(re.compile(r"at=-1\.50%2C0\.50"))
    page.reload()
    expect(where).to_have_text(there)


def test_a_pointer_over_the_map_looks_and_a_click_stays(page, lab, shelved):
    opened(page, lab, shelved("vae"))
    page.get_by_label("test items").uncheck()
    where, canvas = page.locator("[data-where]"), page.get_by_label("map of codes")
    first = where.inner_text()
    canvas.hover(position={"x": 30, "y": 30})
    expect(where).not_to_have_text(first)
    page.mouse.move(5, 5)
    expect(where).to_have_text(first)
    canvas.click(position={"x": 30, "y": 30})
    page.mouse.move(5, 5)
    expect(page).to_have_url(re.compile(r"at=-2\.\d"))
    expect(where).not_to_have_text(first)


def test_a_dot_that_is_clicked_shows_the_item_and_what_its_code_gives_back(page, lab, shelved):
    opened(page, lab, shelved("vae"), "&reach=6")
    canvas = page.get_by_label("map of codes")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] / 2, "y": box["height"] / 2})
    expect(page.get_by_text(re.compile(r"test item \d+"))).to_be_visible()
    expect(page.get_by_alt_text("itself")).to_be_visible()
    again = page.get_by_alt_text("from its code").get_attribute("src")
    page.mouse.move(5, 5)
    expect(page.locator(LARGE)).to_have_attribute("src", again)
    page.get_by_role("button", name="way from here").click()
    number = re.search(r"\d+", page.get_by_text(re.compile(r"test item \d+")).inner_text())[0]
    expect(page.get_by_label("from", exact=True)).to_have_value(number)
    expect(page).to_have_url(re.compile(f"item={number}"))
    page.reload()
    expect(page.get_by_text(f"test item {number}")).to_be_visible()


def test_numbers_of_the_code_on_sliders(page, lab, shelved):
    opened(page, lab, shelved("autoencoder"))
    before = page.locator(LARGE).get_attribute("src")
    number = page.get_by_label("number 2")
    number.focus()
    page.keyboard.press("End")
    expect(page.locator(LARGE)).not_to_have_attribute("src", before)
    expect(page).to_have_url(re.compile("moved=1%3A"))
    value = float(number.input_value())
    page.reload()
    expect(page.locator("[data-where]")).to_contain_text(f"{value:.2f}")


def test_from_one_item_to_another(page, lab, shelved):
    opened(page, lab, shelved("vae"), "&item=8")
    expect(page.get_by_text("test item 8")).to_be_visible()
    again = page.get_by_alt_text("from its code").get_attribute("src")
    expect(page.locator(LARGE)).to_have_attribute("src", again)
    where = page.locator("[data-where]")
    there = where.inner_text()
    page.get_by_label("on the way").focus()
    page.keyboard.press("ArrowRight")
    expect(where).not_to_have_text(there)
    page.keyboard.press("End")
    expect(page.get_by_text("100 %")).to_be_visible()
    page.get_by_label("to", exact=True).fill("8")
    expect(where).to_have_text(there)
    expect(page.get_by_alt_text("pictures on the way")).to_be_visible()
    expect(page).to_have_url(re.compile("last=8"))
    page.reload()
    expect(page.get_by_label("to", exact=True)).to_have_value("8")
    expect(where).to_have_text(there)


def test_a_generator_has_random_planes_and_a_judge(page, lab, shelved):
    opened(page, lab, shelved("gan"))
    expect(page.get_by_label("plane", exact=True)).to_have_value("random")
    expect(page.locator("[data-where]")).to_contain_text("the judge takes it for real")
    before = page.locator("[data-where]").inner_text()
    page.get_by_role("button", name="another plane").click()
    expect(page.locator("[data-where]")).not_to_have_text(before)


def test_points_show_where_the_plane_of_codes_leads(page, lab, shelved):
    opened(page, lab, shelved("vae", "vae-points", data="points", code=2, hidden=(8,)))
    canvas = page.get_by_label("where the codes of the map lead")
    before = canvas.evaluate("canvas => canvas.toDataURL()")
    page.get_by_label("map of codes").focus()
    page.keyboard.press("Shift+ArrowUp")
    wait_until(lambda: page.locator("[data-large] canvas").evaluate("canvas => canvas.toDataURL()") != before)
