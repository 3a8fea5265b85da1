"""Base classes of recipes that simulate.

A step of the run simulates one window of time, and nothing is trained.
"""

import copy
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, M
from engram.core.recipe import InspectArgs, Recipe, Sample, SampleRequest
from engram.core.seeding import generator
from engram.data.series import read_series
from engram.neurons.simulation import InputWindows, Simulation
from engram.neurons.stimulus import Stimulus
from engram.plots.figure import Figure

MAX_GIGABYTES = 16


@dataclass(frozen=True, kw_only=True)
class SimulationMixin(Settings):
    """Time windows and inspection of a recipe that simulates; a base class listed before `Recipe`."""

    learns: ClassVar[bool] = False
    unit: ClassVar[str] = "ms"

    steps: Annotated[int, Ge(1)] = 20
    """number of simulated windows"""
    eval_every: Annotated[int, Ge(1)] = 10
    """windows between evaluations; each is followed by a checkpoint"""
    window_ms: float = 100.0
    """simulated time per step of the run, ms; at least one time step"""
    model: Any
    """the simulated model"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_at_least_step("window_ms")

    def check_at_least_step(self, name: str) -> None:
        """Refuse a time that is shorter than a time step."""
        if not getattr(self, name) >= self.model.step_ms:
            raise EngramError(f"{name} must be at least step_ms ({self.model.step_ms}), not {getattr(self, name)}.")

    @property
    def items_per_step(self) -> float:
        return self.window_ms

    @property
    def window_steps(self) -> int:
        """Time steps per window."""
        return round(self.window_ms / self.model.step_ms)

    @property
    def total_steps(self) -> int:
        """Time steps of the whole run."""
        return self.steps * self.window_steps

    @abstractmethod
    def select_batch(self, data: Any, item: int) -> tuple[str, Batch]:
        """What `engram inspect` simulates for an item: a description and the batch."""

    @abstractmethod
    def init_learner(self, model: Any, item: int) -> Learner[Any]:
        """A learner of the model at rest, for inspection."""

    @abstractmethod
    def plot_simulation(self, learner: Any, batch: Batch) -> Iterator[Figure]:
        """Figures of what was simulated: one inspected batch, or the whole run."""

    def inspect(self, model: Any, data: Any, args: InspectArgs) -> tuple[str, list[Figure]]:
        description, batch = self.select_batch(data, args.item)
        learner = self.init_learner(copy.deepcopy(model), args.item)
        learner.step(batch)
        return description, list(self.plot_simulation(learner, batch))

    def select_input(self, data: Tensor, item: int, max_ms: float) -> tuple[str, Batch]:
        """The input signal from time step `item` on, at most `max_ms` of it."""
        if not 0 <= item < len(data):
            raise EngramError(f"item must be a time step from 0 to {len(data) - 1}, not {item}.")
        step_ms = self.model.step_ms
        selected = data[item : item + round(max_ms / step_ms)]
        description = f"{len(selected) * step_ms:g} ms of the input signal from {item * step_ms:g} ms on, from rest"
        return description, {"input": selected}


@dataclass(frozen=True, kw_only=True)
class NeuronRecipe(SimulationMixin, Recipe[M, Tensor]):
    """Simulates unconnected neurons under an injected current."""

    best: ClassVar[tuple[str, str]] = ("valid_firing_rate_hz", "max")

    data: str = "stimulus"
    """"stimulus", the current described by the stimulus settings, or a file of your own (CSV or .npy, T × N)"""
    steps: Annotated[int, Ge(1)] = 250
    """number of simulated windows"""
    eval_every: Annotated[int, Ge(1)] = 50
    """windows between evaluations; each is followed by a checkpoint"""
    window_ms: float = 1.0
    """simulated time per step of the run, ms; at least one time step"""
    record_ms: float = 0.05
    """sampling interval of the recording, ms; at least one time step"""
    model: Any
    """neuron model"""
    current: Stimulus = field(default_factory=Stimulus)
    """injected current"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_at_least_step("record_ms")
        gigabytes = 8e-9 * self.total_steps * self.model.neurons
        if gigabytes > MAX_GIGABYTES:
            flag = "--neurons" if self.model.neurons > self.total_steps else "--steps"
            raise EngramError(
                f"The current of {self.model.neurons:,} neurons in {self.total_steps:,} time steps would take "
                f"{gigabytes:,.0f} GB: take fewer {flag}."
            )

    def load(self) -> Tensor:
        if self.data == "stimulus":
            return self.sample_current(self.current, generator(self.seed, "current"))
        current_TN = read_series(self.data).double()
        if current_TN.shape[1] not in (1, self.model.neurons):
            found = current_TN.shape[1]
            raise EngramError(f"{self.data} has {found} columns: 1 for all neurons or {self.model.neurons} are needed.")
        return current_TN.expand(-1, self.model.neurons)

    def sample_current(self, current: Stimulus, generator: torch.Generator) -> Tensor:
        """The current of the whole run with its noise, T × N."""
        return current.sample(self.total_steps, self.model.step_ms, self.model.neurons, generator)

    def learner(self, data: Tensor) -> Simulation:
        return Simulation(self.Model(self.model), stride=round(self.record_ms / self.model.step_ms))

    def batches(self, data: Tensor) -> InputWindows:
        return InputWindows(data, self.window_steps)

    def evaluate(self, learner: Learner[M], data: Tensor, split: str) -> dict[str, float]:
        """Mean firing rate and number of spikes so far; every split is the same recording."""
        assert isinstance(learner, Simulation)
        spikes = len(learner.all_spikes()[0])
        return {"firing_rate_hz": learner.rates_hz().mean().item(), "total_spikes": float(spikes)}

    def trace(self, model: M, data: Tensor, item: int) -> str:
        description, batch = self.select_batch(data, item)
        model(batch["input"])
        return description

    def select_batch(self, data: Tensor, item: int) -> tuple[str, Batch]:
        return self.select_input(data, item, max_ms=50)

    def init_learner(self, model: Any, item: int) -> Simulation:
        model.state.copy_(model.init_state())
        return Simulation(model, stride=1)

    def sample(self, learner: Learner[M], data: Tensor, request: SampleRequest) -> Sample:
        """Repeated trials: the same current with other noise."""
        model: Any = self.Model(self.model)
        signal = None if self.data == "stimulus" else InputWindows(data, self.total_steps)
        noise = replace(self.current, stimulus="noise", amplitude=0.0)
        rows, recordings, currents = [], [], []
        for i in range(request.count):
            J_TN = self.sample_current(noise if signal else self.current, request.generator)
            if signal:
                signal.position = 0
                J_TN = J_TN + next(signal)["input"]
            trial = Simulation(model, stride=round(self.record_ms / self.model.step_ms))
            model.state.copy_(model.init_state())
            trial.step({"input": J_TN})
            rows.append(
                {"trial": i + 1, "spikes": len(trial.spikes_ms(0)), "firing_rate_hz": trial.rates_hz()[0].item()}
            )
            recordings.append(trial.recording_TKN[:, 0])
            currents.append(trial.current_TN)
        arrays = {"voltage": torch.stack(recordings), "current": torch.stack(currents)}
        lines = [f"trial {row['trial']}: {row['spikes']} spikes, {row['firing_rate_hz']:.1f} Hz" for row in rows]
        return Sample(arrays, "\n".join(lines), rows=rows)
