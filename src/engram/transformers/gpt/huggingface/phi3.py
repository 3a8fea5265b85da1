"""Phi-3: Llama whose queries, keys and values are one matrix, as are gate and up."""

from dataclasses import replace

import torch

from engram.hub.family import HFConfig, Weights
from engram.hub.rope_settings import SLIDING, largest_window, rotary_fraction
from engram.transformers.gpt.huggingface import decoder
from engram.transformers.gpt.huggingface.decoder import PLAIN, biases, every_check, one_theta, register_decoder
from engram.transformers.gpt.huggingface.llama import one_window
from engram.transformers.gpt.model import GPT

FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}


def parts_of(config: GPT.Config) -> dict[str, list[int]]:
    """Return the rows of each part of a fused matrix."""
    kv_width, ff_width = (config.kv_heads or config.heads) * config.size_of_head, config.ff_width or 4 * config.width
    sizes = [config.heads * config.size_of_head, kv_width, kv_width], [ff_width, ff_width]
    return dict(zip(FUSED, sizes, strict=True))


def unpack(weights: Weights, config: GPT.Config) -> Weights:
    """Split fused matrices; one of another shape is left for the error."""
    made = dict(weights)
    for fused, sizes in parts_of(config).items():
        for name in [name for name in weights if f".{fused}." in name and len(weights[name]) == sum(sizes)]:
            parts = made.pop(name).split(sizes)
            made |= {name.replace(fused, part): value for part, value in zip(FUSED[fused], parts, strict=True)}
    return decoder.unpack(made, config)


def pack(weights: Weights, config: GPT.Config) -> Weights:
    """Fuse matrices."""
    made = decoder.pack(weights, config)
    for fused, parts in FUSED.items():
        for name in [name for name in made if f".{parts[0]}." in name]:
            made[name.replace(parts[0], fused)] = torch.cat([made.pop(name.replace(parts[0], part)) for part in parts])
    return made


def fields(settings: HFConfig) -> HFConfig:
    """All layers have the sliding window, or none has one."""
    found = decoder.fields({**settings, "layer_types": [SLIDING] * settings.get("num_hidden_layers", 32)})
    return {**found, "rope": replace(found["rope"], rotary_fraction=rotary_fraction(settings, 1.0))}


register_decoder(
    "phi3",
    "Phi3ForCausalLM",
    derive=fields,
    extra=lambda config: {
        **decoder.extra_settings(config),
        "sliding_window": largest_window(config),
        "original_max_position_embeddings": config.context,
    },
    unsupported=every_check(biases(()), one_window, one_theta),
    supported={**PLAIN, "head_width": (0,)},
    settings=(*(row for row in decoder.SETTINGS if row[0] != "head_dim"), ("resid_pdrop", "dropout", 0.0)),
    partial=True,
    unpack=unpack,
    pack=pack,
)
