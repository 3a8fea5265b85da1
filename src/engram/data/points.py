"""Two-dimensional toy data sets (moons, spirals, rings, …): for classifiers, flows and diffusion.

Coordinates lie within about (-2, 2). `label` is the component that a point belongs to.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from engram.core.errors import EngramError, unknown
from engram.data.dataset import Parts, Split
from engram.data.registry import register_generated
from engram.data.splits import split_sizes

Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int64]
Shape = Callable[[Ints, np.random.Generator], tuple[Floats, Floats]]


def moons(label: Ints, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Two interleaving half circles."""
    angle = np.pi * rng.random(len(label))
    up = 1 - 2 * label
    return np.cos(angle) * up + label - 0.5, np.sin(angle) * up + 0.5 * label - 0.25


def spirals(label: Ints, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Two spiral arms of one and a half turns."""
    turn = np.sqrt(rng.random(len(label)))  # the square root spreads the points evenly along the arm
    angle = 3 * np.pi * turn + np.pi * label
    return 2 * turn * np.cos(angle), 2 * turn * np.sin(angle)


def rings(label: Ints, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Three concentric circles."""
    radius, angle = 0.6 * (label + 1), 2 * np.pi * rng.random(len(label))
    return radius * np.cos(angle), radius * np.sin(angle)


def gaussians(label: Ints, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Eight Gaussians on a circle."""
    angle = np.pi / 4 * label
    x, y = 0.15 * rng.standard_normal((2, len(label)))
    return 1.5 * np.cos(angle) + x, 1.5 * np.sin(angle) + y


def checkerboard(label: Ints, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """The eight black squares of a 4 × 4 checkerboard."""
    row = label // 2
    column = 2 * (label % 2) + row % 2
    x, y = rng.random((2, len(label)))
    return column + x - 2, row + y - 2


def swiss_roll(label: Ints, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """One spiral, labeled in four sections from the inside to the outside."""
    turn = (label + rng.random(len(label))) / 4
    angle = 1.5 * np.pi * (1 + 2 * turn)
    return angle / 7.5 * np.cos(angle), angle / 7.5 * np.sin(angle)


SHAPES: dict[str, tuple[int, Shape]] = {
    "moons": (2, moons),
    "spirals": (2, spirals),
    "rings": (3, rings),
    "gaussians": (8, gaussians),
    "checkerboard": (8, checkerboard),
    "swiss-roll": (4, swiss_roll),
}
"""number of components of each shape, and the function that samples points of given components"""


@register_generated(
    "points",
    title=f"two-dimensional points: {', '.join(SHAPES)}",
    kind="points",
    columns={"point": "float32 2", "label": "int64"},
    sizes={"train": 2000, "valid": 200, "test": 200},
)
def points(*, shape: str = "moons", count: int = 2000, noise: float = 0.05, seed: int = 0) -> Parts:
    """Generate `count` training points with Gaussian noise of standard deviation `noise`."""
    if shape not in SHAPES:
        raise unknown("shape of points", shape, SHAPES)
    if not 0 <= noise < np.inf:
        raise EngramError(f"noise is a standard deviation from 0, not {noise}.")
    components, sample = SHAPES[shape]
    rng = np.random.default_rng(seed)

    def split(size: int) -> Split:
        label = rng.integers(components, size=size)
        point = np.stack(sample(label, rng), axis=1) + noise * rng.standard_normal((size, 2))
        return Split({"point": torch.from_numpy(point.astype(np.float32)), "label": torch.from_numpy(label)})

    classes = tuple(f"{shape} {i}" for i in range(components))
    return Parts({name: split(size) for name, size in split_sizes(count).items()}, classes)
