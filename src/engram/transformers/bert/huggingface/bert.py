"""BERT checkpoints, with a pooler, a masked language model head, both or neither."""

from engram.hub.family import CLASSIC, Family, HFConfig, StoredTensor, Weights, map_layer, register_family
from engram.transformers.bert.model import BERT

HEAD = "cls.predictions."
TENSORS: dict[str, str | StoredTensor] = {
    "embedding.weight": "bert.embeddings.word_embeddings.weight",
    "position.weight": "bert.embeddings.position_embeddings.weight",
    "token_type.weight": "bert.embeddings.token_type_embeddings.weight",
    "norm": "bert.embeddings.LayerNorm",
    **map_layer("bert.encoder.layer.*.", {
        "attention.q": "attention.self.query",
        "attention.k": "attention.self.key",
        "attention.v": "attention.self.value",
        "attention.o": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "ff.up": "intermediate.dense",
        "ff.down": "output.dense",
        "ff_norm": "output.LayerNorm",
    }),
    "pool": "bert.pooler.dense",
    "transform": f"{HEAD}transform.dense",
    "transform_norm": f"{HEAD}transform.LayerNorm",
    "head.weight": f"{HEAD}decoder.weight",
    "head.bias": f"{HEAD}bias",
}  # fmt: skip


def derive_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Fields of our config that depend on which tensors a checkpoint has."""
    return {"pooled": "bert.pooler.dense.weight" in weights, "masked": f"{HEAD}bias" in weights}


def other_head(config: BERT.Config, name: str) -> list[str]:
    """Say why a head of another activation function than `name` has no counterpart."""
    found = config.activation_of_head
    return [f"head_activation must be {name!r}, not {found!r}"] if config.masked and found != name else []


def find_unsupported(config: BERT.Config) -> list[str]:
    """Reasons why a config has no counterpart."""
    return without_segments(config) + other_head(config, config.activation)


def without_segments(config: BERT.Config) -> list[str]:
    """Say why a BERT without a segment embedding has no counterpart."""
    return [] if config.types else ["types must be at least 1, not 0"]


BERT_FAMILY = Family(
    name="bert",
    model=BERT,
    architecture=lambda config: "BertForMaskedLM" if config.masked else "BertModel",
    prefix="bert.",
    inputs=("input_ids", "token_type_ids", "attention_mask"),
    key_mapping=TENSORS,
    ties={f"{HEAD}decoder.weight": "bert.embeddings.word_embeddings.weight", f"{HEAD}decoder.bias": f"{HEAD}bias"},
    legacy_suffixes={".gamma": ".weight", ".beta": ".bias"},
    ignored_keys=(r"^(bert\.)?(cls\.seq_relationship|classifier|qa_outputs)\.",),
    config_mapping=(
        ("vocab_size", "vocabulary", 30522),
        ("max_position_embeddings", "context", 512),
        ("type_vocab_size", "types", 2),
        ("hidden_size", "width", 768),
        ("num_hidden_layers", "layers", 12),
        ("num_attention_heads", "heads", 12),
        ("intermediate_size", "ff_width", 3072),
        ("hidden_act", "activation", "gelu"),
        ("hidden_dropout_prob", "dropout", 0.1),
        ("layer_norm_eps", "eps", 1e-12),
    ),
    fixed_settings={"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"},
    supported_values={**CLASSIC, "residual": ("post-norm",), "position": ("learned",), "pad_id": (-1,)},
    derive_fields=derive_fields,
    extra_settings=lambda config: {
        "attention_probs_dropout_prob": 0.0,
        "tie_word_embeddings": True,
        "pad_token_id": None,
    },
    find_unsupported=find_unsupported,
)
register_family(BERT_FAMILY)
