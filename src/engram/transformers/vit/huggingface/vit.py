"""ViT checkpoints; one without a classifier becomes a model of 0 classes, for `encode` alone."""

from typing import Any

from engram.core.errors import EngramError
from engram.hub.family import CLASSIC, Family, HFConfig, StoredTensor, Weights, map_layer, register_family
from engram.nn.transformer_block import PROJECTIONS
from engram.transformers.vit.model import ViT

EMBEDDINGS = "vit.embeddings."


def height_and_width(settings: HFConfig, name: str, default: int) -> tuple[int, int]:
    """Return height and width of a setting; a single number is both."""
    value = settings.get(name, default)
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def derive_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Shape, patch size, number of classes and projections with biases."""
    height, width = height_and_width(settings, "image_size", 224)
    patch, other = height_and_width(settings, "patch_size", 16)
    if patch != other:
        raise EngramError(f"patches must be square, not {patch} × {other}.")
    return {
        "shape": (settings.get("num_channels", 3), height, width),
        "patch": patch,
        "classes": len(weights["classifier.weight"]) if "classifier.weight" in weights else 0,
        "bias": PROJECTIONS if settings.get("qkv_bias", True) else ("out", "ff"),
    }


def extra_settings(config: ViT.Config) -> HFConfig:
    """Further settings of config.json."""
    channels, height, width = config.shape
    return {
        "num_channels": channels,
        "image_size": height if height == width else [height, width],
        "patch_size": config.patch,
        "encoder_stride": config.patch,
        "qkv_bias": "qkv" in config.bias,
        "attention_probs_dropout_prob": 0.0,
    }


def unpack(weights: Weights, config: ViT.Config) -> Weights:
    """Add an empty classifier to a checkpoint without one."""
    if config.classes:
        return weights
    empty = {"classifier.weight": next(iter(weights.values())).new_empty(0, config.pooled_width)}
    return {**weights, **empty, "classifier.bias": empty["classifier.weight"].new_empty(0)}


def pack(weights: Weights, config: ViT.Config) -> Weights:
    """Drop an empty classifier, and zeros that stand for biases of q, k and v where ours has none."""
    absent = () if "qkv" in config.bias else (".query.bias", ".key.bias", ".value.bias")
    named = ("classifier.",) if not config.classes else ()
    return {name: value for name, value in weights.items() if not (name.endswith(absent) or name.startswith(named))}


SUPPORTED: dict[str, tuple[Any, ...]] = {
    **CLASSIC,
    "residual": ("pre-norm",),
    "distillation": ("none",),
    "pooling": ("cls",),
    "layer_scale": (0.0,),
    "sizes": ("one",),
}
VIT = Family(
    name="vit",
    model=ViT,
    architecture=lambda config: "ViTForImageClassification" if config.classes else "ViTModel",
    prefix="vit.",
    processor="ViTImageProcessor",
    key_mapping={
        "patches.cls_token": StoredTensor(f"{EMBEDDINGS}cls_token", leading_ones=2),
        "patches.position": StoredTensor(f"{EMBEDDINGS}position_embeddings", leading_ones=1),
        "patches.project": f"{EMBEDDINGS}patch_embeddings.projection",
        **map_layer("vit.encoder.layer.*.", {
            "attention_norm": "layernorm_before",
            "attention.q": "attention.attention.query",
            "attention.k": "attention.attention.key",
            "attention.v": "attention.attention.value",
            "attention.o": "attention.output.dense",
            "ff_norm": "layernorm_after",
            "ff.up": "intermediate.dense",
            "ff.down": "output.dense",
        }),
        "norm": "vit.layernorm",
        "head": "classifier",
    },
    ignored_keys=(r"^vit\.pooler\.", r"mask_token$", r"^decoder\."),
    config_mapping=(
        ("hidden_size", "width", 768),
        ("num_hidden_layers", "layers", 12),
        ("num_attention_heads", "heads", 12),
        ("intermediate_size", "ff_width", 3072),
        ("hidden_act", "activation", "gelu"),
        ("hidden_dropout_prob", "dropout", 0.0),
        ("layer_norm_eps", "eps", 1e-12),
    ),
    supported_values=SUPPORTED,
    derive_fields=derive_fields,
    extra_settings=extra_settings,
    unpack=unpack,
    pack=pack,
)  # fmt: skip
register_family(VIT)
