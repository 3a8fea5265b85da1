"""The word map, in a browser."""

import pytest
from playwright.sync_api import expect


@pytest.fixture
def opened(page, lab, add_run):
    page.goto(f"{lab.base}/instruments/words?run={add_run('word2vec')}")
    expect(page.locator(".found")).to_contain_text("occurs")
    return page


def test_search_a_word_and_go_to_its_neighbor(opened):
    search = opened.get_by_label("word", exact=True)
    search.fill("quee")
    expect(opened.locator("datalist option[value=queen]")).to_have_count(1)
    search.fill("queen")
    expect(opened.locator(".found")).to_contain_text('"queen" occurs')
    expect(opened.locator(".bars .bar")).to_have_count(12)
    neighbor = opened.locator(".bars button").first
    name = neighbor.inner_text()
    neighbor.click()
    expect(opened.locator(".found")).to_contain_text(f'"{name}" occurs')
    opened.reload()
    expect(opened.locator(".found")).to_contain_text(f'"{name}" occurs')


def test_an_unknown_word_is_answered_with_near_spellings(opened):
    search = opened.get_by_label("word", exact=True)
    search.fill("kingg")
    search.press("Enter")
    expect(opened.locator(".found")).to_contain_text('Did you mean "king"')


def test_click_a_word_on_the_map(opened):
    canvas = opened.locator("canvas")
    before = opened.get_by_label("word", exact=True).input_value()
    opened.get_by_role("button", name="nearer").click()
    canvas.press("ArrowLeft")
    box = canvas.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for i in range(400):
        opened.mouse.move(middle[0] + 9 * (i % 20) - 90, middle[1] + 9 * (i // 20) - 90)
        if canvas.evaluate("(one) => one.style.cursor") == "pointer":
            break
    opened.mouse.down()
    opened.mouse.up()
    expect(opened.get_by_label("word", exact=True)).not_to_have_value(before)
    name = opened.get_by_label("word", exact=True).input_value()
    expect(opened.locator(".found")).to_contain_text(f'"{name}" occurs')


def test_complete_an_analogy_and_compare_two_words(opened):
    for name, word in zip("abc", ("man", "king", "woman"), strict=True):
        opened.get_by_label(f"analogy {name}").fill(word)
    opened.get_by_role("button", name="answer").click()
    expect(opened.locator(".solved")).to_contain_text("king − man + woman ≈")
    expect(opened.locator("tbody tr")).to_have_count(8)
    opened.get_by_label("one of two words").fill("king")
    opened.get_by_label("other of two words").fill("queen")
    expect(opened.locator(".compared")).to_contain_text('"queen" is number')
    opened.reload()
    expect(opened.locator(".solved")).to_contain_text("king − man + woman ≈")
    expect(opened.get_by_label("other of two words")).to_have_value("queen")
