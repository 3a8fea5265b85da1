"""ModernBERT checkpoints: pre-norm, GeGLU, RoPE, sliding windows in most layers.

With its head, or without.
"""

from typing import Any

import torch

from engram.core.errors import EngramError
from engram.hub.family import (
    ACTIVATIONS,
    CLASSIC,
    GATED_ACTIVATIONS,
    Family,
    HFConfig,
    StoredTensor,
    Weights,
    from_hf_gate,
    map_layer,
    register_family,
    to_hf_activation,
    to_hf_gate,
)
from engram.hub.rope_settings import (
    FULL,
    SLIDING,
    largest_window,
    layer_types,
    read_rope,
    several_windows,
    shortest_cycle,
    to_halves,
    to_pairs,
    write_rope,
)
from engram.nn.position import RoPE
from engram.transformers.bert.model import BERT

EMBEDDING = "model.embeddings.tok_embeddings.weight"
QKV = (".attn.q.", ".attn.k.", ".attn.v.")
THETA = {FULL: 160_000.0, SLIDING: 10_000.0}
OLD_THETA = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}
"""defaults of the RoPE base, and its settings in older files"""
BIASES = {
    "attention_bias": ("qkv", "out"),
    "mlp_bias": ("ff",),
    "classifier_bias": ("transform",),
    "decoder_bias": ("head",),
}
"""their settings, and the projections that have biases by them"""


def kinds_of(settings: HFConfig) -> list[str]:
    """Return the kind of each layer, repeated over the layers.

    By default the first of three attends to all tokens.
    """
    every, layers = settings.get("global_attn_every_n_layers", 3), settings.get("num_hidden_layers", 22)
    kinds = settings.get("layer_types") or [SLIDING if i % every else FULL for i in range(min(every, layers))]
    if unknown := set(kinds) - set(THETA):
        raise EngramError(f"its layers are of the kind {min(unknown)!r}, and engram has {FULL} and {SLIDING}.")
    return list(kinds[:layers])


def rope_of(settings: HFConfig, kind: str) -> RoPE:
    """Read the RoPE of the layers of a kind."""
    about = dict((settings.get("rope_parameters") or {}).get(kind) or settings.get("rope_scaling") or {})
    about.setdefault("rope_theta", settings.get(OLD_THETA[kind]) or THETA[kind])
    return read_rope({"rope_parameters": about}, settings.get("max_position_embeddings", 8192))


def derive_rope(settings: HFConfig) -> RoPE:
    """Return RoPE with the base of each layer."""
    kinds, found = kinds_of(settings), {kind: rope_of(settings, kind) for kind in THETA}
    if SLIDING in kinds and FULL in kinds and found[SLIDING].rope_scaling != "none":
        raise EngramError("RoPE of its layers with a window is scaled, and that of engram is not.")
    theta = shortest_cycle([found[kind].theta[0] for kind in kinds])
    return RoPE(**{**vars(found[FULL if FULL in kinds else SLIDING]), "theta": theta})


