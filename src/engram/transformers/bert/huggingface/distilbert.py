"""DistilBERT checkpoints: BERT without segment embedding and pooler (Sanh et al. 2019)."""

from engram.hub.family import CLASSIC, Family, map_layer, register_family
from engram.transformers.bert.huggingface.bert import other_head
from engram.transformers.bert.model import BERT

EMBEDDINGS = "distilbert.embeddings."

DISTILBERT = Family(
    name="distilbert",
    model=BERT,
    architecture=lambda config: "DistilBertForMaskedLM" if config.masked else "DistilBertModel",
    prefix="distilbert.",
    key_mapping={
        "embedding.weight": f"{EMBEDDINGS}word_embeddings.weight",
        "position.weight": f"{EMBEDDINGS}position_embeddings.weight",
        "norm": f"{EMBEDDINGS}LayerNorm",
        **map_layer("distilbert.transformer.layer.*.", {
            "attention.q": "attention.q_lin",
            "attention.k": "attention.k_lin",
            "attention.v": "attention.v_lin",
            "attention.o": "attention.out_lin",
            "attention_norm": "sa_layer_norm",
            "ff.up": "ffn.lin1",
            "ff.down": "ffn.lin2",
            "ff_norm": "output_layer_norm",
        }),
        "transform": "vocab_transform",
        "transform_norm": "vocab_layer_norm",
        "head": "vocab_projector",
    },
    ties={"vocab_projector.weight": f"{EMBEDDINGS}word_embeddings.weight"},
    ignored_keys=(r"^(distilbert\.)?(pre_classifier|classifier|qa_outputs)\.",),
    config_mapping=(
        ("vocab_size", "vocabulary", 30522),
        ("max_position_embeddings", "context", 512),
        ("dim", "width", 768),
        ("n_layers", "layers", 6),
        ("n_heads", "heads", 12),
        ("hidden_dim", "ff_width", 3072),
        ("activation", "activation", "gelu"),
        ("dropout", "dropout", 0.1),
    ),
    supported_values={
        "types": (0,),
        "position": ("learned",),
        "pad_id": (-1,),
        "pooled": (False,),
        **CLASSIC,
        "residual": ("post-norm",),
        "eps": (1e-12,),
        "activation": ("gelu", "relu"),
    },
    derive_fields=lambda settings, weights: {"types": 0, "masked": "vocab_projector.bias" in weights, "eps": 1e-12},
    extra_settings=lambda config: {"attention_dropout": 0.0, "tie_word_embeddings": True, "pad_token_id": None},
    find_unsupported=lambda config: other_head(config, config.activation),
)  # fmt: skip
register_family(DISTILBERT)
