"""Populations of spiking neurons that hold, transform and follow values: five recipes of one kind."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner
from engram.core.registry import Request, Sample, recipe
from engram.core.seeding import generator
from engram.data.series import read_series
from engram.figures import population
from engram.figures.figure import Figure
from engram.neurons.simulation import Stretches
from engram.neurons.systems import Held, Holding, Integrator, Lorenz, Oscillator, Passing, System, Transformation
from engram.recipes.timed import Timed

TINY = {"neurons": 50, "steps": 6, "every": 3, "stretch_ms": 50.0}


@dataclass(frozen=True, kw_only=True)
class Flow(Timed):
    """Time passes through populations; nothing is learnt but the decoders, which are solved for at the beginning."""

    Model: ClassVar[type[nn.Module]]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": TINY}
    best: ClassVar[tuple[str, str]] = ("valid_error", "min")
    samples: ClassVar[int] = 4

    data: str = "drive"
    """«drive», an input that shows what the system does, or a file with one's own (CSV or .npy, T × D)"""
    steps: int = 60
    """how many stretches of input to let pass"""
    every: int = 20
    """stretches between two evaluations, each followed by a checkpoint"""
    model: Held
    """the populations"""

    def load(self) -> Tensor:
        system: Any = self.Model
        if self.data == "drive":
            t_s = torch.arange(1, self.steps * self.stretch + 1, dtype=torch.float64) * self.model.step_ms / 1000
            return system.drive(t_s)
        u_TD = read_series(self.data).double()
        if u_TD.shape[1] != system.dimensions:
            raise EngramError(f"{self.data} has {u_TD.shape[1]} columns, and {self.name} takes {system.dimensions}.")
        return u_TD

    def learner(self, data: Tensor) -> Passing:
        return Passing(self.built(self.model), generator(self.seed, "rest"))

    def built(self, config: Held) -> System:
        model = self.Model(config)
        assert isinstance(model, System)
        return model

    def batches(self, data: Tensor) -> Stretches:
        return Stretches(data, self.stretch)

    def evaluate(self, learner: Learner, data: Tensor, split: str) -> dict[str, float]:
        """The error so far: there is nothing to generalise, so every split is the recording."""
        assert isinstance(learner, Passing)
        return {"error": learner.error()}

    def figures(self, learner: Learner, data: Tensor) -> Iterator[Figure]:
        assert isinstance(learner, Passing)
        yield from self.views(learner, {})
        first = learner.model.of(next(node for node in learner.model.nodes if node.kind == "population"))
        yield population.tuning(first)
        yield population.error_by_size(first)

    def views(self, learner: Passing, passed: Batch) -> Iterator[Figure]:
        names, ideal_TK = learner.model.names, learner.model.ideal(learner.u_TD)
        yield population.over_time(learner.time_s, learner.seen_TK, ideal_TK, learner.u_TD, names)
        if len(names) > 1:
            yield population.plane(learner.seen_TK, ideal_TK, names)
        if self.model.spiking:
            yield population.last_spikes(learner.spikes, len(learner.state.v_N))

    def probe(self, model: nn.Module, data: Tensor, item: int) -> str:
        said, passed = self.moment(data, item)
        model(passed["current"])
        return said

    def moment(self, data: Tensor, item: int) -> tuple[str, Batch]:
        return self.input_from(data, item, most_ms=1000)

    def at_rest(self, model: System, item: int) -> Passing:
        return Passing(model)

    def sample(self, learner: Learner, data: Tensor, request: Request) -> Sample:
        """The same input through neurons that are drawn anew, as often as asked: how alike is what they show?"""
        lines, shown = [], []
        for i in range(request.count):
            draw = int(torch.randint(2**31, (1,), generator=request.generator))
            again = Passing(self.built(replace(self.model, draw=draw)))
            again.step({"current": data[: self.steps * self.stretch]})
            lines.append(f"neurons {i + 1}: root mean square error {again.error():.4f}")
            shown.append(again.seen_TK)
        return Sample({"seen": torch.stack(shown)}, "\n".join(lines))


@recipe
@dataclass(frozen=True, kw_only=True)
class PopulationRecipe(Flow):
    """Many spiking neurons hold one value, and linear decoders read it off them."""

    name: ClassVar[str] = "population"
    title: ClassVar[str] = "Population coding"
    notes: ClassVar[str] = "003 §26"
    Model: ClassVar[type[nn.Module]] = Holding

    model: Held = field(default_factory=lambda: Held(neurons=200))


@recipe
@dataclass(frozen=True, kw_only=True)
class TransformationRecipe(Flow):
    """One population holds two values, another is told their product, sum or square."""

    name: ClassVar[str] = "transformation"
    title: ClassVar[str] = "Transformation"
    notes: ClassVar[str] = "003 §27"
    Model: ClassVar[type[nn.Module]] = Transformation

    model: Transformation.Config = field(default_factory=Transformation.Config)


@recipe
@dataclass(frozen=True, kw_only=True)
class IntegratorRecipe(Flow):
    """A population that hears itself adds up its input, and remembers."""

    name: ClassVar[str] = "integrator"
    title: ClassVar[str] = "Integrator"
    notes: ClassVar[str] = "003 §28"
    Model: ClassVar[type[nn.Module]] = Integrator

    steps: int = 100
    model: Held = field(default_factory=Held)


@recipe
@dataclass(frozen=True, kw_only=True)
class OscillatorRecipe(Flow):
    """A population that hears itself turned a little goes round after one push."""

    name: ClassVar[str] = "oscillator"
    title: ClassVar[str] = "Oscillator"
    notes: ClassVar[str] = "003 §28"
    Model: ClassVar[type[nn.Module]] = Oscillator

    model: Oscillator.Config = field(default_factory=Oscillator.Config)


@recipe
@dataclass(frozen=True, kw_only=True)
class LorenzRecipe(Flow):
    """A thousand neurons follow the equations of a chaotic weather."""

    name: ClassVar[str] = "lorenz"
    title: ClassVar[str] = "Lorenz attractor"
    notes: ClassVar[str] = "003 §28"
    Model: ClassVar[type[nn.Module]] = Lorenz

    steps: int = 200
    every: int = 50
    model: Lorenz.Config = field(default_factory=Lorenz.Config)
