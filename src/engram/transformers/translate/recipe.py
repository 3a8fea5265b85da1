"""Recipe of the encoder-decoder Transformer: translation of text pairs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import nn

from engram import data as datasets
from engram.core.learner import Learner
from engram.core.registry import register
from engram.core.tap import watch
from engram.data.text_pairs import TextPairs
from engram.data.tokenizer import Kind, Tokenizer
from engram.plots import ablation, attention, attention_arcs, embedding, position, rollout
from engram.plots.figure import Figure
from engram.training.optimizer import OptimizerConfig
from engram.transformers.base import MUON, Pretrained, load_pretrained, require_tokenizer
from engram.transformers.translate.model import Transformer
from engram.transformers.translation import TranslationRecipe

ABLATED = (
    ("encoder", "encoder", "attention"),
    ("decoder self-attention", "decoder", "attention"),
    ("decoder cross-attention", "decoder", "cross"),
)


@register
@dataclass(frozen=True, kw_only=True)
class TranslateRecipe(TranslationRecipe[Transformer], Pretrained[Transformer, TextPairs]):
    """Encoder-decoder Transformer: translates dates into their ISO form, or English into German."""

    name: ClassVar[str] = "translate"
    title: ClassVar[str] = "Encoder–decoder Transformer"
    Model: ClassVar[type[nn.Module]] = Transformer
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"width": 16, "layers": 1, "heads": 2, "batch": 8, "steps": 20, "eval_every": 10},
        "full": {
            "data": "bible-en-de", "tokenizer": "bpe", "vocab_size": 6000, "width": 256, "layers": 3, "context": 160,
            "batch": 32, "steps": 3000, "eval_every": 500, "dropout": 0.1, "label_smoothing": 0.1, "minutes": 25.0,
        },
    }  # fmt: skip

    tokenizer: Kind = "characters"
    """kind of tokenizer; with --from, that of the checkpoint is used"""
    model: Transformer.Config = field(default_factory=lambda: Transformer.Config(layers=2, context=64))
    """architecture"""
    optimization: OptimizerConfig = MUON
    """optimizer and learning-rate schedule"""

    def make_tokenizer(self, loaded: datasets.Data) -> Tokenizer:
        if self.from_:
            return require_tokenizer(load_pretrained(self.from_, Transformer)[1], self.from_)
        return super().make_tokenizer(loaded)

    def make_model(self, data: TextPairs) -> Transformer:
        tokenizer = data.tokenizer
        config = replace(
            self.model, vocabulary=tokenizer.vocab_size, pad_id=tokenizer.pad_id or 0, eos_id=tokenizer.eos_id or 0
        )
        return self.init_or_load_model(data.folder, config)

    def figures(self, learner: Learner[Transformer], data: TextPairs) -> Iterator[Figure]:
        model = learner.model
        yield from self.activation_figures(model, data, data["test"]["source_ids"][0])
        if model.encoder_position is not None and model.decoder_position is not None:
            yield position.relative_bias(model.encoder_position, model.config.context).of("encoder")
            yield position.relative_bias(model.decoder_position, model.config.context).of("decoder")
        else:
            yield position.positions(model.position_TE)
        names = data.tokenizer.tokens(range(min(200, model.config.vocabulary)))
        yield embedding.embeddings(model.embedding.weight, names)

    def activation_figures(self, model: Transformer, data: TextPairs, source: list[int]) -> Iterator[Figure]:
        """Figures of attention while the model translates one text."""
        x_1S = torch.tensor([source])
        target = model.translate(x_1S, model.config.context - 1)[0]
        y_1T = torch.tensor([[model.config.pad_id, *target]])
        with torch.no_grad(), watch(model, "*.weights") as seen:
            model(x_1S, y_1T)
        before, after = data.tokenizer.tokens(source), data.tokenizer.tokens([*target, model.config.eos_id])
        yield attention.cross_attention(seen, after, before)
        encoder = {name: value for name, value in seen.items() if name.startswith("encoder")}
        yield attention.attention_grid(encoder, before).of("encoder")
        yield attention_arcs.attention_arcs(encoder, before).of("encoder")
        yield rollout.rollout_text(encoder, before).of("encoder")
        decoder = {name: value for name, value in seen.items() if "decoder" in name and "cross" not in name}
        decoder_input = data.tokenizer.tokens(y_1T[0].tolist())
        yield attention.attention_grid(decoder, decoder_input).of("decoder")
        yield attention.attention_head(decoder, decoder_input).of("decoder")
        yield attention_arcs.attention_arcs(decoder, decoder_input).of("decoder")
        last = max(0, len(target) - 1)  # what follows it is the end of the text, which needs no head
        for title, stack, part in ABLATED:
            yield ablation.head_ablation(model, lambda: model(x_1S, y_1T)[:, last], prefix=stack, part=part).of(title)
