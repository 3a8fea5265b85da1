"""Base of recipes that translate.

Pairs of texts, token loss, exact accuracy, and translations as samples.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, M, Metrics
from engram.core.recipe import InspectArgs, Recipe, Sample, SampleRequest, check_item
from engram.core.seeding import generator
from engram.data.dataset import Info, Split
from engram.data.text_pairs import LengthBucketLoader, TextPairs, encode_pairs, pad_rows
from engram.data.tokenizer import Kind, Tokenizer
from engram.generation.sampling import SamplingParams
from engram.hub.huggingface import Checkpoint
from engram.hub.predict import describe_inputs, translate_rows
from engram.plots.figure import Figure
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig
from engram.transformers.base import TOKENIZER, require_tokenizer

SPECIALS = ("<pad>", "</s>", "<unk>")
EVALUATION_BATCH = 100
VALID_PAIRS = 300
"""pairs that are translated at an evaluation during training, for exact accuracy; at the end all are"""


@dataclass(frozen=True, kw_only=True)
class TranslateArgs(SamplingParams):
    """Flags of `engram sample` for translation."""

    text: tuple[str, ...] = ()
    """texts to translate; by default some of the test split"""
    num_beams: Annotated[int, Ge(0)] = 4
    """number of beams of beam search; 0 samples token by token"""
    temperature: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TranslateInspectArgs(InspectArgs):
    """Flags of `engram inspect` for translation."""

    text: str = ""
    """text to inspect, instead of one of the test split"""


@dataclass(frozen=True, kw_only=True)
class TranslationRecipe(Recipe[M, TextPairs]):
    """Base of recipes whose model has `loss`, `shift_right`, `translate` and `beam_search`."""

    best: ClassVar[tuple[str, str]] = ("valid_loss", "min")
    unit: ClassVar[str] = "pairs"
    samples: ClassVar[int] = 8
    SampleArgs: ClassVar[type] = TranslateArgs
    InspectArgs: ClassVar[type] = TranslateInspectArgs

    data: str = "dates"
    """data set of pairs (`engram data list`), or a .tsv file with a source and a target in each line"""
    steps: int = 1500
    eval_every: int = 250
    batch: Annotated[int, Ge(1)] = 64
    """pairs per batch"""
    tokenizer: Kind = "characters"
    """kind of tokenizer"""
    vocab_size: int = 6000
    """vocabulary size of bpe, wordpiece and words tokenizers"""
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    """fraction of the target distribution spread over all tokens; 0 disables"""
    model: Any
    """architecture"""
    optimization: OptimizerConfig
    """optimizer and learning-rate schedule"""

    @property
    def items_per_step(self) -> float:
        return self.batch

    # ------------------------------------------------------------------ data

    def load(self) -> TextPairs:
        loaded = self._load_pairs()
        return self._encode(loaded, self.make_tokenizer(loaded))

    def make_tokenizer(self, loaded: datasets.Data) -> Tokenizer:
        """Train a tokenizer of both languages; characters are those of all splits."""
        splits = loaded.splits.values() if self.tokenizer == "characters" else [loaded.train]
        texts = (text for split in splits for side in ("source", "target") for text in split[side])
        return Tokenizer.train(
            self.tokenizer, texts, vocab_size=self.vocab_size, special_tokens=SPECIALS, template="$A </s>"
        )

    def _load_pairs(self) -> datasets.Data:
        loaded = datasets.load(self.data)
        if not {"source", "target"} <= set(loaded.train) or isinstance(loaded.train["source"], Tensor):
            raise EngramError(f"{self.name} learns from pairs of texts, and {self.data} has none: give a .tsv file.")
        return loaded

    def _encode(self, loaded: datasets.Data, tokenizer: Tokenizer, folder: Path | None = None) -> TextPairs:
        splits = {part: encode_pairs(split, tokenizer, self.model.context) for part, split in loaded.splits.items()}
        return TextPairs(loaded.info, tokenizer, splits, folder)

    def reload(self, folder: Path) -> TextPairs:
        return self._encode(self._load_pairs(), Tokenizer.load(folder / TOKENIZER), folder)

    def data_of_checkpoint(self, checkpoint: Checkpoint, info: Info) -> TextPairs:
        """Return data without pairs: the tokenizer, all that a checkpoint needs."""
        return TextPairs(info, require_tokenizer(checkpoint.tokenizer, checkpoint.path), {})

    def files(self, data: TextPairs) -> Mapping[str, bytes]:
        return {TOKENIZER: data.tokenizer.to_bytes(), **describe_inputs("translation")}

    # ------------------------------------------------------------------ training

    @abstractmethod
    def make_model(self, data: TextPairs) -> M:
        """Build the model for the vocabulary of the data."""

    def learner(self, data: TextPairs) -> GradientLearner[M]:
        pad_id = data.tokenizer.pad_id or 0

        def count_tokens(batch: Batch) -> int:
            """Number of target tokens that are not padding."""
            return int((batch["y"] != pad_id).sum())

        return GradientLearner(self.make_model(data), self.loss, self.optimization, self.steps, count_tokens)

    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Metrics]:
        return model.loss(batch["x"], batch["y"], self.label_smoothing), {}

    def batches(self, data: TextPairs) -> LengthBucketLoader:
        pad_id = data.tokenizer.pad_id or 0

        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            return {"x": pad_rows(batch["source_ids"], pad_id), "y": pad_rows(batch["target_ids"], pad_id)}

        columns = Split({name: data["train"][name] for name in ("source_ids", "target_ids", "length")})
        return LengthBucketLoader(columns, self.batch, generator(self.seed, "batches"), prepare)

    def evaluate(self, learner: Learner[M], data: TextPairs, split: str) -> dict[str, float]:
        model: Any = learner.model
        part, pad_id = data[split], data.tokenizer.pad_id or 0
        total, count = 0.0, 0
        for start in range(0, len(part), EVALUATION_BATCH):
            rows = slice(start, start + EVALUATION_BATCH)
            x_BS, y_BT = pad_rows(part["source_ids"][rows], pad_id), pad_rows(part["target_ids"][rows], pad_id)
            tokens = int((y_BT != pad_id).sum())
            total, count = total + model.loss(x_BS, y_BT).item() * tokens, count + tokens
        limit = len(part) if split == "test" else VALID_PAIRS
        translations = translate_rows(model, data.tokenizer, part["source_ids"][:limit], EVALUATION_BATCH)
        exact = [text == target for text, target in zip(translations, part["target"], strict=False)]
        return {"loss": total / count, "exact_accuracy": sum(exact) / len(exact)}

    # ------------------------------------------------------------------ inspection and samples

    @abstractmethod
    def activation_figures(self, model: M, data: TextPairs, source: list[int]) -> Iterator[Figure]:
        """Figures of what happens in the model while it translates one text."""

    def inspect(self, model: M, data: TextPairs, args: TranslateInspectArgs) -> tuple[str, list[Figure]]:
        context: int = model.config.context  # type: ignore[union-attr, assignment]
        source = data.tokenizer.encode(args.text)[:context] if args.text else self._item(data, args.item)
        translation = translate_rows(model, data.tokenizer, [source], 1)[0]
        figures = list(self.activation_figures(model, data, source))
        return f'"{data.tokenizer.decode(source)}" → "{translation}"', figures

    def _item(self, data: TextPairs, item: int) -> list[int]:
        size = len(data["test"])
        check_item(item, size)
        found: list[int] = data["test"]["source_ids"][item]
        return found

    def trace(self, model: Any, data: TextPairs, item: int) -> str:
        source = self._item(data, item)
        model(torch.tensor([source]), model.shift_right(torch.tensor([data["test"]["target_ids"][item]])))
        return f'test pair {item}, "{data["test"]["source"][item]}" → "{data["test"]["target"][item]}"'

    def sample(self, learner: Learner[M], data: TextPairs, request: SampleRequest) -> Sample:
        model: Any = learner.model
        args: TranslateArgs = request.args
        if args.text:
            texts = list(args.text)
            sources = [row[: model.config.context] for row in data.tokenizer.encode_batch(texts)]
        else:
            chosen = torch.randint(len(data["test"]), (request.count,), generator=request.generator).tolist()
            texts = [data["test"]["source"][i] for i in chosen]
            sources = [data["test"]["source_ids"][i] for i in chosen]
        if args.num_beams:
            rows = [model.beam_search(torch.tensor([source]), args.num_beams)[0].tokens for source in sources]
        else:
            x_BS = pad_rows(sources, model.config.pad_id)
            rows = model.translate(x_BS, params=args, generator=request.generator)
        translations = [data.tokenizer.decode(row) for row in rows]
        found = [{"source": text, "translation": one} for text, one in zip(texts, translations, strict=True)]
        lines = [f"{row['source']}  →  {row['translation']}" for row in found]
        tokens = pad_rows([row or [0] for row in rows], -1)
        return Sample({"tokens": tokens}, "\n".join(lines), streams_text=True, rows=found)
