"""Attention, in a browser."""

import re

import pytest
from playwright.sync_api import expect

from engram.hub import huggingface
from engram.hub.load import load
from tests.web.conftest import wait_until

TEXT = "to be or not to"
DRAWN = """() => [...document.querySelectorAll("[data-head] canvas")].every((canvas) =>
  canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean))"""


@pytest.fixture
def opened(page, lab, add_run):
    def call(name="gpt", query=""):
        page.goto(f"{lab.base}/instruments/attention?run={add_run(name)}{query}")
        expect(page.locator("table.predicted tr")).not_to_have_count(0)
        return page

    return call


def typed(page, text):
    page.get_by_label("text", exact=True).fill(text)
    expect(page.locator("[data-token]")).to_have_count(len(text))


def test_there_is_something_to_see_before_anything_is_typed(opened):
    page = opened()
    expect(page.locator("[data-head]")).to_have_count(4)
    expect(page.get_by_label("text", exact=True)).not_to_have_value("")
    expect(page.locator(".arc")).not_to_have_count(0)
    wait_until(lambda: page.evaluate(DRAWN))


def test_switch_a_head_off_and_see_the_prediction_change(opened):
    page = opened()
    typed(page, TEXT)
    page.get_by_role("button", name="layer 1, head 0").click()
    expect(page.get_by_role("heading", name="Layer 1, head 0")).to_be_visible()
    expect(page.locator("th", has_text="after")).to_have_count(0)
    page.get_by_role("button", name="switch this head off").click()
    expect(page.locator("th", has_text="after")).to_be_visible()
    page.locator("[data-head='0.1']").focus()
    page.keyboard.press("o")
    expect(page.get_by_role("listitem")).to_have_text(["1·0 off ×", "0·1 off ×"])
    before = page.locator("table.predicted").inner_text()
    expect(page).to_have_url(re.compile("interventions=a%2C1%2C0%3Ba%2C0%2C1"))
    page.reload()
    expect(page.get_by_label("text", exact=True)).to_have_value(TEXT)
    expect(page.get_by_role("heading", name="Layer 1, head 0 (off)")).to_be_visible()
    expect(page.locator("[data-off=true]")).to_have_count(2)
    assert page.locator("table.predicted").inner_text() == before
    page.get_by_role("button", name="undo all").click()
    expect(page.locator("th", has_text="after")).to_have_count(0)


def test_a_click_may_switch_off_instead(opened):
    page = opened()
    page.get_by_label("a click on a head").select_option("off")
    page.get_by_role("button", name="layer 0, head 1").click()
    expect(page.get_by_role("listitem")).to_have_text(["0·1 off ×"])


def test_edit_a_weight_and_undo_it(opened):
    page = opened(query="&head=0,1")
    typed(page, TEXT)
    map_ = page.get_by_role("img", name="attention, token by token")
    size = map_.bounding_box()
    map_.click(position={"x": size["width"] - 90, "y": size["height"] - 4})
    slider = page.locator("input[name=weight]")
    slider.fill("0.85")
    expect(page.get_by_role("listitem")).to_have_text(re.compile('^0·1 "o" → "." 85 % ×$'))
    expect(page.get_by_role("img", name=re.compile('attends to ".": 85 %'))).to_be_visible()
    expect(page.get_by_text(re.compile(r"^Was \d"))).to_be_visible()
    page.reload()
    expect(page.get_by_role("listitem")).to_have_count(1)
    page.get_by_role("button", name="undo the last").click()
    expect(page.get_by_role("listitem")).to_have_count(0)


def test_edit_a_weight_with_keys_alone(opened):
    page = opened(query="&head=1,1")
    typed(page, "to be")
    page.get_by_role("img", name="attention, token by token").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("img", name='"e" attends to "o"')).to_be_focused()
    page.keyboard.press("+")
    expect(page.get_by_role("listitem")).to_have_count(1)
    page.keyboard.press("Delete")
    expect(page.get_by_role("listitem")).to_have_count(0)


def test_point_at_a_token_and_see_what_it_attends_to(opened):
    page = opened()
    typed(page, "to be or")
    page.locator("[data-token='3']").hover()
    arcs = page.get_by_role("img", name='what "b" attends to, above, and what attends to it, below')
    expect(arcs).to_be_visible()
    said = arcs.locator(".arc title").all_text_contents()
    assert any(one.startswith('"b" attends to "t"') for one in said)
    assert any(one.startswith('"r" attends to "b"') for one in said)
    page.locator("[data-token='3']").click()
    expect(page.get_by_role("heading", name='Predicted after "b"')).to_be_visible()


def test_patch_from_another_sentence(opened):
    page = opened()
    typed(page, TEXT)
    page.get_by_text("Patch from another sentence", exact=True).click()
    page.get_by_label("source text").fill("to be")
    expect(page.get_by_text("The source text has 5 tokens, and it takes 15")).to_be_visible()
    page.get_by_label("source text").fill("to do or not we")
    expect(page.get_by_text("15 tokens, as many as above.")).to_be_visible()
    page.get_by_label("take", exact=True).select_option("residual")
    page.get_by_role("button", name="patch", exact=True).click()
    expect(page.get_by_role("listitem")).to_have_text(re.compile(r"^residual \d patched ×$"))
    expect(page.locator("th", has_text="after")).to_be_visible()
    page.reload()
    expect(page.get_by_label("source text")).to_have_value("to do or not we")
    expect(page.locator("th", has_text="after")).to_be_visible()


def test_which_heads_matter(opened):
    page = opened()
    page.get_by_role("button", name="which heads matter?").click()
    expect(page.get_by_text("matter most")).to_be_visible()


def test_what_cannot_be_read_is_said_in_place(opened):
    page = opened()
    page.get_by_label("text", exact=True).fill("ü")
    expect(page.locator(".instrument p[role=status]")).to_contain_text("not in the vocabulary")


def test_bert_fills_in_what_is_masked(opened):
    page = opened("bert")
    page.get_by_label("text", exact=True).fill("to [MASK] or not")
    expect(page.get_by_role("heading", name='Predicted in place of "[MASK]"')).to_be_visible()
    expect(page.locator("[data-token]").first).to_have_text("[CLS]")


def test_a_checkpoint_in_a_folder(opened, lab, add_run, tmp_path):
    model = load(str(lab.runs / add_run("gpt")))
    folder = huggingface.save_checkpoint(model, tmp_path / "hf", model.tokenizer)
    page = opened()
    page.once("dialog", lambda dialog: dialog.accept(str(folder)))
    page.get_by_role("button", name="folder …").click()
    expect(page.get_by_label("text", exact=True)).to_have_value(re.compile("When Mary and John"))
    expect(page.locator("[data-token]")).to_have_count(16)
