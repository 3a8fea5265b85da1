"""OLMo 2: Llama with norms after attention and feed-forward, and QK-norm over all heads together."""

from engram.hub.family import HFConfig, map_layer
from engram.transformers.gpt.huggingface import decoder
from engram.transformers.gpt.huggingface.decoder import (
    KEYS,
    LAYER,
    PLAIN,
    biases,
    every_check,
    no_window,
    one_theta,
    register_decoder,
)  # fmt: skip
from engram.transformers.gpt.model import GPT

OUTPUT_NORMS = map_layer(LAYER, {
    "attention_norm": "post_attention_layernorm", "ff_norm": "post_feedforward_layernorm",
})  # fmt: skip


def extra_settings(config: GPT.Config) -> HFConfig:
    """Return further settings of config.json."""
    return {**decoder.extra_settings(config), "attention_bias": "qkv" in config.bias}


register_decoder(
    "olmo2",
    "Olmo2ForCausalLM",
    derive=lambda settings: decoder.fields(
        {**settings, "layer_types": None}, residual="output-norm", qk_norm="rms-width"
    ),
    extra=extra_settings,
    unsupported=every_check(biases((), ("qkv", "out")), no_window, one_theta),
    supported={**PLAIN, "residual": ("output-norm",), "qk_norm": ("rms-width",), "head_width": (0,)},
    keys={**KEYS, **OUTPUT_NORMS},
    settings=tuple(row for row in decoder.SETTINGS if row[0] != "head_dim"),
)
