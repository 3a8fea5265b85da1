"""NanoChat, which is what our GPT is by default, written with other signs.   E width, D width of a head

It divides by the root mean square where we subtract the mean first. The two are the same for vectors whose mean is 0,
and all that the mean of our stream ever meets is a norm that takes it away. So these are equal:

    embedding rows, and the outputs of W_o and W_down, less their mean over E      the stream has mean 0          (1)
    the outputs of W_q and W_k, less their mean over each head                     so have queries and keys       (2)

It turns pairs (x_i, x_{i + D/2}) the other way round where we turn (x_2i, x_2i+1), and norms after turning, which
changes no length:

    rows of each head of W_q and W_k in the order 0, 2, 4 ..., 1, 3, 5 ..., the second half negated               (3)

The way back exists only for weights that have these means, as those that we wrote do.
"""

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.interop.families.family import Family, Settings, Weights, block
from engram.models.gpt import GPT

STREAM = ("o_proj.weight", "fc2.weight")
TURNED = ("q_proj.weight", "k_proj.weight")
EMBEDDING = "model.embed_tokens.weight"


def pack(weights: Weights, config: GPT.Config) -> Weights:
    made = dict(weights)
    for name, value in weights.items():
        if name == EMBEDDING:
            made[name] = centred(value, 1)  # (1)
        elif name.endswith(STREAM):
            made[name] = centred(value, 0)  # (1)
        elif name.endswith(TURNED):
            head_HDE = centred(value.unflatten(0, (-1, config.width // config.heads)), 1)  # (2)
            halves = [head_HDE[:, 0::2], -head_HDE[:, 1::2]]  # (3)
            made[name] = torch.cat(halves, 1).flatten(0, 1)
    return made


def unpack(weights: Weights, config: GPT.Config) -> Weights:
    made, skew = dict(weights), []
    size = config.width // config.heads
    for name, value in weights.items():
        if name == EMBEDDING:
            skew += [name] * (not is_centred(value, 1))
        elif name.endswith(STREAM):
            skew += [name] * (not is_centred(value, 0))
        elif name.endswith(TURNED) and value.dim() == 2 and len(value) % size == 0:
            first_HCE, second_HCE = value.unflatten(0, (-1, size)).chunk(2, 1)
            head_HDE = torch.stack([first_HCE, -second_HCE], 2).flatten(1, 2)
            skew += [name] * (not is_centred(head_HDE, 1))
            made[name] = head_HDE.flatten(0, 1)
    if skew:
        raise EngramError(
            "This nanochat was not made by engram: its norms keep the mean that those of a GPT here subtract, "
            f"which differs for {skew[0]}."
        )
    return made


def centred(value: Tensor, dim: int) -> Tensor:
    exact = value.double()  # so that reading it back finds a mean of 0
    return (exact - exact.mean(dim, keepdim=True)).float()


def is_centred(value: Tensor, dim: int) -> bool:
    size = value.abs().max() if value.numel() else 0.0
    return bool((value.double().mean(dim).abs() <= 1e-5 * size).all())


def fields(settings: Settings, weights: Weights) -> Settings:
    eps, cap = settings.get("rms_norm_eps", 1e-6), settings.get("final_logit_softcapping", 15.0)
    if eps != 1e-5:  # that of our queries and keys, which cannot be set
        raise EngramError(f"rms_norm_eps must be 1e-05, not {eps}.")
    if cap is not None:
        raise EngramError(f"final_logit_softcapping must be null, not {cap}.")
    return {"position": "rotary", "tied": settings.get("tie_word_embeddings", False)}


def about(config: GPT.Config) -> Settings:
    return {
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "final_logit_softcapping": None,
        "attention_bias": False,
        "tie_word_embeddings": False,  # a tied embedding is centred, and the output matrix is not
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


NANOCHAT = Family(
    name="nanochat",
    model=GPT,
    architecture=lambda config: "NanoChatForCausalLM",
    prefix="model.",
    tensors={
        "embedding.weight": EMBEDDING,
        **block("model.layers.*.", {
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
    complete=False,
    settings=(
        ("vocab_size", "vocabulary", 50304),
        ("max_position_embeddings", "context", 2048),
        ("hidden_size", "width", 768),
        ("num_hidden_layers", "layers", 12),
        ("num_attention_heads", "heads", 6),
        ("num_key_value_heads", "kv_heads", 0),
        ("intermediate_size", "inside", 8192),
        ("hidden_act", "function", "relu2"),
        ("rms_norm_eps", "eps", 1e-6),
    ),
    must_be={
        "attention_bias": False,
        "rope_parameters.rope_type": "default",
        "rope_parameters.rope_theta": 10000.0,
    },
    needs={
        "position": ("rotary",),
        "norm": ("plain",),
        "pre": (True,),
        "qk_norm": (True,),
        "bias": (False,),
        "eps": (1e-5,),
    },
    fields=fields,
    about=about,
    pack=pack,
    unpack=unpack,
)  # fmt: skip
