"""DistilBERT checkpoints of sequence classification, whose pooler has a ReLU."""

from dataclasses import replace

from engram.hub.family import HFConfig, Weights, register_family
from engram.hub.huggingface import SEQUENCE_CLASSIFICATION
from engram.transformers.bert.huggingface.distilbert import DISTILBERT
from engram.transformers.text_classifier.model import TextClassifier


def derive_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Number of classes, and what all such checkpoints have in common."""
    return {
        "types": 0, "eps": 1e-12, "pooled": True, "pooler": "relu", "masked": False,
        "classes": len(weights.get("classifier.bias", ())),
    }  # fmt: skip


DISTILBERT_CLASSIFIER = replace(
    DISTILBERT,
    model=TextClassifier,
    task=SEQUENCE_CLASSIFICATION,
    architecture=lambda config: f"DistilBert{SEQUENCE_CLASSIFICATION}",
    key_mapping={
        **{name: place for name, place in DISTILBERT.key_mapping.items() if not name.startswith(("transform", "head"))},
        "pool": "pre_classifier",
        "head": "classifier",
    },
    ties={},
    ignored_keys=(r"^vocab_",),
    supported_values={**DISTILBERT.supported_values, "pooled": (True,), "pooler": ("relu",)},
    derive_fields=derive_fields,
)
register_family(DISTILBERT_CLASSIFIER)
