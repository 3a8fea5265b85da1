r"""Instrument of latent spaces.

A plane through the latents of an autoencoder, a VAE or a GAN, decoded to a map.

    z = o + x a + y b          point of the plane         (1)

    Symbols:
        z           latent
        o           origin: mean of the latents
        a, b        orthogonal axes
        x, y        coordinates, from -extent to extent
        N, Z        number of latents, latent dimensions

The axes are two coordinates of the latent, two principal components, or random directions.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.seeding import generator, isolated_eval
from engram.data.dataset import sample_column
from engram.generative.feature_extractor import take_samples
from engram.generative.gan.model import GAN
from engram.generative.latent import LatentSampleArgs, slerp, some_latents
from engram.metrics.pca import pca
from engram.plots.arrays import data_url, pack_array
from engram.plots.images import grid, png
from engram.plots.instrument import Models, Response, endpoint, register_instrument

register_instrument(
    "latent",
    title="Latent space",
    about="Decode a plane of latents of an autoencoder, VAE or GAN, and interpolate between samples.",
    recipes=("vae", "autoencoder", "gan"),
    folder=Path(__file__).parent,
)

LATENTS = 1000
"""test samples whose latents are shown, or samples of the prior where there is no encoder"""
CHUNK = 100
"""samples encoded or decoded at a time"""
MAX_SIDE, MAX_INTERPOLATION, MAX_DIM, MAX_EXTENT, MAX_VALUE = 25, 41, 4096, 10.0, 1e4
MAX_PIXELS = 1_000_000
"""pixels times channels of a map or an interpolation"""
Seed = Annotated[int, Ge(0), Le(2**31)]
Coordinate = Annotated[int, Ge(0), Le(MAX_DIM - 1)]
PlaneName = Literal["auto", "coordinates", "principal", "random"]


@dataclass(frozen=True, kw_only=True)
class RunArgs(Settings):
    """A run of an autoencoder, a VAE or a GAN."""

    run: str = ""
    step: int = -1


@dataclass(frozen=True, kw_only=True)
class PlaneArgs(RunArgs):
    """A plane of latents and the resolution of its map."""

    plane: PlaneName = "auto"
    """two coordinates, two principal components of the test latents, or random directions; "auto" chooses"""
    x_coordinate: Coordinate = 0
    """coordinate from left to right, for coordinates"""
    y_coordinate: Coordinate = 1
    """coordinate from bottom to top, for coordinates"""
    seed: Seed = 0
    """seed of random directions"""
    extent: Annotated[float, Ge(0.05), Le(MAX_EXTENT)] = 2.5
    """half the side of the map, mostly in standard deviations of the latents"""
    side: Annotated[int, Ge(2), Le(MAX_SIDE)] = 15
    """images per row of the map"""


@dataclass(frozen=True, kw_only=True)
class DecodeArgs(RunArgs):
    """One latent."""

    z: tuple[float, ...] = (0.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.z) > MAX_DIM or not all(abs(value) <= MAX_VALUE for value in self.z):
            raise EngramError(f"z must be at most {MAX_DIM} numbers, none beyond {MAX_VALUE:g}.")


@dataclass(frozen=True, kw_only=True)
class ItemArgs(RunArgs):
    """A test sample by its index; without an encoder, a sample of the prior by its seed."""

    item: Seed = 0


@dataclass(frozen=True, kw_only=True)
class InterpolationArgs(RunArgs):
    """An interpolation between the latents of two items."""

    first: Seed = 0
    last: Seed = 1
    method: Literal["linear", "slerp"] = "linear"
    """linear, or spherical (slerp), which keeps the norm of Gaussian latents"""
    count: Annotated[int, Ge(2), Le(MAX_INTERPOLATION)] = 21


# ---------------------------------------------------------------------- the plane and its map


@endpoint("latent")
def plane(args: PlaneArgs, models: Models) -> Iterator[Response]:
    """Yield the plane with the test latents projected onto it, then its decoded map, a few rows at a time."""
    run = open_run(args, models)
    model, config = run.learner.model, run.learner.model.config
    z_NZ = yield from encode_test_samples(run)
    chosen = choose_plane(args, run, z_NZ)
    yield describe(run, args, chosen, z_NZ)
    side = args.side if not config.is_image else min(args.side, max(2, int((MAX_PIXELS / config.numel) ** 0.5)))
    grid_NZ = chosen.grid(args.extent, side)
    yield {"side": side}
    rows = max(1, CHUNK // side)
    for top in range(0, side, rows):
        with isolated_eval(model, 0):
            x = model.decode(grid_NZ[top * side : (top + rows) * side])
        yield {"top": top, "rows": len(x) // side, **samples_json(model, x, side, gap=1)}


class Plane(NamedTuple):
    """A plane of latents: origin and two axes."""

    kind: str
    o_Z: Tensor
    a_Z: Tensor
    b_Z: Tensor
    explained: float
    """fraction of the variance of the latents within the plane"""

    def grid(self, extent: float, side: int) -> Tensor:
        """Latents on a side × side grid, row by row from the top left."""
        steps = torch.linspace(-extent, extent, side)
        y, x = torch.meshgrid(-steps, steps, indexing="ij")
        return self.o_Z + x.reshape(-1, 1) * self.a_Z + y.reshape(-1, 1) * self.b_Z  # (1)

    def project(self, z_NZ: Tensor) -> Tensor:
        """Coordinates x and y of the orthogonal projection of latents, N × 2."""
        axes_2Z = torch.stack([self.a_Z, self.b_Z])
        return (z_NZ - self.o_Z) @ axes_2Z.T / axes_2Z.square().sum(1).clamp(min=1e-12)


def choose_plane(args: PlaneArgs, run: Any, z_NZ: Tensor) -> Plane:
    """The requested plane through the mean of the latents."""
    has_encoder, Z = hasattr(run.learner.model, "encode"), z_NZ.shape[1]
    kind = args.plane
    if kind == "auto" or Z == 1:
        kind = "coordinates" if Z <= 2 else "principal" if has_encoder else "random"
    if kind == "principal" and not has_encoder:
        raise EngramError("Samples of the prior vary alike in all directions: choose coordinates or a random plane.")
    o_Z = z_NZ.mean(0) if has_encoder else torch.zeros(Z)
    centered_NZ = z_NZ - o_Z
    if kind == "coordinates":
        a_Z, b_Z = coordinate_axes(args, centered_NZ.std(0) if has_encoder else torch.ones(Z))
    elif kind == "principal":
        a_Z, b_Z = principal_axes(z_NZ)
    else:
        a_Z, b_Z = random_axes(centered_NZ, generator(args.seed, "plane"))
    chosen = Plane(kind, o_Z, a_Z, b_Z, 1.0)
    within = (chosen.project(z_NZ) * torch.stack([a_Z.norm(), b_Z.norm()])).square().sum()
    return chosen._replace(explained=(within / centered_NZ.square().sum().clamp(min=1e-12)).item())


def coordinate_axes(args: PlaneArgs, std_Z: Tensor) -> tuple[Tensor, Tensor]:
    """Axes along two coordinates of the latent, one standard deviation long."""
    Z = len(std_Z)
    if Z > 1 and (max(args.x_coordinate, args.y_coordinate) >= Z or args.x_coordinate == args.y_coordinate):
        raise EngramError(f"x_coordinate and y_coordinate must be two different numbers below {Z}, the latent_dim.")
    axes_ZZ = std_Z.clamp(min=1e-3).diag()
    return (axes_ZZ[args.x_coordinate], axes_ZZ[args.y_coordinate]) if Z > 1 else (axes_ZZ[0], torch.zeros(1))


def principal_axes(z_NZ: Tensor) -> tuple[Tensor, Tensor]:
    """Axes along the two principal components, one standard deviation long."""
    axes = pca(z_NZ).axes(2)
    return axes[0], axes[1] if len(axes) > 1 else torch.zeros_like(axes[0])


def random_axes(centered_NZ: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random orthogonal axes with the covariance of the latents.

    They are half as long as their root mean square norm.
    """
    a_Z, b_Z = torch.randn(2, len(centered_NZ), generator=random) @ centered_NZ
    b_Z = b_Z - (b_Z @ a_Z) / a_Z.square().sum().clamp(min=1e-12) * a_Z
    half = centered_NZ.square().sum(1).mean().sqrt() / 2
    return half * a_Z / a_Z.norm().clamp(min=1e-12), half * b_Z / b_Z.norm().clamp(min=1e-12)


