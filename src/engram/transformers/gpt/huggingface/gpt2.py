"""GPT-2 checkpoints: matrices stored as inputs × outputs; queries, keys and values fused into one."""

from engram.hub.family import CLASSIC, Family, HFConfig, StoredTensor, register_family
from engram.nn.transformer_block import PROJECTIONS
from engram.transformers.gpt.model import GPT

H = "transformer.h.*."
ATTENTION = {
    f"blocks.*.attention.{name}": StoredTensor(f"{H}attn.c_attn", third=i, transposed=True)
    for i, name in enumerate("qkv")
}


def extra_settings(config: GPT.Config) -> HFConfig:
    """Further settings of config.json."""
    return {
        "tie_word_embeddings": config.tie_embeddings,
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
    key_mapping={
        "embedding.weight": "transformer.wte.weight",
        "position.weight": "transformer.wpe.weight",
        "blocks.*.attention_norm": f"{H}ln_1",
        **ATTENTION,
        "blocks.*.attention.o": StoredTensor(f"{H}attn.c_proj", transposed=True),
        "blocks.*.ff_norm": f"{H}ln_2",
        "blocks.*.ff.up": StoredTensor(f"{H}mlp.c_fc", transposed=True),
        "blocks.*.ff.down": StoredTensor(f"{H}mlp.c_proj", transposed=True),
        "norm": "transformer.ln_f",
        "head.weight": "lm_head.weight",
    },
    ties={"lm_head.weight": "transformer.wte.weight"},
    ignored_keys=(r"\.attn\.(bias|masked_bias)$", r"^(transformer\.)?(score|multiple_choice_head|classifier)\."),
    config_mapping=(
        ("vocab_size", "vocabulary", 50257),
        ("n_positions", "context", 1024),
        ("n_embd", "width", 768),
        ("n_layer", "layers", 12),
        ("n_head", "heads", 12),
        ("n_inner", "ff_width", 0),
        ("activation_function", "activation", "gelu_new"),
        ("resid_pdrop", "dropout", 0.1),
        ("layer_norm_epsilon", "eps", 1e-5),
    ),
    fixed_settings={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    supported_values={
        **CLASSIC,
        "position": ("learned",),
        "norm": ("layer",),
        "residual": ("pre-norm",),
        "embedding_scale": (1.0,),
        "logit_softcap": (0.0,),
    },
    derive_fields=lambda settings, weights: {
        "position": "learned",
        "norm": "layer",
        "bias": PROJECTIONS,
        "qk_norm": "none",
        "tie_embeddings": settings.get("tie_word_embeddings", True),
    },
    extra_settings=extra_settings,
)
register_family(GPT2)
