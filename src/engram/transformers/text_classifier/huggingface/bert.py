"""BERT checkpoints of sequence classification: BertForSequenceClassification."""

from dataclasses import replace

from engram.hub.family import CLASSIC, HFConfig, StoredTensor, Weights, register_family
from engram.hub.huggingface import SEQUENCE_CLASSIFICATION
from engram.transformers.bert.huggingface.bert import BERT_FAMILY, HEAD
from engram.transformers.text_classifier.model import TextClassifier

TENSORS: dict[str, str | StoredTensor] = {
    **{
        name: place
        for name, place in BERT_FAMILY.key_mapping.items()
        if not (place.name if isinstance(place, StoredTensor) else place).startswith(HEAD)
    },
    "head": "classifier",
}


def derive_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Number of classes; such a checkpoint always has a pooler."""
    return {"pooled": True, "masked": False, "classes": len(weights.get("classifier.bias", ()))}


BERT_CLASSIFIER = replace(
    BERT_FAMILY,
    model=TextClassifier,
    task=SEQUENCE_CLASSIFICATION,
    architecture=lambda config: f"Bert{SEQUENCE_CLASSIFICATION}",
    key_mapping=TENSORS,
    ties={},
    ignored_keys=(r"^cls\.",),
    supported_values={**CLASSIC, "residual": ("post-norm",), "pooled": (True,), "pooler": ("tanh",)},
    derive_fields=derive_fields,
)
register_family(BERT_CLASSIFIER)
