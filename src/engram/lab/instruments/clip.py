"""Pictures and words: how well texts that somebody types describe a picture.   B pictures, K texts, D shared width"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.lab.arrays import packed
from engram.lab.brought import must_be_small, picture, test_count, test_pictures
from engram.lab.desk import Answer, Models, ask
from engram.models.clip import CLIP
from engram.recipes.clip import Captioned, CLIPRecipe

MOST_TEXTS, LONGEST = 24, 200
MOST_PICTURES = 12
CAPTIONS = 2000
"""captions of the data among which the nearest are looked for"""
NEAREST = 8
SHORT = 30
"""captions from which the labels to begin with are taken, the shortest"""
AT_ONCE, CAPTIONS_AT_ONCE = 8, 50
"""texts between which others are heard; captions are those of the data, of which a run has learnt"""
USUAL = ("a red circle", "a blue square", "a photo of a dog", "a photo of a cat", "a house")
"""labels to begin with where the data has none"""

CAPTION_VECTORS: "WeakKeyDictionary[nn.Module, Tensor]" = WeakKeyDictionary()
"""N × D, kept as long as the model itself is"""


class Matcher(NamedTuple):
    """A model of pictures and texts with all that it needs to read texts."""

    recipe: CLIPRecipe
    model: CLIP
    data: Captioned

    def captions(self) -> tuple[str, ...]:
        return self.data.captions[:CAPTIONS]


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A run of CLIP, or a checkpoint."""

    run: str = ""
    step: int = -1


@dataclass(frozen=True, kw_only=True)
class Named(Opened):
    """A picture and texts that may describe it."""

    item: int = 0
    """number of the test picture"""
    pixels: str = ""
    """a picture of one's own instead, bytes in base 64"""
    labels: tuple[str, ...] = ("a red circle",)

    def __post_init__(self) -> None:
        must_be_small(self.pixels)
        must_be_texts(self.labels)


@dataclass(frozen=True, kw_only=True)
class Table(Opened):
    """Several test pictures, and texts; without texts, the captions of these pictures."""

    item: int = 0
    """the first of the test pictures"""
    count: int = 6
    """pictures, one after the other"""
    labels: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_PICTURES:
            raise EngramError(f"count must be from 1 to {MOST_PICTURES}, not {self.count}.")
        if self.labels != ("",):
            must_be_texts(self.labels)


@ask("clip.about")
def about(asked: Opened, models: Models) -> Answer:
    """What pictures the model sees, and some texts to begin with."""
    found = opened(asked, models)
    captions, preprocess = found.captions(), found.data.preprocess
    short = sorted(captions, key=len)[:SHORT]
    labels = short[:: max(1, len(short) // 4)] or list(USUAL)
    if count := test_count(found.data.data):
        labels = list(dict.fromkeys([found.data.data.test["caption"][0], *labels]))
    return {
        "shape": list(found.model.config.shape), "count": count, "labels": labels, "captions": len(captions),
        "crops": preprocess is not None and preprocess.crop is not None,
    }  # fmt: skip


@ask("clip")
def named(asked: Named, models: Models) -> Generator[Answer, None, Answer]:
    """The cosine and the probability of each text, and the captions of the data that are nearest to the picture."""
    found = opened(asked, models)
    if asked.pixels:
        x_1CHW, caption = picture(asked.pixels, found.model.config.shape), ""
    else:
        x_1CHW = test_pictures(found.data.data, [asked.item])
        caption = found.data.data.test["caption"][asked.item]
    with torch.no_grad():
        u_1D = found.model.pictures(x_1CHW)
    w_KD = yield from text_vectors(found, asked.labels)
    yield {
        "x": packed(x_1CHW[0]), "caption": caption, "cosine": (u_1D @ w_KD.T)[0].tolist(),
        "p": found.model.compare(u_1D, w_KD).detach().softmax(1)[0].tolist(),
        "scale": found.model.compare(u_1D, u_1D).item(),
    }  # fmt: skip
    return {"nearest": (yield from nearest(found, u_1D))}


@ask("clip.matrix")
def matrix(asked: Table, models: Models) -> Generator[Answer, None, Answer]:
    """The cosine of each picture with each text."""
    found = opened(asked, models)
    data, count = found.data.data, test_count(found.data.data)
    items = list(range(asked.item, max(asked.item + 1, min(asked.item + asked.count, count))))
    x_BCHW = test_pictures(data, items)
    captions = [data.test["caption"][item] for item in items]
    texts = list(dict.fromkeys(captions)) if asked.labels == ("",) else list(asked.labels)
    w_KD = yield from text_vectors(found, texts)
    with torch.no_grad():
        cosine_BK = found.model.pictures(x_BCHW) @ w_KD.T
    return {
        "items": items, "x": packed(x_BCHW), "captions": captions, "texts": texts, "cosine": cosine_BK.tolist(),
    }  # fmt: skip


# ---------------------------------------------------------------------- vectors


def text_vectors(found: Matcher, texts: Sequence[str], at_once: int = AT_ONCE) -> Generator[Answer, None, Tensor]:
    """K × D, some at a time."""
    parts = []
    for start in range(0, len(texts), at_once):
        parts.append(found.recipe.texts(found.model, found.data, texts[start : start + at_once]))
        yield {"texts": min(start + at_once, len(texts))}
    return torch.cat(parts)


def nearest(found: Matcher, u_1D: Tensor) -> Generator[Answer, None, list[dict[str, Any]]]:
    """The captions of the data that go best with a picture; none where there are none."""
    captions = found.captions()
    if not captions:
        return []
    if found.model not in CAPTION_VECTORS:
        CAPTION_VECTORS[found.model] = yield from text_vectors(found, captions, CAPTIONS_AT_ONCE)
    top = (u_1D @ CAPTION_VECTORS[found.model].T)[0].topk(min(NEAREST, len(captions)))
    return [
        {"text": captions[i], "cosine": cosine}
        for i, cosine in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]


# ---------------------------------------------------------------------- what is opened


def opened(asked: Opened, models: Models) -> Matcher:
    run = models.open(asked.run, asked.step)
    if not isinstance(run.recipe, CLIPRecipe):
        raise EngramError(f"{run.recipe.name} does not know pictures and texts: choose a run of clip.")
    return Matcher(run.recipe, run.learner.model.eval(), run.data)


def must_be_texts(texts: tuple[Any, ...]) -> None:
    if not 1 <= len(texts) <= MOST_TEXTS:
        raise EngramError(f"labels must be 1 to {MOST_TEXTS} texts, not {len(texts)}.")
    for text in texts:
        if not text.strip() or len(text) > LONGEST:
            raise EngramError(f"labels must have from 1 to {LONGEST} letters each, and «{text[:20]}» has {len(text)}.")
