"""Pegasus: the same as Marian with norms before, and one more at the end of encoder and decoder (Zhang et al. 2020)."""

from engram.interop.families.family import Family, Settings, Weights
from engram.interop.families.marian import NEEDS, POSITIONS, SETTINGS, TENSORS, TIES, about, fields, unpack
from engram.layers.position import sinusoidal
from engram.models.transformer import Transformer

OTHER_DEFAULTS = {"vocab_size": 50265, "pad_token_id": 0, "eos_token_id": 1}


def pre_norm(settings: Settings, weights: Weights) -> Settings:
    start = {"pad_token_id": 0, "decoder_start_token_id": 0}
    return {**fields({**start, **settings}, weights), "pre": True}


def pack(weights: Weights, config: Transformer.Config) -> Weights:
    """Its files hold the positions, although nobody learns them."""
    return {**weights, **{name: sinusoidal(config.context, config.width, "halves") for name in POSITIONS}}


PEGASUS = Family(
    name="pegasus",
    model=Transformer,
    architecture=lambda config: "PegasusForConditionalGeneration",
    prefix="model.",
    tensors={
        **TENSORS,
        "encoder_norm": "model.encoder.layer_norm",
        "decoder_norm": "model.decoder.layer_norm",
    },
    ties=TIES,
    settings=tuple((theirs, ours, OTHER_DEFAULTS.get(theirs, default)) for theirs, ours, default in SETTINGS),
    must_be={"normalize_before": True, "normalize_embedding": False, "add_final_layer_norm": True},
    needs={"pre": (True,), **NEEDS},
    fields=pre_norm,
    about=about,
    unpack=unpack,
    pack=pack,
)
