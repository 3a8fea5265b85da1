"""Text generation, in a browser."""

import re

import pytest
from playwright.sync_api import expect


@pytest.fixture
def opened(page, lab, add_run):
    def call(name="gpt", query="&pace=60"):
        page.goto(f"{lab.base}/instruments/generation?run={add_run(name)}&max_new_tokens=40{query}")
        expect(page.locator("[data-sampled=true]")).not_to_have_count(0)
        return page

    return call


def done(page, count=40):
    expect(page.get_by_role("button", name="continue", exact=True)).to_be_visible()
    expect(page.locator("[data-sampled=true]")).to_have_count(count)
    return page.locator(".text").inner_text()


def test_it_generates_at_once_and_a_reload_brings_the_text_back(opened):
    page = opened()
    text = done(page)
    expect(page.locator("[data-card=generated] b")).to_have_text("40")
    expect(page.locator("[data-card=perplexity] b")).to_have_text(re.compile(r"^\d"))
    expect(page).to_have_url(re.compile("segments=40%2C0.8"))
    numbers = page.locator("[data-card=generated_perplexity]").inner_text()
    page.reload()
    assert done(page) == text
    assert page.locator("[data-card=generated_perplexity]").inner_text() == numbers


def test_the_alternatives_of_a_token(opened):
    page = opened(query="&pace=60&top_k=3")
    done(page)
    page.locator("[data-sampled=true]").nth(7).hover()
    panel = page.locator(".detail")
    expect(panel.get_by_role("button", name="instead")).to_have_count(3)
    expect(panel.locator("[data-taken=true]")).to_contain_text("← sampled")
    expect(panel).to_contain_text("Sampled from 3 tokens, at temperature 0.80, top-k 3.")
    page.locator("[data-sampled=true]").nth(7).focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-sampled=true]").nth(8)).to_be_focused()


def test_another_token_instead_and_on_from_there(opened):
    page = opened()
    done(page)
    first = page.locator("[data-sampled=true]").nth(4)
    before = page.locator("[data-sampled=true]").all_inner_texts()[:4]
    first.click()
    page.locator(".detail button[aria-pressed=false]", has_text=re.compile("^[a-z]$")).first.click()
    done(page, 45)
    assert page.locator("[data-sampled=true]").all_inner_texts()[:4] == before
    page.locator("[data-sampled=true]").nth(4).hover()
    expect(page.locator(".detail")).to_contain_text("← chosen")
    expect(page).to_have_url(re.compile("by_hand=4"))
    page.reload()
    page.locator("[data-sampled=true]").nth(4).hover()
    expect(page.locator(".detail")).to_contain_text("Chosen by hand")


def test_cut_and_continue_gives_the_same_text(opened):
    page = opened()
    text = done(page)
    page.locator("[data-sampled=true]").nth(30).click()
    page.get_by_role("button", name="cut here", exact=True).click()
    expect(page.locator("[data-sampled=true]")).to_have_count(30)
    page.get_by_role("button", name="continue", exact=True).click()
    assert done(page, 70).startswith(text)


def test_a_slider_acts_while_text_is_generated(opened):
    page = opened(query="&pace=10")
    page.get_by_label("temperature", exact=True).fill("0")
    expect(page.locator("[data-sampled=true]").nth(12)).to_be_visible()
    page.get_by_role("button", name="stop").click()
    expect(page.get_by_role("button", name="continue", exact=True)).to_be_visible()
    tokens = page.locator("[data-sampled=true]")
    tokens.last.hover()
    expect(page.locator(".detail")).to_contain_text("Sampled from 1 token, at temperature 0.00.")
    tokens.first.hover()
    expect(page.locator(".detail")).to_contain_text("at temperature 0.80")


def test_another_seed_another_text(opened):
    page = opened()
    text = done(page)
    page.get_by_role("button", name="another seed").click()
    expect(page.locator("[data-card=seed] b")).to_have_text("1")
    expect(page.locator(".text")).not_to_have_text(text)
    assert done(page) != text


def test_a_prompt_of_ones_own_and_one_that_cannot_be_read(opened):
    page = opened("gru")
    page.get_by_label("prompt", exact=True).fill("ROMEO:")
    expect(page.locator("[data-sampled=false]")).to_have_count(6)
    done(page)
    page.get_by_label("prompt", exact=True).fill("ü")
    expect(page.locator(".instrument p[role=status]")).to_contain_text("not in the vocabulary")
