"""DINOv2 checkpoints: ViT with LayerScale, for images of any size.

The classifier reads the mean of the patches too.
"""

from typing import Any

import torch

from engram.core.errors import EngramError
from engram.hub.family import (
    ACTIVATIONS,
    Family,
    HFConfig,
    StoredTensor,
    Weights,
    map_layer,
    register_family,
    to_hf_activation,
)
from engram.transformers.vit.huggingface import vit
from engram.transformers.vit.model import ViT

EMBEDDINGS = "dinov2.embeddings."
RATIO = 4
"""default of transformers for mlp_ratio"""
MAX_RATIO = 64


def ff_width(width: int, ratio: float, gated: bool) -> int:
    """Return the feed-forward width; that of SwiGLU is two thirds, rounded up to a multiple of 8."""
    plain = int(width * ratio)
    return (int(plain * 2 / 3) + 7) // 8 * 8 if gated else plain


def find_ratio(config: ViT.Config) -> int | None:
    """Return the whole `mlp_ratio` of a feed-forward width, if there is one."""
    wanted, gated = config.ff_width or 4 * config.width, config.activation == "swiglu"
    return next((ratio for ratio in range(1, MAX_RATIO) if ff_width(config.width, ratio, gated) == wanted), None)


def derive_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Fields that depend on several settings."""
    found = vit.derive_fields({"patch_size": 14, **settings}, weights)
    _, height, width = found["shape"]
    if height != width:
        raise EngramError(f"image_size must be square, not {height} × {width}.")
    gated = bool(settings.get("use_swiglu_ffn", False))
    ratio, activation = settings.get("mlp_ratio", RATIO), settings.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        raise EngramError(f"its activation function is {activation!r}, and engram has {', '.join(ACTIVATIONS)}.")
    return {
        **found,
        "activation": "swiglu" if gated else ACTIVATIONS[activation],
        "layer_scale": settings.get("layerscale_value") or 1.0,
        "ff_width": ff_width(settings.get("hidden_size", 768), ratio, gated),
        "pooling": "cls-mean",
        "sizes": "any",
    }


def extra_settings(config: ViT.Config) -> HFConfig:
    """Further settings of config.json."""
    made, gated = vit.extra_settings(config), config.activation == "swiglu"
    return {
        **{name: value for name, value in made.items() if name != "encoder_stride"},
        "hidden_act": "gelu" if gated else to_hf_activation(config.activation),
        "use_swiglu_ffn": gated,
        "mlp_ratio": find_ratio(config),
        "layerscale_value": config.layer_scale,
        "drop_path_rate": 0.0,
        "use_mask_token": False,
    }


def unpack(weights: Weights, config: ViT.Config) -> Weights:
    """Split the fused matrices of gate and up; one of odd length is left for the error."""
    made = dict(weights)
    for name in [name for name in weights if ".mlp.weights_in." in name and len(weights[name]) % 2 == 0]:
        gate, up = made.pop(name).chunk(2)
        made |= {name.replace("weights_in", "gate"): gate, name.replace("weights_in", "fc1"): up}
    return vit.unpack({name.replace(".mlp.weights_out.", ".mlp.fc2."): value for name, value in made.items()}, config)


def pack(weights: Weights, config: ViT.Config) -> Weights:
    """Fuse the matrices of gate and up; drop what `vit.pack` drops."""
    made = vit.pack(weights, config)
    if config.activation != "swiglu":
        return made
    for name in [name for name in made if ".mlp.gate." in name]:
        gate, up = made.pop(name), made.pop(name.replace("gate", "fc1"))
        made[name.replace("gate", "weights_in")] = torch.cat([gate, up])
    return {name.replace(".mlp.fc2.", ".mlp.weights_out."): value for name, value in made.items()}


def find_unsupported(config: ViT.Config) -> list[str]:
    """Reasons why a config has no counterpart."""
    wrong = []
    if not config.layer_scale:
        wrong.append("layer_scale must be above 0")
    if config.shape[1] != config.shape[2]:
        wrong.append(f"shape must be square, not {config.shape[1]} × {config.shape[2]}")
    if find_ratio(config) is None:
        wrong.append(f"ff_width must be a multiple of the width (two thirds of one for SwiGLU), not {config.ff_width}")
    return wrong


SUPPORTED: dict[str, tuple[Any, ...]] = {
    **{name: values for name, values in vit.SUPPORTED.items() if name != "layer_scale"},
    "activation": (*dict.fromkeys(ACTIVATIONS.values()), "swiglu"),
    "pooling": ("cls-mean",),
    "sizes": ("any",),
}
LAYER: dict[str, str | StoredTensor] = {
    **map_layer("dinov2.encoder.layer.*.", {
        "attention_norm": "norm1",
        "attention.q": "attention.attention.query",
        "attention.k": "attention.attention.key",
        "attention.v": "attention.attention.value",
        "attention.o": "attention.output.dense",
        "attention_layer_scale.gain": "layer_scale1.lambda1",
        "ff_norm": "norm2",
        "ff.gate": "mlp.gate",
        "ff.up": "mlp.fc1",
        "ff.down": "mlp.fc2",
        "ff_layer_scale.gain": "layer_scale2.lambda1",
    }),
}  # fmt: skip

register_family(
    Family(
        name="dinov2",
        model=ViT,
        architecture=lambda config: "Dinov2ForImageClassification" if config.classes else "Dinov2Model",
        prefix="dinov2.",
        processor="BitImageProcessor",
        key_mapping={
            "patches.cls_token": StoredTensor(f"{EMBEDDINGS}cls_token", leading_ones=2),
            "patches.position": StoredTensor(f"{EMBEDDINGS}position_embeddings", leading_ones=1),
            "patches.project": f"{EMBEDDINGS}patch_embeddings.projection",
            **LAYER,
            "norm": "dinov2.layernorm",
            "head": "classifier",
        },
        ignored_keys=(r"mask_token$",),
        config_mapping=(
            ("hidden_size", "width", 768),
            ("num_hidden_layers", "layers", 12),
            ("num_attention_heads", "heads", 12),
            ("hidden_dropout_prob", "dropout", 0.0),
            ("layer_norm_eps", "eps", 1e-6),
        ),
        supported_values=SUPPORTED,
        derive_fields=derive_fields,
        extra_settings=extra_settings,
        unpack=unpack,
        pack=pack,
        find_unsupported=find_unsupported,
    )
)
