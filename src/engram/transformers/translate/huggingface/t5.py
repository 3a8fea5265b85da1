"""T5 and mT5 checkpoints: pre-norm encoder-decoders with relative positions (Raffel et al. 2020).

The original ties the output matrix to the embedding, divides the logits by the root of the width and has ReLU. Version
1.1, Flan-T5 and mT5 have an output matrix of their own, logits as they are and GeGLU.
"""

from dataclasses import replace

import torch

from engram.core.errors import EngramError
from engram.hub.family import (
    ACTIVATIONS,
    CLASSIC,
    Family,
    HFConfig,
    Weights,
    get_setting,
    map_layer,
    register_family,
)
from engram.nn.position import RelativePosition
from engram.nn.transformer_block import GATED
from engram.transformers.translate.model import Transformer

SELF = {f"attention.{name}": f"layer.0.SelfAttention.{name}" for name in "qkvo"} | {
    "attention_norm": "layer.0.layer_norm"
}
CROSS = {f"cross.{name}": f"layer.1.EncDecAttention.{name}" for name in "qkvo"} | {"cross_norm": "layer.1.layer_norm"}
FEED_FORWARD = {
    "ff.gate": "DenseReluDense.wi_0",
    "ff.up": "DenseReluDense.wi_1",
    "ff.down": "DenseReluDense.wo",
    "ff_norm": "layer_norm",
}
PLAIN_UP, GATED_UP = "DenseReluDense.wi.", "DenseReluDense.wi_1."
"""matrix up without and with a gate"""
SHARED, HEAD = "shared.weight", "lm_head.weight"
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""copies of the embedding that a file may have"""
TENSORS = {
    "embedding.weight": SHARED,
    "head.weight": HEAD,
    "encoder_norm": "encoder.final_layer_norm",
    "decoder_norm": "decoder.final_layer_norm",
    "encoder_position.embedding": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    "decoder_position.embedding": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    **map_layer("encoder.block.*.", SELF, "encoder.*."),
    **map_layer("encoder.block.*.layer.1.", FEED_FORWARD, "encoder.*."),
    **map_layer("decoder.block.*.", {**SELF, **CROSS}, "decoder.*."),
    **map_layer("decoder.block.*.layer.2.", FEED_FORWARD, "decoder.*."),
}
SETTINGS = (
    ("vocab_size", "vocabulary", 32128),
    ("n_positions", "context", 512),
    ("d_model", "width", 512),
    ("d_kv", "head_width", 64),
    ("d_ff", "ff_width", 2048),
    ("num_layers", "layers", 6),
    ("num_decoder_layers", "decoder_layers", 0),
    ("num_heads", "heads", 8),
    ("dropout_rate", "dropout", 0.1),
    ("layer_norm_epsilon", "eps", 1e-6),
    ("pad_token_id", "pad_id", 0),
    ("eos_token_id", "eos_id", 1),
)
GATES = {"gelu": "geglu_tanh", "gelu_new": "geglu_tanh", "silu": "swiglu", "swish": "swiglu"}
NETWORKS = {**ACTIVATIONS, **{f"gated-{theirs}": own for theirs, own in GATES.items()}}
"""feed-forward networks, their name → our activation; of several names for ours the first is written"""
FIELDS = {
    "position": "relative",
    "norm": "rms",
    "residual": "pre-norm",
    "bias": (),
    "attention_scale": 1.0,
    "scale_embedding": False,
    "head_bias": False,
}
"""what all T5 have in common"""


def derive_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Fields of our config that depend on several settings, or on the weights."""
    if not any("decoder." in name for name in weights):
        raise EngramError("it is an encoder alone, and engram has T5 with its decoder.")
    pad_id = get_setting(settings, "pad_token_id", 0)
    if (start := get_setting(settings, "decoder_start_token_id", pad_id)) != pad_id:
        raise EngramError(f"a target must begin with the padding token {pad_id}, not with {start}.")
    network = get_setting(settings, "feed_forward_proj", "relu")
    if network not in NETWORKS:
        raise EngramError(f"its feed-forward network is {network!r}, and engram has {', '.join(NETWORKS)}.")
    scaled = get_setting(settings, "scale_decoder_outputs", get_setting(settings, "tie_word_embeddings", True))
    return {
        **FIELDS,
        "activation": NETWORKS[network],
        "tie_embeddings": HEAD not in weights or torch.equal(weights[HEAD], weights.get(SHARED, torch.empty(0))),
        "logit_scale": get_setting(settings, "d_model", 512) ** -0.5 if scaled else 1.0,
        "relative": RelativePosition(
            num_buckets=get_setting(settings, "relative_attention_num_buckets", 32),
            max_distance=get_setting(settings, "relative_attention_max_distance", 128),
        ),
    }


