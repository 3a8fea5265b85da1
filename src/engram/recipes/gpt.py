"""GPT on text: learns to say what comes next, and then writes."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.learner import Batch, Descent, Gradient, Learner, Metrics
from engram.core.registry import Item, Request, Sample, recipe
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.data.corpus import Corpus, Windows, rows
from engram.figures import ablation, arcs, attention, embedding, lens, position, rollout
from engram.figures.figure import Figure
from engram.layers.decoding import Choice, Stops, texts_of
from engram.layers.int8 import quantised
from engram.models import writing
from engram.models.gpt import GPT
from engram.recipes.language import MUON, Language, checkpoint

EVALUATED, EXAMINED = 1 << 15, 1 << 18
"""tokens that an evaluation goes through on the way, and at the end"""
EVALUATION_TOKENS = 1 << 13
"""tokens that are passed at once"""
LOOKED_AT = 48
"""tokens of the validation text that are looked at where no text is given"""


@dataclass(frozen=True, kw_only=True)
class Writing(Choice):
    """What a GPT may be asked to write."""

    prompt: str = "\n"
    """the beginning of the text"""
    length: int = 400
    """tokens to write at most"""
    stop: tuple[str, ...] = ()
    """strings that end the text"""
    beams: int = 0
    """look for the most probable text with so many beams, instead of drawing; 0 draws"""
    draft: str = ""
    """run folder of a smaller GPT that guesses ahead, which is quicker and changes nothing in what is written"""
    int8: bool = False
    """keep the matrices in 8 bits: more than twice as quick, and hardly less exact (perplexity 4.33 either way)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 1:
            raise EngramError(f"length must be at least 1, not {self.length}.")
        if self.beams < 0:
            raise EngramError(f"beams must not be negative, and is {self.beams}.")


@dataclass(frozen=True, kw_only=True)
class Reading(Item):
    """What is looked at."""

    text: str = ""
    """a text of your own, instead of one from the data"""


