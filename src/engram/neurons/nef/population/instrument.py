"""Population instrument: tuning curves and decoding of an ensemble, an integrator or oscillator.

The simulation keeps no state between requests: each response ends with the state that the next request starts from,
encoded bit for bit as text, so time can be split into requests anywhere.
"""

import base64
import binascii
import functools
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Le
from torch import Tensor

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.neurons.nef.ensemble import Ensemble
from engram.neurons.nef.integrator.model import Integrator
from engram.neurons.nef.network import State
from engram.neurons.nef.oscillator.model import Oscillator
from engram.neurons.nef.plots import decoding_errors, fit_exponent
from engram.neurons.nef.system import NEFConfig, NEFSystem
from engram.neurons.spikes import Spikes
from engram.plots.arrays import pack_array
from engram.plots.instrument import Models, Response, check_limits, endpoint, register_instrument

register_instrument(
    "population",
    title="Population",
    about="Tuning curves and decoding of an ensemble; an integrator and an oscillator of spiking neurons.",
    recipes=("population", "transformation", "integrator", "oscillator"),
    folder=Path(__file__).parent,
    needs_run=False,
)

MAX_CURVES, POINTS = 60, 201
"""neurons whose tuning curves are shown, and values at which they are evaluated"""
VALUES, SETTLE_MS = 41, 50
"""values that are represented by spikes one after the other, and time before the first is counted, ms"""
SIZES = (10, 20, 50, 100, 200, 500)
MIN_NOISE = 1e-4
"""least noise that decoders are regularized for: without any they grow without bounds"""
PART_MS = 50.0
"""simulated time per part of a response, ms"""
MAX_MS, MAX_NEURONS = 5000.0, 40
"""simulated time per request, and neurons in the raster"""
LIMITS = {
    "neurons": (2, 500), "dimensions": (1, 1), "radius": (0.1, 10), "max_rates": (1, 450), "tau_m_ms": (1, 200),
    "tau_ref_ms": (0.5, 2.2), "seed": (0, 2**31), "tau_synapse_ms": (5, 500), "tau_probe_ms": (1, 200),
    "step_ms": (0.5, 2), "ensemble_seed": (0, 2**31), "frequency_hz": (-10, 10),
}  # fmt: skip
"""lowest and highest value of parameters of ensembles and systems"""


# ---------------------------------------------------------------------- representation


@dataclass(frozen=True, kw_only=True)
class DecodingArgs(Settings):
    """An ensemble, and how its activity is decoded."""

    ensemble: Ensemble.Config = field(default_factory=Ensemble.Config)
    """the ensemble"""
    noise: Annotated[float, Ge(0), Le(1)] = 0.1
    """standard deviation of the noise of the firing rates, relative to the largest; decoders are regularized for it"""
    window_ms: Annotated[int, Ge(5), Le(100)] = 50
    """time for which spikes are counted, ms"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(self.ensemble, LIMITS)


@endpoint("population")
def decode(args: DecodingArgs, models: Models) -> Iterator[Response]:
    """Tuning curves; then values decoded from noisy firing rates; then values decoded from spike counts."""
    model, g = Ensemble(args.ensemble), torch.Generator().manual_seed(args.ensemble.seed)
    x_S1 = model.eval_points(POINTS)
    rate_SN = model.rates(x_S1)
    yield {"x": x_S1[:, 0].tolist(), "tuning": pack_array(rate_SN[:, :MAX_CURVES].T)}
    D_N1 = model.solve_decoders(noise=max(args.noise, MIN_NOISE))
    sigma = args.noise * rate_SN.max()
    noisy_SN = rate_SN + sigma * torch.randn(rate_SN.shape, generator=g, dtype=torch.float64)
    yield {"rates": compare(x_S1, noisy_SN @ D_N1)}
    x_V1 = model.eval_points(VALUES)
    yield {"spikes": compare(x_V1, count_rates_hz(model, x_V1, args.window_ms) @ D_N1)}


def compare(x_S1: Tensor, decoded_S1: Tensor) -> Response:
    """Values, decoded values and their root mean square error."""
    rmse = (decoded_S1 - x_S1).square().mean().sqrt().item()
    return {"x": x_S1[:, 0].tolist(), "decoded": decoded_S1[:, 0].tolist(), "rmse": rmse}


def count_rates_hz(model: Ensemble, x_VD: Tensor, window_ms: int) -> Tensor:
    """Spike counts per second of every neuron while each value is represented in turn, V×N."""
    x_TD = torch.cat([x_VD[:1].expand(SETTLE_MS, -1), x_VD.repeat_interleave(window_ms, 0)])
    spikes = model.simulate_spikes(x_TD)
    counted = spikes.time_ms >= SETTLE_MS
    window = ((spikes.time_ms[counted] - SETTLE_MS) // window_ms).astype(np.int64).clip(max=len(x_VD) - 1)
    count_VN = torch.zeros(len(x_VD), model.config.neurons, dtype=torch.float64)
    where = torch.from_numpy(window), torch.from_numpy(spikes.neuron[counted])
    return count_VN.index_put_(where, torch.ones(len(window), dtype=torch.float64), accumulate=True) * 1000 / window_ms


@dataclass(frozen=True, kw_only=True)
class ScalingArgs(Settings):
    """An ensemble whose number of neurons is varied."""

    ensemble: Ensemble.Config = field(default_factory=Ensemble.Config)
    """the ensemble"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(self.ensemble, LIMITS)


