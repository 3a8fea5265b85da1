"""Marian, the translators of OPUS-MT: the paper's Transformer, with norms after adding and one embedding for all."""

import torch

from engram.core.errors import EngramError
from engram.interop.families.family import Family, Place, Settings, Weights, block
from engram.layers.position import sinusoidal
from engram.models.transformer import Transformer

ROUND = {
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
TENSORS: dict[str, str | Place] = {
    "embedding.weight": SHARED,
    **block("model.encoder.layers.*.", ROUND, "encoder.*."),
    **block("model.decoder.layers.*.", {**ROUND, **CROSS}, "decoder.*."),
    "head_bias": Place("final_logits_bias", ahead=1, optional=True),
}
TIES = {f"model.{part}.embed_tokens.weight": SHARED for part in ("encoder", "decoder")} | {"lm_head.weight": SHARED}
SETTINGS = (
    ("vocab_size", "vocabulary", 58101),
    ("max_position_embeddings", "context", 1024),
    ("d_model", "width", 1024),
    ("encoder_layers", "layers", 12),
    ("decoder_layers", "decoder_layers", 12),
    ("encoder_attention_heads", "heads", 16),
    ("encoder_ffn_dim", "inside", 4096),
    ("activation_function", "function", "gelu"),
    ("dropout", "dropout", 0.1),
    ("scale_embedding", "scaled", False),
    ("pad_token_id", "padding", 58100),
    ("eos_token_id", "end", 0),
)
NEEDS = {
    "norm": ("layer", "plain"),
    "qk_norm": (False,),
    "kv_heads": (0,),
    "layout": ("halves",),
    "eps": (1e-5,),
}


def fields(settings: Settings, weights: Weights) -> Settings:
    """What an encoder and a decoder could have each for itself must be the same here."""
    for name in ("attention_heads", "ffn_dim"):
        encoder, decoder = (settings.get(f"{part}_{name}") for part in ("encoder", "decoder"))
        if encoder != decoder:
            raise EngramError(f"encoder_{name} and decoder_{name} must be the same, not {encoder} and {decoder}.")
    padding, start = settings.get("pad_token_id", 58100), settings.get("decoder_start_token_id", 58100)
    if padding != start:
        raise EngramError(f"a target must begin with the padding token {padding}, not with {start}.")
    own, other = settings.get("vocab_size"), settings.get("decoder_vocab_size")
    if other not in (None, own) or not settings.get("share_encoder_decoder_embeddings", True):
        raise EngramError("source and target must share one vocabulary and one embedding.")
    if not settings.get("tie_word_embeddings", True):
        raise EngramError("the embedding must be the output matrix too (tie_word_embeddings).")
    return {"pre": False, "layout": "halves", "eps": 1e-5}


def about(config: Transformer.Config) -> Settings:
    inside = config.inside or 4 * config.width
    return {
        "decoder_layers": config.decoder_layers or config.layers,
        "decoder_attention_heads": config.heads,
        "decoder_ffn_dim": inside,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "decoder_start_token_id": config.padding,
        "forced_eos_token_id": config.end,
        "bos_token_id": None,
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
    }


def unpack(weights: Weights, config: Transformer.Config) -> Weights:
    """Positions are not learned, so a file that has them must have ours."""
    place_TE = sinusoidal(config.context, config.width, "halves")
    for name in POSITIONS:
        stored = weights.get(name, place_TE)
        if stored.shape != place_TE.shape or not torch.allclose(stored, place_TE, atol=1e-3):
            raise EngramError(f"{name} holds other positions than sines and cosines, which a Transformer here has.")
    return {name: value for name, value in weights.items() if name not in POSITIONS}


MARIAN = Family(
    name="marian",
    model=Transformer,
    architecture=lambda config: "MarianMTModel",
    prefix="model.",
    tensors=TENSORS,
    ties=TIES,
    settings=SETTINGS,
    must_be={"normalize_before": False, "normalize_embedding": False, "add_final_layer_norm": False},
    needs={"pre": (False,), **NEEDS},
    fields=fields,
    about=lambda config: {**about(config), "share_encoder_decoder_embeddings": True},
    unpack=unpack,
)
