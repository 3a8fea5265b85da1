"""Autoregressive generation with GPT-2: transformers, engram, and the limit of memory bandwidth.

Every token needs every weight once, so the rate is bound by memory bandwidth. The last contestant only reads the fp32
weights, once per token; int8 weights raise that limit nearly fourfold.
"""

import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from engram.cli.bench import Contestant
from engram.core.errors import EngramError
from engram.generation.quantization import quantize
from engram.generation.sampling import GREEDY
from engram.hub import huggingface

PROMPT, NEW = 16, 64
WORK = (
    f"GPT-2 small with random weights, greedy, prompt of {PROMPT} and {NEW} new tokens, batch 1; "
    "last row: bandwidth limit"
)
UNIT = "tokens/s"
SIZE: dict[str, Any] = {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}


def contestants() -> dict[str, Contestant]:
    return contest(SIZE, NEW)


def contest(size: dict[str, Any], new: int) -> dict[str, Contestant]:
    """Return all contestants, for one set of random weights of this size."""
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    torch.manual_seed(0)
    config = GPT2Config(**size, initializer_range=0.02, bos_token_id=None, eos_token_id=None)
    config._attn_implementation = "sdpa"
    peer = GPT2LMHeadModel(config).eval()
    model = convert(peer)
    quantized = quantize(model)
    flat = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    prompt_1T = torch.randint(size["vocab_size"], (1, PROMPT))

    @torch.no_grad()
    def transformers() -> float:
        made: Any = peer.generate(  # type: ignore[operator]
            prompt_1T,
            attention_mask=torch.ones_like(prompt_1T),
            max_new_tokens=new,
            do_sample=False,
            use_cache=True,
            pad_token_id=0,
        )
        return count_tokens(made[0, PROMPT:].tolist())

    def engram(model: nn.Module) -> float:
        return count_tokens(model.generate(prompt_1T.tolist(), new, GREEDY)[0])  # type: ignore[operator]

    def count_tokens(tokens: list[int]) -> float:
        assert len(tokens) == new
        return new

    def read_weights() -> float:
        for _ in range(new):
            flat.sum()
        return new

    check_logits(peer, model, prompt_1T)
    return {
        "transformers generate, cached, SDPA": lambda: transformers,
        "engram, fp32": lambda: lambda: engram(model),
        "engram, int8": lambda: lambda: engram(quantized),
        "limit: reading all fp32 weights at the bandwidth of this machine": lambda: read_weights,
    }


def convert(peer: Any) -> nn.Module:
    """Return engram's GPT with the same weights."""
    with tempfile.TemporaryDirectory() as folder:
        peer.save_pretrained(folder)
        return huggingface.load_checkpoint(folder).model


@torch.no_grad()
def check_logits(peer: Callable[[Tensor], Any], model: Callable[[Tensor], Tensor], x_BT: Tensor) -> None:
    difference = (peer(x_BT).logits - model(x_BT)).abs().max().item()
    if difference > 1e-4:
        raise EngramError(f"The models must be the same, but their logits differ by {difference:.1e}.")
