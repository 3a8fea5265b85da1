"""Images of odd sizes against the image processors of transformers (those on Pillow; torchvision is not here)."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from engram.core.errors import EngramError
from engram.data.preprocess import Preprocess, read_normalization
from engram.hub.huggingface import load_checkpoint, save_checkpoint
from engram.nn.image_input import ImageConfig
from engram.transformers.clip.model import CLIP
from engram.transformers.vit.model import ViT

SHAPE = (3, 12, 16)


def image(height, width, mode="RGB"):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


IMAGES = [image(17, 31), image(40, 23), image(9, 9), image(5, 50)]
PROCESSORS = [
    transformers.ViTImageProcessorPil(size={"height": 12, "width": 16}),
    transformers.ViTImageProcessorPil(size={"height": 12, "width": 16}, resample=3, do_normalize=False),
    transformers.ViTImageProcessorPil(size={"height": 7, "width": 5}, rescale_factor=1 / 127, image_mean=[0.9, 1, 1.1]),
    transformers.CLIPImageProcessorPil(size={"shortest_edge": 13}, crop_size={"height": 13, "width": 13}),
    transformers.CLIPImageProcessorPil(size={"shortest_edge": 10}, crop_size={"height": 12, "width": 15}),
    transformers.DeiTImageProcessorPil(size={"height": 14, "width": 20}, crop_size={"height": 12, "width": 16}),
    transformers.SiglipImageProcessorPil(size={"height": 14, "width": 10}),
    transformers.BitImageProcessorPil(size={"shortest_edge": 15}, crop_size={"height": 14, "width": 14}),
    transformers.CLIPImageProcessorPil(do_center_crop=False, size={"height": 8, "width": 9}, resample=0),
]  # fmt: skip


def agree(about, ours, theirs):
    """Pixels after standardizing with what the file says."""
    images = ImageConfig(shape=SHAPE, **read_normalization(about))
    expected = theirs(IMAGES, return_tensors="pt")["pixel_values"]
    pixels = ours(IMAGES)
    images = replace(images, shape=tuple(pixels.shape[1:]))
    torch.testing.assert_close(images.standardize(pixels), expected.float(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("theirs", PROCESSORS)
def test_as_their_file_says(theirs):
    about = theirs.to_dict()
    agree(about, Preprocess.from_json(about, SHAPE), theirs)


@pytest.mark.parametrize("ours", [
    Preprocess(size=(11, 7)),
    Preprocess(size=13, crop=(12, 10), resample=3),
    Preprocess(size=9, crop=(14, 9), resample=1),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["ViTImageProcessor", "CLIPImageProcessor"])
def test_as_our_file_says(ours, kind):
    about = ours.to_json(kind, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    agree(about, ours, getattr(transformers, f"{kind}Pil")(**about))
    assert Preprocess.from_json(about, SHAPE) == ours


@pytest.mark.parametrize(("kind", "expected"), [
    ("ViTFeatureExtractor", Preprocess(size=(20, 20))),
    ("DeiTFeatureExtractor", Preprocess(size=(20, 20), crop=(18, 18), resample=3)),
    ("CLIPFeatureExtractor", Preprocess(size=20, crop=(18, 18), resample=3)),
])  # fmt: skip
def test_old_files_have_one_number(kind, expected):
    about = {"feature_extractor_type": kind, "size": 20, "crop_size": 18}
    assert Preprocess.from_json(about, SHAPE) == expected


def test_grey_images():
    made = Preprocess.resize_to((1, 8, 8))([image(20, 30), image(9, 9, "L")])
    assert made.shape == (2, 1, 8, 8)
    assert 0 <= made.min() <= made.max() <= 1


def test_images_of_unequal_sizes_are_refused():
    with pytest.raises(EngramError, match="one size"):
        Preprocess()(IMAGES)


@pytest.mark.parametrize("model", [
    ViT(ViT.Config(shape=SHAPE, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25), width=8, layers=1, heads=2)),
    CLIP(CLIP.Config(shape=(3, 12, 12), width=8, layers=1, heads=2, text_width=8, text_layers=1, text_heads=2)),
])  # fmt: skip
def test_a_checkpoint_of_ours_prepares_images_there(tmp_path, model):
    save_checkpoint(model, tmp_path)
    theirs = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    pixels = model.config.standardize(load_checkpoint(tmp_path).preprocess(IMAGES))
    torch.testing.assert_close(theirs(IMAGES, return_tensors="pt")["pixel_values"].float(), pixels, atol=1e-4, rtol=0)


def test_a_processor_of_images_and_texts(tmp_path):
    """What it saves in one file, as transformers now does."""
    model = CLIP(CLIP.Config(shape=(3, 12, 12), width=8, layers=1, heads=2, text_width=8, text_layers=1, text_heads=2))
    save_checkpoint(model, tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    theirs = PROCESSORS[3]
    inner = {**theirs.to_dict(), "image_processor_type": "CLIPImageProcessor"}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": inner}))
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.preprocess == Preprocess(size=13, crop=(13, 13), resample=3)
    assert checkpoint.model.config.mean == tuple(theirs.image_mean)
