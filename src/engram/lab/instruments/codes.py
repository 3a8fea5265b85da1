"""Latent plane: a plane through the codes of an autoencoder, a VAE or a GAN, and what each place of it stands for.

z = o + x a + y b          a and b at right angles, x and y from -reach to reach                              (1)

N codes, Z size of a code
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.seeding import aside, generator
from engram.figures.pictures import grid, png
from engram.lab.arrays import packed, picture
from engram.lab.desk import Answer, Models, ask
from engram.models.gan import GAN
from engram.recipes.coded import Coded
from engram.recipes.generative import between, column
from engram.recipes.quality import things

SEEN = 1000
"""test items whose codes are shown, or codes that are drawn where there is no encoder"""
AT_ONCE = 100
MOST_SIDE, MOST_WAY, MOST_CODE, MOST_REACH, FARTHEST = 25, 41, 4096, 10.0, 1e4
MOST_NUMBERS = 1_000_000
"""pixels of a map or a way, for pictures that are large"""
LARGEST_SEED = 2**31
PlaneName = Literal["best", "coordinates", "principal", "random"]


@dataclass(frozen=True, kw_only=True)
class Plane:
    """Which plane, and how finely its map is drawn."""

    run: str = ""
    step: int = -1
    plane: PlaneName = "best"
    """two coordinates, the directions in which codes of test items differ most, or random ones; «best» chooses"""
    across: int = 0
    """coordinate from left to right, for coordinates"""
    up: int = 1
    """coordinate from below to above, for coordinates"""
    seed: int = 0
    """number that random directions start from"""
    reach: float = 2.5
    """how far the map goes from its middle, mostly in standard deviations of codes"""
    side: int = 15
    """pictures in a row of the map"""

    def __post_init__(self) -> None:
        must_be(self, "across", 0, MOST_CODE - 1)
        must_be(self, "up", 0, MOST_CODE - 1)
        must_be(self, "seed", 0, LARGEST_SEED)
        must_be(self, "reach", 0.05, MOST_REACH)
        must_be(self, "side", 2, MOST_SIDE)


@dataclass(frozen=True, kw_only=True)
class Place:
    """One code."""

    run: str = ""
    step: int = -1
    z: tuple[float, ...] = (0.0,)

    def __post_init__(self) -> None:
        if len(self.z) > MOST_CODE or not all(abs(value) <= FARTHEST for value in self.z):
            raise EngramError(f"z must be at most {MOST_CODE} numbers, none beyond {FARTHEST:g}.")


@dataclass(frozen=True, kw_only=True)
class Thing:
    """A test item, or where there is no encoder, a code that is drawn, by its number."""

    run: str = ""
    step: int = -1
    item: int = 0

    def __post_init__(self) -> None:
        must_be(self, "item", 0, LARGEST_SEED)


@dataclass(frozen=True, kw_only=True)
class Between:
    """The way from one thing to another."""

    run: str = ""
    step: int = -1
    first: int = 0
    last: int = 1
    along: Literal["line", "arc"] = "line"
    """straight, or along the arc on which codes of a Gaussian lie, which leads far between codes nearly opposite"""
    count: int = 21

    def __post_init__(self) -> None:
        must_be(self, "first", 0, LARGEST_SEED)
        must_be(self, "last", 0, LARGEST_SEED)
        must_be(self, "count", 2, MOST_WAY)


def must_be(asked: Any, name: str, low: float, high: float) -> None:
    if not low <= getattr(asked, name) <= high:
        raise EngramError(f"{name} must be from {low:g} to {high:g}, not {getattr(asked, name)}.")


# ---------------------------------------------------------------------- the plane and its map


@ask("codes")
def plane(asked: Plane, models: Models) -> Iterator[Answer]:
    """The plane with the codes of test items upon it, then its map, a few rows at a time."""
    run = opened(asked.run, asked.step, models)
    model, config = run.learner.model, run.learner.model.config
    z_NZ = yield from some_codes(run)
    chosen = laid(asked, run, z_NZ)
    yield about(run, asked, chosen, z_NZ)
    side = asked.side if not config.pictures else min(asked.side, max(2, int((MOST_NUMBERS / config.numbers) ** 0.5)))
    places = chosen.grid(asked.reach, side)
    yield {"side": side}
    rows = max(1, AT_ONCE // side)
    for top in range(0, side, rows):
        with aside(model, 0):
            x = model.decode(places[top * side : (top + rows) * side])
        yield {"top": top, "rows": len(x) // side, **shown(model, x, side, gap=1)}


class Axes(NamedTuple):
    """(1)"""

    kind: str
    o_Z: Tensor
    a_Z: Tensor
    b_Z: Tensor
    share: float
    """part of the variance of codes that lies in the plane"""

    def grid(self, reach: float, side: int) -> Tensor:
        """Codes at side × side places, from the upper left, row by row."""
        steps = torch.linspace(-reach, reach, side)
        y, x = torch.meshgrid(-steps, steps, indexing="ij")
        return self.o_Z + x.reshape(-1, 1) * self.a_Z + y.reshape(-1, 1) * self.b_Z  # (1)

    def of(self, z_NZ: Tensor) -> Tensor:
        """x and y of the place of the plane that is nearest to each code."""
        axes_2Z = torch.stack([self.a_Z, self.b_Z])
        return (z_NZ - self.o_Z) @ axes_2Z.T / axes_2Z.square().sum(1).clamp(min=1e-12)


def laid(asked: Plane, run: Any, z_NZ: Tensor) -> Axes:
    """The plane that is asked for, through the middle of the codes."""
    encodes, Z = hasattr(run.learner.model, "encode"), z_NZ.shape[1]
    kind = asked.plane
    if kind == "best" or Z == 1:
        kind = "coordinates" if Z <= 2 else "principal" if encodes else "random"
    if kind == "principal" and not encodes:
        raise EngramError("Drawn codes differ alike in all directions: choose coordinates or a random plane.")
    o_Z = z_NZ.mean(0) if encodes else torch.zeros(Z)
    away_NZ = z_NZ - o_Z
    if kind == "coordinates":
        a_Z, b_Z = coordinates(asked, away_NZ.std(0) if encodes else torch.ones(Z))
    else:
        a_Z, b_Z = principal(away_NZ) if kind == "principal" else random_pair(away_NZ, generator(asked.seed, "plane"))
    flat = Axes(kind, o_Z, a_Z, b_Z, 1.0)
    within = (flat.of(z_NZ) * torch.stack([a_Z.norm(), b_Z.norm()])).square().sum()
    return flat._replace(share=(within / away_NZ.square().sum().clamp(min=1e-12)).item())


def coordinates(asked: Plane, spread_Z: Tensor) -> tuple[Tensor, Tensor]:
    """Along two numbers of the code, one standard deviation each."""
    Z = len(spread_Z)
    if Z > 1 and (max(asked.across, asked.up) >= Z or asked.across == asked.up):
        raise EngramError(f"across and up must be two different numbers below {Z}, the size of the code.")
    axes_ZZ = spread_Z.clamp(min=1e-3).diag()
    return (axes_ZZ[asked.across], axes_ZZ[asked.up]) if Z > 1 else (axes_ZZ[0], torch.zeros(1))


def principal(away_NZ: Tensor) -> tuple[Tensor, Tensor]:
    """The two directions in which codes differ most, one standard deviation each."""
    _, S, V = torch.linalg.svd(away_NZ, full_matrices=False)
    axes = V[:2] * S[:2, None] / max(1, len(away_NZ) - 1) ** 0.5
    return axes[0], axes[1] if len(axes) > 1 else torch.zeros_like(axes[0])


def random_pair(away_NZ: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two directions as likely as codes are, at right angles, and each half as long as codes usually are."""
    drawn_2Z = torch.randn(2, len(away_NZ), generator=random) @ away_NZ
    a_Z, b_Z = drawn_2Z
    b_Z = b_Z - (b_Z @ a_Z) / a_Z.square().sum().clamp(min=1e-12) * a_Z
    half = away_NZ.square().sum(1).mean().sqrt() / 2
    return half * a_Z / a_Z.norm().clamp(min=1e-12), half * b_Z / b_Z.norm().clamp(min=1e-12)


