"""Adversarial attacks in a browser."""

import io
import re

import pytest
from PIL import Image
from playwright.sync_api import expect


@pytest.fixture
def opened(page, lab, add_run):
    page.goto(f"{lab.base}/instruments/attack?run={add_run('mlp')}")
    expect(page.locator(".verdict")).to_contain_text("redicted")
    return page


def test_eps_changes_the_prediction(opened):
    expect(opened.get_by_role("img", name="image: ")).to_be_visible()
    expect(opened.get_by_role("img", name="perturbation × 10")).to_be_visible()
    expect(opened.locator(".bars [data-class]")).to_have_count(10)
    opened.get_by_label("attack", exact=True).select_option("fgsm")
    opened.get_by_label("ε, largest norm of the perturbation").fill("0.5")
    expect(opened.locator(".verdict")).to_contain_text("L∞ norm of the perturbation 0.500")
    opened.get_by_label("ε, largest norm of the perturbation").fill("0")
    expect(opened.get_by_role("img", name="no perturbation")).to_be_visible()
    expect(opened.locator(".js-plotly-plot .trace.scatter")).to_have_count(2)


def test_image_target_and_norm_survive_a_reload(opened):
    opened.get_by_role("button", name="next image").click()
    opened.get_by_label("norm", exact=True).select_option("l2")
    opened.get_by_label("target class").select_option("4")
    opened.get_by_label("ε, largest norm of the perturbation").fill("2.5")
    expect(opened.locator(".verdict")).to_contain_text(re.compile(r'"4".*L2 norm of the perturbation 2\.\d+'))
    expect(opened.locator(".verdict")).not_to_have_attribute("aria-busy", "true")
    said = opened.locator(".verdict").inner_text()
    opened.reload()
    expect(opened.locator(".verdict")).to_have_text(said, use_inner_text=True)
    expect(opened.get_by_label("index of the test image")).to_have_value("1")
    expect(opened.get_by_label("target class")).to_have_value("4")


def test_the_minimal_norm_attack_has_no_slider(opened):
    opened.get_by_label("attack", exact=True).select_option("minimal")
    expect(opened.get_by_label("ε, largest norm of the perturbation")).to_be_hidden()
    expect(opened.locator(".verdict")).to_contain_text("L∞ norm of the perturbation 0.0")


def test_draw_a_digit(opened):
    opened.get_by_role("button", name="draw your own").click()
    expect(opened.locator(".verdict")).to_contain_text("Draw something")
    box = opened.get_by_role("application").bounding_box()
    opened.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
    opened.mouse.down()
    opened.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 10, steps=5)
    opened.mouse.up()
    expect(opened.locator(".verdict")).to_contain_text("Predicted")
    expect(opened.locator(".verdict")).not_to_have_attribute("aria-busy", "true")
    said = opened.locator(".verdict").inner_text()
    opened.reload()
    expect(opened.locator(".verdict")).to_have_text(said, use_inner_text=True)


def test_upload_an_image_file(opened):
    opened.get_by_role("button", name="draw your own").click()
    file = io.BytesIO()
    Image.new("RGB", (40, 30), "white").save(file, "PNG")
    choose = opened.locator("input[type=file]")
    choose.set_input_files({"name": "white.png", "mimeType": "image/png", "buffer": file.getvalue()})
    expect(opened.locator(".verdict")).to_contain_text("Predicted")
    choose.set_input_files({"name": "text.png", "mimeType": "image/png", "buffer": b"no image"})
    expect(opened.get_by_text('"text.png" cannot be read as an image.')).to_be_visible()
