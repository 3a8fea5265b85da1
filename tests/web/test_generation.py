"""Writing, in a browser."""

import re

import pytest
from playwright.sync_api import expect


@pytest.fixture
def opened(page, lab, shelved):
    def call(name="gpt", query="&pace=60"):
        page.goto(f"{lab.base}/instruments/generation?run={shelved(name)}&length=40{query}")
        expect(page.locator("[data-drawn=true]")).not_to_have_count(0)
        return page

    return call


def done(page, count=40):
    expect(page.get_by_role("button", name="continue")).to_be_visible()
    expect(page.locator("[data-drawn=true]")).to_have_count(count)
    return page.locator(".paper").inner_text()


def test_it_writes_at_once_and_a_reload_brings_the_text_back(opened):
    page = opened()
    text = done(page)
    expect(page.locator("[data-card=written] b")).to_have_text("40")
    expect(page.locator("[data-card=perplexity] b")).to_have_text(re.compile(r"^\d"))
    expect(page).to_have_url(re.compile("strokes=40%2C0.8"))
    numbers = page.locator("[data-card=own]").inner_text()
    page.reload()
    assert done(page) == text
    assert page.locator("[data-card=own]").inner_text() == numbers


def test_the_alternatives_of_a_token(opened):
    page = opened(query="&pace=60&top_k=3")
    done(page)
    page.locator("[data-drawn=true]").nth(7).hover()
    panel = page.locator(".detail")
    expect(panel.get_by_role("button", name="instead")).to_have_count(3)
    expect(panel.locator("[data-taken=true]")).to_contain_text("← drawn")
    expect(panel).to_contain_text("Drawn from 3 tokens, at temperature 0.80, top-k 3.")
    page.locator("[data-drawn=true]").nth(7).focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-drawn=true]").nth(8)).to_be_focused()


def test_another_token_instead_and_on_from_there(opened):
    page = opened()
    done(page)
    first = page.locator("[data-drawn=true]").nth(4)
    before = page.locator("[data-drawn=true]").all_inner_texts()[:4]
    first.click()
    page.locator(".detail button[aria-pressed=false]", has_text=re.compile("^[a-z]$")).first.click()
    done(page, 45)
    assert page.locator("[data-drawn=true]").all_inner_texts()[:4] == before
    page.locator("[data-drawn=true]").nth(4).hover()
    expect(page.locator(".detail")).to_contain_text("← yours")
    expect(page).to_have_url(re.compile("by_hand=4"))
    page.reload()
    page.locator("[data-drawn=true]").nth(4).hover()
    expect(page.locator(".detail")).to_contain_text("Chosen by hand")


def test_cut_and_continue_gives_the_same_text(opened):
    page = opened()
    text = done(page)
    page.locator("[data-drawn=true]").nth(30).click()
    page.get_by_role("button", name="cut here", exact=True).click()
    expect(page.locator("[data-drawn=true]")).to_have_count(30)
    page.get_by_role("button", name="continue").click()
    assert done(page, 70).startswith(text)


def test_a_slider_acts_while_it_writes(opened):
    page = opened(query="&pace=10")
    page.get_by_label("temperature", exact=True).fill("0")
    expect(page.locator("[data-drawn=true]").nth(12)).to_be_visible()
    page.get_by_role("button", name="stop").click()
    expect(page.get_by_role("button", name="continue")).to_be_visible()
    tokens = page.locator("[data-drawn=true]")
    tokens.last.hover()
    expect(page.locator(".detail")).to_contain_text("Drawn from 1 token, at temperature 0.00.")
    tokens.first.hover()
    expect(page.locator(".detail")).to_contain_text("at temperature 0.80")


def test_another_seed_another_text(opened):
    page = opened()
    text = done(page)
    page.get_by_role("button", name="again, another seed").click()
    expect(page.locator("[data-card=seed] b")).to_have_text("1")
    expect(page.locator(".paper")).not_to_have_text(text)
    assert done(page) != text


def test_a_prompt_of_ones_own_and_one_that_cannot_be_read(opened):
    page = opened("gru")
    page.get_by_label("prompt", exact=True).fill("ROMEO:")
    expect(page.locator("[data-drawn=false]")).to_have_count(6)
    done(page)
    page.get_by_label("prompt", exact=True).fill("ü")
    expect(page.locator(".instrument p[role=status]")).to_contain_text("not in the vocabulary")
