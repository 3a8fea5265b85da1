"""A training step of a Vision Transformer at equal architecture."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.cli.bench import Contestant
from engram.transformers.vit.model import ViT

WORK = "training step of ViT-Tiny, patches of 4 × 4, on 3 × 32 × 32, batch 64: forward, backward, fused AdamW"
UNIT = "images/s"
LAYERS, WIDTH, HEADS, PATCH, SIDE, BATCH, CLASSES = 12, 192, 3, 4, 32, 64, 10
STEPS = 8


def contestants() -> dict[str, Contestant]:
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    x_BCHW, y_B = torch.rand(BATCH, 3, SIDE, SIDE), torch.randint(CLASSES, (BATCH,))
    config = ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=4 * WIDTH,
        image_size=SIDE, patch_size=PATCH,
    )  # fmt: skip
    config.num_labels = CLASSES
    config._attn_implementation = "sdpa"

    def make_training(model: nn.Module, logits: Callable[[Tensor], Tensor]) -> Callable[[], float]:
        """Return work of some training steps, after a first one that allocates the optimizer state."""
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

        def step() -> None:
            loss = F.cross_entropy(logits(x_BCHW), y_B)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        def work() -> float:
            for _ in range(STEPS):
                step()
            return STEPS * BATCH

        step()
        return work

    def transformers() -> Callable[[], float]:
        model = ViTForImageClassification(config)
        return make_training(model, lambda x_BCHW: model(x_BCHW).logits)

    def engram() -> Callable[[], float]:
        shape = (3, SIDE, SIDE)
        size = {"width": WIDTH, "layers": LAYERS, "heads": HEADS, "patch": PATCH, "classes": CLASSES}
        model = ViT(ViT.Config(shape=shape, **size))  # type: ignore[arg-type]
        return make_training(model, model)

    return {"transformers ViTForImageClassification, SDPA": transformers, "engram ViT": engram}
