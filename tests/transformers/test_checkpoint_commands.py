"""Checkpoints of RoBERTa, ModernBERT, DeiT, DINOv2 and SigLIP on the command line: samples, inspection, fine-tuning."""

import pytest
from PIL import Image

from engram.data.preprocess import Preprocess
from engram.data.tokenizer import Tokenizer
from engram.hub.huggingface import save_checkpoint
from engram.transformers.bert.model import BERT
from engram.transformers.clip.model import CLIP
from engram.transformers.vit.model import ViT

SMALL = {"width": 16, "layers": 2, "heads": 2}
TEXTS = ["the king is dead", "long live the king"] * 5
SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MODERN = {"position": "rotary", "residual": "pre-norm", "norm": "layer-no-bias", "activation": "geglu", "types": 0,
          "attention_window": (0, 4), "bias": ("head",)}  # fmt: skip
TEXT_MODELS = {"roberta": {"pad_id": 1, "head_activation": "gelu"}, "modernbert": MODERN}
IMAGE_MODELS = {
    "deit": {"distillation": "classifier"},
    "dinov2": {"layer_scale": 0.5, "pooling": "cls-mean", "sizes": "any"},
}
SIGLIP = {"image_pooling": "attention", "text_pooling": "last", "loss": "sigmoid", "projection_dim": 16, "pad_id": 1}


@pytest.fixture
def image(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (20, 30), (255, 0, 0)).save("red.png")
    return tmp_path / "red.png"


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_masked_words(name, engram, refused, tmp_path, monkeypatch):
    """The mask is written as the tokenizer writes it."""
    monkeypatch.chdir(tmp_path)
    tokenizer = Tokenizer.train("words", TEXTS, special_tokens=SPECIALS, template="<s> $A </s>")
    config = BERT.Config(**SMALL, vocabulary=tokenizer.vocab_size, context=12, **TEXT_MODELS[name])
    folder = save_checkpoint(BERT(config), tmp_path / name, tokenizer)
    assert engram("sample", folder, "--text", "the <mask> is dead").out.startswith("the <mask> is dead")
    assert "has no <mask>" in refused("sample", folder, "--text", "the [MASK] is dead")
    assert engram("inspect", folder, "--text", "the <mask> is dead").code == 0
    (tmp_path / "king.txt").write_text("\n".join(TEXTS * 20))
    words = ("--preset", "tiny", "--from", folder, "--data", tmp_path / "king.txt", "--steps", 2, "--context", 12)
    answer = engram("run", "bert", *words, "--out", tmp_path / "run")
    assert answer.code == 0, answer.err


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_classifiers_of_images(name, engram, image, tmp_path):
    """The image is prepared as the checkpoint says, to a size that DINOv2 was not made for."""
    config = ViT.Config(**SMALL, shape=(3, 8, 8), classes=3, **IMAGE_MODELS[name])
    crop = (8, 8) if name == "deit" else (12, 16)
    folder = save_checkpoint(ViT(config), tmp_path / name, preprocess=Preprocess(size=17, crop=crop))
    assert "LABEL_0" in engram("sample", folder, "--image", image).out
    assert engram("inspect", folder, "--image", image).code == 0


def test_vit_without_a_classifier(engram, refused, image, tmp_path):
    settings = {**SMALL, "shape": (3, 8, 8), "classes": 1, **IMAGE_MODELS["dinov2"]}
    model = ViT(ViT.Config(**settings))
    model.config = ViT.Config(**{**settings, "classes": 0})
    folder = save_checkpoint(model, tmp_path / "dinov2")
    assert engram("inspect", folder, "--image", image).code == 0
    assert "without a classifier" in refused("sample", folder, "--image", image)


def test_labels_of_images(engram, image, tmp_path):
    tokenizer = Tokenizer.train("words", TEXTS, special_tokens=SPECIALS, template="$A </s>")
    config = CLIP.Config(
        **SMALL, shape=(3, 8, 8), vocabulary=tokenizer.vocab_size, context=6, text_width=8, text_heads=2, **SIGLIP
    )
    folder = save_checkpoint(CLIP(config), tmp_path / "siglip", tokenizer)
    answer = engram("sample", folder, "--image", image, "--labels", "the king", "the king is dead, long live the king")
    assert answer.out.startswith(f"{image}:  the king")
    assert engram("inspect", folder, "--image", image, "--text", "the king").code == 0


def test_siglip_is_trained(engram, tmp_path):
    words = ("--image-pooling", "attention", "--text-pooling", "last", "--loss", "sigmoid", "--width", 16)
    answer = engram("run", "clip", "--preset", "tiny", *words, "--projection-dim", 16, "--out", tmp_path / "run")
    assert answer.code == 0, answer.err
    assert "projection_dim must be the width" in engram("run", "clip", *words).err
