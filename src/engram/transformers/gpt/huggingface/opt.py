"""OPT: GPT-2 with ReLU; the first two rows of its position embedding are for padding."""

import torch

from engram.core.errors import EngramError
from engram.hub.family import CLASSIC, Family, HFConfig, Weights, map_layer, register_family
from engram.nn.transformer_block import PROJECTIONS
from engram.transformers.gpt.model import GPT

POSITION = "model.decoder.embed_positions.weight"
PADDING = 2
"""rows of the position embedding before the first position"""


def unpack(weights: Weights, config: GPT.Config) -> Weights:
    """Leave out the rows for padding."""
    return {name: value[PADDING:] if name == POSITION else value for name, value in weights.items()}


def pack(weights: Weights, config: GPT.Config) -> Weights:
    """Add rows for padding."""
    zeros = torch.zeros(PADDING, config.width)
    return {name: torch.cat([zeros, value]) if name == POSITION else value for name, value in weights.items()}


def fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Fields of our config; refuse embeddings of another width."""
    width = settings.get("hidden_size", 768)
    if (settings.get("word_embed_proj_dim") or width) != width:
        raise EngramError(f"word_embed_proj_dim must be the width {width}, not {settings['word_embed_proj_dim']}.")
    return {
        "position": "learned",
        "norm": "layer",
        "residual": "pre-norm",
        "bias": PROJECTIONS,
        "qk_norm": "none",
        "tie_embeddings": settings.get("tie_word_embeddings", True),
    }


def extra_settings(config: GPT.Config) -> HFConfig:
    """Return further settings of config.json."""
    return {
        "word_embed_proj_dim": config.width,
        "attention_dropout": 0.0,
        "tie_word_embeddings": config.tie_embeddings,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


OPT = Family(
    name="opt",
    model=GPT,
    architecture=lambda config: "OPTForCausalLM",
    prefix="model.",
    key_mapping={
        "embedding.weight": "model.decoder.embed_tokens.weight",
        "position.weight": POSITION,
        **map_layer("model.decoder.layers.*.", {
            "attention_norm": "self_attn_layer_norm",
            "attention.q": "self_attn.q_proj",
            "attention.k": "self_attn.k_proj",
            "attention.v": "self_attn.v_proj",
            "attention.o": "self_attn.out_proj",
            "ff_norm": "final_layer_norm",
            "ff.up": "fc1",
            "ff.down": "fc2",
        }),
        "norm": "model.decoder.final_layer_norm",
        "head.weight": "lm_head.weight",
    },
    ties={"lm_head.weight": "model.decoder.embed_tokens.weight"},
    config_mapping=(
        ("vocab_size", "vocabulary", 50272),
        ("max_position_embeddings", "context", 2048),
        ("hidden_size", "width", 768),
        ("num_hidden_layers", "layers", 12),
        ("num_attention_heads", "heads", 12),
        ("ffn_dim", "ff_width", 3072),
        ("activation_function", "activation", "relu"),
        ("dropout", "dropout", 0.1),
    ),
    fixed_settings={
        "do_layer_norm_before": True,
        "_remove_final_layer_norm": False,
        "enable_bias": True,
        "layer_norm_elementwise_affine": True,
    },
    supported_values={
        **CLASSIC,
        "position": ("learned",),
        "norm": ("layer",),
        "residual": ("pre-norm",),
        "eps": (1e-5,),
        "embedding_scale": (1.0,),
        "logit_softcap": (0.0,),
    },
    derive_fields=fields,
    extra_settings=extra_settings,
    unpack=unpack,
    pack=pack,
)  # fmt: skip
register_family(OPT)
