"""Instrument of CLIP: similarity of images and texts.

B images, K texts, D dimensions of the embedding space
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.plots.arrays import pack_array
from engram.plots.image_input import check_pixels, count_test_images, decode_pixels, get_test_images
from engram.plots.instrument import Models, Response, endpoint, register_instrument
from engram.transformers.clip.model import CLIP
from engram.transformers.clip.recipe import CaptionedImages, CLIPRecipe

register_instrument(
    "clip",
    title="Images and texts",
    about="Type labels, drop an image, and see how well each describes it.",
    recipes=("clip",),
    folder=Path(__file__).parent,
)

MAX_LABELS, MAX_CHARACTERS = 24, 200
MAX_IMAGES = 12
MAX_CAPTIONS = 2000
"""captions of the data among which the most similar are searched"""
RETRIEVED = 8
"""most similar captions that are returned"""
SHORT_CAPTIONS = 30
"""shortest captions of the data, from which default labels are taken"""
LABELS_AT_ONCE, CAPTIONS_AT_ONCE = 8, 50
"""labels and captions that are encoded before other requests are served"""
DEFAULT_LABELS = ("a red circle", "a blue square", "a photo of a dog", "a photo of a cat", "a house")
"""labels for a checkpoint, which has no data"""

CAPTION_EMBEDDINGS: "WeakKeyDictionary[nn.Module, Tensor]" = WeakKeyDictionary()
"""embeddings of the captions, N × D, as long as the model is loaded"""


class LoadedCLIP(NamedTuple):
    """A CLIP model with its recipe and data."""

    recipe: CLIPRecipe
    model: CLIP
    data: CaptionedImages

    def captions(self) -> tuple[str, ...]:
        return self.data.captions[:MAX_CAPTIONS]


@dataclass(frozen=True, kw_only=True)
class RunArgs(Settings):
    """A run of CLIP, or a checkpoint."""

    run: str = ""
    step: int = -1


@dataclass(frozen=True, kw_only=True)
class ClassifyArgs(RunArgs):
    """An image, and label texts."""

    item: int = 0
    """number of the test image"""
    pixels: str = ""
    """another image instead, bytes in base64"""
    labels: tuple[str, ...] = ("a red circle",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_pixels(self.pixels)
        check_labels(self.labels)


@dataclass(frozen=True, kw_only=True)
class MatrixArgs(RunArgs):
    """Several test images, and texts; without texts, the captions of these images."""

    item: int = 0
    """number of the first test image"""
    count: Annotated[int, Ge(1), Le(MAX_IMAGES)] = 6
    """number of images"""
    labels: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels != ("",):
            check_labels(self.labels)


@endpoint("clip.about")
def describe(args: RunArgs, models: Models) -> Response:
    """Return the image shape of the model, and default labels."""
    subject = load_subject(args, models)
    captions, preprocess = subject.captions(), subject.data.preprocess
    short = sorted(captions, key=len)[:SHORT_CAPTIONS]
    labels = short[:: max(1, len(short) // 4)] or list(DEFAULT_LABELS)
    if count := count_test_images(subject.data.data):
        labels = list(dict.fromkeys([subject.data.data.test["caption"][0], *labels]))
    return {
        "shape": list(subject.model.config.shape), "count": count, "labels": labels, "captions": len(captions),
        "crops": preprocess is not None and preprocess.crop is not None,
    }  # fmt: skip


@endpoint("clip")
def classify(args: ClassifyArgs, models: Models) -> Generator[Response, None, Response]:
    """Return cosine similarity and probability of each label, and the captions most similar to the image."""
    subject = load_subject(args, models)
    if args.pixels:
        x_1CHW, caption = decode_pixels(args.pixels, subject.model.config.shape), ""
    else:
        x_1CHW = get_test_images(subject.data.data, [args.item])
        caption = subject.data.data.test["caption"][args.item]
    with torch.no_grad():
        u_1D = subject.model.encode_images(x_1CHW)
    w_KD = yield from encode_texts(subject, args.labels)
    yield {
        "x": pack_array(x_1CHW[0]), "caption": caption, "cosine": (u_1D @ w_KD.T)[0].tolist(),
        "p": subject.model.probabilities(subject.model.similarity(u_1D, w_KD).detach())[0].tolist(),
        "scale": subject.model.logit_scale.item(),
    }  # fmt: skip
    return {"captions": (yield from retrieve_captions(subject, u_1D))}


@endpoint("clip.matrix")
def similarity_matrix(args: MatrixArgs, models: Models) -> Generator[Response, None, Response]:
    """Return the cosine similarity of each image with each text."""
    subject = load_subject(args, models)
    data, count = subject.data.data, count_test_images(subject.data.data)
    items = list(range(args.item, max(args.item + 1, min(args.item + args.count, count))))
    x_BCHW = get_test_images(data, items)
    captions = [data.test["caption"][item] for item in items]
    texts = list(dict.fromkeys(captions)) if args.labels == ("",) else list(args.labels)
    w_KD = yield from encode_texts(subject, texts)
    with torch.no_grad():
        cosine_BK = subject.model.encode_images(x_BCHW) @ w_KD.T
    return {
        "items": items, "x": pack_array(x_BCHW), "captions": captions, "texts": texts, "cosine": cosine_BK.tolist(),
    }  # fmt: skip


# ---------------------------------------------------------------------- embeddings


def encode_texts(
    subject: LoadedCLIP, texts: Sequence[str], at_once: int = LABELS_AT_ONCE
) -> Generator[Response, None, Tensor]:
    """Embed texts, K × D, some at a time."""
    parts = []
    for start in range(0, len(texts), at_once):
        parts.append(subject.recipe.encode_texts(subject.model, subject.data, texts[start : start + at_once]))
        yield {"texts": min(start + at_once, len(texts))}
    return torch.cat(parts)


def retrieve_captions(subject: LoadedCLIP, u_1D: Tensor) -> Generator[Response, None, list[dict[str, Any]]]:
    """Return the captions of the data that are most similar to an image."""
    captions = subject.captions()
    if not captions:
        return []
    if subject.model not in CAPTION_EMBEDDINGS:
        CAPTION_EMBEDDINGS[subject.model] = yield from encode_texts(subject, captions, CAPTIONS_AT_ONCE)
    top = (u_1D @ CAPTION_EMBEDDINGS[subject.model].T)[0].topk(min(RETRIEVED, len(captions)))
    return [
        {"text": captions[i], "cosine": cosine}
        for i, cosine in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]


# ---------------------------------------------------------------------- arguments


def load_subject(args: RunArgs, models: Models) -> LoadedCLIP:
    """Load the model of a run of CLIP."""
    run = models.open(args.run, args.step)
    if not isinstance(run.recipe, CLIPRecipe):
        raise EngramError(f"{run.recipe.name} does not compare images with texts: choose a run of clip.")
    return LoadedCLIP(run.recipe, run.learner.model.eval(), run.data)


def check_labels(labels: tuple[Any, ...]) -> None:
    """Refuse no labels, too many, empty ones and long ones."""
    if not 1 <= len(labels) <= MAX_LABELS:
        raise EngramError(f"labels must be 1 to {MAX_LABELS} texts, not {len(labels)}.")
    for text in labels:
        if not text.strip() or len(text) > MAX_CHARACTERS:
            raise EngramError(
                f'labels must have from 1 to {MAX_CHARACTERS} characters each, and "{text[:20]}" has {len(text)}.'
            )
