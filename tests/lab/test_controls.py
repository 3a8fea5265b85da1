"""Controls: one for every flag of the command line, with its help and the range that the recipe accepts."""

import dataclasses

import pytest

from engram.core.config import controls, override
from engram.core.errors import EngramError
from engram.core.registry import registry
from engram.lab.controls import preset_values, recipe_from
from tests.conftest import RECIPES


@pytest.mark.parametrize("name", RECIPES)
def test_every_flag_is_a_control_with_its_help(name, engram):
    said = engram("run", name, "--help").out
    for one in controls(registry()[name]()):
        assert f"--{one['flag']}" in said or (one["value"] is True and f"--no-{one['flag']}" in said)
        assert one["help"], one["name"]
        assert one["kind"] in ("int", "float", "bool", "choice", "numbers", "texts", "text")


def refused_by_its_bounds(default, one, value):
    """Whether the bounds of a field refuse a value; a rule of several fields may refuse it, too."""
    try:
        override(default, **{one["name"]: value})
    except EngramError as error:
        return f"{one['name']} must be {one['bounds']}" in str(error)
    return False


@pytest.mark.parametrize("name", RECIPES)
def test_ranges_are_what_the_recipe_accepts(name):
    default = registry()[name]()
    for one in controls(default):
        if one.get("low") is not None:
            assert one["value"] >= one["low"]
            assert not refused_by_its_bounds(default, one, 1e-9 if one["positive"] else one["low"])
            with pytest.raises((EngramError, ArithmeticError, ValueError)):
                override(default, **{one["name"]: one["low"] - 1})
        if one.get("high") is not None:
            assert one["value"] <= one["high"]
            with pytest.raises((EngramError, ArithmeticError, ValueError)):
                override(default, **{one["name"]: 1e6})


def test_some_ranges_are_known():
    found = {one["name"]: (one.get("low"), one.get("high")) for one in controls(registry()["gpt"]())}
    assert found["steps"] == (1, None)
    assert found["dropout"] == (0, 1)
    assert found["lr"] == (0, None)


def test_help_of_a_base_class_gives_way_to_that_of_the_recipe():
    found = {one["name"]: one["help"] for one in controls(registry()["cnn"]())}
    assert "labeled images" in found["data"]
    assert found["seed"] == "seed of all random number generators"


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_page_shows_is_what_the_page_may_send(name):
    cls = registry()[name]
    for preset, values in preset_values(cls).items():
        sent = {key: value for key, value in values.items() if key != "preset"}
        assert recipe_from(cls, preset, sent) == cls.from_preset(preset)


def test_what_follows_from_the_data_cannot_be_set():
    names = {one["name"] for one in controls(registry()["gpt"]())}
    fields = {field.name for field in dataclasses.fields(registry()["gpt"]().model)}
    assert "vocabulary" in fields - names
    with pytest.raises(EngramError, match='no setting "vocabulary"'):
        recipe_from(registry()["gpt"], "small", {"vocabulary": 3})


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"steps": -1}, "steps must be at least 1"),
        ({"steps": "many"}, "steps must be a whole number"),
        ({"steps": None}, "steps must be a whole number"),
        ({"nothing": 1}, 'no setting "nothing"'),
        ({"schedule": "up"}, 'no schedule "up"'),
        ({"optimization": {"lr": 1}}, 'no setting "optimization"'),
    ],
)
def test_what_does_not_fit_is_named(settings, part):
    with pytest.raises(EngramError, match=part):
        recipe_from(registry()["gpt"], "small", settings)
