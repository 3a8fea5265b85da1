"""Teaching a U-Net to take noise away: engram beside lucidrains' denoising-diffusion-pytorch and diffusers.

The same pictures, noise and times for all, about 2.6 million parameters each, noise to be told, AdamW at 1e-3. The note
says what each has learnt after the steps that all take: the loss on test pictures that none has seen.

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
from engram.bench import Contestant, Score
from engram.core.seeding import generator
from engram.models.denoiser import Denoising, UNet
from engram.models.diffusion import Diffusion, schedule

BATCH, STEPS, LEVELS = 64, 150, 1000
WORK = f"a U-Net of about 2.6 million parameters learns to tell the noise of MNIST digits, {STEPS} steps of {BATCH}"
UNIT = "images/s"
ROUNDS = 1


def batches(split: str, count: int, size: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """What is noisy, when, and the noise: the same for every contestant."""
    random, levels = generator(0, split), schedule(Diffusion.Config(levels=LEVELS))
    image = data.load("mnist")[split]["image"]
    found = []
    for _ in range(count):
        x = image[torch.randint(len(image), (size,), generator=random)].float() / 127.5 - 1
        t, e = torch.randint(1, LEVELS + 1, (size,), generator=random), torch.randn(x.shape, generator=random)
        found.append((levels.noisy(x, t, e), t, e))
    return found


Ask = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""a network, what is noisy and when, to the noise"""


def learning(build: Callable[[], tuple[nn.Module, Ask]]) -> Contestant:
    """A contestant: it learns for all steps, and the quickest of them counts."""

    def ready() -> Callable[[], Score]:
        torch.manual_seed(0)
        net, ask = build()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
        train, test = batches("train", STEPS, BATCH), batches("test", 10, 100)

        def work() -> Score:
            quickest = math.inf
            for x, t, e in train:
                began = time.perf_counter()
                optimizer.zero_grad()
                F.mse_loss(ask(net, x, t), e).backward()
                optimizer.step()
                quickest = min(quickest, time.perf_counter() - began)
            net.eval()
            with torch.no_grad():
                loss = torch.stack([F.mse_loss(ask(net, x, t), e) for x, t, e in test]).mean()
            size = sum(weight.numel() for weight in net.parameters())
            return Score(BATCH / quickest, f"{size:,} parameters, test loss {loss:.4f}")

        return work

    return ready


def lucidrains() -> tuple[nn.Module, Ask]:
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


def diffusers() -> tuple[nn.Module, Ask]:
    from diffusers import UNet2DModel

    net: Any = UNet2DModel(
        sample_size=28, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(32, 64, 128),
        norm_num_groups=8, down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
    )  # fmt: skip

    def ask(net: Any, x: Tensor, t: Tensor) -> Tensor:
        return net(x, t).sample

    return net, ask


def engram() -> tuple[nn.Module, Ask]:
    return UNet(Denoising()), lambda net, x, t: net(x, t / LEVELS)


def contestants() -> dict[str, Contestant]:
    return {
        "denoising-diffusion-pytorch": learning(lucidrains),
        "diffusers": learning(diffusers),
        "engram": learning(engram),
    }