@recipe
@dataclass(frozen=True, kw_only=True)
class GPTRecipe(Language):
    """A causal Transformer learns to continue text, character by character or in larger tokens, and then writes."""

    name: ClassVar[str] = "gpt"
    title: ClassVar[str] = "GPT"
    notes: ClassVar[str] = "001 «Generative pre-training», 002, 004"
    Model: ClassVar[type[nn.Module]] = GPT
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"width": 16, "layers": 2, "heads": 2, "context": 16, "batch": 4, "steps": 20, "every": 10},
        "full": {
            "width": 192, "layers": 6, "heads": 6, "context": 256, "batch": 12, "steps": 2100, "every": 300,
            "dropout": 0.1, "weight_decay": 0.1,
        },
    }  # fmt: skip
    specials: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "bpe": ("<|endoftext|>",),
        "wordpiece": ("[UNK]",),
        "words": ("[UNK]",),
    }
    Ask: ClassVar[type] = Writing
    Subject: ClassVar[type] = Reading

    steps: int = 800
    every: int = 100
    batch: int = 12
    """stretches of text in a batch"""
    model: GPT.Config = field(default_factory=GPT.Config)
    """the architecture"""
    descent: Descent = replace(MUON, lr=0.02, rest_lr=0.01, warmup=0.0, hold=0.4)
    """how to go downhill"""

    @property
    def per_step(self) -> float:
        return self.batch * self.model.context

    def learner(self, data: Corpus) -> Gradient:
        model = speaker(self.begun(data.folder, replace(self.model, vocabulary=data.tokeniser.vocabulary)))
        if model.config.context < self.model.context:
            raise EngramError(f"context is {self.model.context}, and {self.from_} sees {model.config.context} tokens.")
        return Gradient(model, self.loss, self.descent, self.steps)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        assert isinstance(model, GPT)
        return model.loss(batch["x"], batch["y"]), {}

    def batches(self, data: Corpus) -> Windows:
        return Windows(data["train"], self.batch, self.model.context, generator(self.seed, "batches"))

    def evaluate(self, learner: Learner, data: Corpus, split: str) -> dict[str, float]:
        x_NT, y_NT = rows(data[split], self.model.context, EXAMINED if split == "test" else EVALUATED)
        loss = mean_loss(speaker(learner.model), x_NT, y_NT)
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}

    def figures(self, learner: Learner, data: Corpus) -> Iterator[Figure]:
        yield from self.views(speaker(learner.model), data, excerpt(data, self.model.context))

    def views(self, model: GPT, data: Corpus, ids: list[int]) -> Iterator[Figure]:
        """What happens inside while one text is read."""
        tokens, x_1T = data.tokeniser.tokens(ids), torch.tensor([ids])
        with torch.no_grad(), watch(model, "embedding", "*.stream", "*attention.weights") as seen:
            logits_TV = model(x_1T)[0]
        yield lens.likeliest(logits_TV[-1], data.tokeniser.token, "What comes next")
        yield attention.attention_grid(seen, tokens)
        yield attention.attention_head(seen, tokens)
        yield arcs.arcs(seen, tokens)
        yield rollout.rollout_text(seen, tokens)
        yield lens.logit_lens(model, seen, tokens, data.tokeniser.token)
        yield ablation.head_ablation(model, lambda: model(x_1T))
        config = model.config
        if config.position == "rotary":
            yield position.rotary(config.width // config.heads, config.context)
        else:
            yield position.positions(model.position.weight if config.position == "learned" else model.sinusoid_TE)  # type: ignore[arg-type]
        names = data.tokeniser.tokens(range(min(200, config.vocabulary)))
        yield embedding.embeddings(model.embedding.weight, names)

    def look(self, model: nn.Module, data: Corpus, subject: Reading) -> tuple[str, list[Figure]]:
        gpt = speaker(model)
        ids = read_along(data, subject, gpt.config.context)
        return f"«{data.tokeniser.decode(ids)}»", list(self.views(gpt, data, ids))

    def probe(self, model: nn.Module, data: Corpus, item: int) -> str:
        ids = excerpt(data, self.model.context, item)
        model(torch.tensor([ids]))
        return f"«{data.tokeniser.decode(ids)}»"

    def sample(self, learner: Learner, data: Corpus, request: Request) -> Sample:
        """Text that follows a prompt."""
        ask: Writing = request.ask
        model = speaker(learner.model)
        model = speaker(quantised(model)) if ask.int8 else model
        prompt = data.tokeniser.encode(ask.prompt, special=False)
        texts, ids = self.written(model, data, prompt, request)
        lines = [f"{ask.prompt}{text}" if ask.prompt.strip() else text for text in texts]
        length = max(map(len, ids))
        padded = torch.tensor([row + [-1] * (length - len(row)) for row in ids])
        return Sample({"tokens": padded}, "\n———\n".join(lines), aloud=True)

    def written(
        self, model: GPT, data: Corpus, prompt: list[int], request: Request
    ) -> tuple[list[str], list[list[int]]]:
        """As many texts as are asked for: one is told as it is written, several are written side by side."""
        ask, decode, end = request.ask, data.tokeniser.decode, end_of(data)
        if ask.beams:
            found = model.beams(prompt, ask.length, max(ask.beams, request.count), end=end)[: request.count]
            ids = [beam.tokens for beam in found]
        elif request.count > 1 and not ask.draft:
            ids = model.generate([prompt] * request.count, ask.length, ask, generator=request.generator, end=end)
        else:
            ids = [self._told(model, data, prompt, request) for _ in range(request.count)]
        return [stopped(decode(row), ask.stop) for row in ids], ids

    def _told(self, model: GPT, data: Corpus, prompt: list[int], request: Request) -> list[int]:
        ask: Writing = request.ask
        options: dict[str, Any] = {"generator": request.generator, "end": end_of(data)}
        if ask.draft:
            draft = checkpoint(ask.draft, GPT)[0]
            tokens = writing.speculate(model, speaker(draft), prompt, ask.length, ask, **options)
        else:
            tokens = writing.stream(model, prompt, ask.length, ask, **options)
        row: list[int] = []

        def kept() -> Iterator[int]:
            for token in tokens:
                row.append(token)
                yield token

        request.say(ask.prompt if ask.prompt.strip() else "")
        for piece in texts_of(data.tokeniser.decode, kept(), ask.stop):
            request.say(piece)
        request.say("\n")
        return row


def mean_loss(model: GPT, x_NT: Tensor, y_NT: Tensor) -> float:
    """Mean of -log p over all tokens."""
    part = max(1, EVALUATION_TOKENS // x_NT.shape[1])
    total = sum(
        F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").double()
        for x, y in zip(x_NT.split(part), y_NT.split(part), strict=True)
    )
    return float(total) / y_NT.numel()


def speaker(model: nn.Module) -> GPT:
    assert isinstance(model, GPT)
    return model


def end_of(data: Corpus) -> int | None:
    """The token that ends a text, where the tokeniser has one."""
    return data.tokeniser.inner.token_to_id("<|endoftext|>")


def stopped(text: str, stops: tuple[str, ...]) -> str:
    return Stops(stops).more(text)[0] if stops else text


def excerpt(data: Corpus, context: int, item: int = 0) -> list[int]:
    """Some tokens of the text that validates, from place `item` on."""
    ids = data["valid"].ids
    length = min(context, LOOKED_AT, len(ids))
    if not 0 <= item <= len(ids) - length:
        raise EngramError(f"item must be a place in the text from 0 to {len(ids) - length}, not {item}.")
    return ids[item : item + length].long().tolist()


def read_along(data: Corpus, subject: Reading, context: int) -> list[int]:
    """The tokens that are looked at: those of a text that was given, or of the data."""
    if not subject.text:
        return excerpt(data, context, subject.item)
    ids = data.tokeniser.encode(subject.text)
    if not ids:
        raise EngramError("There is nothing to look at in an empty text.")
    return ids[-context:]
