"""Generated images of colored shapes with captions: for CLIP, ViT, VAE and diffusion.

An image shows one object ("a small red circle") or two and their relation ("a small red circle left of a large
blue square"). Some pairs of color and shape are never drawn in train, valid and test, although every color and every
shape is; the split `unseen` has nothing else as its first object, for tests of zero-shot generalization.
N images, S side in pixels.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from engram.core.errors import EngramError
from engram.data.columns import Strings
from engram.data.dataset import Parts, Split
from engram.data.registry import register_generated
from engram.data.splits import split_sizes

Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int64]

COLORS = {
    "red": (230, 50, 50), "green": (60, 190, 70), "blue": (60, 100, 240), "yellow": (240, 220, 60),
    "purple": (170, 70, 210), "white": (245, 245, 245),
}  # fmt: skip
SIZES = {"small": 0.11, "large": 0.19}
"""half the width of an object, relative to the image"""
RELATIONS = {"left of": (-1, 0), "right of": (1, 0), "above": (0, -1), "below": (0, 1)}
"""direction from the second object to the first"""
NONE = -1
"""value of the columns of the second object if there is none"""


def circle(x: Floats, y: Floats) -> Floats:
    return np.hypot(x, y) - 1


def square(x: Floats, y: Floats) -> Floats:
    return np.maximum(np.abs(x), np.abs(y)) - 0.9


def triangle(x: Floats, y: Floats) -> Floats:
    return np.maximum(np.abs(x) * 0.894 - (y + 1) * 0.447, y - 0.8)  # (2, 1) / sqrt(5) is normal to the flanks


def diamond(x: Floats, y: Floats) -> Floats:
    return (np.abs(x) + np.abs(y) - 1.1) * 0.707


def cross(x: Floats, y: Floats) -> Floats:
    across = np.maximum(np.abs(x) - 1, np.abs(y) - 0.35)
    down = np.maximum(np.abs(x) - 0.35, np.abs(y) - 1)
    return np.minimum(across, down)


SHAPES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "circle": circle, "square": square, "triangle": triangle, "diamond": diamond, "cross": cross,
}  # fmt: skip
"""signed distance to the outline of a shape of half width 1 around the origin, negative inside; y points down"""


def held_out(color: Ints, shape: Ints) -> npt.NDArray[np.bool_]:
    """Which pairs are kept for `unseen`: one shape for each of the first five colors."""
    return color == shape


@register_generated(
    "shapes",
    title="images of colored shapes with captions, some combinations held out",
    kind="captions",
    columns={
        "image": "uint8 3×32×32", "caption": "str", "label": "int64", "size": "int64", "color": "int64",
        "shape": "int64", "relation": "int64", "size2": "int64", "color2": "int64", "shape2": "int64",
    },
    sizes={"train": 5000, "valid": 500, "test": 500, "unseen": 500},
)  # fmt: skip
def shapes(*, count: int = 5000, size: int = 32, objects: int = 2, seed: int = 0) -> Parts:
    """`objects` is 1 for images of a single object, or 2 for half of them with two.

    `size` is the side in pixels.
    """
    if not 8 <= size <= 512:
        raise EngramError(f"size is a number of pixels from 8 to 512, not {size}.")
    if objects not in (1, 2):
        raise EngramError(f"objects is 1 or 2, not {objects}.")
    rng = np.random.default_rng(seed)
    sizes = split_sizes(count)
    splits = {name: _split(n, size, objects, name, rng) for name, n in {**sizes, "unseen": sizes["test"]}.items()}
    return Parts(splits, tuple(f"{color} {shape}" for color in COLORS for shape in SHAPES))


def _split(count: int, side: int, objects: int, name: str, rng: np.random.Generator) -> Split:
    first = _sample_objects(count, rng, unseen=name == "unseen")
    second = _sample_objects(count, rng, unseen=False)
    pair = rng.random(count) < 0.5 * (objects - 1)
    relation = np.where(pair, rng.integers(len(RELATIONS), size=count), NONE)
    second = {key: np.where(pair, value, NONE) for key, value in second.items()}
    columns = {**first, "relation": relation, **{f"{key}2": value for key, value in second.items()}}
    label = first["color"] * len(SHAPES) + first["shape"]
    return Split({
        "image": torch.from_numpy(_render(first, second, relation, side, rng)),
        "caption": Strings.from_texts(_caption(*row) for row in np.stack([*columns.values()], 1).tolist()),
        "label": torch.from_numpy(label),
        **{key: torch.from_numpy(value) for key, value in columns.items()},
    })  # fmt: skip


def _sample_objects(count: int, rng: np.random.Generator, unseen: bool) -> dict[str, Ints]:
    """Sample sizes, colors and shapes of `count` objects, all from the held-out pairs or none."""
    pairs = np.array([(c, s) for c in range(len(COLORS)) for s in range(len(SHAPES))])
    pairs = pairs[held_out(pairs[:, 0], pairs[:, 1]) == unseen]
    color, shape = pairs[rng.integers(len(pairs), size=count)].T
    return {"size": rng.integers(len(SIZES), size=count), "color": color, "shape": shape}


def _caption(size: int, color: int, shape: int, relation: int, *other: int) -> str:
    words = f"a {[*SIZES][size]} {[*COLORS][color]} {[*SHAPES][shape]}"
    if relation == NONE:
        return words
    return f"{words} {[*RELATIONS][relation]} {_caption(*other, NONE)}"


def _render(
    first: dict[str, Ints], second: dict[str, Ints], relation: Ints, side: int, rng: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """Render images, uint8 N × 3 × S × S, on black; a single object lies anywhere, two on opposite sides."""
    count = len(relation)
    alone = (relation == NONE)[:, None]
    towards = np.array([*RELATIONS.values(), (0, 0)])[relation]  # the last row is for NONE, which is -1
    jitter = rng.uniform(-1, 1, (2, count, 2))
    center = 0.5 + 0.25 * towards + jitter[0] * np.where(alone, 0.28, 0.04)
    other = 0.5 - 0.25 * towards + jitter[1] * 0.04
    canvas = np.zeros((count, 3, side, side), np.float32)
    _paint(canvas, np.arange(count), center, first)
    _paint(canvas, np.flatnonzero(~alone), other, second)
    return np.rint(canvas).astype(np.uint8)


def _paint(canvas: Floats, rows: Ints, center: npt.NDArray[np.float64], shown: dict[str, Ints]) -> None:
    """Paint the objects of `rows` over their images, with antialiased edges."""
    side = canvas.shape[-1]
    pixel = ((np.arange(side) + 0.5) / side).astype(np.float32)
    radii = np.array([*SIZES.values()], np.float32)
    colors = np.array([*COLORS.values()], np.float32)
    for number, distance in enumerate(SHAPES.values()):
        chosen = rows[shown["shape"][rows] == number]
        radius = radii[shown["size"][chosen], None, None]
        x, y = center[chosen].astype(np.float32).T[..., None, None]
        outside = distance((pixel[None, :] - x) / radius, (pixel[:, None] - y) / radius)
        cover = np.clip(0.5 - outside * radius * side, 0, 1)[:, None]
        canvas[chosen] += cover * (colors[shown["color"][chosen], :, None, None] - canvas[chosen])