def about(run: Any, asked: Plane, chosen: Axes, z_NZ: Tensor) -> Answer:
    """All that the page needs in order to walk: the plane, what lies on it, and how far each number of a code goes."""
    model, data = run.learner.model, run.data
    encodes, config = hasattr(model, "encode"), model.config
    labels = data.test["label"][: len(z_NZ)].tolist() if encodes and "label" in data.test else []
    found = {
        "kind": chosen.kind, "code": config.code, "encodes": encodes, "pictures": config.pictures, "step": run.step,
        "shape": list(config.shape), "share": chosen.share, "reach": asked.reach, "items": len(data.test),
        "classes": list(data.classes) if labels else [], "labels": labels,
        "o": packed(chosen.o_Z), "a": packed(chosen.a_Z), "b": packed(chosen.b_Z),
        "mean": packed(z_NZ.mean(0) if encodes else torch.zeros(config.code)),
        "spread": packed(z_NZ.std(0) if encodes else torch.ones(config.code)),
        "dots": packed(chosen.of(z_NZ)) if encodes else None,
    }  # fmt: skip
    return found if config.pictures else found | {"real": packed(run.recipe.seen(data, "test", SEEN))}


_codes: WeakKeyDictionary[nn.Module, Tensor] = WeakKeyDictionary()