@endpoint("population.errors")
def error_scaling(args: ScalingArgs, models: Models) -> Generator[Response, None, Response]:
    """Decoding error for each number of neurons N; then the exponents of N."""
    errors = []
    for neurons in SIZES:
        errors.append(decoding_errors(replace(args.ensemble, neurons=neurons)))
        yield {"neurons": neurons, "clean": errors[-1][0], "noisy": errors[-1][1]}
    clean, noisy = (fit_exponent(SIZES, column) for column in zip(*errors, strict=True))
    return {"clean_exponent": clean, "noisy_exponent": noisy}


# ---------------------------------------------------------------------- dynamics


@dataclass(frozen=True, kw_only=True)
class SimulationArgs(Settings):
    """A system, its state, and the input of the next time steps."""

    system: Literal["integrator", "oscillator"] = "integrator"
    """what the ensemble computes"""
    model: Oscillator.Config = field(default_factory=lambda: Oscillator.Config(neurons=300))
    """the ensemble; an integrator ignores the frequency"""
    state: str = ""
    """state at the end of the previous response; empty means rest"""
    input: tuple[float, ...] = (0.0,)
    """input of each time step, one or two numbers per step in a row"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(self.model, LIMITS)
        longest = round(MAX_MS / self.model.step_ms) * self.width
        if not self.input or len(self.input) > longest or len(self.input) % self.width:
            raise EngramError(f"input must be 1 to {longest} numbers, {self.width} per step, not {len(self.input)}.")
        if not all(abs(u) <= 100 for u in self.input):
            raise EngramError("input must be numbers from -100 to 100.")

    @property
    def width(self) -> int:
        """Dimensions of the input."""
        return SYSTEMS[self.system].input_dimensions

    def build(self) -> NEFSystem:
        """The ensemble with its decoders."""
        is_oscillator = self.system == "oscillator"
        return init_system(self.system, self.model if is_oscillator else replace(self.model, frequency_hz=0.0))


SYSTEMS: dict[str, type[NEFSystem]] = {"integrator": Integrator, "oscillator": Oscillator}


@functools.lru_cache(maxsize=8)
def init_system(system: str, config: Oscillator.Config) -> NEFSystem:
    """Build a system, cached: solving for the decoders takes most of the time."""
    common = {name: getattr(config, name) for name in NEFConfig.__dataclass_fields__}
    return Oscillator(config) if system == "oscillator" else Integrator(NEFConfig(**common))


@endpoint("population.run")
def simulate(args: SimulationArgs, models: Models) -> Generator[Response, None, Response]:
    """Decoded output and spikes part by part; then the final state."""
    model = args.build()
    state = decode_state(args.state, model) if args.state else model.init_state(model.init_generator())
    u_TD = torch.tensor(args.input, dtype=torch.float64).view(-1, model.input_dimensions)
    for u_PD in u_TD.split(round(PART_MS / model.step_ms)):
        start_ms = state.elapsed_steps * model.step_ms
        state, recording = model.step(state, {model.input_node: u_PD})
        output_PK, target_PK = recording.probes[model.output_probe], model.target_output(u_PD)
        if not output_PK.isfinite().all():
            raise EngramError("The output diverged: restart the simulation.")
        yield {
            "t": [start_ms + (i + 1) * model.step_ms for i in range(len(u_PD))], "u": pack_array(u_PD),
            "output": pack_array(output_PK), "target_change": target_PK[-1].tolist(),
            **first_spikes(recording.spikes, start_ms),
        }  # fmt: skip
    return {"state": encode_state(state)}


def first_spikes(spikes: Spikes, start_ms: float) -> Response:
    """Spikes of the first neurons, for the raster."""
    shown = spikes.neuron < MAX_NEURONS
    times_ms = (spikes.time_ms[shown] + start_ms).round(2)
    return {"spike_ms": times_ms.tolist(), "spike_neuron": spikes.neuron[shown].tolist()}


def encode_state(state: State) -> str:
    """A state as text."""
    numbers = np.concatenate([[state.elapsed_steps], state.y, state.v_N, state.refractory_N]).astype("<f8")
    return base64.b64encode(numbers.tobytes()).decode()


def decode_state(text: str, model: NEFSystem) -> State:
    """The state of a text; refuses that of another system."""
    rest = model.init_state()
    sizes = np.cumsum([1, len(rest.y), len(rest.v_N)])
    try:
        numbers = np.frombuffer(base64.b64decode(text, validate=True), "<f8")
    except (binascii.Error, ValueError):
        raise EngramError("state must be the one at the end of a response.") from None
    if len(numbers) != sizes[-1] + len(rest.refractory_N):
        raise EngramError("state is that of another number of neurons, or of another system: restart the simulation.")
    if not (np.abs(numbers) < 1e12).all():
        raise EngramError("state must hold finite numbers.")
    elapsed_steps, y, v_N, refractory_N = np.split(numbers, sizes)
    return State(v_N.copy(), refractory_N.copy(), y.copy(), int(elapsed_steps[0]))
