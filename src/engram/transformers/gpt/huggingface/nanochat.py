r"""NanoChat checkpoints: our default GPT with RMSNorm.

RMSNorm divides by the root mean square; LayerNorm subtracts the mean first. Both are equal for vectors of mean 0, and
every use of our residual stream is normalized, so these weights give the same model:

    \text{rows of}\ E,\ \text{columns of}\ W_o, W_d \leftarrow \text{themselves minus their mean over the width}     (1)
    W_q, W_k \leftarrow \text{themselves minus their mean over each head}     (2)
    W_q, W_k \leftarrow \text{rows}\ 0, 2, 4, ..., -1, -3, -5, ...\ \text{of each head}     (3)

    Symbols:
        E             token embedding
        W_q, W_k      query and key matrices
        W_o, W_d      output matrices of attention and feed-forward network
        D             head width

(1) keeps the residual stream at mean 0, (2) queries and keys. (3): its RoPE rotates pairs (x_i, x_{i + D/2}) in the
opposite direction, ours (x_2i, x_2i+1); a minus means a negated row. It normalizes after the rotation, which changes no
length. Only weights with these means can be loaded, as those that are saved here.
"""

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.hub.family import Family, HFConfig, Weights, map_layer, register_family
from engram.transformers.gpt.model import GPT

RESIDUAL = ("o_proj.weight", "fc2.weight")
ROTATED = ("q_proj.weight", "k_proj.weight")
EMBEDDING = "model.embed_tokens.weight"


def pack(weights: Weights, config: GPT.Config) -> Weights:
    """Convert our weights to those of NanoChat, by (1) to (3)."""
    made = dict(weights)
    for name, value in weights.items():
        if name == EMBEDDING:
            made[name] = center(value, 1)  # (1)
        elif name.endswith(RESIDUAL):
            made[name] = center(value, 0)  # (1)
        elif name.endswith(ROTATED):
            head_HDE = center(value.unflatten(0, (-1, config.width // config.heads)), 1)  # (2)
            halves = [head_HDE[:, 0::2], -head_HDE[:, 1::2]]  # (3)
            made[name] = torch.cat(halves, 1).flatten(0, 1)
    return made


def unpack(weights: Weights, config: GPT.Config) -> Weights:
    """Invert `pack`; refuse weights that are not centered."""
    made, skewed = dict(weights), []
    size = config.width // config.heads
    for name, value in weights.items():
        if name == EMBEDDING:
            skewed += [name] * (not is_centered(value, 1))
        elif name.endswith(RESIDUAL):
            skewed += [name] * (not is_centered(value, 0))
        elif name.endswith(ROTATED) and value.dim() == 2 and len(value) % size == 0:
            first_HCE, second_HCE = value.unflatten(0, (-1, size)).chunk(2, 1)
            head_HDE = torch.stack([first_HCE, -second_HCE], 2).flatten(1, 2)
            skewed += [name] * (not is_centered(head_HDE, 1))
            made[name] = head_HDE.flatten(0, 1)
    if skewed:
        raise EngramError(
            "This nanochat was not made by engram: its norms keep the mean that those of a GPT here subtract, "
            f"which differs for {skewed[0]}."
        )
    return made


def center(value: Tensor, dim: int) -> Tensor:
    """Subtract the mean over a dimension."""
    exact = value.double()  # so that the mean is 0 when it is read back
    return (exact - exact.mean(dim, keepdim=True)).float()


def is_centered(value: Tensor, dim: int) -> bool:
    """Whether the mean over a dimension is 0."""
    size = value.abs().max() if value.numel() else 0.0
    return bool((value.double().mean(dim).abs() <= 1e-5 * size).all())


def derive_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Fields of our config that depend on several settings."""
    eps, cap = settings.get("rms_norm_eps", 1e-6), settings.get("final_logit_softcapping", 15.0)
    if eps != 1e-5:  # that of our QK-norm, which cannot be set
        raise EngramError(f"rms_norm_eps must be 1e-05, not {eps}.")
    if cap is not None:
        raise EngramError(f"final_logit_softcapping must be null, not {cap}.")
    return {"position": "rotary", "tie_embeddings": settings.get("tie_word_embeddings", False)}


def extra_settings(config: GPT.Config) -> HFConfig:
    """Further settings of config.json."""
    return {
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "final_logit_softcapping": None,
        "attention_bias": False,
        "tie_word_embeddings": False,  # a tied embedding is centered, and the output matrix is not
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


NANOCHAT = Family(
    name="nanochat",
    model=GPT,
    architecture=lambda config: "NanoChatForCausalLM",
    prefix="model.",
    key_mapping={
        "embedding.weight": EMBEDDING,
        **map_layer("model.layers.*.", {
            "attention.q": "self_attn.q_proj",
            "attention.k": "self_attn.k_proj",
            "attention.v": "self_attn.v_proj",
            "attention.o": "self_attn.o_proj",
            "ff.up": "mlp.fc1",
            "ff.down": "mlp.fc2",
        }),
        "head.weight": "lm_head.weight",
    },
    ties={"lm_head.weight": EMBEDDING},
    always_affine=False,
    config_mapping=(
        ("vocab_size", "vocabulary", 50304),
        ("max_position_embeddings", "context", 2048),
        ("hidden_size", "width", 768),
        ("num_hidden_layers", "layers", 12),
        ("num_attention_heads", "heads", 6),
        ("num_key_value_heads", "kv_heads", 0),
        ("intermediate_size", "ff_width", 8192),
        ("hidden_act", "activation", "relu2"),
        ("rms_norm_eps", "eps", 1e-6),
    ),
    fixed_settings={
        "attention_bias": False,
        "rope_parameters.rope_type": "default",
        "rope_parameters.rope_theta": 10000.0,
    },
    supported_values={
        "position": ("rotary",),
        "norm": ("layer-no-affine",),
        "pre_norm": (True,),
        "qk_norm": (True,),
        "bias": (False,),
        "eps": (1e-5,),
    },
    derive_fields=derive_fields,
    extra_settings=extra_settings,
    pack=pack,
    unpack=unpack,
)  # fmt: skip
register_family(NANOCHAT)
