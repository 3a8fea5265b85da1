"""Latent-variable models: samples, reconstructions, interpolation and latent maps."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.recipe import Sample, SampleArgs, SampleRequest
from engram.core.seeding import generator
from engram.data.dataset import Data, sample_column
from engram.generative.base import CHUNK, GenerativeRecipe, as_sample, decode_rows
from engram.plots import generative as views
from engram.plots.figure import Figure
from engram.plots.images import sheet

TINY = {
    "data": "digits", "hidden": (32,), "latent_dim": 4, "steps": 20, "eval_every": 10, "eval_samples": 100,
    "channels": (),
}  # fmt: skip
POINTS = {"data": "points", "channels": (), "hidden": (128, 128), "batch": 256}
CHANNELS = (32, 64)
INTERPOLATION_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class LatentSampleArgs(SampleArgs):
    """Flags of `engram sample` for latent-variable models."""

    show: Literal["samples", "reconstruction", "interpolation", "plane"] = "samples"
    """new samples; test samples and their reconstructions; interpolation between latents; a plane of latents"""


def sample_latent_model(recipe: GenerativeRecipe[Any], model: Any, data: Data, request: SampleRequest) -> Sample:
    """Answer `engram sample` for a model with latents."""
    count, args = request.count, request.args or LatentSampleArgs()
    if args.show == "samples":
        x = recipe.generate_chunks(model, count, request.generator)
        return decode_rows(as_sample(x, f"{count} new samples"), data)
    if args.show == "reconstruction":
        if not hasattr(model, "encode"):
            raise EngramError(f"{recipe.name} has no encoder, so that nothing can be reconstructed.")
        x = recipe.real_samples(data, "test", count)
        columns = min(len(x), 16)
        pairs = [torch.cat(pair) for pair in zip(x.split(columns), model(x).split(columns), strict=True)]
        return as_sample(torch.cat(pairs), f"{len(x)} test samples, each row above its reconstructions", columns)
    if args.show == "interpolation":
        rows = max(1, count // INTERPOLATION_STEPS)
        x = interpolate(recipe, model, data, rows, request.generator).flatten(0, 1)
        text = f"{rows} interpolations between latents, in {INTERPOLATION_STEPS} steps each"
        return as_sample(x, text, INTERPOLATION_STEPS)
    if sample_column(data) != "image":
        raise EngramError("A plane of latents is drawn for images: points have --show samples.")
    side = max(2, round(count**0.5))
    x = views.decode_plane(model.decode, some_latents(recipe, model, data, 2000), side)
    return as_sample(x, f"{side} × {side} latents on the plane of their two principal components", side)


def latent_figures(recipe: GenerativeRecipe[Any], model: Any, data: Data) -> Iterator[Figure]:
    """Reconstructions, latent map, latent plane and interpolation, as far as the model has them."""
    z_NZ = some_latents(recipe, model, data, 2000)
    if hasattr(model, "encode"):
        yield reconstruction_figure(recipe, model, data)
        labels = data.test["label"][: len(z_NZ)] if "label" in data.test else None
        if z_NZ.shape[1] > 1:
            yield views.latent_map(z_NZ, labels, data.classes)
    if sample_column(data) == "image":
        yield views.latent_plane(model.decode, z_NZ)
        x = interpolate(recipe, model, data, 4, generator(recipe.seed, "ways"))
        caption = "Decoded latents between those of two samples, left and right."
        yield Figure("Interpolation", caption, sheet(x.flatten(0, 1), INTERPOLATION_STEPS))


def reconstruction_figure(recipe: GenerativeRecipe[Any], model: Any, data: Data) -> Figure:
    """Test samples and their reconstructions."""
    if sample_column(data) == "image":
        x = recipe.real_samples(data, "test", 16)
        caption = "Test images above their reconstructions."
        return Figure("Reconstructions", caption, sheet(torch.cat([x, model(x)]), 16))
    x = recipe.real_samples(data, "test", 1000)
    figure = views.scatter({"real": x, "reconstructed": model(x)})
    return Figure("Reconstructions", "Test points and their reconstructions.", figure)


def some_latents(recipe: GenerativeRecipe[Any], model: Any, data: Data, count: int) -> Tensor:
    """Latents of test samples, or samples of the prior where there is no encoder."""
    if not hasattr(model, "encode"):
        return model.sample_latents(count, generator(recipe.seed, "codes"))
    return encode_chunks(model, recipe.real_samples(data, "test", count))


def interpolate(recipe: GenerativeRecipe[Any], model: Any, data: Data, rows: int, random: torch.Generator) -> Tensor:
    """Decoded latents between two random test samples, or two samples of the prior: rows × steps × shape."""
    if hasattr(model, "encode"):
        index = torch.randint(len(data.test), (2 * rows,), generator=random)
        z_NZ = encode_chunks(model, recipe.real_samples(data, "test", len(data.test))[index])
    else:
        z_NZ = model.sample_latents(2 * rows, random)
    z = torch.cat([slerp(a, b, INTERPOLATION_STEPS) for a, b in zip(z_NZ[:rows], z_NZ[rows:], strict=True)])
    return model.decode(z).unflatten(0, (rows, INTERPOLATION_STEPS))


def slerp(first: Tensor, last: Tensor, count: int) -> Tensor:
    """Spherical linear interpolation between two latents, `count` × Z."""
    t = torch.linspace(0, 1, count)[:, None]
    cosine = torch.nn.functional.cosine_similarity(first, last, dim=-1).clamp(-0.9999, 0.9999)
    angle = torch.arccos(cosine)
    return (torch.sin((1 - t) * angle) * first + torch.sin(t * angle) * last) / torch.sin(angle)


def encode_chunks(model: Any, x: Tensor) -> Tensor:
    """Encode samples, `CHUNK` at a time."""
    return torch.cat([model.encode(part) for part in x.split(CHUNK)])


def reconstruction_error(model: Any, x: Tensor) -> float:
    """Mean squared error of the reconstructions, per pixel or coordinate."""
    errors = [(model(part) - part).square().flatten(1).mean(1) for part in x.split(CHUNK)]
    return torch.cat(errors).mean().item()
