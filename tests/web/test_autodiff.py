"""The expression graph, in a browser."""

from playwright.sync_api import expect


def test_type_an_expression_and_step_back(page, lab):
    page.goto(f"{lab.base}/instruments/autodiff")
    page.get_by_label("expression", exact=True).fill("a * b + b")
    expect(page.get_by_text("All 4 gradients are known.")).to_be_visible()
    page.get_by_label("a", exact=True).fill("3")
    expect(page.locator("[data-node=b] .gradient")).to_have_text("4")
    page.get_by_role("button", name="forget gradients").click()
    expect(page.locator(".gradient")).to_have_count(0)
    page.get_by_role("button", name="step back ▶").click()
    expect(page.locator(".gradient")).to_have_text(["1"])
    page.reload()
    expect(page.get_by_label("expression", exact=True)).to_have_value("a * b + b")
    expect(page.get_by_label("a", exact=True)).to_have_value("3")


def test_a_wrong_expression_is_explained(page, lab):
    page.goto(f"{lab.base}/instruments/autodiff")
    page.get_by_label("expression", exact=True).fill("x + ")
    expect(page.locator(".instrument p[role=status]")).to_contain_text("x +")
