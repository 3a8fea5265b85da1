"""Training step of GPT-2 at equal architecture; nanoGPT alone has the exact GELU instead of the tanh form."""

import copy
import tempfile
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.cli import bench
from engram.cli.bench import Contestant
from engram.core.errors import EngramError
from engram.hub import huggingface

WORK = "training step of GPT-2, 6 layers of 384, context 256, batch 12, vocabulary 65: forward, backward, fused AdamW"
UNIT = "tokens/s"
LAYERS, WIDTH, HEADS, CONTEXT, BATCH, VOCABULARY = 6, 384, 6, 256, 12, 65
STEPS = 8


def contestants() -> dict[str, Contestant]:
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    torch.manual_seed(0)
    window_BT = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1))
    x_BT, y_BT = window_BT[:, :-1].contiguous(), window_BT[:, 1:].contiguous()
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, attn_pdrop=0.0,
        resid_pdrop=0.0, embd_pdrop=0.0, use_cache=False, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    config._attn_implementation = "sdpa"

    peer = GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as folder:
        peer.save_pretrained(folder)
        same = huggingface.load_checkpoint(folder).model

    def make_training(model: nn.Module, logits: Callable[[Tensor], Tensor]) -> Callable[[], float]:
        """Return work of some training steps, after a first one that allocates the optimizer state."""
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

        def step() -> None:
            loss = F.cross_entropy(logits(x_BT).flatten(0, 1), y_BT.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        def work() -> float:
            for _ in range(STEPS):
                step()
            return STEPS * x_BT.numel()

        step()
        return work

    def transformers() -> Callable[[], float]:
        model = copy.deepcopy(peer)
        return make_training(model, lambda x_BT: model(x_BT).logits)

    def engram() -> Callable[[], float]:
        model = copy.deepcopy(same)
        return make_training(model, model)

    def nanogpt() -> Callable[[], float]:
        model = bench.load("gpt-loss").NanoGPT(VOCABULARY, CONTEXT, LAYERS, WIDTH, HEADS, bias=True)
        return make_training(model, model)

    with torch.no_grad():
        difference = (peer.eval()(x_BT).logits - same(x_BT)).abs().max().item()
    if difference > 1e-4:
        raise EngramError(f"The models must be the same, but their logits differ by {difference:.1e}.")
    return {"transformers GPT2LMHeadModel, SDPA": transformers, "engram GPT": engram, "nanoGPT": nanogpt}
