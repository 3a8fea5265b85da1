r"""NanoChat checkpoints: RMSNorm without gains, also of embedding, queries and keys, and ReLU².

Our default GPT has LayerNorm instead, which subtracts the mean first. Both are equal for vectors of mean 0, and every
use of its residual stream is normalized, so it is saved with these weights, which give the same model:

    \text{rows of}\ E,\ \text{columns of}\ W_o, W_d \leftarrow \text{themselves minus their mean over the width}     (1)
    W_q, W_k \leftarrow \text{themselves minus their mean over each head}     (2)
    W_q, W_k \leftarrow \text{rows}\ 0, 2, 4, ..., -1, -3, -5, ...\ \text{of each head}     (3)

    Symbols:
        E             token embedding
        W_q, W_k      query and key matrices
        W_o, W_d      output matrices of attention and feed-forward network
        D             head width

(1) keeps the residual stream at mean 0, (2) queries and keys. (3): its RoPE rotates pairs (x_i, x_{i + D/2}) in the
opposite direction, ours (x_2i, x_2i+1); a minus means a negated row. It normalizes after the rotation, which changes no
length.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from engram.hub.family import HFConfig, Weights, map_layer
from engram.hub.rope_settings import read_rope, to_halves, to_pairs, write_rope
from engram.transformers.gpt.huggingface.decoder import (
    EMBEDDING,
    LAYER,
    biases,
    every_check,
    no_window,
    one_theta,
    register_decoder,
)  # fmt: skip
from engram.transformers.gpt.model import GPT

RESIDUAL = ("o_proj.weight", "fc2.weight")
ROTATED = ("q_proj.weight", "k_proj.weight")


def negate_second(rows: Tensor, size: int) -> Tensor:
    """Negate the second half of the rows of each head, which turns the direction of its rotation."""
    first, second = rows.unflatten(0, (-1, size)).chunk(2, 1)
    return torch.cat([first, -second], 1).flatten(0, 1)


def pack(weights: Weights, config: GPT.Config) -> Weights:
    """Convert our weights to those of NanoChat, by (1) to (3)."""
    size = config.size_of_head
    centered: Callable[[Tensor, int], Tensor] = center if config.norm == "layer-no-affine" else lambda value, _: value
    made = dict(weights)
    for name, value in weights.items():
        if name == EMBEDDING:
            made[name] = centered(value, 1)  # (1)
        elif name.endswith(RESIDUAL):
            made[name] = centered(value, 0)  # (1)
        elif name.endswith(ROTATED):
            head_HDE = centered(value.unflatten(0, (-1, size)), 1)  # (2)
            made[name] = negate_second(to_halves(head_HDE.flatten(0, 1), size, size), size)  # (3)
    return made


def unpack(weights: Weights, config: GPT.Config) -> Weights:
    """Invert (3); a tensor of another shape is left for the error."""
    made, size = dict(weights), config.size_of_head
    for name, value in weights.items():
        if name.endswith(ROTATED) and value.dim() == 2 and len(value) % size == 0:
            made[name] = to_pairs(negate_second(value, size), size, size)
    return made


def center(value: Tensor, dim: int) -> Tensor:
    """Subtract the mean over a dimension."""
    return (value.double() - value.double().mean(dim, keepdim=True)).float()


def fields(settings: HFConfig) -> HFConfig:
    """Fields of our config."""
    return {
        "position": "rotary",
        "norm": "rms-no-affine",
        "residual": "pre-norm",
        "qk_norm": "rms-no-affine",
        "bias": ("qkv", "out") if settings.get("attention_bias") else (),
        "tie_embeddings": settings.get("tie_word_embeddings", False),
        "logit_softcap": settings.get("final_logit_softcapping", 15.0) or 0.0,
        "rope": read_rope(settings, settings.get("max_position_embeddings", 2048)),
    }


def extra_settings(config: GPT.Config) -> HFConfig:
    """Return further settings of config.json."""
    return {
        "rope_parameters": write_rope(config.rope, config.rope.theta[0]),
        "final_logit_softcapping": config.logit_softcap or None,
        "attention_bias": False,
        "tie_word_embeddings": config.tie_embeddings and config.norm == "rms-no-affine",  # a centered one is apart
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


def same_norms(config: GPT.Config) -> list[str]:
    """Say why norms of two kinds, or a LayerNorm of another eps than QK-norm's, have no counterpart."""
    if config.norm != config.qk_norm:
        return [f"qk_norm must be {config.norm}, not {config.qk_norm}"]
    other = config.norm == "layer-no-affine" and config.eps != 1e-5
    return [f"eps must be 1e-05, not {config.eps}"] if other else []


register_decoder(
    "nanochat",
    "NanoChatForCausalLM",
    derive=fields,
    extra=extra_settings,
    unsupported=every_check(biases(()), no_window, one_theta, same_norms),
    supported={
        "position": ("rotary",),
        "norm": ("layer-no-affine", "rms-no-affine"),
        "residual": ("pre-norm",),
        "attention_scale": (0.0,),
        "attention_softcap": (0.0,),
        "embedding_scale": (1.0,),
        "head_width": (0,),
    },
    keys={
        "embedding.weight": EMBEDDING,
        **map_layer(
            LAYER,
            {
                "attention.q": "self_attn.q_proj",
                "attention.k": "self_attn.k_proj",
                "attention.v": "self_attn.v_proj",
                "attention.o": "self_attn.o_proj",
                "ff.up": "mlp.fc1",
                "ff.down": "mlp.fc2",
            },
        ),
        "head.weight": "lm_head.weight",
    },
    settings=(
        ("vocab_size", "vocabulary", 50304),
        ("max_position_embeddings", "context", 2048),
        ("hidden_size", "width", 768),
        ("num_hidden_layers", "layers", 12),
        ("num_attention_heads", "heads", 6),
        ("num_key_value_heads", "kv_heads", 0),
        ("intermediate_size", "ff_width", 8192),
        ("hidden_act", "activation", "relu2"),
        ("rms_norm_eps", "eps", 1e-6),
    ),
    unpack=unpack,
    pack=pack,
)
