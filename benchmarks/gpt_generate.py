"""Text from a GPT-2, token by token: transformers, engram, and how quickly weights can be read at all.

Every token needs every weight once, so what bounds the rate is the bandwidth of memory. The last contestant only reads
the fp32 weights, once for each token; eight bits move that limit by nearly four.
"""

import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from engram.bench import Contestant
from engram.core.errors import EngramError
from engram.interop import huggingface
from engram.layers.decoding import GREEDY
from engram.layers.int8 import quantised

PROMPT, NEW = 16, 64
WORK = (
    f"GPT-2 small with random weights, greedy, prompt of {PROMPT} and {NEW} new tokens, batch 1; "
    "last, the limit of bandwidth"
)
UNIT = "tokens/s"
SIZE: dict[str, Any] = {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}


def contestants() -> dict[str, Contestant]:
    return contest(SIZE, NEW)


def contest(size: dict[str, Any], new: int) -> dict[str, Contestant]:
    """All contestants with one set of weights of any size."""
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    torch.manual_seed(0)
    config = GPT2Config(**size, initializer_range=0.02, bos_token_id=None, eos_token_id=None)
    config._attn_implementation = "sdpa"
    peer = GPT2LMHeadModel(config).eval()
    model = same(peer)
    small = quantised(model)
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
        return checked(made[0, PROMPT:].tolist())

    def engram(model: nn.Module) -> float:
        return checked(model.generate(prompt_1T.tolist(), new, GREEDY)[0])  # type: ignore[operator]

    def checked(tokens: list[int]) -> float:
        assert len(tokens) == new
        return new

    def reading() -> float:
        for _ in range(new):
            flat.sum()
        return new

    agree(peer, model, prompt_1T)
    return {
        "transformers generate, cached, SDPA": lambda: transformers,
        "engram, fp32": lambda: lambda: engram(model),
        "engram, int8": lambda: lambda: engram(small),
        "limit: reading all fp32 weights at the bandwidth of this machine": lambda: reading,
    }


def same(peer: Any) -> nn.Module:
    """The same weights in engram's GPT."""
    with tempfile.TemporaryDirectory() as folder:
        peer.save_pretrained(folder)
        return huggingface.read(folder).model


@torch.no_grad()
def agree(peer: Callable[[Tensor], Any], model: Callable[[Tensor], Tensor], x_BT: Tensor) -> None:
    apart = (peer(x_BT).logits - model(x_BT)).abs().max().item()
    if apart > 1e-4:
        raise EngramError(f"The models are to be the same, and their logits differ by {apart:.1e}.")
