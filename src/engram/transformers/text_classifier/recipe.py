"""Recipe of the text classifier: fine-tunes a BERT on labeled texts, or trains one from scratch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, Metrics
from engram.core.recipe import InspectArgs, Sample, SampleArgs, SampleRequest, check_item, choose_items
from engram.core.registry import register
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.data.dataset import Info, Split
from engram.data.labeled_texts import LabeledTexts, TextColumns, encode_texts, load_labeled, tokenize
from engram.data.text_pairs import LengthBucketLoader
from engram.data.tokenizer import Kind, Tokenizer
from engram.hub.huggingface import Checkpoint
from engram.hub.predict import describe_inputs
from engram.hub.text_classes import classify_rows, pad_with_mask
from engram.metrics.classification import macro_f1
from engram.plots import ablation, attention, attention_arcs, classification, logit_lens, position, rollout
from engram.plots.figure import Figure
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig
from engram.transformers.base import MUON, TOKENIZER, Pretrained, load_pretrained, require_tokenizer
from engram.transformers.bert.model import BERT
from engram.transformers.bert.recipe import SPECIALS
from engram.transformers.text_classifier.model import TextClassifier, from_bert
from engram.transformers.text_classifier.plots import mistakes, token_importance

TEMPLATE = "[CLS] $A [SEP]"
SHOWN = 60
"""characters of a text in a line about it"""


@dataclass(frozen=True, kw_only=True)
class ClassifyTextArgs(SampleArgs):
    """Flags of `engram sample` for text classifiers."""

    text: tuple[str, ...] = ()
    """texts to classify; by default some of the test split"""


@dataclass(frozen=True, kw_only=True)
class ClassifyTextInspectArgs(InspectArgs):
    """Flags of `engram inspect` for text classifiers."""

    text: str = ""
    """text to inspect, instead of one of the test split"""


@register
@dataclass(frozen=True, kw_only=True)
class TextClassifierRecipe(Pretrained[TextClassifier, LabeledTexts]):
    """Classifier of texts: fine-tunes a pretrained BERT (--from), or trains a small one from scratch."""

    name: ClassVar[str] = "text-classifier"
    title: ClassVar[str] = "Text classifier"
    Model: ClassVar[type[nn.Module]] = TextClassifier
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {
            "vocab_size": 300, "width": 16, "layers": 2, "heads": 2, "context": 16, "batch": 8, "steps": 20,
            "eval_every": 10, "dropout": 0.0,
        },
        "full": {"width": 256, "layers": 4, "steps": 3000, "eval_every": 250, "minutes": 28.0},
    }  # fmt: skip
    best: ClassVar[tuple[str, str]] = ("valid_accuracy", "max")
    unit: ClassVar[str] = "texts"
    samples: ClassVar[int] = 8
    SampleArgs: ClassVar[type] = ClassifyTextArgs
    InspectArgs: ClassVar[type] = ClassifyTextInspectArgs

    data: str = "genres"
    """CSV, TSV or Parquet file with a column of texts and one of classes, folder of class folders, or labeled texts"""
    steps: int = 300
    eval_every: int = 50
    batch: Annotated[int, Ge(1)] = 32
    """texts per batch"""
    tokenizer: Kind = "wordpiece"
    """kind of tokenizer; with --from, that of the checkpoint is used"""
    vocab_size: int = 8000
    """vocabulary size of bpe, wordpiece and words tokenizers"""
    pooling: Literal["auto", "cls", "mean"] = "auto"
    """vector of a text: of its first token through a pooler (cls), or the mean; auto: cls if the checkpoint has one"""
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    """fraction of the target distribution spread over all classes; 0 disables"""
    columns: TextColumns = TextColumns()
    """columns of a table"""
    model: TextClassifier.Config = field(default_factory=lambda: TextClassifier.Config(layers=2, dropout=0.1))
    """architecture"""
    optimization: OptimizerConfig = MUON
    """optimizer and learning-rate schedule"""

    @property
    def items_per_step(self) -> float:
        return self.batch

    # ------------------------------------------------------------------ data and model

    def load(self) -> LabeledTexts:
        loaded = load_labeled(self.data, self.columns)
        if self.from_:
            tokenizer = require_tokenizer(load_pretrained(self.from_, BERT)[1], self.from_)
        else:
            texts = (text for split in loaded.splits.values() for text in split["text"])
            tokenizer = Tokenizer.train(
                self.tokenizer, texts, vocab_size=self.vocab_size, special_tokens=SPECIALS, template=TEMPLATE
            )
        return tokenize(loaded, tokenizer, self.model.context)

    def reload(self, folder: Path) -> LabeledTexts:
        loaded = load_labeled(self.data, self.columns)
        return tokenize(loaded, Tokenizer.load(folder / TOKENIZER), self.model.context, folder)

    def data_of_checkpoint(self, checkpoint: Checkpoint, info: Info) -> LabeledTexts:
        return LabeledTexts(info, require_tokenizer(checkpoint.tokenizer, checkpoint.path), {}, checkpoint.classes)

    def files(self, data: LabeledTexts) -> Mapping[str, bytes]:
        about = describe_inputs("text classes", classes=data.classes, text_column=self.columns.text_column)
        return {TOKENIZER: data.tokenizer.to_bytes(), **about}

    def learner(self, data: LabeledTexts) -> GradientLearner[TextClassifier]:
        config = replace(
            self.model, vocabulary=data.tokenizer.vocab_size, classes=len(data.classes), pooled=self.pooling == "cls"
        )
        model = self.init_or_load_model(data.folder, config)
        if model.config.context < self.model.context:
            raise EngramError(f"context is {self.model.context}, and {self.from_} sees {model.config.context} tokens.")
        if self.lora:  # what is new has no pretrained weights to adapt
            model.head.requires_grad_(True)
            if model.config.pooled:
                model.pool.requires_grad_(True)
        return GradientLearner(model, self.loss, self.optimization, self.steps)

    def load_base(self, config: TextClassifier.Config) -> TextClassifier:
        """Return the checkpoint if it tells as many classes apart, or its encoder with a new linear layer."""
        base = load_pretrained(self.from_, BERT)[0]
        pooled = base.config.pooled if self.pooling == "auto" else self.pooling == "cls"
        if isinstance(base, TextClassifier) and (base.config.classes, base.config.pooled) == (config.classes, pooled):
            return base
        return from_bert(base, config.classes, pooled)

    def loss(self, model: TextClassifier, batch: Batch) -> tuple[Tensor, Metrics]:
        """Cross-entropy of a batch, and its accuracy."""
        logits_BK = model(batch["x"], batch["valid"])
        loss = F.cross_entropy(logits_BK, batch["label"], label_smoothing=self.label_smoothing)
        return loss, {"accuracy": (logits_BK.detach().argmax(1) == batch["label"]).float().mean()}

    def batches(self, data: LabeledTexts) -> LengthBucketLoader:
        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            x_BT, valid_BT = pad_with_mask(batch["ids"])
            return {"x": x_BT, "valid": valid_BT, "label": batch["label"]}

        columns = Split({name: data["train"][name] for name in ("ids", "length", "label")})
        return LengthBucketLoader(columns, self.batch, generator(self.seed, "batches"), prepare)

    # ------------------------------------------------------------------ metrics and figures

    def evaluate(self, learner: Learner[TextClassifier], data: LabeledTexts, split: str) -> dict[str, float]:
        return self.score(classify_rows(learner.model, data[split]["ids"][:]), data[split])

    def score(self, outputs_NK: Tensor, split: Split) -> dict[str, float]:
        """Metrics of the logits of a split."""
        label_N, predicted_N = split["label"], outputs_NK.argmax(1)
        return {
            "loss": F.cross_entropy(outputs_NK, label_N).item(),
            "accuracy": (predicted_N == label_N).double().mean().item(),
            "macro_f1": macro_f1(predicted_N, label_N, outputs_NK.shape[1]),
        }

    def figures(self, learner: Learner[TextClassifier], data: LabeledTexts) -> Iterator[Figure]:
        model, test = learner.model, data["test"]
        logits_NK = classify_rows(model, test["ids"][:])
        yield classification.confusion(logits_NK, test["label"], data.classes)
        yield mistakes(test["text"], logits_NK, test["label"], data.classes)
        yield from self.activation_figures(model, data, test["ids"][:1][0])

    def activation_figures(self, model: TextClassifier, data: LabeledTexts, ids: list[int]) -> Iterator[Figure]:
        """Figures of the activations while the model classifies one text."""
        tokens, x_1T = data.tokenizer.tokens(ids), torch.tensor([ids])
        with torch.no_grad():
            with watch(model, "*attention.weights") as seen:
                logits_K = model(x_1T)[0]
            yield logit_lens.top_probabilities(logits_K, list(data.classes), "Predicted classes")
            if len(ids) > 1:
                yield token_importance(model, ids, tokens, data.classes[int(logits_K.argmax())])
        yield attention.attention_grid(seen, tokens)
        yield attention.attention_head(seen, tokens)
        yield attention_arcs.attention_arcs(seen, tokens)
        yield rollout.rollout_text(seen, tokens)
        yield ablation.head_ablation(model, lambda: model(x_1T))
        yield position.positions(model.position.weight)

    # ------------------------------------------------------------------ predictions

    def inspect(
        self, model: TextClassifier, data: LabeledTexts, args: ClassifyTextInspectArgs
    ) -> tuple[str, list[Figure]]:
        if not args.text:
            described = self.trace(model, data, args.item)
            return described, list(
                self.activation_figures(model, data, data["test"]["ids"][args.item : args.item + 1][0])
            )
        ids = encode_texts(data.tokenizer, [args.text], model.config.context)[0]
        row = self.describe(model, data, [args.text], [ids])[0]
        described = f'"{args.text}", predicted "{row["predicted"]}" ({row["probability"]:.1%})'
        return described, list(self.activation_figures(model, data, ids))

    def trace(self, model: TextClassifier, data: LabeledTexts, item: int) -> str:
        test = data["test"]
        check_item(item, len(test))
        p, k = model(torch.tensor(test["ids"][item : item + 1]))[0].softmax(0).max(0)
        true = data.classes[int(test["label"][item])]
        return (
            f'test text {item}, "{shorten(test["text"][item])}", true "{true}", predicted "{data.classes[k]}" ({p:.1%})'
        )

    def describe(
        self, model: TextClassifier, data: LabeledTexts, texts: list[str], rows: list[list[int]]
    ) -> list[dict[str, Any]]:
        """Return texts with the predicted class of each and its probability."""
        p_N, k_N = classify_rows(model, rows).softmax(1).max(1)
        found = zip(texts, k_N.tolist(), p_N.tolist(), strict=True)
        return [{"text": text, "predicted": data.classes[k], "probability": p} for text, k, p in found]

    def sample(self, learner: Learner[TextClassifier], data: LabeledTexts, request: SampleRequest) -> Sample:
        """Classify given texts, or random ones of the test split."""
        model, texts = learner.model, list(request.args.text)
        if texts:
            ids = encode_texts(data.tokenizer, texts, model.config.context)
            rows = self.describe(model, data, texts, ids)
        else:
            index = choose_items(request.count, len(data["test"]), request.generator)
            chosen = data["test"].select(index)
            ids = chosen["ids"]
            found = zip(self.describe(model, data, chosen["text"], ids), chosen["label"].tolist(), strict=True)
            rows = [{**row, "true": data.classes[k]} for row, k in found]
        lines = [
            f"{row['probability']:6.1%}  {row['predicted']:<16}"
            + (f" true {row['true']:<16}" if "true" in row else "")
            + f" {shorten(row['text'])}"
            for row in rows
        ]
        return Sample({"probability": classify_rows(model, ids).softmax(1)}, "\n".join(lines), rows=rows)


def shorten(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"
