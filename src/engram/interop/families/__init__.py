"""One file for each kind of checkpoint: which tensor is which, and which setting is which."""

from engram.interop.families.bert import BERT_FAMILY
from engram.interop.families.clip import CLIP_FAMILY
from engram.interop.families.distilbert import DISTILBERT
from engram.interop.families.family import Family
from engram.interop.families.gpt2 import GPT2
from engram.interop.families.marian import MARIAN
from engram.interop.families.nanochat import NANOCHAT
from engram.interop.families.pegasus import PEGASUS
from engram.interop.families.vit import VIT

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (GPT2, NANOCHAT, BERT_FAMILY, DISTILBERT, VIT, CLIP_FAMILY, MARIAN, PEGASUS)
}  # fmt: skip
"""every kind of checkpoint, by what its config.json calls `model_type`"""
