"""Qwen 2 and 2.5: Llama with biases of queries, keys and values. Qwen 3: without them, with QK-norm."""

from engram.hub.family import HFConfig
from engram.hub.rope_settings import FULL, SLIDING, several_windows
from engram.transformers.gpt.huggingface import decoder
from engram.transformers.gpt.huggingface.decoder import PLAIN, biases, every_check, one_theta, register_decoder
from engram.transformers.gpt.model import GPT


def kinds_of_layers(settings: HFConfig) -> HFConfig:
    """Layers from `max_window_layers` on have the sliding window, if one is used."""
    layers, first = settings.get("num_hidden_layers", 32), settings.get("max_window_layers", 28)
    slides = bool(settings.get("use_sliding_window")) and settings.get("sliding_window", 4096)
    kinds = [SLIDING if slides and i >= first else FULL for i in range(layers)]
    return {"sliding_window": 4096, **settings, "layer_types": settings.get("layer_types") or kinds}


def extra_settings(config: GPT.Config) -> HFConfig:
    """Return further settings of config.json."""
    return {
        **decoder.extra_settings(config),
        **decoder.windows(config),
        "use_sliding_window": any(config.attention_window),
        "attention_bias": "qkv" in config.bias,
    }


register_decoder(
    "qwen2",
    "Qwen2ForCausalLM",
    derive=lambda settings: decoder.fields(kinds_of_layers(settings), bias=("qkv",)),
    extra=extra_settings,
    unsupported=every_check(biases(("qkv",)), several_windows, one_theta),
    supported={**PLAIN, "head_width": (0,)},
    settings=tuple(row for row in decoder.SETTINGS if row[0] != "head_dim"),
)
register_decoder(
    "qwen3",
    "Qwen3ForCausalLM",
    derive=lambda settings: decoder.fields({"head_dim": 128, **kinds_of_layers(settings)}, qk_norm="rms"),
    extra=extra_settings,
    unsupported=every_check(biases((), ("qkv", "out")), several_windows, one_theta),
    supported={**PLAIN, "qk_norm": ("rms",)},
    settings=tuple((*row[:2], 128) if row[0] == "head_dim" else row for row in decoder.SETTINGS),
)
