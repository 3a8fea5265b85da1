"""Recipe of the recurrent encoder-decoder with attention: translation of text pairs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import nn

from engram.core.learner import Learner
from engram.core.registry import register
from engram.core.tap import watch
from engram.data.text_pairs import TextPairs, pad_rows
from engram.plots import embedding
from engram.plots.figure import Figure
from engram.sequences.plots import cell_activations
from engram.sequences.rnn_attention import plots
from engram.sequences.rnn_attention.model import Seq2Seq
from engram.training.optimizer import OptimizerConfig
from engram.transformers.base import MUON
from engram.transformers.translation import TranslateArgs, TranslationRecipe

PLOTTED_PAIRS = 300
"""test pairs whose loss is plotted by length"""


@dataclass(frozen=True, kw_only=True)
class Seq2SeqArgs(TranslateArgs):
    """Flags of `engram sample` for the recurrent encoder-decoder."""

    num_beams: Annotated[int, Ge(0)] = 0
    """number of beams of beam search; 0 samples token by token"""


@register
@dataclass(frozen=True, kw_only=True)
class RNNAttentionRecipe(TranslationRecipe[Seq2Seq]):
    """Recurrent encoder-decoder: attention lets a GRU look back at the source while it writes the target."""

    name: ClassVar[str] = "rnn-attention"
    title: ClassVar[str] = "Recurrent encoder–decoder with attention"
    Model: ClassVar[type[nn.Module]] = Seq2Seq
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"width": 16, "batch": 8, "steps": 20, "eval_every": 10},
        "full": {
            "data": "bible-en-de", "tokenizer": "bpe", "vocab_size": 6000, "attention": "general", "width": 384,
            "context": 160, "batch": 32, "steps": 3000, "eval_every": 500, "dropout": 0.2, "label_smoothing": 0.1,
            "minutes": 25.0,
        },
    }  # fmt: skip
    SampleArgs: ClassVar[type] = Seq2SeqArgs

    steps: int = 600
    eval_every: int = 150
    model: Seq2Seq.Config = field(default_factory=Seq2Seq.Config)
    """architecture"""
    optimization: OptimizerConfig = replace(
        MUON, lr=0.02, adamw_lr=0.01, warmup=0.0, stable_fraction=0.4, clip_grad_norm=1.0
    )
    """optimizer and learning-rate schedule"""

    def make_model(self, data: TextPairs) -> Seq2Seq:
        tokenizer, pad_id = data.tokenizer, data.tokenizer.pad_id or 0
        config = replace(
            self.model, vocabulary=tokenizer.vocab_size, pad_id=pad_id, start_id=pad_id, eos_id=tokenizer.eos_id or 0
        )
        return Seq2Seq(config)

    def figures(self, learner: Learner[Seq2Seq], data: TextPairs) -> Iterator[Figure]:
        model, test = learner.model, data["test"]
        yield from self.activation_figures(model, data, test["source_ids"][0])
        count = min(PLOTTED_PAIRS, len(test))
        x_NS, y_NT = (pad_rows(test[f"{side}_ids"][:count], model.config.pad_id) for side in ("source", "target"))
        loss_N = torch.cat([
            plots.pair_losses(model(x_BS, model.shift_right(y_BT)), y_BT, model.config.pad_id)
            for x_BS, y_BT in zip(x_NS.split(32), y_NT.split(32), strict=True)
        ])  # fmt: skip
        yield plots.loss_by_length(loss_N, (x_NS != model.config.pad_id).sum(1))
        names = data.tokenizer.tokens(range(min(200, model.config.vocabulary)))
        yield embedding.embeddings(model.source_embedding.weight, names)

    def activation_figures(self, model: Seq2Seq, data: TextPairs, source: list[int]) -> Iterator[Figure]:
        """Figures of the alignment, and of the decoder's states, while the model translates one text."""
        x_1S = torch.tensor([source])
        target = [*model.translate(x_1S, model.config.context - 1)[0], model.config.eos_id]
        with torch.no_grad(), watch(model) as seen:
            model(x_1S, model.shift_right(torch.tensor([target])))
        before, after = data.tokenizer.tokens(source), data.tokenizer.tokens(target)
        if "attention.weights" in seen:
            yield plots.alignment(seen["attention.weights"][0], after, before)
        gates = {name: torch.cat(seen.all(f"decoder.{name}")) for name in ("state", "update", "reset")}
        yield cell_activations(gates, after).of("decoder")
