"""Families of ViT against transformers: what it saves gives the same outputs here, and what we write the same there."""

import json

import pytest
import torch
import transformers

from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.hub.huggingface import load_checkpoint, save_checkpoint
from engram.transformers.vit.model import ViT
from tests.golden.test_encoders import same_state_dict
from tests.golden.test_huggingface import agree, opened, saved, shaken

B = 3
VIT = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20, "image_size": 8,
       "patch_size": 4, "num_labels": 5}  # fmt: skip
SHAPES = {
    "ViT": [
        {"qkv_bias": False},
        {"qkv_bias": False, "image_size": [12, 8], "num_channels": 1, "hidden_act": "relu", "num_labels": 2},
        {"qkv_bias": False, "hidden_size": 15, "num_attention_heads": 5, "intermediate_size": 7, "layer_norm_eps": 1e-3,
         "image_size": 10, "patch_size": 5},
    ],
    "DeiT": [
        {},
        {"image_size": [8, 12], "num_channels": 1, "hidden_act": "relu", "num_labels": 2, "qkv_bias": False},
        {"hidden_size": 14, "num_attention_heads": 2, "intermediate_size": 9, "layer_norm_eps": 1e-3,
         "hidden_act": "gelu_new", "num_hidden_layers": 1},
    ],
    "Dinov2": [
        {},
        {"use_swiglu_ffn": True, "mlp_ratio": 3, "hidden_size": 15, "layerscale_value": 0.1},
        {"mlp_ratio": 1, "hidden_act": "relu", "qkv_bias": False, "image_size": 15, "patch_size": 5, "num_labels": 2,
         "num_hidden_layers": 1, "layer_norm_eps": 1e-3},
        {"use_swiglu_ffn": True, "use_mask_token": False, "num_attention_heads": 4, "hidden_act": "silu"},
    ],
}  # fmt: skip
CASES = [(name, settings) for name, cases in SHAPES.items() for settings in cases]
pytestmark = [pytest.mark.usefixtures("no_gradients", "quiet")]


def of_theirs(name, settings, task="ForImageClassification"):
    config = getattr(transformers, f"{name}Config")(**{**VIT, **settings})
    return getattr(transformers, f"{name}{task}")(config)


def images(model):
    """Images from 0 to 1, and normalized as the model does it."""
    x_BCHW = torch.rand(B, *model.config.shape)
    return x_BCHW, model.config.standardize(x_BCHW)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_classifiers(name, settings, tmp_path):
    """Logits, by the fused kernel and step by step; and what we save is the state dict that transformers had."""
    theirs = shaken(of_theirs(name, settings))
    ours = saved(theirs, tmp_path / "theirs")
    x_BCHW, z_BCHW = images(ours)
    agree(ours(x_BCHW), theirs(z_BCHW).logits)
    if name == "Dinov2":
        theirs.dinov2.embeddings.mask_token = None  # which only its training needs
    with watch(ours) as seen:
        agree(ours(x_BCHW), theirs(z_BCHW).logits)
    assert {"blocks.0.attention.weights", "blocks.0.attention.heads", "blocks.0.residual", "embedding"} <= set(seen)
    save_checkpoint(ours, tmp_path / "ours")
    same_state_dict(tmp_path / "ours", theirs)
    agree(load_checkpoint(tmp_path / "ours").model(x_BCHW), ours(x_BCHW))


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_models_without_a_classifier(name, settings, tmp_path):
    """Vectors of all tokens; a state dict without prefix."""
    theirs = shaken(of_theirs(name, settings, "Model"))
    ours = saved(theirs, tmp_path / "theirs")
    x_BCHW, z_BCHW = images(ours)
    assert ours.config.classes == 0
    agree(ours.encode(x_BCHW), theirs(z_BCHW).last_hidden_state)
    save_checkpoint(ours, tmp_path / "ours")
    again = type(theirs).from_pretrained(tmp_path / "ours").eval()
    agree(again(z_BCHW).last_hidden_state, ours.encode(x_BCHW))


@pytest.mark.parametrize("settings", SHAPES["DeiT"])
def test_two_classifiers(settings, tmp_path):
    """DeiT with the classifier that learned from a teacher: the mean of both."""
    theirs = shaken(of_theirs("DeiT", settings, "ForImageClassificationWithTeacher"))
    ours = saved(theirs, tmp_path / "theirs")
    x_BCHW, z_BCHW = images(ours)
    agree(ours(x_BCHW), theirs(z_BCHW).logits)
    save_checkpoint(ours, tmp_path / "ours")
    same_state_dict(tmp_path / "ours", theirs)
    again = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "ours")
    assert type(again) is type(theirs)