def some_codes(run: Any) -> Generator[Answer, None, Tensor]:
    """Codes of test items, remembered for as long as the model is open; drawn ones where there is no encoder."""
    model, recipe = run.learner.model, run.recipe
    if model not in _codes:
        parts = []
        if hasattr(model, "encode"):
            for x in recipe.seen(run.data, "test", SEEN).split(AT_ONCE):
                with aside(model, 0):
                    parts.append(model.encode(x))
                yield {"encoded": sum(map(len, parts))}
        else:
            parts.append(recipe.some_codes(model, run.data, SEEN))
        _codes[model] = finite(torch.cat(parts))
    return _codes[model]


# ---------------------------------------------------------------------- one place, one thing, and the way between two


@ask("codes.decode")
def decode(asked: Place, models: Models) -> Answer:
    """What a code stands for, and of a GAN how real that looks to its judge."""
    run = opened(asked.run, asked.step, models)
    model = run.learner.model
    if len(asked.z) != model.config.code:
        raise EngramError(f"z must be {model.config.code} numbers, the size of the code, not {len(asked.z)}.")
    with aside(model, 0):
        x = model.decode(torch.tensor([asked.z], dtype=torch.float32))
        judged = {"real": torch.sigmoid(model.judge(x))[0].nan_to_num().item()} if isinstance(model, GAN) else {}
    return shown(model, x, 1) | judged


@ask("codes.item")
def item(asked: Thing, models: Models) -> Answer:
    """A test item, its code, and what its code gives back."""
    run = opened(asked.run, asked.step, models)
    model, data = run.learner.model, run.data
    with aside(model, 0):
        z_1Z = code_of(run, asked.item)
        again = shown(model, model.decode(z_1Z), 1)
    found: Answer = {"z": packed(z_1Z[0]), "again": again}
    if not hasattr(model, "encode"):
        return found
    x = one_of(run, asked.item)
    label = int(data.test["label"][asked.item]) if "label" in data.test and data.classes else None
    with aside(model, 0):
        error = (model(x) - x).square().mean().nan_to_num().item()
    return found | {"itself": shown(model, x, 1), "class": data.classes[label] if label is not None else "",
                    "error": error}  # fmt: skip


@ask("codes.between")
def way(asked: Between, models: Models) -> Iterator[Answer]:
    """Codes on the way from one thing to another, and what they stand for."""
    run = opened(asked.run, asked.step, models)
    model, config = run.learner.model, run.learner.model.config
    count = asked.count if not config.pictures else min(asked.count, max(2, MOST_NUMBERS // config.numbers))
    with aside(model, 0):
        first, last = code_of(run, asked.first), code_of(run, asked.last)
        straight = torch.lerp(first, last, torch.linspace(0, 1, count)[:, None])
        z_NZ = between(first, last, count) if asked.along == "arc" else straight
    yield {"z": packed(z_NZ)}
    with aside(model, 0):
        x = model.decode(z_NZ)
    yield shown(model, x, count)


def opened(run: str, step: int, models: Models) -> Any:
    found = models.open(run, step)
    if not isinstance(found.recipe, Coded):
        raise EngramError(f"{run} holds a {type(found.learner.model).__name__}, which makes nothing from codes.")
    return found


def one_of(run: Any, number: int) -> Tensor:
    """One test item, as the model takes it."""
    size = len(run.data.test)
    if number >= size:
        raise EngramError(f"item must be from 0 to {size - 1}, the size of the test split, not {number}.")
    return things(run.data.test.take(torch.tensor([number])), column(run.data), 1)


def code_of(run: Any, number: int) -> Tensor:
    """The code of a test item; the code that is drawn with that seed, where there is no encoder."""
    model = run.learner.model
    if hasattr(model, "encode"):
        return finite(model.encode(one_of(run, number)))
    return model.codes(1, generator(number, "code"))


def finite(z_NZ: Tensor) -> Tensor:
    if not z_NZ.isfinite().all():
        raise EngramError("The codes of this checkpoint are not numbers any more: its training went astray.")
    return z_NZ


def shown(model: Any, x: Tensor, columns: int, gap: int = 0) -> Answer:
    """Made things, ready for the page."""
    if model.config.pictures:
        return {"image": picture(png(grid(x, columns, gap)))}
    return {"points": packed(x)}
