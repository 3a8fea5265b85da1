"""DistilBERT: a BERT that does not tell sentences apart and has no pooled vector (Sanh et al. 2019)."""

from engram.interop.families.family import Family, block
from engram.models.bert import BERT

EMBEDDINGS = "distilbert.embeddings."

DISTILBERT = Family(
    name="distilbert",
    model=BERT,
    architecture=lambda config: "DistilBertForMaskedLM" if config.masked else "DistilBertModel",
    prefix="distilbert.",
    tensors={
        "embedding.weight": f"{EMBEDDINGS}word_embeddings.weight",
        "position.weight": f"{EMBEDDINGS}position_embeddings.weight",
        "norm": f"{EMBEDDINGS}LayerNorm",
        **block("distilbert.transformer.layer.*.", {
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
    ignored=(r"^(distilbert\.)?(pre_classifier|classifier|qa_outputs)\.",),
    settings=(
        ("vocab_size", "vocabulary", 30522),
        ("max_position_embeddings", "context", 512),
        ("dim", "width", 768),
        ("n_layers", "layers", 6),
        ("n_heads", "heads", 12),
        ("hidden_dim", "inside", 3072),
        ("activation", "function", "gelu"),
        ("dropout", "dropout", 0.1),
    ),
    needs={
        "types": (0,),
        "pooled": (False,),
        "pre": (False,),
        "qk_norm": (False,),
        "kv_heads": (0,),
        "eps": (1e-12,),
        "function": ("gelu", "relu"),
    },
    fields=lambda settings, weights: {"types": 0, "masked": "vocab_projector.bias" in weights, "eps": 1e-12},
    about=lambda config: {"attention_dropout": 0.0, "tie_word_embeddings": True, "pad_token_id": None},
)  # fmt: skip
