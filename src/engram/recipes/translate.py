"""The Transformer of the paper on pairs of texts: reads one, writes the other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Batch, Descent, Gradient, Learner, Metrics
from engram.core.registry import Item, Request, Sample, must_be_item, recipe
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.data.dataset import Info, Split
from engram.data.pairs import ByLength, Pairs, encoded, padded
from engram.data.tokeniser import Kind, Tokeniser
from engram.figures import ablation, arcs, attention, embedding, position, rollout
from engram.figures.figure import Figure
from engram.interop.huggingface import Checkpoint
from engram.layers.decoding import Choice
from engram.models.transformer import Transformer
from engram.recipes.language import MUON, TOKENISER, Pretrained, checkpoint, spoken

SPECIALS = ("<pad>", "</s>", "<unk>")
EVALUATION_BATCH = 100
ABLATED = (
    ("encoder", "encoder", "attention"),
    ("decoder to itself", "decoder", "attention"),
    ("decoder to the source", "decoder", "cross"),
)
EVALUATED = 300
"""pairs that are translated on the way to see how many come out exactly; in the end all are"""


@dataclass(frozen=True, kw_only=True)
class Translating(Choice):
    """What is to be translated, and how."""

    text: tuple[str, ...] = ()
    """texts of your own; without any, some of the test"""
    beams: int = 4
    """beams of the search; 0 chooses token by token, by temperature, top-k and the like"""
    temperature: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beams < 0:
            raise EngramError(f"beams must not be negative, and is {self.beams}.")


@dataclass(frozen=True, kw_only=True)
class TranslatedItem(Item):
    """What is looked at."""

    text: str = ""
    """a text of your own, instead of one of the test"""


@recipe
@dataclass(frozen=True, kw_only=True)
class TranslateRecipe(Pretrained):
    """An encoder reads a text, a decoder writes another: dates into their ISO form, English into German."""

    name: ClassVar[str] = "translate"
    title: ClassVar[str] = "Transformer"
    notes: ClassVar[str] = "000 «Transformers», 001, 004"
    Model: ClassVar[type[nn.Module]] = Transformer
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"width": 16, "layers": 1, "heads": 2, "batch": 8, "steps": 20, "every": 10},
        "full": {
            "data": "bible-en-de", "tokeniser": "bpe", "tokens": 6000, "width": 256, "layers": 3, "context": 160,
            "batch": 32, "steps": 3000, "every": 500, "dropout": 0.1, "smoothing": 0.1, "minutes": 25.0,
        },
    }  # fmt: skip
    best: ClassVar[tuple[str, str]] = ("valid_loss", "min")
    unit: ClassVar[str] = "pairs"
    samples: ClassVar[int] = 8
    Ask: ClassVar[type] = Translating
    Subject: ClassVar[type] = TranslatedItem

    data: str = "dates"
    """data set of pairs (`engram data list`), or a .tsv file with a source and a target in each line"""
    steps: int = 1500
    every: int = 250
    batch: int = 64
    """pairs in a batch"""
    tokeniser: Kind = "characters"
    """what a token is: characters, bytes, bpe, wordpiece or words; a checkpoint brings its own"""
    tokens: int = 6000
    """tokens that bpe, wordpiece and words learn"""
    smoothing: float = 0.0
    """part of the target that is spread over all tokens"""
    model: Transformer.Config = field(default_factory=lambda: Transformer.Config(layers=2, context=64))
    """the architecture"""
    descent: Descent = MUON
    """how to go downhill"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.smoothing < 1:
            raise EngramError(f"smoothing is a part, at least 0 and below 1, not {self.smoothing}.")

    @property
    def per_step(self) -> float:
        return self.batch

    def load(self) -> Pairs:
        loaded = self._texts()
        if self.from_:
            tokeniser = spoken(checkpoint(self.from_, Transformer)[1], self.from_)
        else:
            texts = (text for side in ("source", "target") for text in loaded.train[side])
            every = texts if self.tokeniser != "characters" else self._all_texts(loaded)
            tokeniser = Tokeniser.train(self.tokeniser, every, size=self.tokens, specials=SPECIALS, template="$A </s>")
        return self._encoded(loaded, tokeniser)

    def _texts(self) -> datasets.Data:
        loaded = datasets.load(self.data)
        if not {"source", "target"} <= set(loaded.train) or isinstance(loaded.train["source"], Tensor):
            raise EngramError(f"{self.name} learns from pairs of texts, and {self.data} has none: give a .tsv file.")
        return loaded

    def _all_texts(self, loaded: datasets.Data) -> Iterator[str]:
        return (text for split in loaded.splits.values() for side in ("source", "target") for text in split[side])

    def _encoded(self, loaded: datasets.Data, tokeniser: Tokeniser, folder: Path | None = None) -> Pairs:
        splits = {part: encoded(split, tokeniser, self.model.context) for part, split in loaded.splits.items()}
        return Pairs(loaded.info, tokeniser, splits, folder)

    def reload(self, folder: Path) -> Pairs:
        return self._encoded(self._texts(), Tokeniser.load(folder / TOKENISER), folder)

    def bare(self, found: Checkpoint, info: Info) -> Pairs:
        return Pairs(info, spoken(found.tokeniser, found.path), {})

    def files(self, data: Pairs) -> Mapping[str, bytes]:
        return {TOKENISER: data.tokeniser.to_bytes()}

    def learner(self, data: Pairs) -> Gradient:
        tokeniser = data.tokeniser
        config = replace(
            self.model, vocabulary=tokeniser.vocabulary, padding=tokeniser.padding or 0, end=tokeniser.end or 0
        )

        def said(batch: Batch) -> int:
            """Tokens that are not padding."""
            return int((batch["y"] != config.padding).sum())

        return Gradient(self.begun(data.folder, config), self.loss, self.descent, self.steps, said)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        return translator(model).loss(batch["x"], batch["y"], self.smoothing), {}

    def batches(self, data: Pairs) -> ByLength:
        padding = data.tokeniser.padding or 0

        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            return {"x": padded(batch["source_ids"], padding), "y": padded(batch["target_ids"], padding)}

        columns = Split({name: data["train"][name] for name in ("source_ids", "target_ids", "length")})
        return ByLength(columns, self.batch, generator(self.seed, "batches"), prepare)

    def evaluate(self, learner: Learner, data: Pairs, split: str) -> dict[str, float]:
        model, part, padding = translator(learner.model), data[split], data.tokeniser.padding or 0
        total, count = 0.0, 0
        for start in range(0, len(part), EVALUATION_BATCH):
            rows = slice(start, start + EVALUATION_BATCH)
            x_BS, y_BT = padded(part["source_ids"][rows], padding), padded(part["target_ids"][rows], padding)
            tokens = int((y_BT != padding).sum())
            total, count = total + model.loss(x_BS, y_BT).item() * tokens, count + tokens
        most = len(part) if split == "test" else EVALUATED
        said = translations(model, data, part["source_ids"][:most])
        exact = [one == target for one, target in zip(said, part["target"], strict=False)]
        return {"loss": total / count, "exact_accuracy": sum(exact) / len(exact)}

    def figures(self, learner: Learner, data: Pairs) -> Iterator[Figure]:
        model = translator(learner.model)
        yield from self.views(model, data, data["test"]["source_ids"][0])
        yield position.positions(model.place_TE)
        names = data.tokeniser.tokens(range(min(200, model.config.vocabulary)))
        yield embedding.embeddings(model.embedding.weight, names)

    def views(self, model: Transformer, data: Pairs, source: list[int]) -> Iterator[Figure]:
        """Who looks at whom while one text is translated."""
        x_1S = torch.tensor([source])
        written = model.translate(x_1S, model.config.context - 1)[0]
        y_1T = torch.tensor([[model.config.padding, *written]])
        with torch.no_grad(), watch(model, "*.weights") as seen:
            model(x_1S, y_1T)
        before, after = data.tokeniser.tokens(source), data.tokeniser.tokens([*written, model.config.end])
        yield attention.cross_attention(seen, after, before)
        encoder = {name: value for name, value in seen.items() if name.startswith("encoder")}
        yield attention.attention_grid(encoder, before).of("encoder")
        yield arcs.arcs(encoder, before).of("encoder")
        yield rollout.rollout_text(encoder, before).of("encoder")
        decoder = {name: value for name, value in seen.items() if "decoder" in name and "cross" not in name}
        written_before = data.tokeniser.tokens(y_1T[0].tolist())
        yield attention.attention_grid(decoder, written_before).of("decoder")
        yield attention.attention_head(decoder, written_before).of("decoder")
        yield arcs.arcs(decoder, written_before).of("decoder")
        last = max(0, len(written) - 1)  # what follows it is the end, which needs no head
        for title, stack, part in ABLATED:
            yield ablation.head_ablation(model, lambda: model(x_1S, y_1T)[0, last], prefix=stack, part=part).of(title)

    def look(self, model: nn.Module, data: Pairs, subject: TranslatedItem) -> tuple[str, list[Figure]]:
        if subject.text:
            source = data.tokeniser.encode(subject.text)[: translator(model).config.context]
        else:
            source = self._item(data, subject.item)
        said = translations(translator(model), data, [source])[0]
        return f"«{data.tokeniser.decode(source)}» → «{said}»", list(self.views(translator(model), data, source))

    def _item(self, data: Pairs, item: int) -> list[int]:
        size = len(data["test"])
        must_be_item(item, size)
        found: list[int] = data["test"]["source_ids"][item]
        return found

    def probe(self, model: nn.Module, data: Pairs, item: int) -> str:
        source = self._item(data, item)
        target = data["test"]["target_ids"][item]
        model(torch.tensor([source]), torch.tensor([[translator(model).config.padding, *target[:-1]]]))
        return f"test pair {item}, «{data['test']['source'][item]}» → «{data['test']['target'][item]}»"

    def sample(self, learner: Learner, data: Pairs, request: Request) -> Sample:
        model, ask = translator(learner.model), request.ask
        if ask.text:
            texts = list(ask.text)
            sources = [row[: model.config.context] for row in data.tokeniser.encode_all(texts)]
        else:
            chosen = torch.randint(len(data["test"]), (request.count,), generator=request.generator).tolist()
            texts = [data["test"]["source"][i] for i in chosen]
            sources = [data["test"]["source_ids"][i] for i in chosen]
        if ask.beams:
            rows = [model.beams(torch.tensor([source]), ask.beams)[0].tokens for source in sources]
        else:
            x_BS = padded(sources, model.config.padding)
            rows = model.translate(x_BS, choice=ask, generator=request.generator)
        said = [data.tokeniser.decode(row) for row in rows]
        lines = [f"{text}  →  {one}" for text, one in zip(texts, said, strict=True)]
        return Sample({"tokens": padded([row or [0] for row in rows], -1)}, "\n".join(lines), aloud=True)


def translations(model: Transformer, data: Pairs, sources: list[list[int]]) -> list[str]:
    """What the model makes of each source, always taking the most probable token; like lengths go together."""
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    said = [""] * len(sources)
    for start in range(0, len(order), EVALUATION_BATCH):
        rows = order[start : start + EVALUATION_BATCH]
        x_BS = padded([sources[i] for i in rows], model.config.padding)
        for i, tokens in zip(rows, model.translate(x_BS), strict=True):
            said[i] = data.tokeniser.decode(tokens)
    return said


def translator(model: nn.Module) -> Transformer:
    assert isinstance(model, Transformer)
    return model
