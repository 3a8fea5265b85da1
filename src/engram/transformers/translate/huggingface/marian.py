"""Marian (OPUS-MT) checkpoints: post-norm encoder-decoder Transformers with one shared embedding."""

import torch

from engram.core.errors import EngramError
from engram.hub.family import (
    CLASSIC,
    Family,
    HFConfig,
    StoredTensor,
    Weights,
    get_setting,
    map_layer,
    register_family,
)
from engram.nn.position import sinusoidal
from engram.transformers.translate.model import Transformer

LAYER = {
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.o": "self_attn.out_proj",
    "attention_norm": "self_attn_layer_norm",
    "ff.up": "fc1",
    "ff.down": "fc2",
    "ff_norm": "final_layer_norm",
}
CROSS = {
    "cross.q": "encoder_attn.q_proj",
    "cross.k": "encoder_attn.k_proj",
    "cross.v": "encoder_attn.v_proj",
    "cross.o": "encoder_attn.out_proj",
    "cross_norm": "encoder_attn_layer_norm",
}
SHARED = "model.shared.weight"
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
TENSORS: dict[str, str | StoredTensor] = {
    "embedding.weight": SHARED,
    **map_layer("model.encoder.layers.*.", LAYER, "encoder.*."),
    **map_layer("model.decoder.layers.*.", {**LAYER, **CROSS}, "decoder.*."),
    "head_bias": StoredTensor("final_logits_bias", leading_ones=1, optional=True),
}
TIES = {f"model.{part}.embed_tokens.weight": SHARED for part in ("encoder", "decoder")} | {"lm_head.weight": SHARED}
SETTINGS = (
    ("vocab_size", "vocabulary", 58101),
    ("max_position_embeddings", "context", 1024),
    ("d_model", "width", 1024),
    ("encoder_layers", "layers", 12),
    ("decoder_layers", "decoder_layers", 12),
    ("encoder_attention_heads", "heads", 16),
    ("encoder_ffn_dim", "ff_width", 4096),
    ("activation_function", "activation", "gelu"),
    ("dropout", "dropout", 0.1),
    ("scale_embedding", "scale_embedding", False),
    ("pad_token_id", "pad_id", 58100),
    ("eos_token_id", "eos_id", 0),
)
DECODER_SETTINGS = (
    ("decoder_attention_heads", "decoder_heads", 16),
    ("decoder_ffn_dim", "decoder_ff_width", 4096),
)
SUPPORTED_VALUES = {
    **CLASSIC,
    "norm": ("layer", "layer-no-affine"),
    "position": ("sinusoidal",),
    "layout": ("halves",),
    "tie_embeddings": (True,),
    "logit_scale": (1.0,),
    "head_bias": (True,),
    "eps": (1e-5,),
}


def derive_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Refuse settings in which encoder and decoder share no embedding."""
    pad_id, start = settings.get("pad_token_id", 58100), settings.get("decoder_start_token_id", 58100)
    if pad_id != start:
        raise EngramError(f"a target must begin with the padding token {pad_id}, not with {start}.")
    own, other = settings.get("vocab_size"), settings.get("decoder_vocab_size")
    if other not in (None, own) or not settings.get("share_encoder_decoder_embeddings", True):
        raise EngramError("source and target must share one vocabulary and one embedding.")
    if not settings.get("tie_word_embeddings", True):
        raise EngramError("the embedding must be the output matrix too (tie_word_embeddings).")
    decoder = {own: get_setting(settings, theirs, default) for theirs, own, default in DECODER_SETTINGS}
    return {"residual": "post-norm", "layout": "halves", "eps": 1e-5, **decoder}


def extra_settings(config: Transformer.Config) -> HFConfig:
    """Further settings of config.json."""
    decoder = config.decoder_blocks
    return {
        "decoder_layers": decoder.layers,
        "decoder_attention_heads": decoder.heads,
        "decoder_ffn_dim": decoder.ff_width or 4 * config.width,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "decoder_start_token_id": config.pad_id,
        "forced_eos_token_id": config.eos_id,
        "bos_token_id": None,
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
    }


def check_decoder_heads(config: Transformer.Config) -> list[str]:
    """Say why a decoder with other heads than the encoder has no counterpart."""
    if config.decoder_heads in (0, config.heads):
        return []
    names = [name for name in ("kv_heads", "head_width") if getattr(config, name)]
    return [f"{name} must be 0 where the decoder has another number of heads" for name in names]


def unpack(weights: Weights, config: Transformer.Config) -> Weights:
    """Drop the positions of a file, which must be sinusoidal."""
    position_TE = sinusoidal(config.context, config.width, "halves")
    for name in POSITIONS:
        stored = weights.get(name, position_TE)
        if stored.shape != position_TE.shape or not torch.allclose(stored, position_TE, atol=1e-3):
            raise EngramError(f"{name} holds other positions than sines and cosines, which a Transformer here has.")
    return {name: value for name, value in weights.items() if name not in POSITIONS}


MARIAN = Family(
    name="marian",
    model=Transformer,
    architecture=lambda config: "MarianMTModel",
    prefix="model.",
    key_mapping=TENSORS,
    ties=TIES,
    config_mapping=SETTINGS,
    fixed_settings={"normalize_before": False, "normalize_embedding": False, "add_final_layer_norm": False},
    supported_values={"residual": ("post-norm",), **SUPPORTED_VALUES},
    derive_fields=derive_fields,
    extra_settings=lambda config: {**extra_settings(config), "share_encoder_decoder_embeddings": True},
    unpack=unpack,
    find_unsupported=check_decoder_heads,
)
register_family(MARIAN)
