"""Pictures of odd sizes against the image processors of transformers (those on Pillow; torchvision is not here)."""

import json

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from engram.core.errors import EngramError
from engram.data.preprocess import Preprocess, brightness
from engram.interop.huggingface import read, write
from engram.layers.pictures import Pixels
from engram.models.clip import CLIP
from engram.models.vit import ViT

SHAPE = (3, 12, 16)


def picture(height, width, mode="RGB"):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


PICTURES = [picture(17, 31), picture(40, 23), picture(9, 9), picture(5, 50)]
PROCESSORS = [
    transformers.ViTImageProcessorPil(size={"height": 12, "width": 16}),
    transformers.ViTImageProcessorPil(size={"height": 12, "width": 16}, resample=3, do_normalize=False),
    transformers.ViTImageProcessorPil(size={"height": 7, "width": 5}, rescale_factor=1 / 127, image_mean=[0.9, 1, 1.1]),
    transformers.CLIPImageProcessorPil(size={"shortest_edge": 13}, crop_size={"height": 13, "width": 13}),
    transformers.CLIPImageProcessorPil(size={"shortest_edge": 10}, crop_size={"height": 12, "width": 15}),
    transformers.CLIPImageProcessorPil(do_center_crop=False, size={"height": 8, "width": 9}, resample=0),
]  # fmt: skip


def agree(about, ours, theirs):
    """Pixels after standardising with what the file says."""
    pixels = Pixels(shape=SHAPE, **brightness(about))
    expected = theirs(PICTURES, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(pixels.standardise(ours(PICTURES)), expected.float(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("theirs", PROCESSORS)
def test_as_their_file_says(theirs):
    about = theirs.to_dict()
    agree(about, Preprocess.from_json(about, SHAPE), theirs)


@pytest.mark.parametrize("ours", [
    Preprocess(size=(11, 7)),
    Preprocess(size=13, crop=(12, 10), resampling=3),
    Preprocess(size=9, crop=(14, 9), resampling=1),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["ViTImageProcessor", "CLIPImageProcessor"])
def test_as_our_file_says(ours, kind):
    about = ours.to_json(kind, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    agree(about, ours, getattr(transformers, f"{kind}Pil")(**about))
    assert Preprocess.from_json(about, SHAPE) == ours


@pytest.mark.parametrize(("kind", "expected"), [
    ("ViTFeatureExtractor", Preprocess(size=(20, 20))),
    ("CLIPFeatureExtractor", Preprocess(size=20, crop=(18, 18), resampling=3)),
])  # fmt: skip
def test_old_files_have_one_number(kind, expected):
    about = {"feature_extractor_type": kind, "size": 20, "crop_size": 18}
    assert Preprocess.from_json(about, SHAPE) == expected


def test_grey_pictures():
    made = Preprocess.of((1, 8, 8))([picture(20, 30), picture(9, 9, "L")])
    assert made.shape == (2, 1, 8, 8)
    assert 0 <= made.min() <= made.max() <= 1


def test_pictures_of_unequal_sizes_are_refused():
    with pytest.raises(EngramError, match="one size"):
        Preprocess()(PICTURES)


@pytest.mark.parametrize("model", [
    ViT(ViT.Config(shape=SHAPE, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25), width=8, layers=1, heads=2)),
    CLIP(CLIP.Config(shape=(3, 12, 12), width=8, layers=1, heads=2, text_width=8, text_layers=1, text_heads=2)),
])  # fmt: skip
def test_a_checkpoint_of_ours_prepares_pictures_there(tmp_path, model):
    write(model, tmp_path)
    theirs = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    pixels = model.config.standardise(read(tmp_path).preprocess(PICTURES))
    torch.testing.assert_close(theirs(PICTURES, return_tensors="pt")["pixel_values"].float(), pixels, atol=1e-4, rtol=0)


def test_a_processor_of_pictures_and_texts(tmp_path):
    """What it saves in one file, as transformers now does."""
    model = CLIP(CLIP.Config(shape=(3, 12, 12), width=8, layers=1, heads=2, text_width=8, text_layers=1, text_heads=2))
    write(model, tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    theirs = PROCESSORS[3]
    inner = {**theirs.to_dict(), "image_processor_type": "CLIPImageProcessor"}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": inner}))
    checkpoint = read(tmp_path)
    assert checkpoint.preprocess == Preprocess(size=13, crop=(13, 13), resampling=3)
    assert checkpoint.model.config.mean == tuple(theirs.image_mean)
