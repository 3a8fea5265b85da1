r"""Gemma 1, 2 and 3 (text): GeGLU, scaled embeddings, and gains that are stored minus 1.

    y = (1 + g) \odot x / \text{rms}(x)          RMSNorm of Gemma: our gain is 1 + g     (1)

    Symbols:
        g       stored gain
        x, y    input and output

Gemma 2 has sandwich norms, softcapping and a sliding window in every other layer; Gemma 3 QK-norm in place of
softcapping, and RoPE of another base in the five of six layers with a window.
"""

from engram.core.errors import EngramError
from engram.hub.family import HFConfig, Weights, map_layer
from engram.hub.rope_settings import FULL, SLIDING, read_rope, several_windows, shortest_cycle, write_rope
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

SANDWICH = {
    **KEYS,
    **map_layer(LAYER, {
        "attention_norm": "input_layernorm",
        "attention_out_norm": "post_attention_layernorm",
        "ff_norm": "pre_feedforward_layernorm",
        "ff_out_norm": "post_feedforward_layernorm",
    }),
}  # fmt: skip
SETTINGS = tuple(
    (theirs, own, {"head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192}.get(theirs, default))
    for theirs, own, default in decoder.SETTINGS
)


def unpack(weights: Weights, config: GPT.Config) -> Weights:
    """Convert gains (1), queries and keys of a checkpoint to ours."""
    gains = {name: value + 1 for name, value in weights.items() if name.endswith("norm.weight")}
    return decoder.unpack({**weights, **gains}, config)


def pack(weights: Weights, config: GPT.Config) -> Weights:
    """Convert our gains, queries and keys to those of a checkpoint."""
    made = decoder.pack(weights, config)
    return {name: value - 1 if name.endswith("norm.weight") else value for name, value in made.items()}


def fields(settings: HFConfig) -> HFConfig:
    """Fields of all three versions."""
    if settings.get("use_bidirectional_attention"):
        raise EngramError("its attention is bidirectional, and that of a GPT is causal.")
    act = settings.get("hidden_activation") or "gelu_pytorch_tanh"
    found = decoder.fields({"tie_word_embeddings": True, **settings, "hidden_act": act})
    return {**found, "embedding_scale": settings.get("hidden_size", 3072) ** 0.5}


def extra_settings(config: GPT.Config) -> HFConfig:
    """Return settings of config.json of all three versions."""
    made = decoder.extra_settings(config)
    return {**made, "hidden_activation": made["hidden_act"], "attention_bias": "qkv" in config.bias}


def scaled_embedding(config: GPT.Config) -> list[str]:
    """Say why another scale of the embedding has no counterpart."""
    right = abs(config.embedding_scale - config.width**0.5) < 1e-6 * config.width
    return [] if right else [f"embedding_scale must be the square root of the width, not {config.embedding_scale}"]


ANY_BIAS = biases((), ("qkv", "out"))
GEMMA = {name: values for name, values in PLAIN.items() if name != "embedding_scale"}
register_decoder(
    "gemma",
    "GemmaForCausalLM",
    derive=lambda settings: fields({**settings, "layer_types": None}),
    extra=extra_settings,
    unsupported=every_check(ANY_BIAS, no_window, one_theta, scaled_embedding),
    supported=GEMMA,
    settings=SETTINGS,
    unpack=unpack,
    pack=pack,
)


def alternating(settings: HFConfig, every: int) -> list[str]:
    """Kinds of layers: each `every`-th attends to all tokens."""
    layers = settings.get("num_hidden_layers", 26)
    return settings.get("layer_types") or [FULL if (i + 1) % every == 0 else SLIDING for i in range(layers)]


def sandwich_fields(settings: HFConfig, every: int) -> HFConfig:
    """Fields of Gemma 2 and 3."""
    found = fields({"sliding_window": 4096, **settings, "layer_types": alternating(settings, every)})
    scale = (settings.get("query_pre_attn_scalar") or 256) ** -0.5
    return {**found, "residual": "sandwich-norm", "attention_scale": scale}


def softcaps(settings: HFConfig, attention: float | None, logits: float | None) -> HFConfig:
    """Softcaps, with their defaults; null disables."""
    return {
        "attention_softcap": settings.get("attn_logit_softcapping", attention) or 0.0,
        "logit_softcap": settings.get("final_logit_softcapping", logits) or 0.0,
    }


def query_scalar(config: GPT.Config) -> float:
    """The number whose root divides the attention scores."""
    return config.attention_scale**-2 if config.attention_scale else float(config.size_of_head)


def whole_scalar(config: GPT.Config) -> list[str]:
    """Say why another scale of the attention scores has no counterpart."""
    scalar = query_scalar(config)
    whole = abs(scalar - round(scalar)) < 1e-6 * scalar
    return [] if whole else [f"attention_scale must be 1 over the root of a whole number, not {config.attention_scale}"]


def sandwich_settings(config: GPT.Config) -> HFConfig:
    """Return further settings of config.json of Gemma 2 and 3."""
    return {
        **extra_settings(config),
        **decoder.windows(config),
        "query_pre_attn_scalar": round(query_scalar(config)),
        "attn_logit_softcapping": config.attention_softcap or None,
        "final_logit_softcapping": config.logit_softcap or None,
    }


GEMMA2 = {
    "position": ("rotary",), "norm": ("rms",), "residual": ("sandwich-norm",), "qk_norm": ("none",),
    "activation": PLAIN["activation"],
}  # fmt: skip
register_decoder(
    "gemma2",
    "Gemma2ForCausalLM",
    derive=lambda settings: {**sandwich_fields(settings, 2), **softcaps(settings, 50.0, 30.0)},
    extra=sandwich_settings,
    unsupported=every_check(ANY_BIAS, several_windows, one_theta, scaled_embedding, whole_scalar),
    supported=GEMMA2,
    keys=SANDWICH,
    settings=SETTINGS,
    unpack=unpack,
    pack=pack,
)


def gemma3_fields(settings: HFConfig) -> HFConfig:
    """Layers with a window have RoPE of their own base."""
    kinds = alternating(settings, settings.get("sliding_window_pattern") or 6)
    nested = settings.get("rope_parameters") or {}
    whole = {**settings, "rope_parameters": nested.get(FULL)} if FULL in nested else {"rope_theta": 1e6, **settings}
    plain = {name: value for name, value in whole.items() if name != "layer_types"}
    local = read_rope(
        {"rope_parameters": nested.get(SLIDING) or {"rope_theta": settings.get("rope_local_base_freq")}}, 1
    )
    found = sandwich_fields({**plain, "layer_types": kinds}, 6)
    if local.rope_scaling != "none":
        raise EngramError("RoPE of its layers with a window is scaled, and that of engram is not.")
    theta = shortest_cycle([found["rope"].theta[0] if kind == FULL else local.theta[0] for kind in kinds])
    rope = decoder.with_theta(found["rope"], theta)
    return {**found, **softcaps(settings, None, None), "rope": rope, "qk_norm": "rms"}


def gemma3_settings(config: GPT.Config) -> HFConfig:
    """Return further settings of config.json."""
    theta = {bool(config.window(i)): config.rope.theta[i % len(config.rope.theta)] for i in range(config.layers)}
    return {
        **sandwich_settings(config),
        "rope_parameters": {
            FULL: write_rope(config.rope, theta.get(False, 1e6)),
            SLIDING: {"rope_type": "default", "rope_theta": theta.get(True, 1e4)},
        },
    }


def theta_by_window(config: GPT.Config) -> list[str]:
    """Say why RoPE that differs otherwise than by windows has no counterpart."""
    pairs = {(bool(config.window(i)), config.rope.theta[i % len(config.rope.theta)]) for i in range(config.layers)}
    return [] if len(pairs) == len({slides for slides, _ in pairs}) else ["theta may differ by attention_window alone"]


register_decoder(
    "gemma3_text",
    "Gemma3ForCausalLM",
    derive=gemma3_fields,
    extra=gemma3_settings,
    unsupported=every_check(ANY_BIAS, several_windows, theta_by_window, scaled_embedding, whole_scalar),
    supported={**GEMMA2, "qk_norm": ("rms",)},
    keys=SANDWICH,
    settings=SETTINGS,
    unpack=unpack,
    pack=pack,
)
