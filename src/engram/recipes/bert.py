"""BERT on text: learns to guess words that are hidden from it, and then fills them in."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Descent, Gradient, Learner, Metrics
from engram.core.registry import Item, Request, Sample, recipe
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.data.batches import Batches
from engram.data.corpus import By, Corpus
from engram.data.dataset import Split
from engram.data.pairs import padded
from engram.data.tokeniser import Kind
from engram.data.tokens import Tokens
from engram.figures import ablation, arcs, attention, embedding, lens, position, rollout
from engram.figures.figure import Figure
from engram.models.bert import BERT, IGNORED, Masking
from engram.recipes.language import MUON, Language

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
EVALUATION_LINES = 512
SHORTEST = 3
"""tokens that a line must have to be worth guessing in"""


@dataclass(frozen=True, kw_only=True)
class Filling:
    """What is to be filled in."""

    text: str = ""
    """a text of your own with [MASK] where words are missing; without one, some of the data with words hidden"""
    most: int = 5
    """guesses for each place"""


@dataclass(frozen=True, kw_only=True)
class Reading(Item):
    """What is looked at."""

    text: str = ""
    """a text of your own, with or without [MASK], instead of one from the data"""


class Lines:
    """The lines of a split by number, each with its special tokens: a column that is made when it is asked for."""

    def __init__(self, tokens: Tokens, context: int, first: int, last: int) -> None:
        self.tokens, self.context, self.first, self.last = tokens, context, first, last
        length_N = torch.diff(tokens.ends, prepend=torch.zeros(1, dtype=torch.long))
        self.chosen = (length_N >= SHORTEST).nonzero()[:, 0]

    def __len__(self) -> int:
        return len(self.chosen)

    def line(self, i: int) -> list[int]:
        body = self.tokens.piece(int(self.chosen[i]))[: self.context - 2].tolist()
        return [self.first, *body, self.last]

    def __getitem__(self, index_B: Tensor) -> list[list[int]]:
        return [self.line(i) for i in index_B.tolist()]


@recipe
@dataclass(frozen=True, kw_only=True)
class BERTRecipe(Language):
    """An encoder reads in both directions, guesses the words that are hidden from it, and fills in yours."""

    name: ClassVar[str] = "bert"
    title: ClassVar[str] = "BERT"
    notes: ClassVar[str] = "001 «Masked language modeling»"
    Model: ClassVar[type[nn.Module]] = BERT
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {
            "data": "shakespeare", "tokens": 300, "width": 16, "layers": 2, "heads": 2, "context": 16, "batch": 4,
            "steps": 20, "every": 10,
        },
        "full": {"width": 256, "layers": 6, "batch": 48, "steps": 6000, "every": 500, "minutes": 28.0},
    }  # fmt: skip
    by: ClassVar[By] = "lines"
    specials: ClassVar[Mapping[str, tuple[str, ...]]] = dict.fromkeys(
        ("characters", "bytes", "bpe", "wordpiece", "words"), SPECIALS
    )
    template: ClassVar[str] = "[CLS] $A [SEP]"
    samples: ClassVar[int] = 5
    Ask: ClassVar[type] = Filling
    Subject: ClassVar[type] = Reading

    data: str = "brown"
    steps: int = 1500
    every: int = 250
    tokeniser: Kind = "wordpiece"
    tokens: int = 8000
    batch: int = 32
    """lines in a batch"""
    model: BERT.Config = field(default_factory=lambda: BERT.Config(context=64))
    """the architecture"""
    descent: Descent = MUON
    """how to go downhill"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.context < SHORTEST + 2:
            raise EngramError(f"context must be at least {SHORTEST + 2}, not {self.model.context}.")

    @property
    def per_step(self) -> float:
        return self.batch * self.model.context / 2  # lines are about half as long as the longest

    def load(self) -> Corpus:
        loaded = super().load()
        if loaded.tokeniser.mask is None:
            raise EngramError(f"The tokeniser of {self.from_} has no [MASK], and BERT learns by it.")
        return loaded

    def learner(self, data: Corpus) -> Gradient:
        model = self.begun(data.folder, replace(self.model, vocabulary=data.tokeniser.vocabulary))
        return Gradient(model, self.loss, self.descent, self.steps, guesses)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        return filler(model).loss(batch["x"], batch["y"], batch["valid"]), {}

    def lines(self, data: Corpus, split: str) -> Lines:
        first, last = data.tokeniser.id("[CLS]"), data.tokeniser.id("[SEP]")
        found = Lines(data[split], self.model.context, first, last)
        if not len(found):
            raise EngramError(f"{data.info.name} has no line of {SHORTEST} tokens in «{split}» to guess words in.")
        return found

    def hidden(self, data: Corpus, lines: list[list[int]], random: torch.Generator) -> dict[str, Tensor]:
        """Lines with some of their tokens hidden: what is shown, what is to be guessed, and what is no padding."""
        padding, mask = data.tokeniser.padding or 0, data.tokeniser.mask
        assert mask is not None
        x_BT = padded(lines, padding)
        shown_BT, guess_BT = Masking(mask, data.tokeniser.vocabulary, data.tokeniser.specials)(x_BT, random)
        return {"x": shown_BT, "y": guess_BT, "valid": x_BT != padding}

    def batches(self, data: Corpus) -> Batches:
        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            return self.hidden(data, batch["line"], generator)

        lines = Split({"line": self.lines(data, "train")})
        return Batches(lines, self.batch, generator(self.seed, "batches"), prepare)

    def evaluate(self, learner: Learner, data: Corpus, split: str) -> dict[str, float]:
        """Loss and share of right guesses on lines in which the same words are hidden every time."""
        model, lines, random = filler(learner.model), self.lines(data, split), generator(self.seed, "hidden")
        total, right, count = 0.0, 0, 0
        chosen = torch.linspace(0, len(lines) - 1, min(len(lines), EVALUATION_LINES)).round().long()
        for part in chosen.split(64):
            batch = self.hidden(data, lines[part], random)
            guessed = batch["y"] != IGNORED
            logits_NV = model.logits(model.encode(batch["x"], batch["valid"])[guessed])
            target_N = batch["y"][guessed]
            total += nn.functional.cross_entropy(logits_NV, target_N, reduction="sum").item()
            right += int((logits_NV.argmax(1) == target_N).sum())
            count += len(target_N)
        loss = total / max(1, count)
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "accuracy": right / max(1, count)}

    def figures(self, learner: Learner, data: Corpus) -> Iterator[Figure]:
        lines = self.lines(data, "valid")
        ids = max((lines.line(i) for i in range(min(50, len(lines)))), key=lambda line: min(len(line), 24))
        yield from self.views(filler(learner.model), data, self.one_hidden(data, ids))

    def one_hidden(self, data: Corpus, ids: list[int]) -> list[int]:
        """The text with a word near its middle hidden, if none is."""
        mask = data.tokeniser.mask
        assert mask is not None
        return ids if mask in ids else [*ids[: len(ids) // 2], mask, *ids[len(ids) // 2 + 1 :]]

    def views(self, model: BERT, data: Corpus, ids: list[int]) -> Iterator[Figure]:
        """What happens inside while one text is read, and what is guessed for its first hidden word."""
        assert data.tokeniser.mask is not None
        tokens, x_1T, place = data.tokeniser.tokens(ids), torch.tensor([ids]), ids.index(data.tokeniser.mask)
        with torch.no_grad(), watch(model, "embedding", "*.stream", "*attention.weights") as seen:
            logits_TV = model(x_1T)[0]
        yield lens.likeliest(logits_TV[place], data.tokeniser.token, "What is behind the mask")
        yield attention.attention_grid(seen, tokens)
        yield attention.attention_head(seen, tokens)
        yield arcs.arcs(seen, tokens)
        yield rollout.rollout_text(seen, tokens)
        yield lens.logit_lens(model, seen, tokens, data.tokeniser.token)
        yield ablation.head_ablation(model, lambda: model(x_1T)[0, place])
        yield position.positions(model.position.weight)
        some = range(len(SPECIALS), min(len(SPECIALS) + 200, model.config.vocabulary))
        yield embedding.embeddings(model.embedding.weight[some.start : some.stop], data.tokeniser.tokens(some))

    def look(self, model: nn.Module, data: Corpus, subject: Reading) -> tuple[str, list[Figure]]:
        bert = filler(model)
        ids = self.read_along(data, subject.text, subject.item, bert.config.context)
        return data.tokeniser.decode(ids, special=True), list(self.views(bert, data, self.one_hidden(data, ids)))

    def read_along(self, data: Corpus, text: str, item: int, context: int) -> list[int]:
        """The tokens of a text that was given, or of a line of the data."""
        if text:
            return data.tokeniser.encode(text)[:context]
        lines = self.lines(data, "valid")
        if not 0 <= item < len(lines):
            raise EngramError(f"item must be a line from 0 to {len(lines) - 1}, not {item}.")
        return lines.line(item)

    def probe(self, model: nn.Module, data: Corpus, item: int) -> str:
        ids = self.read_along(data, "", item, self.model.context)
        model(torch.tensor([ids]))
        return data.tokeniser.decode(ids)

    def sample(self, learner: Learner, data: Corpus, request: Request) -> Sample:
        """Hidden words filled in: those of your text, or some of the data's."""
        model, ask, mask = filler(learner.model), request.ask, data.tokeniser.mask
        texts = [self.read_along(data, ask.text, 0, model.config.context)] if ask.text else []
        if ask.text and mask not in texts[0]:
            raise EngramError("Nothing is missing in the text: write [MASK] where a word is to be filled in.")
        while not ask.text and len(texts) < request.count:
            lines = self.lines(data, "valid")
            index = int(torch.randint(len(lines), (), generator=request.generator))
            texts.append(self.one_hidden(data, lines.line(index)))
        said, best = [], []
        for ids in texts:
            p_TV = model(torch.tensor([ids]))[0].softmax(-1)
            said.append(data.tokeniser.decode([i for i in ids if i not in self.around(data)], special=True))
            for place in [i for i, token in enumerate(ids) if token == mask]:
                top = p_TV[place].topk(min(ask.most, p_TV.shape[1]))
                best.append(top.indices)
                guesses = zip(top.indices.tolist(), top.values.tolist(), strict=True)
                said.append("    " + "   ".join(f"{data.tokeniser.token(i).strip()} {p:.0%}" for i, p in guesses))
        return Sample({"guesses": torch.stack(best)}, "\n".join(said), aloud=True)

    def around(self, data: Corpus) -> set[int]:
        """The tokens that stand around every text."""
        return {i for i in data.tokeniser.specials if i != data.tokeniser.mask}


def guesses(batch: Batch) -> int:
    """Tokens of a batch that are to be guessed: what the loss is the mean of."""
    return int((batch["y"] != IGNORED).sum())


def filler(model: nn.Module) -> BERT:
    assert isinstance(model, BERT)
    return model
