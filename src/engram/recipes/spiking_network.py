"""A balanced network of spiking neurons: nothing is learnt, time passes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner
from engram.core.registry import Request, Sample, recipe
from engram.core.seeding import generator
from engram.core.tap import tap
from engram.data.batches import Same
from engram.figures import spikes
from engram.figures.figure import Figure
from engram.neurons.balanced import Balanced, Living, irregularity
from engram.recipes.timed import Timed

WATCHED = 5
FIRST_MS = 200.0
"""that `engram look` shows"""


@recipe
@dataclass(frozen=True, kw_only=True)
class SpikingNetworkRecipe(Timed):
    """Excitation and inhibition hold each other, and thousands of neurons fire as irregularly as in a brain."""

    name: ClassVar[str] = "spiking-network"
    title: ClassVar[str] = "Spiking network"
    notes: ClassVar[str] = "003 §2.5"
    Model: ClassVar[type[nn.Module]] = Balanced
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"excitatory": 80, "inhibitory": 20, "probability": 0.2, "steps": 6, "every": 3, "stretch_ms": 20.0},
        "full": {"excitatory": 8000, "inhibitory": 2000, "probability": 0.01, "steps": 100},
    }
    best: ClassVar[tuple[str, str]] = ("valid_irregularity", "max")
    samples: ClassVar[int] = 3

    data: str = "none"
    """nothing enters but chance"""
    model: Balanced.Config = field(default_factory=Balanced.Config)
    """the network"""

    def load(self) -> None:
        self.must_need_nothing()

    def learner(self, data: None) -> Living:
        return self.living(self.model, generator(self.seed, "outside"))

    def living(self, config: Balanced.Config, random: torch.Generator) -> Living:
        return Living(Balanced(config), random, min(WATCHED, config.excitatory))

    def batches(self, data: None) -> Same:
        return Same({"steps": self.stretch})

    def evaluate(self, learner: Learner, data: None, split: str) -> dict[str, float]:
        """Rates and irregularity so far: there is nothing to generalise, so every split is the recording."""
        assert isinstance(learner, Living)
        cv, seconds = irregularity(learner.spikes(), learner.model.neurons), learner.passed_ms / 1000
        return {
            "rate_hz": len(learner.neuron) / learner.model.neurons / seconds if seconds else 0.0,
            "irregularity": cv.mean().item() if len(cv) else 0.0,
        }

    def figures(self, learner: Learner, data: None) -> Iterator[Figure]:
        assert isinstance(learner, Living)
        yield from self.views(learner, {})
        yield spikes.interval_histogram(learner.spikes())
        yield spikes.irregularities(irregularity(learner.spikes(), learner.model.neurons))

    def views(self, learner: Living, passed: Batch) -> Iterator[Figure]:
        all_spikes, first, end_ms = learner.spikes(), self.model.excitatory, learner.passed_ms
        yield spikes.two_rasters(all_spikes, first, end_ms)
        yield spikes.rates_over_time(all_spikes, first, learner.model.neurons, end_ms)
        yield spikes.voltages(learner.v_TR, self.model.step_ms)

    def moment(self, data: None, item: int) -> tuple[str, Batch]:
        """The beginning, with another noise for each item."""
        if item < 0:
            raise EngramError(f"item must be a number from 0 on, not {item}.")
        steps = round(FIRST_MS / self.model.step_ms)
        return f"the first {FIRST_MS:g} ms from silence on, with noise {item}", {"steps": steps}

    def at_rest(self, model: Balanced, item: int) -> Living:
        return Living(model, generator(item, "outside"), min(WATCHED, self.model.excitatory))

    def probe(self, model: nn.Module, data: None, item: int) -> str:
        assert isinstance(model, Balanced)
        said, passed = self.moment(data, item)
        watched = range(min(WATCHED, self.model.excitatory))
        _, recording = model.step(model.rest(generator(item, "outside")), passed["steps"], record=watched)
        tap("v", recording.v_TR)
        tap("s", recording.s_TR)
        return f"{said}: {len(recording.spikes.neuron)} spikes"

    def sample(self, learner: Learner, data: None, request: Request) -> Sample:
        """Other networks of the same kind, drawn anew: how alike are they?"""
        lines, rates = [], []
        for i in range(request.count):
            wiring = int(torch.randint(2**31, (1,), generator=request.generator))
            again = self.living(replace(self.model, wiring=wiring), request.generator)
            for _ in range(self.steps):
                again.step(next(self.batches(data)))
            measured = self.evaluate(again, data, "test")
            lines.append(f"network {i + 1}: {measured['rate_hz']:.2f} Hz, irregularity {measured['irregularity']:.2f}")
            rates.append(measured["rate_hz"])
        return Sample({"rate_hz": torch.tensor(rates)}, "\n".join(lines))
