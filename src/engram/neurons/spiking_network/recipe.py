"""Recipe of a balanced spiking network (Brunel 2000)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner
from engram.core.recipe import Recipe, Sample, SampleRequest
from engram.core.registry import register
from engram.core.seeding import generator
from engram.core.tap import tap
from engram.data.loaders import Constant
from engram.neurons.base import SimulationMixin
from engram.neurons.spiking_network import plots
from engram.neurons.spiking_network.learner import SpikingSimulation
from engram.neurons.spiking_network.model import BrunelNetwork, isi_cv
from engram.plots.figure import Figure

RECORDED = 5
"""neurons whose membrane potential is recorded"""
INSPECTED_MS = 200.0
"""time that `engram inspect` simulates, ms"""


@register
@dataclass(frozen=True, kw_only=True)
class SpikingNetworkRecipe(SimulationMixin, Recipe[BrunelNetwork, None]):
    """Simulates a balanced excitatory-inhibitory network in the asynchronous irregular state."""

    name: ClassVar[str] = "spiking-network"
    title: ClassVar[str] = "Spiking network"
    Model: ClassVar[type[nn.Module]] = BrunelNetwork
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {
            "excitatory": 80,
            "inhibitory": 20,
            "probability": 0.2,
            "steps": 6,
            "eval_every": 3,
            "window_ms": 20.0,
        },
        "full": {"excitatory": 8000, "inhibitory": 2000, "probability": 0.01, "steps": 100},
    }
    best: ClassVar[tuple[str, str]] = ("valid_isi_cv", "max")
    samples: ClassVar[int] = 3

    data: str = "none"
    """no data; the input is Poisson noise"""
    model: BrunelNetwork.Config = field(default_factory=BrunelNetwork.Config)
    """network model"""

    def load(self) -> None:
        self.refuse_data()

    def learner(self, data: None) -> SpikingSimulation:
        return self.init_simulation(self.model, generator(self.seed, "outside"))

    def init_simulation(self, config: BrunelNetwork.Config, generator: torch.Generator) -> SpikingSimulation:
        """A simulation of a new network from rest."""
        return SpikingSimulation(BrunelNetwork(config), generator, min(RECORDED, config.excitatory))

    def batches(self, data: None) -> Constant:
        return Constant({"steps": self.window_steps})

    def evaluate(self, learner: Learner[BrunelNetwork], data: None, split: str) -> dict[str, float]:
        """Mean firing rate and mean ISI coefficient of variation so far; every split is the same recording."""
        assert isinstance(learner, SpikingSimulation)
        cv, seconds = isi_cv(learner.spikes(), learner.model.neurons), learner.elapsed_ms / 1000
        return {
            "firing_rate_hz": len(learner.neuron) / learner.model.neurons / seconds if seconds else 0.0,
            "isi_cv": cv.mean().item() if len(cv) else 0.0,
        }

    def figures(self, learner: Learner[BrunelNetwork], data: None) -> Iterator[Figure]:
        assert isinstance(learner, SpikingSimulation)
        yield from self.plot_simulation(learner, {})
        yield plots.plot_intervals(learner.spikes())
        yield plots.plot_isi_cv(isi_cv(learner.spikes(), learner.model.neurons))

    def plot_simulation(self, learner: SpikingSimulation, batch: Batch) -> Iterator[Figure]:
        all_spikes, first, end_ms = learner.spikes(), self.model.excitatory, learner.elapsed_ms
        yield plots.plot_raster(all_spikes, first, end_ms)
        yield plots.plot_rates(all_spikes, first, learner.model.neurons, end_ms)
        yield plots.plot_voltages(learner.v_TR, self.model.step_ms)

    def select_batch(self, data: None, item: int) -> tuple[str, Batch]:
        """The first milliseconds, with another random input for each item."""
        if item < 0:
            raise EngramError(f"item must be a number from 0 on, not {item}.")
        steps = round(INSPECTED_MS / self.model.step_ms)
        return f"the first {INSPECTED_MS:g} ms from rest, Poisson input {item}", {"steps": steps}

    def init_learner(self, model: BrunelNetwork, item: int) -> SpikingSimulation:
        return SpikingSimulation(model, generator(item, "outside"), min(RECORDED, self.model.excitatory))

    def trace(self, model: BrunelNetwork, data: None, item: int) -> str:
        description, batch = self.select_batch(data, item)
        recorded = range(min(RECORDED, self.model.excitatory))
        _, recording = model.step(model.init_state(generator(item, "outside")), batch["steps"], record=recorded)
        tap("v", recording.v_TR)
        tap("s", recording.s_TR)
        return f"{description}: {len(recording.spikes.neuron)} spikes"

    def sample(self, learner: Learner[BrunelNetwork], data: None, request: SampleRequest) -> Sample:
        """Networks with other random connections."""
        rows = []
        for i in range(request.count):
            connection_seed = int(torch.randint(2**31, (1,), generator=request.generator))
            simulation = self.init_simulation(replace(self.model, connection_seed=connection_seed), request.generator)
            for _ in range(self.steps):
                simulation.step(next(self.batches(data)))
            metrics = self.evaluate(simulation, data, "test")
            rows.append({"network": i + 1, **{name: metrics[name] for name in ("firing_rate_hz", "isi_cv")}})
        lines = [
            f"network {row['network']}: {row['firing_rate_hz']:.2f} Hz, ISI CV {row['isi_cv']:.2f}" for row in rows
        ]
        rates = torch.tensor([row["firing_rate_hz"] for row in rows])
        return Sample({"firing_rate_hz": rates}, "\n".join(lines), rows=rows)
