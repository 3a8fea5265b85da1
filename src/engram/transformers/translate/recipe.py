"""Recipe of the encoder-decoder Transformer: translation of text pairs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, Metrics
from engram.core.recipe import InspectArgs, Sample, SampleRequest, check_item
from engram.core.registry import register
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.data.dataset import Info, Split
from engram.data.text_pairs import LengthBucketLoader, TextPairs, encode_pairs, pad_rows
from engram.data.tokenizer import Kind, Tokenizer
from engram.generation.sampling import SamplingParams
from engram.hub.huggingface import Checkpoint
from engram.hub.predict import describe_inputs, translate_rows
from engram.plots import ablation, attention, attention_arcs, embedding, position, rollout
from engram.plots.figure import Figure
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig
from engram.transformers.base import MUON, TOKENIZER, Pretrained, load_pretrained, require_tokenizer
from engram.transformers.translate.model import Transformer

SPECIALS = ("<pad>", "</s>", "<unk>")
EVALUATION_BATCH = 100
ABLATED = (
    ("encoder", "encoder", "attention"),
    ("decoder self-attention", "decoder", "attention"),
    ("decoder cross-attention", "decoder", "cross"),
)
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


@register
@dataclass(frozen=True, kw_only=True)
class TranslateRecipe(Pretrained[Transformer, TextPairs]):
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
    best: ClassVar[tuple[str, str]] = ("valid_loss", "min")
    unit: ClassVar[str] = "pairs"
    samples: ClassVar[int] = 8
    SampleArgs: ClassVar[type] = TranslateArgs
    InspectArgs: ClassVar[type] = TranslateInspectArgs

    data: str = "dates"
    """data set of pairs (`engram data list`), or a .tsv file with a source and a target in each line"""
    steps: int = 1500
    eval_every: int = 250
    batch: int = 64
    """pairs per batch"""
    tokenizer: Kind = "characters"
    """kind of tokenizer; with --from, that of the checkpoint is used"""
    vocab_size: int = 6000
    """vocabulary size of bpe, wordpiece and words tokenizers"""
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    """fraction of the target distribution spread over all tokens; 0 disables"""
    model: Transformer.Config = field(default_factory=lambda: Transformer.Config(layers=2, context=64))
    """architecture"""
    optimization: OptimizerConfig = MUON
    """optimizer and learning-rate schedule"""

    @property
    def items_per_step(self) -> float:
        return self.batch

    def load(self) -> TextPairs:
        loaded = self._load_pairs()
        if self.from_:
            tokenizer = require_tokenizer(load_pretrained(self.from_, Transformer)[1], self.from_)
        else:
            splits = loaded.splits.values() if self.tokenizer == "characters" else [loaded.train]
            texts = (text for split in splits for side in ("source", "target") for text in split[side])
            tokenizer = Tokenizer.train(
                self.tokenizer, texts, vocab_size=self.vocab_size, special_tokens=SPECIALS, template="$A </s>"
            )
        return self._encode(loaded, tokenizer)

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
        return TextPairs(info, require_tokenizer(checkpoint.tokenizer, checkpoint.path), {})

    def files(self, data: TextPairs) -> Mapping[str, bytes]:
        return {TOKENIZER: data.tokenizer.to_bytes(), **describe_inputs("translation")}

    def learner(self, data: TextPairs) -> GradientLearner[Transformer]:
        tokenizer = data.tokenizer
        config = replace(
            self.model, vocabulary=tokenizer.vocab_size, pad_id=tokenizer.pad_id or 0, eos_id=tokenizer.eos_id or 0
        )

        def count_tokens(batch: Batch) -> int:
            """Number of target tokens that are not padding."""
            return int((batch["y"] != config.pad_id).sum())

        model = self.init_or_load_model(data.folder, config)
        return GradientLearner(model, self.loss, self.optimization, self.steps, count_tokens)

    def loss(self, model: Transformer, batch: Batch) -> tuple[Tensor, Metrics]:
        return model.loss(batch["x"], batch["y"], self.label_smoothing), {}

    def batches(self, data: TextPairs) -> LengthBucketLoader:
        pad_id = data.tokenizer.pad_id or 0

        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            return {"x": pad_rows(batch["source_ids"], pad_id), "y": pad_rows(batch["target_ids"], pad_id)}

        columns = Split({name: data["train"][name] for name in ("source_ids", "target_ids", "length")})
        return LengthBucketLoader(columns, self.batch, generator(self.seed, "batches"), prepare)

    def evaluate(self, learner: Learner[Transformer], data: TextPairs, split: str) -> dict[str, float]:
        model, part, pad_id = learner.model, data[split], data.tokenizer.pad_id or 0
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

    def figures(self, learner: Learner[Transformer], data: TextPairs) -> Iterator[Figure]:
        model = learner.model
        yield from self.activation_figures(model, data, data["test"]["source_ids"][0])
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

    def inspect(self, model: Transformer, data: TextPairs, args: TranslateInspectArgs) -> tuple[str, list[Figure]]:
        if args.text:
            source = data.tokenizer.encode(args.text)[: model.config.context]
        else:
            source = self._item(data, args.item)
        translation = translate_rows(model, data.tokenizer, [source], 1)[0]
        figures = list(self.activation_figures(model, data, source))
        return f'"{data.tokenizer.decode(source)}" → "{translation}"', figures

    def _item(self, data: TextPairs, item: int) -> list[int]:
        size = len(data["test"])
        check_item(item, size)
        found: list[int] = data["test"]["source_ids"][item]
        return found

    def trace(self, model: Transformer, data: TextPairs, item: int) -> str:
        source = self._item(data, item)
        target = data["test"]["target_ids"][item]
        model(torch.tensor([source]), torch.tensor([[model.config.pad_id, *target[:-1]]]))
        return f'test pair {item}, "{data["test"]["source"][item]}" → "{data["test"]["target"][item]}"'

    def sample(self, learner: Learner[Transformer], data: TextPairs, request: SampleRequest) -> Sample:
        model, args = learner.model, request.args
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