def derive_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Fields that depend on several settings, or on which tensors a checkpoint has."""
    head = settings.get("classifier_activation", "gelu")
    if head not in ACTIVATIONS:
        raise EngramError(f"the activation function of its head is {head!r}, and engram has {', '.join(ACTIVATIONS)}.")
    window = settings.get("local_attention", 128) // 2 * 2 or 1
    on = {"decoder_bias": True, **settings}
    return {
        "residual": "pre-norm",
        "position": "rotary",
        "types": 0,
        "norm": "layer" if settings.get("norm_bias") else "layer-no-bias",
        "bias": tuple(name for setting, names in BIASES.items() if on.get(setting) for name in names),
        "activation": from_hf_gate(settings.get("hidden_activation", "gelu")),
        "head_activation": ACTIVATIONS[head],
        "attention_window": shortest_cycle([window if kind == SLIDING else 0 for kind in kinds_of(settings)]),
        "rope": derive_rope(settings),
        "masked": "head.dense.weight" in weights and "classifier.weight" not in weights,
    }


def extra_settings(config: BERT.Config) -> HFConfig:
    """Further settings of config.json."""
    theta = {kind: config.rope.theta[i % len(config.rope.theta)] for i, kind in enumerate(layer_types(config))}
    rope = {kind: write_rope(RoPE(), theta.get(kind, default)) for kind, default in THETA.items()}
    main = FULL if FULL in theta else SLIDING
    return {
        **{setting: set(names) <= set(config.bias) for setting, names in BIASES.items()},
        "norm_bias": config.norm == "layer",
        "hidden_activation": to_hf_gate(config.activation),
        "classifier_activation": to_hf_activation(head_activation(config)),
        "layer_types": layer_types(config),
        "local_attention": largest_window(config) or 128,
        "rope_parameters": {**rope, main: write_rope(config.rope, theta[main])},
        "embedding_dropout": config.dropout,
        "tie_word_embeddings": True,
        **{f"{role}_token_id": None for role in ("pad", "bos", "eos", "cls", "sep")},
    }


def head_activation(config: BERT.Config) -> str:
    """Return the activation function of the head, not of a gate."""
    plain = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}
    return plain.get(config.activation_of_head, config.activation_of_head)


def unpack(weights: Weights, config: BERT.Config) -> Weights:
    """Split fused matrices, and reorder queries and keys; a matrix of another shape is left for the error."""
    made: Weights = {}
    for name, value in weights.items():
        if ".attn.Wqkv." in name and len(value) == 3 * config.width:
            q, k, v = value.chunk(3)
            rows = to_pairs(q, config.size_of_head, config.size_of_head), to_pairs(k, *[config.size_of_head] * 2), v
            made |= {name.replace(".attn.Wqkv.", part): row for part, row in zip(QKV, rows, strict=True)}
        elif ".mlp.Wi." in name and len(value) % 2 == 0:
            gate, up = value.chunk(2)
            made |= {name.replace("Wi", "gate"): gate, name.replace("Wi", "up"): up}
        elif config.masked or not name.startswith(("head.", "classifier.")):
            made[name] = value
    return made


def pack(weights: Weights, config: BERT.Config) -> Weights:
    """Fuse matrices, and reorder queries and keys."""
    made, size = dict(weights), config.size_of_head
    for name in [name for name in made if QKV[0] in name]:
        q, k, v = (made.pop(name.replace(QKV[0], part)) for part in QKV)
        made[name.replace(QKV[0], ".attn.Wqkv.")] = torch.cat([to_halves(q, size, size), to_halves(k, size, size), v])
    for name in [name for name in made if ".mlp.gate." in name]:
        made[name.replace("gate", "Wi")] = torch.cat([made.pop(name), made.pop(name.replace("gate", "up"))])
    return made


def find_unsupported(config: BERT.Config) -> list[str]:
    """Reasons why a config has no counterpart."""
    wrong = several_windows(config)
    if len({"qkv", "out"} & set(config.bias)) == 1:
        wrong.append("bias must name both of qkv and out, or none of them")
    if config.rope.rotary_fraction != 1 or 0 in config.rope.theta:
        wrong.append("all of each head must be rotated")
    pairs = {(bool(config.window(i)), config.rope.theta[i % len(config.rope.theta)]) for i in range(config.layers)}
    if len(pairs) > len({slides for slides, _ in pairs}):
        wrong.append("theta may differ by attention_window alone")
    return wrong


SUPPORTED: dict[str, tuple[Any, ...]] = {
    **{name: values for name, values in CLASSIC.items() if name != "attention_window"},
    "norm": ("layer", "layer-no-bias"),
    "residual": ("pre-norm",),
    "position": ("rotary",),
    "activation": tuple(dict.fromkeys(GATED_ACTIVATIONS.values())),
    "types": (0,),
    "pooled": (False,),
    "pad_id": (-1,),
}
TENSORS: dict[str, str | StoredTensor] = {
    "embedding.weight": EMBEDDING,
    "norm": "model.embeddings.norm",
    **map_layer("model.layers.*.", {
        "attention_norm": "attn_norm",
        "attention.q": "attn.q",
        "attention.k": "attn.k",
        "attention.v": "attn.v",
        "attention.o": "attn.Wo",
        "ff_norm": "mlp_norm",
        "ff.gate": "mlp.gate",
        "ff.up": "mlp.up",
        "ff.down": "mlp.Wo",
    }),
    "final_norm": "model.final_norm",
    "transform": "head.dense",
    "transform_norm": "head.norm",
    "head": "decoder",
}  # fmt: skip

register_family(
    Family(
        name="modernbert",
        model=BERT,
        architecture=lambda config: "ModernBertForMaskedLM" if config.masked else "ModernBertModel",
        prefix="model.",
        key_mapping=TENSORS,
        ties={"decoder.weight": EMBEDDING},
        ignored_keys=(r"rotary_emb\.",),
        always_affine=False,
        config_mapping=(
            ("vocab_size", "vocabulary", 50368),
            ("max_position_embeddings", "context", 8192),
            ("hidden_size", "width", 768),
            ("num_hidden_layers", "layers", 22),
            ("num_attention_heads", "heads", 12),
            ("intermediate_size", "ff_width", 1152),
            ("mlp_dropout", "dropout", 0.0),
            ("norm_eps", "eps", 1e-5),
        ),
        supported_values=SUPPORTED,
        derive_fields=derive_fields,
        extra_settings=extra_settings,
        unpack=unpack,
        pack=pack,
        find_unsupported=find_unsupported,
    )
)
