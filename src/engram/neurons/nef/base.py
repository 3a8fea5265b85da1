"""Base of the NEF recipes: ensembles of spiking neurons that represent and transform vectors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner
from engram.core.recipe import Recipe, Sample, SampleRequest
from engram.core.seeding import generator
from engram.data.series import read_series
from engram.neurons.base import SimulationMixin
from engram.neurons.nef import plots
from engram.neurons.nef.system import NEFConfig, NEFSimulation, NEFSystem
from engram.neurons.simulation import InputWindows
from engram.plots.figure import Figure

TINY = {"neurons": 50, "steps": 6, "eval_every": 3, "window_ms": 50.0}


@dataclass(frozen=True, kw_only=True)
class NEFRecipe(SimulationMixin, Recipe[NEFSystem, Tensor]):
    """Simulates a system of the Neural Engineering Framework (NEF) with least-squares decoders."""

    Model: ClassVar[type[nn.Module]]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": TINY}
    best: ClassVar[tuple[str, str]] = ("valid_rmse", "min")
    samples: ClassVar[int] = 4

    data: str = "example"
    """"example", an input signal that demonstrates the system, or a file of your own (CSV or .npy, T × D)"""
    steps: Annotated[int, Ge(1)] = 60
    """number of simulated windows"""
    eval_every: Annotated[int, Ge(1)] = 20
    """windows between evaluations; each is followed by a checkpoint"""
    model: NEFConfig
    """the ensembles and their connections"""

    def load(self) -> Tensor:
        system: Any = self.Model
        if self.data == "example":
            t_s = torch.arange(1, self.total_steps + 1, dtype=torch.float64) * self.model.step_ms / 1000
            return system.example_input(t_s)
        u_TD = read_series(self.data).double()
        if u_TD.shape[1] != system.input_dimensions:
            found, needed = u_TD.shape[1], system.input_dimensions
            raise EngramError(f"{self.data} has {found} columns: {self.name} needs {needed}.")
        return u_TD

    def learner(self, data: Tensor) -> NEFSimulation:
        return NEFSimulation(self.init_system(self.model), generator(self.seed, "rest"))

    def init_system(self, config: NEFConfig) -> NEFSystem:
        """Build the network and solve for its decoders."""
        model = self.Model(config)
        assert isinstance(model, NEFSystem)
        return model

    def batches(self, data: Tensor) -> InputWindows:
        return InputWindows(data, self.window_steps)

    def evaluate(self, learner: Learner[NEFSystem], data: Tensor, split: str) -> dict[str, float]:
        """Root mean square error of the output so far; every split is the same recording."""
        assert isinstance(learner, NEFSimulation)
        return {"rmse": learner.rmse()}

    def figures(self, learner: Learner[NEFSystem], data: Tensor) -> Iterator[Figure]:
        assert isinstance(learner, NEFSimulation)
        yield from self.plot_simulation(learner, {})
        first = learner.model.ensemble(next(item for item in learner.model.objects if item.kind == "ensemble"))
        yield plots.plot_tuning_curves(first)
        yield plots.plot_error_scaling(first)

    def plot_simulation(self, learner: NEFSimulation, batch: Batch) -> Iterator[Figure]:
        names, target_TK = learner.model.output_names, learner.model.target_output(learner.input_TD)
        yield plots.plot_output(learner.time_s, learner.output_TK, target_TK, learner.input_TD, names)
        if len(names) > 1:
            yield plots.plot_phase_plane(learner.output_TK, target_TK, names)
        if self.model.spiking:
            yield plots.plot_raster(learner.spikes, len(learner.state.v_N))

    def trace(self, model: NEFSystem, data: Tensor, item: int) -> str:
        description, batch = self.select_batch(data, item)
        model(batch["input"])
        return description

    def select_batch(self, data: Tensor, item: int) -> tuple[str, Batch]:
        return self.select_input(data, item, max_ms=1000)

    def init_learner(self, model: NEFSystem, item: int) -> NEFSimulation:
        return NEFSimulation(model)

    def sample(self, learner: Learner[NEFSystem], data: Tensor, request: SampleRequest) -> Sample:
        """Other random ensembles with the same input."""
        rows, outputs = [], []
        for i in range(request.count):
            ensemble_seed = int(torch.randint(2**31, (1,), generator=request.generator))
            simulation = NEFSimulation(self.init_system(replace(self.model, ensemble_seed=ensemble_seed)))
            simulation.step({"input": data[: self.total_steps]})
            rows.append({"ensemble": i + 1, "rmse": float(simulation.rmse())})
            outputs.append(simulation.output_TK)
        lines = [f"ensemble {row['ensemble']}: root mean square error {row['rmse']:.4f}" for row in rows]
        return Sample({"output": torch.stack(outputs)}, "\n".join(lines), rows=rows)