@pytest.mark.parametrize("distillation", ["token", "classifier"])
def test_distillation_from_here(distillation, tmp_path):
    ours = ViT(ViT.Config(width=12, layers=2, heads=3, classes=4, shape=(3, 8, 12), distillation=distillation))
    theirs = opened(ours, tmp_path / "four", transformers.AutoModelForImageClassification)
    x_BCHW, z_BCHW = images(ours)
    agree(ours(x_BCHW), theirs(z_BCHW).logits)
    ours.reset_classifier(7)
    theirs = opened(ours, tmp_path / "seven", transformers.AutoModelForImageClassification)
    assert len(theirs.config.id2label) == 7
    agree(ours(x_BCHW), theirs(z_BCHW).logits)


@pytest.mark.parametrize("size", [(8, 8), (16, 12), (9, 15), (4, 16), (5, 4)])
def test_images_of_other_sizes(size, tmp_path):
    """The position embedding of DINOv2 is interpolated; ViT refuses other sizes."""
    theirs = shaken(of_theirs("Dinov2", {"image_size": 16}))
    ours, x_BCHW = saved(theirs, tmp_path), torch.rand(B, 3, *size)
    agree(ours(x_BCHW), theirs(ours.config.standardize(x_BCHW)).logits)
    agree(ours.encode(x_BCHW), theirs.dinov2(ours.config.standardize(x_BCHW)).last_hidden_state)
    with pytest.raises(EngramError, match="This model takes images of 3×16×16"):
        ours(torch.rand(B, 1, *size))
    with pytest.raises(EngramError, match="This model takes images of 3×16×16"):
        ours(torch.rand(B, 3, size[0], 3))


@pytest.mark.parametrize("settings", [
    {"ff_width": 36},
    {"activation": "swiglu", "width": 16, "heads": 4},
])  # fmt: skip
def test_layer_scale_from_here(settings, tmp_path):
    known = {"width": 12, "layers": 2, "heads": 3, "classes": 4, "shape": (3, 8, 8), "std": (0.5,)}
    ours = ViT(ViT.Config(**{**known, **settings}, layer_scale=0.3, pooling="cls-mean", sizes="any"))
    theirs = opened(ours, tmp_path, transformers.AutoModelForImageClassification)
    assert theirs.config.model_type == "dinov2"
    x_BCHW = torch.rand(B, 3, 16, 8)
    z_BCHW = ours.config.standardize(x_BCHW)
    agree(ours(x_BCHW), theirs(z_BCHW).logits)
    ours.reset_classifier(2)
    assert ours(x_BCHW).shape == (B, 2)


@pytest.mark.parametrize(("settings", "reason"), [
    ({"layer_scale": 0.5, "ff_width": 7, "pooling": "cls-mean", "sizes": "any"}, "ff_width must be a multiple"),
    ({"layer_scale": 0.5, "shape": (3, 8, 4), "pooling": "cls-mean", "sizes": "any"}, "shape must be square"),
    ({"pooling": "cls-mean", "sizes": "any", "layer_scale": 0.0, "head_width": 5}, "head_width must be 0"),
])  # fmt: skip
def test_what_cannot_be_saved_says_why(settings, reason, tmp_path):
    with pytest.raises(EngramError, match=reason):
        save_checkpoint(ViT(ViT.Config(**{"width": 12, "heads": 3, "shape": (3, 8, 8), **settings})), tmp_path)


def test_queries_without_biases_from_here(tmp_path):
    ours = ViT(ViT.Config(width=12, layers=2, heads=3, classes=4, bias=("out",), shape=(1, 8, 8)))
    theirs = opened(ours, tmp_path, transformers.AutoModelForImageClassification)
    assert not theirs.config.qkv_bias
    x_BCHW, z_BCHW = images(ours)
    agree(ours(x_BCHW), theirs(z_BCHW).logits)


@pytest.mark.parametrize(("name", "changes", "reason"), [
    ("ViT", {"qkv_bias": True}, "query.bias is missing"),
    ("ViT", {"patch_size": [4, 2]}, "patches must be square, not 4 × 2"),
    ("Dinov2", {"image_size": [8, 12]}, "image_size must be square, not 8 × 12"),
    ("Dinov2", {"hidden_act": "tanh"}, "its activation function is 'tanh'"),
    ("Dinov2", {"use_swiglu_ffn": True}, "mlp.gate.weight is missing"),
    ("Dinov2", {"mlp_ratio": "four"}, "of the wrong kind"),
    ("DeiT", {"image_size": 16}, "position_embeddings is"),
])  # fmt: skip
def test_what_has_no_counterpart_is_refused_in_a_sentence(name, changes, reason, tmp_path):
    of_theirs(name, {"qkv_bias": False}).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(EngramError, match=reason):
        load_checkpoint(tmp_path)
