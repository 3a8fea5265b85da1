"""CLIP checkpoints; both encoders must have the same activation function and LayerNorm epsilon."""

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
from engram.transformers.clip.model import CLIP, MAX_LOGIT_SCALE

LAYER = {
    "attention_norm": "layer_norm1",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.o": "self_attn.out_proj",
    "ff_norm": "layer_norm2",
    "ff.up": "mlp.fc1",
    "ff.down": "mlp.fc2",
}
TENSORS: dict[str, str | StoredTensor] = {
    "image.patches.cls_token": "vision_model.embeddings.class_embedding",
    "image.patches.position": "vision_model.embeddings.position_embedding.weight",
    "image.patches.project.weight": "vision_model.embeddings.patch_embedding.weight",
    "image.pre_norm": "vision_model.pre_layrnorm",
    **map_layer("vision_model.encoder.layers.*.", LAYER, "image.blocks.*."),
    "image.norm": "vision_model.post_layernorm",
    "image.project.weight": "visual_projection.weight",
    "text.embedding.weight": "text_model.embeddings.token_embedding.weight",
    "text.position": "text_model.embeddings.position_embedding.weight",
    **map_layer("text_model.encoder.layers.*.", LAYER, "text.blocks.*."),
    "text.norm": "text_model.final_layer_norm",
    "text.project.weight": "text_projection.weight",
    "scale": "logit_scale",
}
LEGACY_EOS = 2
"""eos_token_id of old files, which transformers takes for the highest token of each text"""


def derive_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Image shape and eos token; refuse encoders that differ."""
    for name, default in (("hidden_act", "quick_gelu"), ("layer_norm_eps", 1e-5)):
        vision, text = (get_setting(settings, f"{kind}_config.{name}", default) for kind in ("vision", "text"))
        if vision != text:
            raise EngramError(f"both encoders must have the same {name}, not {vision!r} and {text!r}.")
    side = get_setting(settings, "vision_config.image_size", 224)
    eos_id = get_setting(settings, "text_config.eos_token_id", 49407)
    highest = get_setting(settings, "text_config.vocab_size", 49408) - 1
    return {
        "shape": (get_setting(settings, "vision_config.num_channels", 3), side, side),
        "eos_id": highest if eos_id == LEGACY_EOS else eos_id,
    }


def extra_settings(config: CLIP.Config) -> HFConfig:
    """Further settings of config.json."""
    return {
        "text_config.hidden_act": to_hf_activation(config.activation),
        "text_config.layer_norm_eps": config.eps,
        "text_config.projection_dim": config.projection_dim,
        "text_config.bos_token_id": None,
        "text_config.eos_token_id": config.eos_id,
        "text_config.pad_token_id": None,
        "vision_config.projection_dim": config.projection_dim,
        "vision_config.num_channels": config.shape[0],
        "vision_config.image_size": config.shape[1],
    }


def unpack(weights: Weights, config: CLIP.Config) -> Weights:
    """Refuse a logit scale above the limit."""
    scale = weights.get("logit_scale")
    if scale is not None and scale.numel() == 1 and scale > MAX_LOGIT_SCALE + 1e-3:
        raise EngramError(
            f"This CLIP has a logit_scale of {scale.item():.4f}; here it is at most {MAX_LOGIT_SCALE:.4f}."
        )
    return weights


def pack(weights: Weights, config: CLIP.Config) -> Weights:
    """Clamp the logit scale to the limit, as the model does."""
    return {**weights, "logit_scale": weights["logit_scale"].clamp(max=MAX_LOGIT_SCALE)}


def find_unsupported(config: CLIP.Config) -> list[str]:
    """Reasons why a config has no counterpart."""
    wrong = []
    if config.shape[1] != config.shape[2]:
        wrong.append(f"shape must be square, not {config.shape[1]} × {config.shape[2]}")
    if config.eos_id == LEGACY_EOS != config.vocabulary - 1:
        wrong.append(f"eos_id must not be {LEGACY_EOS}, which transformers takes for the highest token")
    return wrong


CLIP_FAMILY = Family(
    name="clip",
    model=CLIP,
    architecture=lambda config: "CLIPModel",
    processor="CLIPImageProcessor",
    key_mapping=TENSORS,
    config_mapping=(
        ("projection_dim", "projection_dim", 512),
        ("vision_config.hidden_size", "width", 768),
        ("vision_config.num_hidden_layers", "layers", 12),
        ("vision_config.num_attention_heads", "heads", 12),
        ("vision_config.intermediate_size", "ff_width", 3072),
        ("vision_config.patch_size", "patch", 32),
        ("vision_config.hidden_act", "activation", "quick_gelu"),
        ("vision_config.layer_norm_eps", "eps", 1e-5),
        ("text_config.hidden_size", "text_width", 512),
        ("text_config.num_hidden_layers", "text_layers", 12),
        ("text_config.num_attention_heads", "text_heads", 8),
        ("text_config.intermediate_size", "text_ff_width", 2048),
        ("text_config.vocab_size", "vocabulary", 49408),
        ("text_config.max_position_embeddings", "context", 77),
    ),
    supported_values={"image_pooling": ("cls",), "text_pooling": ("eos",), "loss": ("softmax",)},
    derive_fields=derive_fields,
    extra_settings=extra_settings,
    unpack=unpack,
    pack=pack,
    find_unsupported=find_unsupported,
)
register_family(CLIP_FAMILY)
