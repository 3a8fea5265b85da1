r"""ONNX signature of diffusion's denoising network.

x_t, t (B), label (B, with classes) → noise, as x_t.

    \epsilon = s_t x_t + a_t v = (x_t - a_t x_0) / s_t      noise, from predicted velocity or clean sample      (1)

    Symbols:
        x_t, x_0       noisy and clean sample, normalized
        v, \epsilon    velocity, noise
        a_t, s_t       signal and noise at time t
        B              batch

The metadata has `alphas_cumprod`, a_t^2 at the times 0 … T, so any sampler can be written around the file.
"""

import json

import torch
from torch import Tensor, nn

from engram.generative.diffusion.model import Diffusion
from engram.hub.onnx import Input, Signature, onnx_signature


@onnx_signature(Diffusion)
def signature(model: Diffusion) -> Signature:
    config, batch = model.config, {0: "batch"}
    size, pixels = " × ".join(map(str, config.shape)), " of pixels from 0 to 1" if config.is_image else ""
    normalized = f"normalized, (x - {config.center:g}) / {config.scale:g}{pixels}"
    inputs = {
        "x_t": Input(torch.zeros(2, *config.shape), batch, f"noisy samples, float32, batch × {size}: {normalized}"),
        "t": Input(torch.tensor([1, 2]), batch, f"times, int64, batch: from 1 to {config.timesteps}"),
    }
    if config.classes:
        description = f"classes, int64, batch: from 0 to {config.classes - 1}, or -1 for none"
        inputs["label"] = Input(torch.tensor([0, -1]), batch, description)
    outputs = {"noise": f"predicted noise epsilon, batch × {size}; x_0 = (x_t - sqrt(1 - A) epsilon) / sqrt(A), "
                        "where A is alphas_cumprod at t"}  # fmt: skip
    metadata = {"alphas_cumprod": json.dumps(model.schedule.a.square().tolist())}
    return Signature(inputs, outputs, NoisePrediction, config.classes, metadata)


class NoisePrediction(nn.Module):
    """Denoising network as a module that returns the predicted noise, whatever it was trained to predict."""

    def __init__(self, model: Diffusion) -> None:
        super().__init__()
        self.model = model

    def forward(self, x_t: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        predicted = self.model(x_t, t, label)
        a, s = self.model.schedule.levels_like(x_t, t)
        if self.model.config.prediction == "velocity":
            return s * x_t + a * predicted  # (1)
        return predicted if self.model.config.prediction == "noise" else (x_t - a * predicted) / s  # (1)
