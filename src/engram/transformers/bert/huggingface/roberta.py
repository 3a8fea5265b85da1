"""RoBERTa, XLM-RoBERTa and CamemBERT.

BERT whose positions follow the padding token, and whose head has a GELU.
"""

from dataclasses import replace

from engram.hub.family import HFConfig, StoredTensor, Weights, register_family
from engram.transformers.bert.huggingface import bert
from engram.transformers.bert.model import BERT

HEAD = "lm_head."
KEYS = {
    **{own: name.replace("bert.", "roberta.", 1) for own, name in bert.TENSORS.items() if isinstance(name, str)},
    "transform": f"{HEAD}dense",
    "transform_norm": f"{HEAD}layer_norm",
    "head.weight": f"{HEAD}decoder.weight",
    "head.bias": f"{HEAD}bias",
}
KEY_MAPPING: dict[str, str | StoredTensor] = dict(KEYS)
PAD_ID, POSITIONS = 1, 512
"""defaults of transformers for pad_token_id and max_position_embeddings"""


def derive_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Padding token and context, and fields that depend on which tensors a checkpoint has."""
    pad_id = settings.get("pad_token_id", PAD_ID)
    return {
        "pad_id": pad_id,
        "context": settings.get("max_position_embeddings", POSITIONS) - pad_id - 1,
        "pooled": "roberta.pooler.dense.weight" in weights,
        "masked": f"{HEAD}bias" in weights,
        "head_activation": "gelu",
    }


def extra_settings(config: BERT.Config) -> HFConfig:
    """Further settings of config.json."""
    made = bert.BERT_FAMILY.extra_settings(config)
    return {**made, "pad_token_id": config.pad_id, "max_position_embeddings": config.pad_id + 1 + config.context}


def find_unsupported(config: BERT.Config) -> list[str]:
    """Reasons why a config has no counterpart."""
    wrong = bert.without_segments(config) + bert.other_head(config, "gelu")
    if not 0 <= config.pad_id < config.vocabulary:
        wrong.append(f"pad_id must be a token, not {config.pad_id}")
    return wrong


def register_roberta(name: str, architecture: str, vocabulary: int) -> None:
    """Register RoBERTa or one of its descendants, which differ in their names alone."""
    defaults = {"vocab_size": vocabulary}
    register_family(
        replace(
            bert.BERT_FAMILY,
            name=name,
            architecture=lambda config: f"{architecture}{'ForMaskedLM' if config.masked else 'Model'}",
            prefix="roberta.",
            inputs=("input_ids", "attention_mask"),
            key_mapping=KEY_MAPPING,
            ties={
                f"{HEAD}decoder.weight": "roberta.embeddings.word_embeddings.weight",
                f"{HEAD}decoder.bias": f"{HEAD}bias",
            },
            legacy_suffixes={},
            ignored_keys=(r"^(roberta\.)?(classifier|qa_outputs)\.",),
            config_mapping=tuple(
                (theirs, own, defaults.get(theirs, default))
                for theirs, own, default in bert.BERT_FAMILY.config_mapping
                if own != "context"
            ),
            supported_values={n: v for n, v in bert.BERT_FAMILY.supported_values.items() if n != "pad_id"},
            derive_fields=derive_fields,
            extra_settings=extra_settings,
            find_unsupported=find_unsupported,
        )
    )


register_roberta("roberta", "Roberta", 50265)
register_roberta("xlm-roberta", "XLMRoberta", 30522)
register_roberta("camembert", "Camembert", 30522)
