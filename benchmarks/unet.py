"""Training of a diffusion U-Net: engram beside lucidrains' denoising-diffusion-pytorch and diffusers.

All have the same images, noise and times, about 2.6 million parameters, noise prediction and AdamW at 1e-3. The note is
the loss on test images after the same number of steps.

denoising-diffusion-pytorch needs torchvision and accelerate for its data and trainer, which are not used here; where
they are missing, empty modules stand in for them: pip install --no-deps denoising-diffusion-pytorch ema-pytorch.
"""

import importlib.util
import math
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram import data
from engram.cli.bench import Contestant, Score
from engram.core.seeding import generator
from engram.generative.diffusion.model import Diffusion, build_schedule
from engram.generative.diffusion.unet import DenoiserConfig, UNet

BATCH, STEPS, TIMESTEPS = 64, 150, 1000
WORK = f"a U-Net of about 2.6 million parameters predicts the noise of MNIST digits, {STEPS} steps of {BATCH}"
UNIT = "images/s"
ROUNDS = 1


def batches(split: str, count: int, size: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Noisy images, times and noise, the same for every contestant."""
    random, schedule = generator(0, split), build_schedule(Diffusion.Config(timesteps=TIMESTEPS))
    image = data.load("mnist")[split]["image"]
    found = []
    for _ in range(count):
        x = image[torch.randint(len(image), (size,), generator=random)].float() / 127.5 - 1
        t, e = torch.randint(1, TIMESTEPS + 1, (size,), generator=random), torch.randn(x.shape, generator=random)
        found.append((schedule.add_noise(x, t, e), t, e))
    return found


Predict = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""predicts the noise from a network, noisy images and times"""


def training(build: Callable[[], tuple[nn.Module, Predict]]) -> Contestant:
    """A contestant that trains for all steps; the fastest step counts."""

    def ready() -> Callable[[], Score]:
        torch.manual_seed(0)
        net, predict = build()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
        train, test = batches("train", STEPS, BATCH), batches("test", 10, 100)

        def work() -> Score:
            fastest = math.inf
            for x, t, e in train:
                began = time.perf_counter()
                optimizer.zero_grad()
                F.mse_loss(predict(net, x, t), e).backward()
                optimizer.step()
                fastest = min(fastest, time.perf_counter() - began)
            net.eval()
            with torch.no_grad():
                loss = torch.stack([F.mse_loss(predict(net, x, t), e) for x, t, e in test]).mean()
            size = sum(weight.numel() for weight in net.parameters())
            return Score(BATCH / fastest, f"{size:,} parameters, test loss {loss:.4f}")

        return work

    return ready


def lucidrains() -> tuple[nn.Module, Predict]:
    absent = [name for name in ("torchvision", "accelerate") if importlib.util.find_spec(name) is None]
    for name in absent:
        sys.modules[name] = ModuleType(name)
        for part in ("transforms", "utils", "Accelerator"):
            setattr(sys.modules[name], part, object)
    try:
        from denoising_diffusion_pytorch import Unet
    finally:
        for name in absent:
            del sys.modules[name]
    return Unet(dim=32, dim_mults=(1, 2, 4), channels=1, flash_attn=False), lambda net, x, t: net(x, t)


def diffusers() -> tuple[nn.Module, Predict]:
    from diffusers import UNet2DModel

    net: Any = UNet2DModel(
        sample_size=28, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(32, 64, 128),
        norm_num_groups=8, down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
    )  # fmt: skip

    def predict(net: Any, x: Tensor, t: Tensor) -> Tensor:
        return net(x, t).sample

    return net, predict


def engram() -> tuple[nn.Module, Predict]:
    return UNet(DenoiserConfig()), lambda net, x, t: net(x, t / TIMESTEPS)


def contestants() -> dict[str, Contestant]:
    return {
        "denoising-diffusion-pytorch": training(lucidrains),
        "diffusers": training(diffusers),
        "engram": training(engram),
    }
