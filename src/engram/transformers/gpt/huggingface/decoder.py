"""What Llama and its descendants share in config.json and in their keys."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from engram.hub.family import (
    Family,
    HFConfig,
    StoredTensor,
    Weights,
    from_hf_gate,
    map_layer,
    register_family,
    to_hf_gate,
)
from engram.hub.rope_settings import (
    largest_window,
    layer_types,
    read_rope,
    read_windows,
    to_halves,
    to_pairs,
    write_rope,
)
from engram.nn.position import RoPE
from engram.transformers.gpt.model import GPT

EMBEDDING = "model.embed_tokens.weight"
LAYER = "model.layers.*."
SETTINGS: tuple[tuple[str, str, Any], ...] = (
    ("vocab_size", "vocabulary", 32000),
    ("max_position_embeddings", "context", 2048),
    ("hidden_size", "width", 4096),
    ("num_hidden_layers", "layers", 32),
    ("num_attention_heads", "heads", 32),
    ("num_key_value_heads", "kv_heads", 0),
    ("head_dim", "head_width", 0),
    ("intermediate_size", "ff_width", 11008),
    ("rms_norm_eps", "eps", 1e-6),
)
KEYS: Mapping[str, str | StoredTensor] = {
    "embedding.weight": EMBEDDING,
    **map_layer(LAYER, {
        "attention_norm": "input_layernorm",
        "attention.q": "self_attn.q_proj",
        "attention.k": "self_attn.k_proj",
        "attention.v": "self_attn.v_proj",
        "attention.o": "self_attn.o_proj",
        "attention.q_norm": "self_attn.q_norm",
        "attention.k_norm": "self_attn.k_norm",
        "ff_norm": "post_attention_layernorm",
        "ff.gate": "mlp.gate_proj",
        "ff.up": "mlp.up_proj",
        "ff.down": "mlp.down_proj",
    }),
    "norm": "model.norm",
    "head.weight": "lm_head.weight",
}  # fmt: skip
ROTATED = tuple(f".self_attn.{name}" for name in ("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias",
                                                  "q_norm.weight", "k_norm.weight"))  # fmt: skip
PLAIN: Mapping[str, tuple[Any, ...]] = {
    "position": ("rotary",),
    "norm": ("rms",),
    "residual": ("pre-norm",),
    "activation": ("swiglu", "geglu", "geglu_tanh"),
    "qk_norm": ("none",),
    "attention_scale": (0.0,),
    "attention_softcap": (0.0,),
    "embedding_scale": (1.0,),
    "logit_softcap": (0.0,),
}
"""supported values of Llama"""


def fields(settings: HFConfig, **more: Any) -> HFConfig:
    """Return the fields of our config that all descendants of Llama derive in the same way."""
    activation = settings.get("hidden_act") or settings.get("hidden_activation") or "silu"
    layers = settings.get("num_hidden_layers", 32)
    return {
        "position": "rotary",
        "norm": "rms",
        "residual": "pre-norm",
        "qk_norm": "none",
        "bias": bias_of(settings),
        "activation": from_hf_gate(activation),
        "tie_embeddings": bool(settings.get("tie_word_embeddings", False)),
        "rope": read_rope(settings, settings.get("max_position_embeddings", 2048)),
        "attention_window": read_windows(settings, layers, settings.get("layer_types") or []),
        **more,
    }


def bias_of(settings: HFConfig) -> tuple[str, ...]:
    """Return the projections with biases."""
    attention = ("qkv", "out") if settings.get("attention_bias") else ()
    return (*attention, "ff") if settings.get("mlp_bias") else attention


def extra_settings(config: GPT.Config) -> HFConfig:
    """Return the settings of config.json that follow from several fields of ours."""
    return {
        "hidden_act": to_hf_gate(config.activation),
        "tie_word_embeddings": config.tie_embeddings,
        "rope_parameters": write_rope(config.rope, config.rope.theta[0]),
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


def windows(config: GPT.Config) -> HFConfig:
    """Return the settings of sliding windows by layer."""
    return {"sliding_window": largest_window(config), "layer_types": layer_types(config)}


def reorder(weights: Weights, config: GPT.Config, order: Callable[[Tensor, int, int], Tensor]) -> Weights:
    """Reorder the rows of queries and keys that RoPE rotates.

    A tensor of another shape is left for the error.
    """
    size = config.size_of_head
    rotated = 2 * int(size * config.rope.rotary_fraction / 2)
    made = dict(weights)
    for name, value in weights.items():
        if name.endswith(ROTATED) and value.dim() and len(value) % size == 0:
            made[name] = order(value, size, rotated)
    return made


def unpack(weights: Weights, config: GPT.Config) -> Weights:
    """Convert queries and keys of a checkpoint to ours."""
    return reorder(weights, config, to_pairs)


def pack(weights: Weights, config: GPT.Config) -> Weights:
    """Convert our queries and keys to those of a checkpoint."""
    return reorder(weights, config, to_halves)


def one_theta(config: GPT.Config) -> list[str]:
    """Say why layers of different RoPE have no counterpart."""
    thetas = sorted(set(config.rope.theta))
    return [f"theta must be the same in all layers, not {' and '.join(map(str, thetas))}"] if len(thetas) > 1 else []


def whole_heads(config: GPT.Config) -> list[str]:
    """Say why partial RoPE has no counterpart."""
    fraction = config.rope.rotary_fraction
    return [] if fraction == 1 else [f"rotary_fraction must be 1.0, not {fraction}"]


def biases(*allowed: tuple[str, ...]) -> Callable[[GPT.Config], list[str]]:
    """Return a check that biases are one of some sets of projections."""

    def check(config: GPT.Config) -> list[str]:
        if any(set(config.bias) == set(names) for names in allowed):
            return []
        choice = " or ".join(f"({', '.join(names)})" for names in allowed)
        return [f"bias must be {choice}, not ({', '.join(config.bias)})"]

    return check


def no_window(config: GPT.Config) -> list[str]:
    """Say why sliding windows have no counterpart."""
    return [] if not any(config.attention_window) else ["attention_window must be 0 in all layers"]


def every_check(*checks: Callable[[GPT.Config], list[str]]) -> Callable[[GPT.Config], list[str]]:
    """Return all reasons of several checks."""
    return lambda config: [reason for check in checks for reason in check(config)]


def register_decoder(
    name: str,
    architecture: str,
    *,
    derive: Callable[[HFConfig], HFConfig],
    extra: Callable[[GPT.Config], HFConfig],
    unsupported: Callable[[GPT.Config], list[str]],
    supported: Mapping[str, tuple[Any, ...]] = PLAIN,
    keys: Mapping[str, str | StoredTensor] = KEYS,
    settings: tuple[tuple[str, str, Any], ...] = SETTINGS,
    partial: bool = False,
    unpack: Callable[[Weights, GPT.Config], Weights] = unpack,
    pack: Callable[[Weights, GPT.Config], Weights] = pack,
    **more: Any,
) -> None:
    """Register a family of causal language models that differ from Llama in a few points.

    `partial` is RoPE's.
    """
    register_family(
        Family(
            name=name,
            model=GPT,
            architecture=lambda config: architecture,
            prefix=more.pop("prefix", "model."),
            key_mapping=keys,
            ties=more.pop("ties", {"lm_head.weight": EMBEDDING}),
            ignored_keys=(r"rotary_emb\.", r"\.masked_bias$", r"\.attention\.bias$", r"^score\."),
            always_affine=False,
            config_mapping=settings,
            supported_values=supported,
            derive_fields=lambda found, weights: derive(found),
            extra_settings=extra,
            find_unsupported=unsupported if partial else every_check(unsupported, whole_heads),
            unpack=unpack,
            pack=pack,
            **more,
        )
    )


def with_theta(rope: RoPE, theta: tuple[float, ...]) -> RoPE:
    """Return RoPE with another base for each layer."""
    return replace(rope, theta=theta)
