import dataclasses
import json

import pytest

from engram.core.config import flatten, from_json, override
from engram.core.errors import EngramError, nearest, unknown
from engram.core.registry import get_recipe


def test_nested_settings_are_changed_by_their_own_name():
    recipe = get_recipe("cnn").from_preset("tiny", lr=0.5, channels=(4, 4, 4), data="mnist")
    assert recipe.optimization.lr == 0.5
    assert recipe.model.channels == (4, 4, 4)
    assert recipe.steps == 20
    assert recipe.data == "mnist"
    with pytest.raises(EngramError, match='Did you mean "steps"'):
        override(recipe, stepz=3)


@pytest.mark.parametrize("name", ["cnn", "rbm", "hodgkin-huxley"])
def test_json_and_back(name):
    recipe = get_recipe(name).from_preset("tiny", seed=3)
    assert from_json(get_recipe(name)(), json.loads(json.dumps(dataclasses.asdict(recipe)))) == recipe


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"steps": "many"}, "steps must be a whole number"),
        ({"stepz": 3}, 'Did you mean "steps"'),
        ({"model": {"hidden": [3, "x"]}}, "hidden must be a list"),
        ({"optimization": {"schedule": "cosinus"}}, 'Did you mean "cosine"'),
        ({"seed": True}, "seed must be a whole number"),
        ({"optimization": {"optimizer": "nothing"}}, "There is no optimizer"),
        ({"model": 3}, "model must be Config"),
    ],
)
def test_json_that_does_not_fit_is_named(values, complaint):
    with pytest.raises(EngramError, match=complaint):
        from_json(get_recipe("mlp")(), values)


def test_no_setting_has_two_owners():
    for name in ("cnn", "mlp", "resnet", "rbm", "hodgkin-huxley"):
        recipe = get_recipe(name)()
        owners = [recipe, *(v for v in vars(recipe).values() if dataclasses.is_dataclass(v))]
        own = [
            f.name for o in owners for f in dataclasses.fields(o) if not dataclasses.is_dataclass(getattr(o, f.name))
        ]
        assert sorted(own) == sorted(flatten(recipe))


def test_suggestions():
    assert nearest("cnm", ["cnn", "mlp"]) == ' Did you mean "cnn"?'
    assert nearest("zzz", ["cnn", "mlp"]) == " There are: cnn, mlp."
    assert str(unknown("recipe", "x", ["a"])) == 'There is no recipe "x". There are: a.'
