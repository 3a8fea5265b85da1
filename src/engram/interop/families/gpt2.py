"""GPT-2. Its matrices are stored as inputs × outputs, and queries, keys and values as one."""

from engram.interop.families.family import Family, Place, Settings
from engram.models.gpt import GPT

H = "transformer.h.*."
ATTENTION = {
    f"blocks.*.attention.{name}": Place(f"{H}attn.c_attn", part=i, turned=True) for i, name in enumerate("qkv")
}


def about(config: GPT.Config) -> Settings:
    return {
        "tie_word_embeddings": config.tied,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "scale_attn_weights": True,
        "bos_token_id": None,
        "eos_token_id": None,
    }


GPT2 = Family(
    name="gpt2",
    model=GPT,
    architecture=lambda config: "GPT2LMHeadModel",
    prefix="transformer.",
    tensors={
        "embedding.weight": "transformer.wte.weight",
        "position.weight": "transformer.wpe.weight",
        "blocks.*.attention_norm": f"{H}ln_1",
        **ATTENTION,
        "blocks.*.attention.o": Place(f"{H}attn.c_proj", turned=True),
        "blocks.*.ff_norm": f"{H}ln_2",
        "blocks.*.ff.up": Place(f"{H}mlp.c_fc", turned=True),
        "blocks.*.ff.down": Place(f"{H}mlp.c_proj", turned=True),
        "norm": "transformer.ln_f",
        "head.weight": "lm_head.weight",
    },
    ties={"lm_head.weight": "transformer.wte.weight"},
    ignored=(r"\.attn\.(bias|masked_bias)$", r"^(transformer\.)?(score|multiple_choice_head|classifier)\."),
    settings=(
        ("vocab_size", "vocabulary", 50257),
        ("n_positions", "context", 1024),
        ("n_embd", "width", 768),
        ("n_layer", "layers", 12),
        ("n_head", "heads", 12),
        ("n_inner", "inside", 0),
        ("activation_function", "function", "gelu_new"),
        ("resid_pdrop", "dropout", 0.1),
        ("layer_norm_epsilon", "eps", 1e-5),
    ),
    must_be={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    needs={"position": ("learned",), "norm": ("layer",), "pre": (True,), "qk_norm": (False,), "kv_heads": (0,)},
    fields=lambda settings, weights: {
        "position": "learned",
        "norm": "layer",
        "bias": True,
        "qk_norm": False,
        "tied": settings.get("tie_word_embeddings", True),
    },
    about=about,
)
