"""Time to loss: engram's GPT against nanoGPT, each with its own architecture, optimizer and schedule.

nanoGPT is reimplemented here with the CPU settings of its README, and a fused AdamW, which is faster than its own. The
time of evaluations does not count.
"""

import math
import time
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.cli.bench import Contestant, Score
from engram.core.errors import EngramError
from engram.data.corpus import Corpus, cover_windows
from engram.transformers.gpt.recipe import GPTRecipe

TARGET = 1.93
WORK = f"training on the characters of shakespeare, 4 layers of 128, context 64, batch 12, to a loss of {TARGET:.2f}"
UNIT = "trainings/h"
ROUNDS = 1
LAYERS, HEADS, WIDTH, CONTEXT, BATCH = 4, 4, 128, 64, 12
EVAL_TOKENS = 1 << 15

NANO_STEPS, NANO_WARMUP, NANO_LR, NANO_MIN_LR = 2000, 100, 1e-3, 1e-4
NANO_EVAL_STEPS = range(1500, NANO_STEPS + 1, 100)
"""steps after which the loss of nanoGPT is evaluated"""
ENGRAM_STEPS = 240
ENGRAM_EVAL_STEPS = range(210, ENGRAM_STEPS + 1, 10)
"""steps after which the loss of engram is evaluated: the last ones, when its learning rate is nearly 0"""


# ---------------------------------------------------------------------- nanoGPT


class NanoBlock(nn.Module):
    def __init__(self, width: int, heads: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        self.c_attn = nn.Linear(width, 3 * width, bias)
        self.c_proj = nn.Linear(width, width, bias)
        self.c_fc = nn.Linear(width, 4 * width, bias)
        self.c_down = nn.Linear(4 * width, width, bias)

    def forward(self, h_BTE: Tensor) -> Tensor:
        E = h_BTE.shape[2]
        parts = self.c_attn(self.ln_1(h_BTE)).split(E, 2)
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        y_BHTD = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h_BTE = h_BTE + self.c_proj(y_BHTD.transpose(1, 2).contiguous().view_as(h_BTE))
        return h_BTE + self.c_down(F.gelu(self.c_fc(self.ln_2(h_BTE))))


class NanoGPT(nn.Module):
    """GPT-2 of nanoGPT: weight tying, optional biases."""

    def __init__(self, vocabulary: int, context: int, layers: int, width: int, heads: int, bias: bool = False) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(NanoBlock(width, heads, bias) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width, bias=bias)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        for name, weight in self.named_parameters():
            if name.endswith(("c_proj.weight", "c_down.weight")):
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers))
            elif weight.ndim == 2:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, x_BT: Tensor) -> Tensor:
        h_BTE = self.wte(x_BT) + self.wpe(torch.arange(x_BT.shape[1]))
        for block in self.h:
            h_BTE = block(h_BTE)
        return self.lm_head(self.ln_f(h_BTE))


def nano_lr(step: int) -> float:
    """Learning rate: linear warmup, then cosine decay."""
    if step < NANO_WARMUP:
        return NANO_LR * (step + 1) / (NANO_WARMUP + 1)
    fallen = (step - NANO_WARMUP) / (NANO_STEPS - NANO_WARMUP)
    return NANO_MIN_LR + 0.5 * (1 + math.cos(math.pi * fallen)) * (NANO_LR - NANO_MIN_LR)


def nano(data: Corpus) -> tuple[nn.Module, Callable[[int], None]]:
    """Return the model, and a function that takes the training step of a given number."""
    torch.manual_seed(0)
    model = NanoGPT(data.tokenizer.vocab_size, CONTEXT, LAYERS, WIDTH, HEADS)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=NANO_LR, betas=(0.9, 0.99), fused=True)
    ids = data["train"].ids.long()

    def step(number: int) -> None:
        starts = torch.randint(len(ids) - CONTEXT, (BATCH,)).tolist()
        x_BT = torch.stack([ids[i : i + CONTEXT] for i in starts])
        y_BT = torch.stack([ids[i + 1 : i + 1 + CONTEXT] for i in starts])
        for group in optimizer.param_groups:
            group["lr"] = nano_lr(number)
        loss = F.cross_entropy(model(x_BT).flatten(0, 1), y_BT.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return model, step


# ---------------------------------------------------------------------- engram, and the contest


def engram_gpt(recipe: GPTRecipe, data: Corpus) -> tuple[nn.Module, Callable[[int], object]]:
    torch.manual_seed(recipe.seed)
    learner, batches = recipe.learner(data), recipe.batches(data)
    return learner.model, lambda number: learner.step(next(batches))


@torch.no_grad()
def validation_loss(model: nn.Module, data: Corpus) -> float:
    """Mean validation loss, over the same tokens for all models."""
    x_NT, y_NT = cover_windows(data["valid"], CONTEXT, EVAL_TOKENS)
    parts = zip(x_NT.split(128), y_NT.split(128), strict=True)
    total = sum(F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").item() for x, y in parts)
    return total / y_NT.numel()


def train_to_target(model: nn.Module, step: Callable[[int], object], evaluated: Iterable[int], data: Corpus) -> Score:
    """Train until an evaluated loss reaches the target; the score is how often that fits into an hour."""
    seconds, done, loss = 0.0, 0, math.inf
    for more in evaluated:
        began = time.perf_counter()
        for number in range(done, more):
            step(number)
        seconds, done = seconds + time.perf_counter() - began, more
        loss = validation_loss(model, data)
        if loss <= TARGET:
            return Score(3600 / seconds)
    reached = f"a validation loss of {loss:.3f} in {done} steps"
    raise EngramError(f"{type(model).__name__} reached {reached}, not the target of {TARGET:.2f}.")


def contestants() -> dict[str, Contestant]:
    recipe = GPTRecipe.from_preset("small", steps=ENGRAM_STEPS)
    data = recipe.load()

    def nanogpt() -> Callable[[], Score]:
        model, step = nano(data)
        return lambda: train_to_target(model, step, NANO_EVAL_STEPS, data)

    def engram() -> Callable[[], Score]:
        model, step = engram_gpt(recipe, data)
        return lambda: train_to_target(model, step, ENGRAM_EVAL_STEPS, data)

    return {"nanoGPT, its setting for a CPU": nanogpt, f"engram run gpt --steps {ENGRAM_STEPS}": engram}
