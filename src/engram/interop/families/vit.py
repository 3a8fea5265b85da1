"""Vision Transformer. One saved without a classifier becomes one of no classes, which has nothing but `encode`."""

from engram.core.errors import EngramError
from engram.interop.families.family import Family, Place, Settings, Weights, block
from engram.models.vit import ViT

EMBEDDINGS = "vit.embeddings."


def sides(settings: Settings, name: str, default: int) -> tuple[int, int]:
    """Height and width; one number is both."""
    value = settings.get(name, default)
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def fields(settings: Settings, weights: Weights) -> Settings:
    height, width = sides(settings, "image_size", 224)
    patch, other = sides(settings, "patch_size", 16)
    if patch != other:
        raise EngramError(f"patches must be square, not {patch} × {other}.")
    return {
        "shape": (settings.get("num_channels", 3), height, width),
        "patch": patch,
        "classes": len(weights["classifier.weight"]) if "classifier.weight" in weights else 0,
    }


def about(config: ViT.Config) -> Settings:
    channels, height, width = config.shape
    return {
        "num_channels": channels,
        "image_size": height if height == width else [height, width],
        "patch_size": config.patch,
        "encoder_stride": config.patch,
        "qkv_bias": True,
        "attention_probs_dropout_prob": 0.0,
    }


def unpack(weights: Weights, config: ViT.Config) -> Weights:
    if config.classes:
        return weights
    nothing = {"classifier.weight": next(iter(weights.values())).new_empty(0, config.width)}
    return {**weights, **nothing, "classifier.bias": nothing["classifier.weight"].new_empty(0)}


def pack(weights: Weights, config: ViT.Config) -> Weights:
    return {name: value for name, value in weights.items() if config.classes or not name.startswith("classifier.")}


VIT = Family(
    name="vit",
    model=ViT,
    architecture=lambda config: "ViTForImageClassification" if config.classes else "ViTModel",
    prefix="vit.",
    processor="ViTImageProcessor",
    tensors={
        "patches.first": Place(f"{EMBEDDINGS}cls_token", ahead=2),
        "patches.position": Place(f"{EMBEDDINGS}position_embeddings", ahead=1),
        "patches.project": f"{EMBEDDINGS}patch_embeddings.projection",
        **block("vit.encoder.layer.*.", {
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
    ignored=(r"^vit\.pooler\.", r"mask_token$", r"^decoder\."),
    settings=(
        ("hidden_size", "width", 768),
        ("num_hidden_layers", "layers", 12),
        ("num_attention_heads", "heads", 12),
        ("intermediate_size", "inside", 3072),
        ("hidden_act", "function", "gelu"),
        ("hidden_dropout_prob", "dropout", 0.0),
        ("layer_norm_eps", "eps", 1e-12),
    ),
    must_be={"qkv_bias": True},
    needs={"pre": (True,), "qk_norm": (False,), "kv_heads": (0,)},
    fields=fields,
    about=about,
    unpack=unpack,
    pack=pack,
)  # fmt: skip