def describe(run: Any, args: PlaneArgs, plane: Plane, z_NZ: Tensor) -> Response:
    """The plane, the projected latents with their labels, and the mean and spread of each coordinate."""
    model, data = run.learner.model, run.data
    has_encoder, config = hasattr(model, "encode"), model.config
    labels = data.test["label"][: len(z_NZ)].tolist() if has_encoder and "label" in data.test else []
    response: Response = {
        "kind": plane.kind, "latent_dim": config.latent_dim, "has_encoder": has_encoder,
        "is_image": config.is_image, "step": run.step, "shape": list(config.shape),
        "explained": plane.explained, "extent": args.extent, "items": len(data.test),
        "classes": list(data.classes) if labels else [], "labels": labels,
        "o": pack_array(plane.o_Z), "a": pack_array(plane.a_Z), "b": pack_array(plane.b_Z),
        "mean": pack_array(z_NZ.mean(0) if has_encoder else torch.zeros(config.latent_dim)),
        "std": pack_array(z_NZ.std(0) if has_encoder else torch.ones(config.latent_dim)),
        "projected": pack_array(plane.project(z_NZ)) if has_encoder else None,
    }  # fmt: skip
    if not config.is_image:
        response["real"] = pack_array(run.recipe.real_samples(data, "test", LATENTS))
    return response


