"""Images and texts, in a browser."""

import io

import pytest
from PIL import Image
from playwright.sync_api import expect


@pytest.fixture
def opened(page, lab, add_run):
    page.goto(f"{lab.base}/instruments/clip?run={add_run('clip')}")
    expect(page.locator(".verdict")).to_contain_text("The best text is")
    return page


def test_type_texts_and_see_how_well_each_describes_an_image(opened):
    expect(opened.locator(".captions li")).to_have_count(8)
    opened.get_by_label("texts, one a line").fill("a red circle\n\na blue square\na red circle")
    expect(opened.locator(".bars [data-text]")).to_have_count(2)
    expect(opened.locator(".verdict")).to_contain_text("of these 2")
    opened.get_by_role("button", name="next image").click()
    expect(opened.get_by_text('test image 1: "')).to_be_visible()
    opened.reload()
    expect(opened.get_by_label("texts, one a line")).to_have_value("a red circle\n\na blue square\na red circle")
    expect(opened.get_by_text('test image 1: "')).to_be_visible()


def test_bring_an_image_and_find_it_after_a_reload(opened):
    file = io.BytesIO()
    Image.new("RGB", (90, 60), (220, 30, 30)).save(file, "PNG")
    opened.locator("input[type=file]").set_input_files(
        {"name": "red.png", "mimeType": "image/png", "buffer": file.getvalue()}
    )
    expect(opened.get_by_text("your image, as the model sees it")).to_be_visible()
    opened.reload()
    expect(opened.get_by_text("your image, as the model sees it")).to_be_visible()
    opened.get_by_role("button", name="random").click()
    expect(opened.get_by_text("test image ").first).to_be_visible()


def test_every_image_with_every_text(opened):
    expect(opened.get_by_text("images are most similar to their own caption.")).to_be_visible()
    opened.get_by_role("button", name="the texts above").click()
    opened.get_by_label("images", exact=True).fill("3")
    opened.get_by_label("texts, one a line").fill("a red circle\na blue square")
    expect(opened.get_by_text("2 texts, 3 images.")).to_be_visible()
    expect(opened.locator("tbody td")).to_have_count(6)
    opened.get_by_role("button", name="look at test image 2").click()
    expect(opened.get_by_text('test image 2: "')).to_be_visible()


def test_no_text_is_explained(opened):
    opened.get_by_label("texts, one a line").fill("")
    expect(opened.locator(".verdict")).to_contain_text("Type a text or two")
