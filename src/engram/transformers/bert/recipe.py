"""Recipe of BERT: masked language modeling on text, and filling in masked tokens."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, Metrics
from engram.core.recipe import InspectArgs, Sample, SampleArgs, SampleRequest
from engram.core.registry import register
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.data.corpus import Corpus, Unit
from engram.data.dataset import Split
from engram.data.labeled_texts import is_labeled_table
from engram.data.loaders import BatchLoader
from engram.data.text_pairs import pad_rows
from engram.data.tokenizer import Kind
from engram.data.tokens import Tokens
from engram.hub.predict import describe_inputs
from engram.plots import ablation, attention, attention_arcs, embedding, logit_lens, position, rollout
from engram.plots.figure import Figure
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig
from engram.transformers.base import MUON, TextRecipe
from engram.transformers.bert.model import BERT, IGNORE_INDEX, Masking

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
EVALUATION_LINES = 512
MIN_TOKENS = 3
"""shortest line that is used, in tokens"""


@dataclass(frozen=True, kw_only=True)
class FillMaskArgs(SampleArgs):
    """Flags of `engram sample` for BERT."""

    text: str = ""
    """text with [MASK] (RoBERTa: <mask>) where tokens are missing; by default lines of the data, one token masked"""
    top_k: Annotated[int, Ge(1)] = 5
    """number of predictions for each mask"""


@dataclass(frozen=True, kw_only=True)
class FillMaskInspectArgs(InspectArgs):
    """Flags of `engram inspect` for BERT."""

    text: str = ""
    """text to inspect, with or without [MASK], instead of one from the data"""


class LineColumn:
    """Lines of a split with their special tokens, built on access."""

    def __init__(self, tokens: Tokens, context: int, cls_id: int, sep_id: int) -> None:
        self.tokens, self.context, self.cls_id, self.sep_id = tokens, context, cls_id, sep_id
        length_N = torch.diff(tokens.ends, prepend=torch.zeros(1, dtype=torch.long))
        self.chosen = (length_N >= MIN_TOKENS).nonzero()[:, 0]

    def __len__(self) -> int:
        return len(self.chosen)

    def line(self, i: int) -> list[int]:
        """Token ids of one line."""
        body = self.tokens.segment(int(self.chosen[i]))[: self.context - 2].tolist()
        return [self.cls_id, *body, self.sep_id]

    def __getitem__(self, index_B: Tensor) -> list[list[int]]:
        return [self.line(i) for i in index_B.tolist()]


@register
@dataclass(frozen=True, kw_only=True)
class BERTRecipe(TextRecipe[BERT]):
    """Bidirectional Transformer encoder: masked language modeling, and filling in masked tokens."""

    name: ClassVar[str] = "bert"
    title: ClassVar[str] = "BERT"
    Model: ClassVar[type[nn.Module]] = BERT
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {
            "data": "shakespeare", "vocab_size": 300, "width": 16, "layers": 2, "heads": 2, "context": 16, "batch": 4,
            "steps": 20, "eval_every": 10,
        },
        "full": {"width": 256, "layers": 6, "batch": 48, "steps": 6000, "eval_every": 500, "minutes": 28.0},
    }  # fmt: skip
    split_by: ClassVar[Unit] = "lines"
    specials: ClassVar[Mapping[str, tuple[str, ...]]] = dict.fromkeys(
        ("characters", "bytes", "bpe", "wordpiece", "words"), SPECIALS
    )
    template: ClassVar[str] = "[CLS] $A [SEP]"
    samples: ClassVar[int] = 5
    SampleArgs: ClassVar[type] = FillMaskArgs
    InspectArgs: ClassVar[type] = FillMaskInspectArgs

    data: str = "brown"
    steps: int = 1500
    eval_every: int = 250
    tokenizer: Kind = "wordpiece"
    vocab_size: int = 8000
    batch: int = 32
    """lines per batch"""
    model: BERT.Config = field(default_factory=lambda: BERT.Config(context=64))
    """architecture"""
    optimization: OptimizerConfig = MUON
    """optimizer and learning-rate schedule"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.context < MIN_TOKENS + 2:
            raise EngramError(f"context must be at least {MIN_TOKENS + 2}, not {self.model.context}.")

    @property
    def items_per_step(self) -> float:
        return self.batch * self.model.context / 2  # lines are about half as long as the longest

    def load(self) -> Corpus:
        if is_labeled_table(self.data):
            raise EngramError(
                f"{self.data} is a table of labeled texts, which bert does not learn: `engram run text-classifier "
                f"--data {self.data}`{f' with --from {self.from_}' if self.from_ else ''} trains a classifier of them."
            )
        loaded = super().load()
        if loaded.tokenizer.mask_id is None:
            raise EngramError(f"The tokenizer of {self.from_} has no [MASK], and masked language modeling needs it.")
        return loaded

    def learner(self, data: Corpus) -> GradientLearner[BERT]:
        model = self.init_or_load_model(data.folder, replace(self.model, vocabulary=data.tokenizer.vocab_size))
        if not model.config.masked:
            raise EngramError(
                f"{self.from_ or data.folder} has no masked language model head, which is what is trained here: start "
                "from a checkpoint that was saved with one (BertForMaskedLM)."
            )
        if model.config.context < self.model.context:
            raise EngramError(f"context is {self.model.context}, and {self.from_} sees {model.config.context} tokens.")
        return GradientLearner(model, self.loss, self.optimization, self.steps, count_predicted)

    def loss(self, model: BERT, batch: Batch) -> tuple[Tensor, Metrics]:
        return model.loss(batch["x"], batch["y"], batch["valid"]), {}

    def files(self, data: Corpus) -> Mapping[str, bytes]:
        return {**super().files(data), **describe_inputs("masked text")}

    def lines(self, data: Corpus, split: str) -> LineColumn:
        """Return the lines of a split that are long enough."""
        found = LineColumn(data[split], self.model.context, data.tokenizer.cls_id, data.tokenizer.sep_id)
        if not len(found):
            raise EngramError(f"{data.info.name} has no line of {MIN_TOKENS} tokens in its split {split}.")
        return found

    def mask_tokens(self, data: Corpus, lines: list[list[int]], random: torch.Generator) -> dict[str, Tensor]:
        """Return a batch: masked tokens x, labels y, and `valid`, which is false for padding."""
        padding, mask = data.tokenizer.pad_id or 0, data.tokenizer.mask_id
        assert mask is not None
        x_BT = pad_rows(lines, padding)
        masked_BT, label_BT = Masking(mask, data.tokenizer.vocab_size, data.tokenizer.special_ids)(x_BT, random)
        return {"x": masked_BT, "y": label_BT, "valid": x_BT != padding}

    def batches(self, data: Corpus) -> BatchLoader:
        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            return self.mask_tokens(data, batch["line"], generator)

        lines = Split({"line": self.lines(data, "train")})
        return BatchLoader(lines, self.batch, generator(self.seed, "batches"), prepare)

    def evaluate(self, learner: Learner[BERT], data: Corpus, split: str) -> dict[str, float]:
        """Loss, perplexity and accuracy on masked tokens, which are the same at every evaluation."""
        model, lines, random = learner.model, self.lines(data, split), generator(self.seed, "hidden")
        total, correct, count = 0.0, 0, 0
        chosen = torch.linspace(0, len(lines) - 1, min(len(lines), EVALUATION_LINES)).round().long()
        for part in chosen.split(64):
            batch = self.mask_tokens(data, lines[part], random)
            predicted = batch["y"] != IGNORE_INDEX
            logits_NV = model.logits(model.residual_stream(batch["x"], batch["valid"])[predicted])
            target_N = batch["y"][predicted]
            total += nn.functional.cross_entropy(logits_NV, target_N, reduction="sum").item()
            correct += int((logits_NV.argmax(1) == target_N).sum())
            count += len(target_N)
        loss = total / max(1, count)
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "accuracy": correct / max(1, count)}

    def figures(self, learner: Learner[BERT], data: Corpus) -> Iterator[Figure]:
        lines = self.lines(data, "valid")
        ids = max((lines.line(i) for i in range(min(50, len(lines)))), key=lambda line: min(len(line), 24))
        yield from self.activation_figures(learner.model, data, self.mask_middle(data, ids))

    def mask_middle(self, data: Corpus, ids: list[int]) -> list[int]:
        """Mask a token in the middle of a text, unless one is masked."""
        mask = data.tokenizer.mask_id
        assert mask is not None
        return ids if mask in ids else [*ids[: len(ids) // 2], mask, *ids[len(ids) // 2 + 1 :]]

    def without_specials(self, data: Corpus, ids: list[int]) -> list[int]:
        """Remove all special tokens but masks."""
        removed = set(data.tokenizer.special_ids) - {data.tokenizer.mask_id}
        return [i for i in ids if i not in removed]

    def activation_figures(self, model: BERT, data: Corpus, ids: list[int]) -> Iterator[Figure]:
        """Figures of the activations while the model reads one text, and predictions for its first mask."""
        assert data.tokenizer.mask_id is not None
        tokens, x_1T, masked = data.tokenizer.tokens(ids), torch.tensor([ids]), ids.index(data.tokenizer.mask_id)
        with torch.no_grad(), watch(model, "embedding", "*.residual", "*attention.weights") as seen:
            logits_TV = model(x_1T)[0]
        yield logit_lens.top_probabilities(logits_TV[masked], data.tokenizer.token, "Predictions for the mask")
        yield attention.attention_grid(seen, tokens)
        yield attention.attention_head(seen, tokens)
        yield attention_arcs.attention_arcs(seen, tokens)
        yield rollout.rollout_text(seen, tokens)
        yield logit_lens.logit_lens(model, seen, tokens, data.tokenizer.token)
        yield ablation.head_ablation(model, lambda: model(x_1T)[:, masked])
        if model.config.position == "rotary":
            yield position.rotary(model.config.size_of_head, len(ids))
        else:
            yield position.positions(model.position.weight[model.config.pad_id + 1 :])
        some = range(len(SPECIALS), min(len(SPECIALS) + 200, model.config.vocabulary))
        yield embedding.embeddings(model.embedding.weight[some.start : some.stop], data.tokenizer.tokens(some))

    def inspect(self, model: BERT, data: Corpus, args: FillMaskInspectArgs) -> tuple[str, list[Figure]]:
        ids = self.tokens_to_inspect(data, args.text, args.item, model.config.context)
        figures = list(self.activation_figures(model, data, self.mask_middle(data, ids)))
        return data.tokenizer.decode(ids, skip_special_tokens=False), figures

    def tokens_to_inspect(self, data: Corpus, text: str, item: int, context: int) -> list[int]:
        """Return the tokens of the given text, or of a line of the data."""
        if text:
            return data.tokenizer.encode(text)[:context]
        lines = self.lines(data, "valid")
        if not 0 <= item < len(lines):
            raise EngramError(f"item must be a line from 0 to {len(lines) - 1}, not {item}.")
        return lines.line(item)

    def trace(self, model: BERT, data: Corpus, item: int) -> str:
        ids = self.tokens_to_inspect(data, "", item, self.model.context)
        model(torch.tensor([ids]))
        return data.tokenizer.decode(ids)

    def sample(self, learner: Learner[BERT], data: Corpus, request: SampleRequest) -> Sample:
        """Fill in masked tokens, of a given text or of lines of the data."""
        model, args, mask = learner.model, request.args, data.tokenizer.mask_id
        texts = [self.tokens_to_inspect(data, args.text, 0, model.config.context)] if args.text else []
        if args.text and mask not in texts[0]:
            mask_token = data.tokenizer.mask_token
            raise EngramError(f"The text has no {mask_token}: write it where a token is to be filled in.")
        while not args.text and len(texts) < request.count:
            lines = self.lines(data, "valid")
            index = int(torch.randint(len(lines), (), generator=request.generator))
            texts.append(self.mask_middle(data, lines.line(index)))
        output, best, rows = [], [], []
        for ids in texts:
            p_TV = model(torch.tensor([ids]))[0].softmax(-1)
            text = data.tokenizer.decode(self.without_specials(data, ids), skip_special_tokens=False)
            output.append(text)
            for masked in [i for i, token in enumerate(ids) if token == mask]:
                top = p_TV[masked].topk(min(args.top_k, p_TV.shape[1]))
                best.append(top.indices)
                found = [
                    {"text": text, "position": masked, "token": data.tokenizer.token(i).strip(), "probability": p}
                    for i, p in zip(top.indices.tolist(), top.values.tolist(), strict=True)
                ]
                output.append("    " + "   ".join(f"{row['token']} {row['probability']:.0%}" for row in found))
                rows += found
        return Sample({"predictions": torch.stack(best)}, "\n".join(output), streams_text=True, rows=rows)


def count_predicted(batch: Batch) -> int:
    """Number of tokens of a batch that are to be predicted, over which the loss is averaged."""
    return int((batch["y"] != IGNORE_INDEX).sum())
