"""SigLIP checkpoints: CLIP with attention pooling, a text encoder not causal, a sigmoid loss."""

from typing import Any

import torch

from engram.core.errors import EngramError
from engram.hub.family import (
    Family,
    HFConfig,
    StoredTensor,
    Weights,
    get_setting,
    map_layer,
    register_family,
    to_hf_activation,
)
from engram.transformers.clip.huggingface.clip import LAYER
from engram.transformers.clip.model import CLIP

IN_PROJ = "vision_model.head.attention.in_proj_"
QKV = tuple(f"vision_model.head.attention.{name}_proj." for name in "qkv")
TENSORS: dict[str, str | StoredTensor] = {
    "image.patches.position": "vision_model.embeddings.position_embedding.weight",
    "image.patches.project": "vision_model.embeddings.patch_embedding",
    **map_layer("vision_model.encoder.layers.*.", LAYER, "image.blocks.*."),
    "image.norm": "vision_model.post_layernorm",
    "image.pool.query": StoredTensor("vision_model.head.probe", leading_ones=2),
    "image.pool.attention.q": QKV[0].rstrip("."),
    "image.pool.attention.k": QKV[1].rstrip("."),
    "image.pool.attention.v": QKV[2].rstrip("."),
    "image.pool.attention.o": "vision_model.head.attention.out_proj",
    "image.pool.norm": "vision_model.head.layernorm",
    "image.pool.ff.up": "vision_model.head.mlp.fc1",
    "image.pool.ff.down": "vision_model.head.mlp.fc2",
    "text.embedding.weight": "text_model.embeddings.token_embedding.weight",
    "text.position": "text_model.embeddings.position_embedding.weight",
    **map_layer("text_model.encoder.layers.*.", LAYER, "text.blocks.*."),
    "text.norm": "text_model.final_layer_norm",
    "text.project": "text_model.head",
    "scale": StoredTensor("logit_scale", leading_ones=1),
    "bias": StoredTensor("logit_bias", leading_ones=1),
}


def derive_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Fields that depend on several settings; refuse encoders that differ, and one encoder alone."""
    for name, default in (("hidden_act", "gelu_pytorch_tanh"), ("layer_norm_eps", 1e-6)):
        vision, text = (get_setting(settings, f"{kind}_config.{name}", default) for kind in ("vision", "text"))
        if vision != text:
            raise EngramError(f"both encoders must have the same {name}, not {vision!r} and {text!r}.")
    for kind in ("vision", "text"):
        if not any(name.startswith(f"{kind}_model.") for name in weights):
            raise EngramError(f"it has no {kind} encoder, and CLIP has both.")
    text_width = get_setting(settings, "text_config.hidden_size", 768)
    side = get_setting(settings, "vision_config.image_size", 224)
    return {
        "shape": (get_setting(settings, "vision_config.num_channels", 3), side, side),
        "projection_dim": get_setting(settings, "text_config.projection_size", text_width),
        "image_pooling": "attention",
        "text_pooling": "last",
        "loss": "sigmoid",
    }


def extra_settings(config: CLIP.Config) -> HFConfig:
    """Further settings of config.json."""
    return {
        "text_config.hidden_act": to_hf_activation(config.activation),
        "text_config.layer_norm_eps": config.eps,
        "text_config.projection_size": config.projection_dim,
        "text_config.bos_token_id": None,
        "vision_config.num_channels": config.shape[0],
        "vision_config.image_size": config.shape[1],
    }


def unpack(weights: Weights, config: CLIP.Config) -> Weights:
    """Split queries, keys and values of attention pooling.

    A matrix of another shape is left for the error.
    """
    made = dict(weights)
    for name in [name for name in weights if name.startswith(IN_PROJ) and len(weights[name]) == 3 * config.width]:
        parts = zip(QKV, made.pop(name).chunk(3), strict=True)
        made |= {part + name.removeprefix(IN_PROJ): value for part, value in parts}
    return made


def pack(weights: Weights, config: CLIP.Config) -> Weights:
    """Fuse queries, keys and values of attention pooling."""
    made = {name: value for name, value in weights.items() if not name.startswith(QKV)}
    fused = {IN_PROJ + leaf: torch.cat([weights[part + leaf] for part in QKV]) for leaf in ("weight", "bias")}
    return {**made, **fused}


def find_unsupported(config: CLIP.Config) -> list[str]:
    """Reasons why a config has no counterpart."""
    height, width = config.shape[1:]
    return [] if height == width else [f"shape must be square, not {height} × {width}"]


SUPPORTED: dict[str, tuple[Any, ...]] = {
    "image_pooling": ("attention",),
    "text_pooling": ("last",),
    "loss": ("sigmoid",),
}

register_family(
    Family(
        name="siglip",
        model=CLIP,
        architecture=lambda config: "SiglipModel",
        processor="SiglipImageProcessor",
        inputs=("input_ids",),
        key_mapping=TENSORS,
        config_mapping=(
            ("vision_config.hidden_size", "width", 768),
            ("vision_config.num_hidden_layers", "layers", 12),
            ("vision_config.num_attention_heads", "heads", 12),
            ("vision_config.intermediate_size", "ff_width", 3072),
            ("vision_config.patch_size", "patch", 16),
            ("vision_config.hidden_act", "activation", "gelu_pytorch_tanh"),
            ("vision_config.layer_norm_eps", "eps", 1e-6),
            ("text_config.hidden_size", "text_width", 768),
            ("text_config.num_hidden_layers", "text_layers", 12),
            ("text_config.num_attention_heads", "text_heads", 12),
            ("text_config.intermediate_size", "text_ff_width", 3072),
            ("text_config.vocab_size", "vocabulary", 32000),
            ("text_config.max_position_embeddings", "context", 64),
            ("text_config.pad_token_id", "pad_id", 1),
            ("text_config.eos_token_id", "eos_id", 49407),
        ),
        fixed_settings={"vision_config.vision_use_head": True},
        supported_values=SUPPORTED,
        derive_fields=derive_fields,
        extra_settings=extra_settings,
        unpack=unpack,
        pack=pack,
        find_unsupported=find_unsupported,
    )
)
