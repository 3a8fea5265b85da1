"""Figures of a restricted Boltzmann machine: a Gibbs chain, and images inpainted from their upper half."""

import torch
from torch import Tensor

from engram.memory.rbm.model import RBM
from engram.nn.bernoulli import sample_bernoulli
from engram.plots import images
from engram.plots.figure import Figure
from engram.plots.generative import filmstrip

CHAIN_STEPS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)
INPAINT_STEPS = 200


def gibbs_chain(rbm: RBM, shape: tuple[int, ...], generator: torch.Generator) -> Figure:
    """Visible probabilities of four Gibbs chains from noise, after more and more steps."""
    v, frames, before = sample_bernoulli(torch.full((4, rbm.config.visible), 0.5), generator), [], 0
    for steps in CHAIN_STEPS:
        v = rbm.gibbs(v, steps - before, generator)
        frames.append(rbm.prob_visible(rbm.prob_hidden(v)) if steps else v)
        before = steps
    caption = "Four Gibbs chains from noise, after this many steps."
    image = torch.stack(frames, 1).view(4, -1, *shape)
    return filmstrip(image, [str(steps) for steps in CHAIN_STEPS], "Gibbs chain", caption)


def inpainting(rbm: RBM, v_NV: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Figure:
    """Images, their upper half, and three samples of the lower one."""
    caption = f"Test images, their upper half, and three samples of the lower half after {INPAINT_STEPS} Gibbs steps."
    return Figure("Inpainting", caption, images.sheet(inpaint_lower_half(rbm, v_NV, shape, generator), len(v_NV)))


def inpaint_lower_half(rbm: RBM, v_NV: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Five rows of N images: the originals, their upper half, and three samples of the lower one."""
    known = (torch.arange(shape[1]) < shape[1] // 2)[:, None].expand(shape).reshape(-1).expand_as(v_NV)
    samples = [rbm.inpaint(v_NV, known, INPAINT_STEPS, generator) for _ in range(3)]
    return torch.cat([v_NV, torch.where(known, v_NV, 0.5), *samples]).view(-1, *shape)
