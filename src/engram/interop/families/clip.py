"""CLIP. Both encoders have one function of units and one smallest variance here."""

from engram.core.errors import EngramError
from engram.interop.families.family import Family, Place, Settings, Weights, block, look_up, their_function
from engram.models.clip import CLIP, WARMEST

ROUND = {
    "attention_norm": "layer_norm1",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.o": "self_attn.out_proj",
    "ff_norm": "layer_norm2",
    "ff.up": "mlp.fc1",
    "ff.down": "mlp.fc2",
}
TENSORS: dict[str, str | Place] = {
    "picture.patches.first": "vision_model.embeddings.class_embedding",
    "picture.patches.position": "vision_model.embeddings.position_embedding.weight",
    "picture.patches.project.weight": "vision_model.embeddings.patch_embedding.weight",
    "picture.first_norm": "vision_model.pre_layrnorm",
    **block("vision_model.encoder.layers.*.", ROUND, "picture.blocks.*."),
    "picture.norm": "vision_model.post_layernorm",
    "picture.project.weight": "visual_projection.weight",
    "text.embedding.weight": "text_model.embeddings.token_embedding.weight",
    "text.position": "text_model.embeddings.position_embedding.weight",
    **block("text_model.encoder.layers.*.", ROUND, "text.blocks.*."),
    "text.norm": "text_model.final_layer_norm",
    "text.project.weight": "text_projection.weight",
    "scale": "logit_scale",
}
LEGACY_END = 2
"""what old files call the end of a text; transformers takes it for the highest token of each text"""


def fields(settings: Settings, weights: Weights) -> Settings:
    for name, default in (("hidden_act", "quick_gelu"), ("layer_norm_eps", 1e-5)):
        pictures, texts = (look_up(settings, f"{kind}_config.{name}", default) for kind in ("vision", "text"))
        if pictures != texts:
            raise EngramError(f"both encoders must have the same {name}, not {pictures!r} and {texts!r}.")
    side = look_up(settings, "vision_config.image_size", 224)
    end = look_up(settings, "text_config.eos_token_id", 49407)
    highest = look_up(settings, "text_config.vocab_size", 49408) - 1
    return {
        "shape": (look_up(settings, "vision_config.num_channels", 3), side, side),
        "end": highest if end == LEGACY_END else end,
    }


def about(config: CLIP.Config) -> Settings:
    return {
        "text_config.hidden_act": their_function(config.function),
        "text_config.layer_norm_eps": config.eps,
        "text_config.projection_dim": config.space,
        "text_config.bos_token_id": None,
        "text_config.eos_token_id": config.end,
        "text_config.pad_token_id": None,
        "vision_config.projection_dim": config.space,
        "vision_config.num_channels": config.shape[0],
        "vision_config.image_size": config.shape[1],
    }


def unpack(weights: Weights, config: CLIP.Config) -> Weights:
    scale = weights.get("logit_scale")
    if scale is not None and scale.numel() == 1 and scale > WARMEST + 1e-3:
        raise EngramError(f"This CLIP has a logit_scale of {scale.item():.4f}; here it is at most {WARMEST:.4f}.")
    return weights


def pack(weights: Weights, config: CLIP.Config) -> Weights:
    return {**weights, "logit_scale": weights["logit_scale"].clamp(max=WARMEST)}


def refuse(config: CLIP.Config) -> list[str]:
    wrong = []
    if config.shape[1] != config.shape[2]:
        wrong.append(f"shape must be square, not {config.shape[1]} × {config.shape[2]}")
    if config.end == LEGACY_END != config.vocabulary - 1:
        wrong.append(f"end must not be {LEGACY_END}, which transformers takes for the highest token")
    return wrong


CLIP_FAMILY = Family(
    name="clip",
    model=CLIP,
    architecture=lambda config: "CLIPModel",
    processor="CLIPImageProcessor",
    tensors=TENSORS,
    settings=(
        ("projection_dim", "space", 512),
        ("vision_config.hidden_size", "width", 768),
        ("vision_config.num_hidden_layers", "layers", 12),
        ("vision_config.num_attention_heads", "heads", 12),
        ("vision_config.intermediate_size", "inside", 3072),
        ("vision_config.patch_size", "patch", 32),
        ("vision_config.hidden_act", "function", "quick_gelu"),
        ("vision_config.layer_norm_eps", "eps", 1e-5),
        ("text_config.hidden_size", "text_width", 512),
        ("text_config.num_hidden_layers", "text_layers", 12),
        ("text_config.num_attention_heads", "text_heads", 8),
        ("text_config.intermediate_size", "text_inside", 2048),
        ("text_config.vocab_size", "vocabulary", 49408),
        ("text_config.max_position_embeddings", "context", 77),
    ),
    fields=fields,
    about=about,
    unpack=unpack,
    pack=pack,
    refuse=refuse,
)