def extra_settings(config: Transformer.Config) -> HFConfig:
    """Further settings of config.json."""
    return {
        "num_decoder_layers": config.decoder_blocks.layers,
        "feed_forward_proj": next(theirs for theirs, own in NETWORKS.items() if own == config.activation),
        "relative_attention_num_buckets": config.relative.num_buckets,
        "relative_attention_max_distance": config.relative.max_distance,
        "decoder_start_token_id": config.pad_id,
        "is_encoder_decoder": True,
        "tie_word_embeddings": config.tie_embeddings,
        "scale_decoder_outputs": config.logit_scale != 1,
    }


def find_unsupported(config: Transformer.Config) -> list[str]:
    """Say why other logits, and a decoder of other sizes than the encoder, have no counterpart."""
    decoder, scale = config.decoder_blocks, config.logit_scale
    right = scale == 1 or abs(scale - config.width**-0.5) < 1e-6 * scale
    reasons = [] if right else [f"logit_scale must be 1 or 1 / sqrt(width), not {scale}"]
    sizes = {"decoder_heads": (decoder.heads, config.heads), "decoder_ff_width": (decoder.ff_width, config.ff_width)}
    return reasons + [f"{name} must be {own}, not {found}" for name, (found, own) in sizes.items() if found != own]


def unpack(weights: Weights, config: Transformer.Config) -> Weights:
    """Drop copies of the embedding, and name the matrix up as it is with a gate."""
    for name in COPIES:
        if name in weights and not torch.equal(weights[name], weights.get(SHARED, torch.empty(0))):
            raise EngramError(f"{name} is another than {SHARED}, and source and target must share one embedding.")
    kept = {name: value for name, value in weights.items() if name not in COPIES}
    return kept if config.activation in GATED else rename(kept, PLAIN_UP, GATED_UP)


def pack(weights: Weights, config: Transformer.Config) -> Weights:
    """Name the matrix up as it is without a gate."""
    return weights if config.activation in GATED else rename(weights, GATED_UP, PLAIN_UP)


def rename(weights: Weights, old: str, new: str) -> Weights:
    """Return the weights with a part of their names replaced."""
    return {name.replace(old, new): value for name, value in weights.items()}


T5 = Family(
    name="t5",
    model=Transformer,
    architecture=lambda config: "T5ForConditionalGeneration",
    key_mapping=TENSORS,
    ties={HEAD: SHARED},
    ignored_keys=(r"EncDecAttention\.relative_attention_bias\.weight$",),
    always_affine=False,
    pieces="spiece.model",
    config_mapping=SETTINGS,
    supported_values={
        **{name: values for name, values in CLASSIC.items() if name != "head_width"},
        **{name: (value,) for name, value in FIELDS.items()},
        "activation": tuple(NETWORKS.values()),
    },
    derive_fields=derive_fields,
    extra_settings=extra_settings,
    unpack=unpack,
    pack=pack,
    find_unsupported=find_unsupported,
)
register_family(T5)

MT5_DEFAULTS = {"vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6}


def derive_mt5_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Fields of our config, with logits as they are."""
    return derive_fields({"feed_forward_proj": "gated-gelu", **settings, "scale_decoder_outputs": False}, weights)


MT5 = replace(
    T5,
    name="mt5",
    architecture=lambda config: "MT5ForConditionalGeneration",
    config_mapping=tuple((theirs, ours, MT5_DEFAULTS.get(theirs, default)) for theirs, ours, default in SETTINGS),
    derive_fields=derive_mt5_fields,
)
register_family(MT5)
