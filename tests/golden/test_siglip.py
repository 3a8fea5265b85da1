"""SigLIP against transformers: what it saves gives the same outputs here, and what we write the same there."""

import json

import pytest
import torch
import transformers
from torch.nn import functional

from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.hub.huggingface import load_checkpoint, save_checkpoint
from engram.transformers.clip.model import CLIP
from tests.golden.test_encoders import same_state_dict
from tests.golden.test_huggingface import agree, ids, opened, saved, shaken

B, V = 3, 31
TEXT = {"vocab_size": V, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20,
        "max_position_embeddings": 9}  # fmt: skip
VISION = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20, "image_size": 8,
          "patch_size": 4}  # fmt: skip
SHAPES = [
    ({}, {}),
    ({"hidden_size": 10, "projection_size": 15, "hidden_act": "relu", "layer_norm_eps": 1e-3, "num_hidden_layers": 1},
     {"hidden_size": 15, "num_attention_heads": 5, "hidden_act": "relu", "layer_norm_eps": 1e-3, "image_size": 11}),
    ({"num_attention_heads": 4, "max_position_embeddings": 7, "pad_token_id": 0},
     {"patch_size": 3, "image_size": 13, "intermediate_size": 7, "num_attention_heads": 1, "num_hidden_layers": 1}),
]  # fmt: skip
pytestmark = [pytest.mark.usefixtures("no_gradients", "quiet")]


def of_theirs(text, vision):
    return transformers.SiglipModel(
        transformers.SiglipConfig(text_config={**TEXT, **text}, vision_config={**VISION, **vision})
    )


def pairs(model):
    """Texts of unequal lengths, padded to the context, and images."""
    x_BT = ids(V - 2, rows=B, length=model.config.context, lowest=2)
    lengths_B1 = torch.tensor([9, 5, 2])[:, None]
    return x_BT.masked_fill(torch.arange(x_BT.shape[1]) >= lengths_B1, model.config.pad_id), torch.rand(
        B, *model.config.shape
    )


@pytest.mark.parametrize(("text", "vision"), SHAPES)
def test_from_there_and_back(text, vision, tmp_path):
    """Logits, the sigmoid loss and both embeddings; what we save is the state dict that transformers had."""
    theirs = shaken(of_theirs(text, vision))
    ours = saved(theirs, tmp_path / "theirs")
    x_BT, x_BCHW = pairs(ours)
    z_BCHW = ours.config.standardize(x_BCHW)
    expected = theirs(x_BT, z_BCHW, return_loss=True)
    with watch(ours) as seen:
        agree(ours(x_BCHW, x_BT), expected.logits_per_image)
    agree(ours(x_BCHW, x_BT), expected.logits_per_image)
    agree(ours.loss(x_BCHW, x_BT)[0], expected.loss)
    agree(ours.encode_images(x_BCHW), expected.image_embeds)
    agree(ours.encode_texts(x_BT), expected.text_embeds)
    agree(ours.classify(x_BCHW, x_BT), expected.logits_per_image.sigmoid())
    short = theirs(x_BT[:, :4], z_BCHW).logits_per_image
    agree(ours(x_BCHW, x_BT[:, :4]), short)
    for name in ("image.blocks.0.attention.weights", "text.blocks.0.residual", "image.pool.attention.heads"):
        assert name in seen
    save_checkpoint(ours, tmp_path / "ours")
    same_state_dict(tmp_path / "ours", theirs)
    agree(load_checkpoint(tmp_path / "ours").model(x_BCHW, x_BT), ours(x_BCHW, x_BT))


