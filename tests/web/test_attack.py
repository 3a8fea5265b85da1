"""Attacking a classifier, in a browser."""

import io
import re

import pytest
from PIL import Image
from playwright.sync_api import expect


@pytest.fixture
def opened(page, lab, shelved):
    page.goto(f"{lab.base}/instruments/attack?run={shelved('mlp')}")
    expect(page.locator(".verdict")).to_contain_text("aken for")
    return page


def test_slide_eps_and_see_a_picture_taken_for_another(opened):
    expect(opened.get_by_role("img", name="the picture: ")).to_be_visible()
    expect(opened.get_by_role("img", name="the difference × 10")).to_be_visible()
    expect(opened.locator(".bars [data-class]")).to_have_count(10)
    opened.get_by_label("attack", exact=True).select_option("step")
    opened.get_by_label("ε, how far it may go").fill("0.5")
    expect(opened.locator(".verdict")).to_contain_text("No pixel changed by more than 0.500")
    opened.get_by_label("ε, how far it may go").fill("0")
    expect(opened.get_by_role("img", name="no difference")).to_be_visible()
    expect(opened.locator(".js-plotly-plot .trace.scatter")).to_have_count(2)


def test_choose_a_picture_a_target_and_a_norm_and_find_them_after_a_reload(opened):
    opened.get_by_role("button", name="next picture").click()
    opened.get_by_label("how a change is measured").select_option("l2")
    opened.get_by_label("shall be taken for").select_option("4")
    opened.get_by_label("ε, how far it may go").fill("2.5")
    expect(opened.locator(".verdict")).to_contain_text(re.compile(r"«4» .*The change is 2\.\d+ long"))
    said = opened.locator(".verdict").inner_text()
    opened.reload()
    expect(opened.locator(".verdict")).to_have_text(said, use_inner_text=True)
    expect(opened.get_by_label("number of the test picture")).to_have_value("1")
    expect(opened.get_by_label("shall be taken for")).to_have_value("4")


def test_the_smallest_change_has_no_slider(opened):
    opened.get_by_label("attack", exact=True).select_option("smallest")
    expect(opened.get_by_label("ε, how far it may go")).to_be_hidden()
    expect(opened.locator(".verdict")).to_contain_text("No pixel changed by more than 0.0")


def test_draw_a_digit(opened):
    opened.get_by_role("button", name="draw your own").click()
    expect(opened.locator(".verdict")).to_contain_text("Draw something")
    box = opened.get_by_role("application").bounding_box()
    opened.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
    opened.mouse.down()
    opened.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 10, steps=5)
    opened.mouse.up()
    expect(opened.locator(".verdict")).to_contain_text("Taken for")
    said = opened.locator(".verdict").inner_text()
    opened.reload()
    expect(opened.locator(".verdict")).to_have_text(said, use_inner_text=True)


def test_bring_a_picture_file(opened):
    opened.get_by_role("button", name="draw your own").click()
    file = io.BytesIO()
    Image.new("RGB", (40, 30), "white").save(file, "PNG")
    choose = opened.locator("input[type=file]")
    choose.set_input_files({"name": "white.png", "mimeType": "image/png", "buffer": file.getvalue()})
    expect(opened.locator(".verdict")).to_contain_text("Taken for")
    choose.set_input_files({"name": "text.png", "mimeType": "image/png", "buffer": b"no picture"})
    expect(opened.get_by_text("«text.png» cannot be read as a picture.")).to_be_visible()