_latents: WeakKeyDictionary[nn.Module, Tensor] = WeakKeyDictionary()


def encode_test_samples(run: Any) -> Generator[Response, None, Tensor]:
    """Latents of test samples, cached while the model is loaded; samples of the prior without an encoder."""
    model, recipe = run.learner.model, run.recipe
    if model not in _latents:
        parts = []
        if hasattr(model, "encode"):
            for x in recipe.real_samples(run.data, "test", LATENTS).split(CHUNK):
                with isolated_eval(model, 0):
                    parts.append(model.encode(x))
                yield {"encoded": sum(map(len, parts))}
        else:
            parts.append(some_latents(recipe, model, run.data, LATENTS))
        _latents[model] = check_finite(torch.cat(parts))
    return _latents[model]


# ---------------------------------------------------------------------- single latents and interpolation


@endpoint("latent.decode")
def decode(args: DecodeArgs, models: Models) -> Response:
    """Return the decoded latent, and of a GAN the discriminator's probability that it is real."""
    run = open_run(args, models)
    model = run.learner.model
    if len(args.z) != model.config.latent_dim:
        raise EngramError(f"z must be {model.config.latent_dim} numbers, the latent_dim, not {len(args.z)}.")
    response: Response = {}
    with isolated_eval(model, 0):
        x = model.decode(torch.tensor([args.z], dtype=torch.float32))
        if isinstance(model, GAN):
            response["real"] = torch.sigmoid(model.discriminate(x))[0].nan_to_num().item()
    return samples_json(model, x, 1) | response


@endpoint("latent.item")
def get_item(args: ItemArgs, models: Models) -> Response:
    """Return a test sample, its latent and its reconstruction."""
    run = open_run(args, models)
    model, data = run.learner.model, run.data
    with isolated_eval(model, 0):
        z_1Z = latent_of(run, args.item)
        reconstruction = samples_json(model, model.decode(z_1Z), 1)
    response: Response = {"z": pack_array(z_1Z[0]), "reconstruction": reconstruction}
    if not hasattr(model, "encode"):
        return response
    x = get_test_sample(run, args.item)
    label = int(data.test["label"][args.item]) if "label" in data.test and data.classes else None
    with isolated_eval(model, 0):
        error = (model(x) - x).square().mean().nan_to_num().item()
    name = data.classes[label] if label is not None else ""
    return response | {"original": samples_json(model, x, 1), "class": name, "error": error}


@endpoint("latent.interpolate")
def interpolate(args: InterpolationArgs, models: Models) -> Iterator[Response]:
    """Yield latents between those of two items, then their decoded samples."""
    run = open_run(args, models)
    model, config = run.learner.model, run.learner.model.config
    count = args.count if not config.is_image else min(args.count, max(2, MAX_PIXELS // config.numel))
    with isolated_eval(model, 0):
        first, last = latent_of(run, args.first), latent_of(run, args.last)
        linear = torch.lerp(first, last, torch.linspace(0, 1, count)[:, None])
        z_NZ = slerp(first, last, count) if args.method == "slerp" else linear
    yield {"z": pack_array(z_NZ)}
    with isolated_eval(model, 0):
        x = model.decode(z_NZ)
    yield samples_json(model, x, count)


def open_run(args: RunArgs, models: Models) -> Any:
    """Open a run, and refuse recipes without latents."""
    run = models.open(args.run, args.step)
    if run.recipe.SampleArgs is not LatentSampleArgs:
        raise EngramError(f"{args.run} is a run of {type(run.learner.model).__name__}, which has no latents.")
    return run


def get_test_sample(run: Any, number: int) -> Tensor:
    """One test sample as the model takes it, 1 × shape."""
    size = len(run.data.test)
    if number >= size:
        raise EngramError(f"item must be from 0 to {size - 1}, the size of the test split, not {number}.")
    return take_samples(run.data.test.select(torch.tensor([number])), sample_column(run.data), 1)


def latent_of(run: Any, number: int) -> Tensor:
    """Latent of a test sample; without an encoder, the sample of the prior with that seed."""
    model = run.learner.model
    if hasattr(model, "encode"):
        return check_finite(model.encode(get_test_sample(run, number)))
    return model.sample_latents(1, generator(number, "code"))


def check_finite(z_NZ: Tensor) -> Tensor:
    """Refuse latents that are NaN or infinite."""
    if not z_NZ.isfinite().all():
        raise EngramError("The latents of this checkpoint are not finite: its training diverged.")
    return z_NZ


def samples_json(model: Any, x: Tensor, columns: int, gap: int = 0) -> Response:
    """Samples as JSON: a grid of images as PNG, or an array of points."""
    if model.config.is_image:
        return {"image": data_url(png(grid(x, columns, gap)))}
    return {"points": pack_array(x)}
