"""Endpoints of adversarial attacks: the perturbations are those of the library, and large requests are refused."""

import base64
import math

import numpy as np
import pytest
import torch

from engram.cli.export import write_export
from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.robustness.attacks.attack_run import classifier_of
from engram.robustness.attacks.methods import PGD, ThreatModel
from engram.robustness.attacks.minimal_norm import minimal_norm_attack
from engram.training.run import Run
from tests.conftest import tiny


def array(packed):
    return torch.from_numpy(np.frombuffer(base64.b64decode(packed["f32"]), "<f4").reshape(packed["shape"]).copy())


@pytest.fixture
def mlp(finished):
    return finished("mlp")


@pytest.fixture
def attacked(call_endpoint, mlp):
    return lambda **how: call_endpoint("attack", root=mlp.parent, run="mlp", **how)[1]


@pytest.fixture(scope="module")
def scene(finished):
    """The same model and its first test image, without the lab."""
    run = Run.open(finished("mlp"))
    return classifier_of(run), run.data.test["image"][:1].float() / 255, run.data.test["label"][:1]


def test_one_step_goes_eps_along_the_sign_of_the_gradient(attacked, scene):
    model, x, label = scene
    leaf = x.clone().requires_grad_()
    torch.nn.functional.cross_entropy(model(leaf), label).backward()
    expected = (x + 0.2 * leaf.grad.sign()).clamp(0, 1)
    answer = attacked(method="fgsm", eps=0.2)
    torch.testing.assert_close(array(answer["adversarial"])[None], expected)
    torch.testing.assert_close(torch.tensor(answer["after"]), model(expected)[0].softmax(0).detach())
    torch.testing.assert_close(torch.tensor(answer["before"]), model(x)[0].softmax(0).detach())
    assert answer["truth"] == int(label)
    assert answer["linf"] == pytest.approx(0.2, abs=1e-6)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("target", [-1, 3])
def test_steps_one_by_one_are_pgd(attacked, scene, norm, target):
    model, x, label = scene
    whole = PGD(threat=ThreatModel(norm=norm, eps=0.4), steps=7, early_stop=False, generator=generator(5, "attack"))
    expected = whole(model, x, label if target < 0 else torch.tensor([target]), targeted=target >= 0)
    answer = attacked(method="pgd", norm=norm, eps=0.4, steps=7, target=target, seed=5)
    torch.testing.assert_close(array(answer["adversarial"])[None], expected)
    assert answer[norm] <= 0.4 + 1e-5


def test_a_target_becomes_likelier(attacked):
    answer = attacked(method="pgd", eps=0.3, target=4)
    assert answer["after"][4] > answer["before"][4]


def test_the_minimal_norm_is_that_of_the_library(attacked, scene):
    model, x, label = scene
    answer = attacked(method="minimal", norm="l2")
    assert answer["l2"] == pytest.approx(minimal_norm_attack(model, x, label, norm="l2").norm_B.item(), rel=1e-4)
    assert int(torch.tensor(answer["after"]).argmax()) != int(label)


def test_noise_stays_within_eps_and_is_reproducible(attacked):
    first, again, other = (attacked(method="noise", eps=0.1, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first["adversarial"] != other["adversarial"]
    assert first["linf"] <= 0.1 + 1e-6


def test_the_curve_passes_through_what_the_slider_shows(call_endpoint, mlp, attacked):
    parts, last = call_endpoint("attack.curve", root=mlp.parent, run="mlp", method="pgd", steps=5)
    points = [part for part in parts if "p" in part]
    assert [points[0]["eps"], points[-1]["eps"]] == [0.0, 0.5]
    assert points[0]["p"] == pytest.approx(attacked(eps=0.0)["before"], abs=1e-6)
    for point in points[2::4]:
        assert point["p"] == pytest.approx(attacked(eps=point["eps"], steps=5)["after"], abs=1e-6)
    assert last["label"] == attacked()["label"]


def test_a_user_image_is_attacked_away_from_its_predicted_class(attacked, scene):
    model, _, _ = scene
    content = bytes(range(0, 256, 4))
    answer = attacked(pixels=base64.b64encode(content).decode(), method="fgsm", eps=0.0)
    x = torch.tensor(list(content)).view(1, 1, 8, 8) / 255
    torch.testing.assert_close(array(answer["x"])[None], x)
    assert answer["truth"] == -1
    assert answer["label"] == int(model(x).argmax())


def test_description_of_a_classifier(call_endpoint, mlp):
    _, answer = call_endpoint("attack.about", root=mlp.parent, run="mlp")
    assert (answer["count"], answer["shape"], answer["classes"][7]) == (250, [1, 8, 8], "7")
    assert answer["max_eps"]["l2"] == pytest.approx(8 / 3, abs=0.1)
    assert answer["threat"] is None


def test_a_checkpoint_is_attacked_with_pictures_that_are_brought(call_endpoint, finished, tmp_path):
    folder = str(write_export(str(finished("vit")), "hf", tmp_path / "hf"))
    _, about = call_endpoint("attack.about", run=folder)
    assert (about["count"], about["shape"], len(about["classes"])) == (0, [1, 8, 8], 10)
    _, answer = call_endpoint("attack", run=folder, pixels=base64.b64encode(bytes(64)).decode(), steps=2)
    assert sum(answer["after"]) == pytest.approx(1, abs=1e-5)
    with pytest.raises(EngramError, match="no test images"):
        call_endpoint("attack", run=folder)


def test_a_single_output_tells_two_classes(call_endpoint, tmp_path):
    pair = tmp_path / "pair"
    for name, value in (("dark", 20), ("light", 220)):
        (pair / name).mkdir(parents=True)
        for i in range(12):
            noise = torch.randint(0, 30, (8, 8), generator=generator(i, name)).numpy()
            save(pair / name / f"{i}.png", value + noise)
    tiny("trades", tmp_path / "two", data=str(pair), outputs=1)
    _, answer = call_endpoint("attack", run="two", method="pgd", steps=3)
    assert sum(answer["after"]) == pytest.approx(1, abs=1e-5)
    _, told = call_endpoint("attack.about", run="two")
    assert told["classes"] == ["dark", "light"]
    assert told["threat"] == {"norm": "linf", "eps": 0.1}


def save(path, array):
    from PIL import Image

    Image.fromarray(array.astype("uint8")).save(path)


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ({"item": 250}, "item"), ({"item": -1}, "item"), ({"eps": -0.1}, "eps"), ({"eps": math.nan}, "eps"),
        ({"steps": 101}, "steps"), ({"steps": 0}, "steps"), ({"target": 10}, "target"), ({"norm": "l7"}, "l7"),
        ({"method": "magic"}, "magic"), ({"pixels": "AAAA"}, "64"), ({"pixels": "§"}, "base64"), ({"seed": -1}, "seed"),
        ({"pixels": "A" * 2_000_000}, "pixels"), ({"method": "minimal", "target": 2}, "target"),
        ({"run": "gone"}, "gone"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(call_endpoint, mlp, wrong, part):
    with pytest.raises(EngramError) as refused:
        call_endpoint("attack", root=mlp.parent, **({"run": "mlp"} | wrong))
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_no_classifier_is_refused(call_endpoint, finished):
    with pytest.raises(EngramError, match="nothing to attack"):
        call_endpoint("attack", root=finished("hopfield").parent, run="hopfield")
