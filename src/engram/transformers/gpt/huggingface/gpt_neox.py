"""GPT-NeoX and Pythia: parallel blocks, LayerNorm, and RoPE of a part of each head."""

import torch

from engram.hub.family import HFConfig, Weights, map_layer
from engram.hub.rope_settings import read_rope, rotary_fraction, write_rope
from engram.nn.transformer_block import PROJECTIONS
from engram.transformers.gpt.huggingface import decoder
from engram.transformers.gpt.huggingface.decoder import biases, every_check, no_window, one_theta, register_decoder
from engram.transformers.gpt.model import GPT

LAYER = "gpt_neox.layers.*."
KEYS = {
    "embedding.weight": "gpt_neox.embed_in.weight",
    **map_layer(LAYER, {
        "attention_norm": "input_layernorm",
        "attention.q": "self_attn.q_proj",
        "attention.k": "self_attn.k_proj",
        "attention.v": "self_attn.v_proj",
        "attention.o": "attention.dense",
        "ff_norm": "post_attention_layernorm",
        "ff.up": "mlp.dense_h_to_4h",
        "ff.down": "mlp.dense_4h_to_h",
    }),
    "norm": "gpt_neox.final_layer_norm",
    "head.weight": "embed_out.weight",
}  # fmt: skip
FUSED, PARTS = ".attention.query_key_value.", tuple(f".self_attn.{name}_proj." for name in "qkv")


def unpack(weights: Weights, config: GPT.Config) -> Weights:
    """Split queries, keys and values, which alternate by head.

    A tensor of another shape is left for the error.
    """
    made, size = dict(weights), config.size_of_head
    for name in [name for name in weights if FUSED in name and len(weights[name]) % (3 * size) == 0]:
        parts = made.pop(name).unflatten(0, (-1, 3, size)).unbind(1)
        made |= {name.replace(FUSED, part): x.flatten(0, 1) for part, x in zip(PARTS, parts, strict=True)}
    return decoder.unpack(made, config)


def pack(weights: Weights, config: GPT.Config) -> Weights:
    """Fuse queries, keys and values."""
    made, size = decoder.pack(weights, config), config.size_of_head
    for name in [name for name in made if PARTS[0] in name]:
        parts = [made.pop(name.replace(PARTS[0], part)).unflatten(0, (-1, size)) for part in PARTS]
        made[name.replace(PARTS[0], FUSED)] = torch.stack(parts, 1).flatten(0, 2)
    return made


def fields(settings: HFConfig) -> HFConfig:
    """Fields of our config."""
    return {
        "position": "rotary",
        "norm": "layer",
        "residual": "parallel" if settings.get("use_parallel_residual", True) else "pre-norm",
        "qk_norm": "none",
        "bias": PROJECTIONS if settings.get("attention_bias", True) else ("ff",),
        "tie_embeddings": bool(settings.get("tie_word_embeddings", False)),
        "rope": read_rope(
            settings,
            settings.get("max_position_embeddings", 2048),
            theta=settings.get("rotary_emb_base", 10_000.0),
            fraction=rotary_fraction(settings, settings.get("rotary_pct", 0.25)),
        ),
    }


def extra_settings(config: GPT.Config) -> HFConfig:
    """Return further settings of config.json."""
    made = write_rope(config.rope, config.rope.theta[0])
    return {
        "use_parallel_residual": config.residual == "parallel",
        "attention_bias": "qkv" in config.bias,
        "attention_dropout": 0.0,
        "tie_word_embeddings": config.tie_embeddings,
        "rope_parameters": {"partial_rotary_factor": config.rope.rotary_fraction, **made},
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


register_decoder(
    "gpt_neox",
    "GPTNeoXForCausalLM",
    derive=fields,
    extra=extra_settings,
    unsupported=every_check(biases(PROJECTIONS, ("ff",)), no_window, one_theta),
    supported={
        **decoder.PLAIN, "norm": ("layer",), "residual": ("parallel", "pre-norm"), "kv_heads": (0,), "head_width": (0,),
        "activation": ("gelu", "gelu_tanh", "quick_gelu", "relu", "relu2", "silu"),
    },
    keys=KEYS,
    settings=(
        ("vocab_size", "vocabulary", 50432),
        ("max_position_embeddings", "context", 2048),
        ("hidden_size", "width", 6144),
        ("num_hidden_layers", "layers", 44),
        ("num_attention_heads", "heads", 64),
        ("intermediate_size", "ff_width", 24576),
        ("hidden_act", "activation", "gelu"),
        ("hidden_dropout", "dropout", 0.0),
        ("layer_norm_eps", "eps", 1e-5),
    ),
    unpack=unpack,
    pack=pack,
    partial=True,
    prefix="gpt_neox.",
    ties={"embed_out.weight": "gpt_neox.embed_in.weight"},
)  # fmt: skip
