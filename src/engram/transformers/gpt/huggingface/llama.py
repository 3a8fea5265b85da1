"""Llama 2 and 3, SmolLM2 and 3, Mistral: RMSNorm, RoPE, SwiGLU, grouped keys and values."""

from engram.hub.family import HFConfig
from engram.hub.rope_settings import FULL, SLIDING, largest_window, several_windows, shortest_cycle, write_rope
from engram.transformers.gpt.huggingface import decoder
from engram.transformers.gpt.huggingface.decoder import biases, every_check, no_window, one_theta, register_decoder
from engram.transformers.gpt.model import GPT

ANY_BIAS = biases((), ("qkv", "out"), ("ff",), ("qkv", "out", "ff"))


def bias_settings(config: GPT.Config) -> HFConfig:
    """Return which projections have biases."""
    return {"attention_bias": "qkv" in config.bias, "mlp_bias": "ff" in config.bias}


register_decoder(
    "llama",
    "LlamaForCausalLM",
    derive=lambda settings: decoder.fields({**settings, "layer_types": None}),
    extra=lambda config: {**decoder.extra_settings(config), **bias_settings(config)},
    unsupported=every_check(ANY_BIAS, no_window, one_theta),
)


def mistral_fields(settings: HFConfig) -> HFConfig:
    """All layers of Mistral have the sliding window, or none has one."""
    kinds = [SLIDING] * settings.get("num_hidden_layers", 32)
    return decoder.fields({"sliding_window": 4096, **settings, "layer_types": kinds})


def one_window(config: GPT.Config) -> list[str]:
    """Say why windows in some layers only have no counterpart."""
    return [] if len(set(config.attention_window)) == 1 else ["attention_window must be the same in all layers"]


register_decoder(
    "mistral",
    "MistralForCausalLM",
    derive=mistral_fields,
    extra=lambda config: {**decoder.extra_settings(config), "sliding_window": largest_window(config)},
    unsupported=every_check(biases(()), one_window, one_theta),
)


def smollm3_fields(settings: HFConfig) -> HFConfig:
    """Every fourth layer has no RoPE, by default."""
    layers, every = settings.get("num_hidden_layers", 36), settings.get("no_rope_layer_interval") or 4
    rotates = settings.get("no_rope_layers") or [(i + 1) % every != 0 for i in range(layers)]
    kinds = settings.get("layer_types") or [
        SLIDING if settings.get("use_sliding_window") and not rotates[i] else FULL for i in range(layers)
    ]
    found = decoder.fields({"rope_theta": 2_000_000.0, "tie_word_embeddings": True, **settings, "layer_types": kinds})
    (theta,) = found["rope"].theta
    found["rope"] = decoder.with_theta(found["rope"], shortest_cycle([theta if one else 0.0 for one in rotates]))
    return found


def smollm3_settings(config: GPT.Config) -> HFConfig:
    """Return further settings of config.json."""
    thetas = [config.rope.theta[i % len(config.rope.theta)] for i in range(config.layers)]
    return {
        **decoder.extra_settings(config),
        **bias_settings(config),
        **decoder.windows(config),
        "use_sliding_window": any(config.attention_window),
        "rope_parameters": write_rope(config.rope, max(thetas)),
        "no_rope_layers": [int(theta > 0) for theta in thetas],
    }


register_decoder(
    "smollm3",
    "SmolLM3ForCausalLM",
    derive=smollm3_fields,
    extra=smollm3_settings,
    unsupported=every_check(
        ANY_BIAS,
        several_windows,
        lambda config: [] if len(set(config.rope.theta) - {0.0}) == 1 else ["theta must be one number, or 0"],
    ),
)
