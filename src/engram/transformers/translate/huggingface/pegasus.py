"""Pegasus checkpoints: pre-norm variant of Marian with a final LayerNorm (Zhang et al. 2020)."""

from engram.hub.family import Family, HFConfig, Weights, register_family
from engram.nn.position import sinusoidal
from engram.transformers.translate.huggingface.marian import (
    POSITIONS,
    SETTINGS,
    SUPPORTED_VALUES,
    TENSORS,
    TIES,
    check_decoder_heads,
    derive_fields,
    extra_settings,
    unpack,
)
from engram.transformers.translate.model import Transformer

OTHER_DEFAULTS = {"vocab_size": 50265, "pad_token_id": 0, "eos_token_id": 1}


def derive_pre_norm_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Fields of our config, with pre-norm."""
    start = {"pad_token_id": 0, "decoder_start_token_id": 0}
    return {**derive_fields({**start, **settings}, weights), "residual": "pre-norm"}


def pack(weights: Weights, config: Transformer.Config) -> Weights:
    """Add the sinusoidal positions, which its files store."""
    return {**weights, **{name: sinusoidal(config.context, config.width, "halves") for name in POSITIONS}}


PEGASUS = Family(
    name="pegasus",
    model=Transformer,
    architecture=lambda config: "PegasusForConditionalGeneration",
    prefix="model.",
    key_mapping={
        **TENSORS,
        "encoder_norm": "model.encoder.layer_norm",
        "decoder_norm": "model.decoder.layer_norm",
    },
    ties=TIES,
    config_mapping=tuple((theirs, ours, OTHER_DEFAULTS.get(theirs, default)) for theirs, ours, default in SETTINGS),
    fixed_settings={"normalize_before": True, "normalize_embedding": False, "add_final_layer_norm": True},
    supported_values={"residual": ("pre-norm",), **SUPPORTED_VALUES},
    derive_fields=derive_pre_norm_fields,
    extra_settings=extra_settings,
    unpack=unpack,
    pack=pack,
    find_unsupported=check_decoder_heads,
)
register_family(PEGASUS)