@pytest.mark.parametrize("settings", [
    {},
    {"text_ff_width": 7, "ff_width": 9, "activation": "quick_gelu", "shape": (1, 9, 9), "pad_id": 1, "eps": 1e-3},
    {"text_layers": 1, "layers": 1, "heads": 1, "std": (0.2, 0.3, 0.25), "context": 5},
])  # fmt: skip
def test_from_here(settings, tmp_path):
    known = {"shape": (3, 8, 8), "width": 12, "layers": 2, "heads": 3, "text_width": 8, "text_heads": 2}
    ours = CLIP(CLIP.Config(**{
        **known, "vocabulary": V, "context": 9, "projection_dim": 12, "image_pooling": "attention",
        "text_pooling": "last", "loss": "sigmoid", **settings,
    }))  # fmt: skip
    theirs = opened(ours, tmp_path, transformers.AutoModel)
    assert type(theirs) is transformers.SiglipModel
    x_BT, x_BCHW = pairs(ours)
    agree(ours(x_BCHW, x_BT), theirs(x_BT, ours.config.standardize(x_BCHW)).logits_per_image)


def test_settings_that_are_left_out_have_their_defaults(tmp_path):
    theirs = shaken(of_theirs({"max_position_embeddings": 64}, {}))
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for kind, names in {"text_config": ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size"),
                        "vision_config": tuple(VISION)}.items():  # fmt: skip
        config[kind] = {name: config[kind][name] for name in (*names, "num_attention_heads")}
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "siglip"}))
    ours = load_checkpoint(tmp_path).model
    x_BT, x_BCHW = pairs(ours)
    assert (ours.config.pad_id, x_BT.shape[1]) == (1, 64)
    agree(ours(x_BCHW, x_BT), theirs(x_BT, ours.config.standardize(x_BCHW)).logits_per_image)


def test_one_text_of_several_images_is_the_same():
    """The sigmoid loss of pairs among which a text occurs twice: both are positive for either image."""
    ours = CLIP(CLIP.Config(width=16, projection_dim=16, heads=2, image_pooling="attention", loss="sigmoid"))
    u_BD, w_BD = (functional.normalize(torch.randn(3, 16), dim=1) for _ in range(2))
    same = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]]).bool()
    z_BB = ours.similarity(u_BD, w_BD)
    expected = functional.binary_cross_entropy_with_logits(z_BB, same.float(), reduction="sum") / 3
    agree(ours.contrastive_loss(u_BD, w_BD, same)[0], expected)


@pytest.mark.parametrize(("part", "changes", "reason"), [
    ("vision_config", {"hidden_act": "relu"}, "both encoders must have the same hidden_act"),
    ("vision_config", {"vision_use_head": False}, "vision_use_head is False and must be True"),
    ("vision_config", {"patch_size": 9}, "patch must be at most 8"),
    ("vision_config", {"image_size": "large"}, "of the wrong kind"),
    ("text_config", {"projection_size": 7}, "projection_dim must be the width, 12, not 7"),
    ("text_config", {"num_hidden_layers": 3}, "text_model.encoder.layers.2.layer_norm1.weight is missing"),
])  # fmt: skip
def test_what_has_no_counterpart_is_refused_in_a_sentence(part, changes, reason, tmp_path):
    of_theirs({}, {}).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config[part] |= changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(EngramError, match=reason):
        load_checkpoint(tmp_path)


def test_one_encoder_alone_is_refused(tmp_path):
    """A classifier, or an encoder that was saved by itself."""
    config = of_theirs({}, {}).config
    transformers.SiglipForImageClassification(config).save_pretrained(tmp_path / "classifier")
    with pytest.raises(EngramError, match="has no text encoder"):
        load_checkpoint(tmp_path / "classifier")
    transformers.SiglipVisionModel(config.vision_config).save_pretrained(tmp_path / "vision")
    with pytest.raises(EngramError, match='"siglip_vision_model", which is not known'):
        load_checkpoint(tmp_path / "vision")


@pytest.mark.parametrize("settings", [
    {"image_pooling": "attention"}, {"text_pooling": "last"}, {"loss": "sigmoid", "shape": (3, 8, 12)},
])  # fmt: skip
def test_half_of_it_cannot_be_saved(settings, tmp_path):
    ours = CLIP(CLIP.Config(**{"shape": (3, 8, 8), "width": 16, "projection_dim": 16, "heads": 2, **settings}))
    with pytest.raises(EngramError, match="must be"):
        save_checkpoint(ours, tmp_path)
