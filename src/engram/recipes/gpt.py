"""GPT on text: learns to say what comes next, and then writes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Descent, Gradient, Learner, Metrics
from engram.core.registry import Request, Sample, recipe
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.data.corpus import Corpus, Windows
from engram.data.rounds import Rounds
from engram.figures import ablation, arcs, attention, embedding, lens, position, rollout
from engram.figures.figure import Figure
from engram.layers.int8 import quantised
from engram.models import writing
from engram.models.gpt import GPT
from engram.recipes.continuing import SPECIALS, Reading, Writing, continued, end_of, excerpt, how_well, read_along
from engram.recipes.language import MUON, Language, checkpoint


@dataclass(frozen=True, kw_only=True)
class GPTWriting(Writing):
    """What a GPT may be asked to write."""

    draft: str = ""
    """run folder of a smaller GPT that guesses ahead, which is quicker and changes nothing in what is written"""
    int8: bool = False
    """keep the matrices in 8 bits: more than twice as quick, and hardly less exact (perplexity 4.33 either way)"""


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
    specials: ClassVar[Mapping[str, tuple[str, ...]]] = SPECIALS
    Ask: ClassVar[type] = GPTWriting
    Subject: ClassVar[type] = Reading

    steps: int = 800
    every: int = 100
    batch: int = 12
    """stretches of text in a batch"""
    stretches: Literal["anywhere", "rounds"] = "anywhere"
    """where they come from: anywhere in the text, or each once in a round, shard by shard, as suits large texts"""
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

    def batches(self, data: Corpus) -> Windows | Rounds:
        if self.stretches == "rounds":
            return Rounds(data["train"], self.batch, self.model.context, self.seed)
        return Windows(data["train"], self.batch, self.model.context, generator(self.seed, "batches"))

    def evaluate(self, learner: Learner, data: Corpus, split: str) -> dict[str, float]:
        return how_well(speaker(learner.model), data, split, self.model.context)

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
        ask: GPTWriting = request.ask
        model = speaker(learner.model)
        model = speaker(quantised(model)) if ask.int8 else model
        if not ask.draft:
            return continued(model, data, request)
        if ask.beams:
            raise EngramError("A draft guesses what is drawn token by token: leave out --beams or --draft.")
        draft = speaker(checkpoint(ask.draft, GPT)[0])

        def guessed(prompt: list[int]) -> Iterator[int]:
            options: dict[str, Any] = {"generator": request.generator, "end": end_of(data)}
            return writing.speculate(model, draft, prompt, ask.length, ask, **options)

        return continued(model, data, request, guessed)


def speaker(model: nn.Module) -> GPT:
    assert isinstance(model, GPT)
    return model
