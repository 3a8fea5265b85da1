"""BERT on texts of unequal lengths: padded and masked, or without the padding."""

import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engram.cli.bench import Contestant
from engram.core.errors import EngramError
from engram.hub import huggingface
from engram.transformers.bert.model import BERT

LENGTHS = (128, 96, 64, 48, 32, 24, 16, 12)
WORK = f"BERT-base with random weights, forward, a batch of texts of {', '.join(map(str, LENGTHS))} tokens"
UNIT = "texts/s"
SIZE: dict[str, Any] = {}
"""settings of transformers' BertConfig that are not those of BERT-base"""
PASSES = 4


def contestants() -> dict[str, Contestant]:
    from transformers import BertConfig, BertModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    torch.manual_seed(0)
    config = BertConfig(**SIZE)
    config._attn_implementation = "sdpa"
    peer = BertModel(config, add_pooling_layer=False).eval()
    with tempfile.TemporaryDirectory() as folder:
        peer.save_pretrained(folder)
        model = huggingface.load_checkpoint(folder).model
    assert isinstance(model, BERT)
    valid_BT = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    x_BT = torch.randint(config.vocab_size, valid_BT.shape) * valid_BT
    mask_BT = valid_BT.long()

    def transformers() -> Tensor:
        return peer(input_ids=x_BT, attention_mask=mask_BT).last_hidden_state

    def engram() -> Tensor:
        return model.encode(x_BT, valid_BT)

    def repeat(forward: Callable[[], Tensor]) -> Callable[[], float]:
        @torch.no_grad()
        def work() -> float:
            for _ in range(PASSES):
                forward()
            return PASSES * len(LENGTHS)

        return work

    with torch.no_grad():
        difference = (transformers() - engram())[valid_BT].abs().max().item()
    if difference > 1e-4:
        raise EngramError(f"The models must be the same, but their vectors differ by {difference:.1e}.")
    return {
        "transformers BertModel, padded, SDPA": lambda: repeat(transformers),
        "engram BERT, without padding": lambda: repeat(engram),
    }
