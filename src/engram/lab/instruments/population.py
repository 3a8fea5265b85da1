"""Population: what many neurons hold between them, and an integrator and an oscillator that run in their spikes.

A running system is stateless here as everywhere: an answer ends with the state that the next ask begins with, as text
that holds every bit of it. So time may be cut anywhere, and what comes is the same.
"""

import base64
import binascii
import functools
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.figures.population import decoding_errors, slope
from engram.lab.arrays import packed
from engram.lab.desk import Answer, Models, ask, must_lie_within
from engram.neurons.dynamics import State
from engram.neurons.lif import Spikes
from engram.neurons.population import Population
from engram.neurons.systems import Held, Integrator, Oscillator, System

CURVES, SAMPLES = 60, 201
"""neurons whose tuning is shown, and values at which it and what is decoded are"""
VALUES, LEAD_MS = 41, 50
"""values that are held in spikes one after the other, and the time before the first of them counts"""
SIZES = (10, 20, 50, 100, 200, 500)
CLEAN = 1e-4
"""the least noise that decoders are prepared for: with none at all they grow without bounds"""
PART_MS = 50.0
MOST_MS, RASTER = 5000.0, 40
"""time that one ask may take, and neurons whose spikes are told"""
BOUNDS = {
    "neurons": (2, 500), "dimensions": (1, 1), "radius": (0.1, 10), "slowest_hz": (1, 450), "fastest_hz": (1, 450),
    "tau_m_ms": (1, 200), "tau_ref_ms": (0.5, 2.2), "seed": (0, 2**31), "noise": (0, 1), "window_ms": (5, 100),
    "tau_ms": (5, 500), "read_ms": (1, 200), "step_ms": (0.5, 2), "draw": (0, 2**31), "frequency_hz": (-10, 10),
}  # fmt: skip


# ---------------------------------------------------------------------- what they hold


@dataclass(frozen=True, kw_only=True)
class Coding:
    """A population, and how its rates are read."""

    population: Population.Config = field(default_factory=Population.Config)
    noise: float = 0.1
    """standard deviation of the noise on the rates, as a part of the largest; the decoders are prepared for it"""
    window_ms: int = 50
    """time for which spikes are counted"""

    def __post_init__(self) -> None:
        must_lie_within(self, BOUNDS)
        must_lie_within(self.population, BOUNDS)


@ask("population")
def coding(asked: Coding, models: Models) -> Iterator[Answer]:
    """Tuning curves; then what is decoded from rates with noise; then from spikes that are counted for a while."""
    model, g = Population(asked.population), torch.Generator().manual_seed(asked.population.seed)
    x_S1 = model.samples(SAMPLES)
    rate_SN = model.rates(x_S1)
    yield {"x": x_S1[:, 0].tolist(), "tuning": packed(rate_SN[:, :CURVES].T)}
    D_N1 = model.decoders(noise=max(asked.noise, CLEAN))
    sigma = asked.noise * rate_SN.max()
    noisy_SN = rate_SN + sigma * torch.randn(rate_SN.shape, generator=g, dtype=torch.float64)
    yield {"rates": against(x_S1, noisy_SN @ D_N1)}
    held_V1 = model.samples(VALUES)
    yield {"spikes": against(held_V1, counted(model, held_V1, asked.window_ms) @ D_N1)}


def against(x_S1: Tensor, read_S1: Tensor) -> Answer:
    rmse = (read_S1 - x_S1).square().mean().sqrt().item()
    return {"x": x_S1[:, 0].tolist(), "decoded": read_S1[:, 0].tolist(), "rmse": rmse}


def counted(model: Population, held_VD: Tensor, window_ms: int) -> Tensor:
    """Spikes per second of every neuron while each value is held in turn, V×N."""
    x_TD = torch.cat([held_VD[:1].expand(LEAD_MS, -1), held_VD.repeat_interleave(window_ms, 0)])
    spikes = model.spikes(x_TD)
    counts = spikes.time_ms >= LEAD_MS
    window = ((spikes.time_ms[counts] - LEAD_MS) // window_ms).astype(np.int64).clip(max=len(held_VD) - 1)
    count_VN = torch.zeros(len(held_VD), model.config.neurons, dtype=torch.float64)
    where = torch.from_numpy(window), torch.from_numpy(spikes.neuron[counts])
    return count_VN.index_put_(where, torch.ones(len(window), dtype=torch.float64), accumulate=True) * 1000 / window_ms


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Populations like this one, of several sizes."""

    population: Population.Config = field(default_factory=Population.Config)

    def __post_init__(self) -> None:
        must_lie_within(self.population, BOUNDS)


@ask("population.errors")
def errors(asked: Sizes, models: Models) -> Generator[Answer, None, Answer]:
    """The error of decoded values, size after size; then the powers of N that it falls with."""
    found = []
    for neurons in SIZES:
        found.append(decoding_errors(replace(asked.population, neurons=neurons)))
        yield {"neurons": neurons, "clean": found[-1][0], "noisy": found[-1][1]}
    clean, noisy = (slope(SIZES, column) for column in zip(*found, strict=True))
    return {"clean_power": clean, "noisy_power": noisy}


# ---------------------------------------------------------------------- what they do


@dataclass(frozen=True, kw_only=True)
class Flowing:
    """A system, where it stands, and the input that passes: one row for each step, one after the other."""

    system: Literal["integrator", "oscillator"] = "integrator"
    model: Oscillator.Config = field(default_factory=lambda: Oscillator.Config(neurons=300))
    """the populations; an integrator has no frequency"""
    state: str = ""
    """what the answer before ended with; nothing is rest"""
    input: tuple[float, ...] = (0.0,)
    """u_1 of the first step, u_2 of the first step where there is one, u_1 of the second …"""

    def __post_init__(self) -> None:
        must_lie_within(self.model, BOUNDS)
        most = round(MOST_MS / self.model.step_ms) * self.width
        if not self.input or len(self.input) > most or len(self.input) % self.width:
            raise EngramError(f"input must be 1 to {most} numbers, {self.width} for each step, not {len(self.input)}.")
        if not all(abs(u) <= 100 for u in self.input):
            raise EngramError("input must be numbers from -100 to 100.")

    @property
    def width(self) -> int:
        return SYSTEMS[self.system].dimensions

    def made(self) -> System:
        """The populations with their decoders."""
        own = self.model if self.system == "oscillator" else replace(self.model, frequency_hz=0.0)
        return built(self.system, own)


SYSTEMS: dict[str, type[System]] = {"integrator": Integrator, "oscillator": Oscillator}


@functools.lru_cache(maxsize=8)
def built(system: str, config: Oscillator.Config) -> System:
    """Decoders take most of the time, and do not change while a system runs."""
    common = {name: getattr(config, name) for name in Held.__dataclass_fields__}
    return Oscillator(config) if system == "oscillator" else Integrator(Held(**common))


@ask("population.run")
def run(asked: Flowing, models: Models) -> Generator[Answer, None, Answer]:
    """What is read off the spikes while the input passes, some of the spikes, and where all of it stands then."""
    model = asked.made()
    state = opened(asked.state, model) if asked.state else model.rest(model.chance())
    u_TD = torch.tensor(asked.input, dtype=torch.float64).view(-1, model.dimensions)
    for u_PD in u_TD.split(round(PART_MS / model.step_ms)):
        began_ms = state.passed * model.step_ms
        state, recording = model.step(state, {model.u: u_PD})
        seen_PK, asked_for_PK = recording.probed[model.seen], model.ideal(u_PD)
        if not seen_PK.isfinite().all():
            raise EngramError("The value left all bounds: begin anew.")
        yield {
            "t": [began_ms + (i + 1) * model.step_ms for i in range(len(u_PD))], "u": packed(u_PD),
            "seen": packed(seen_PK), "added": asked_for_PK[-1].tolist(), **some(recording.spikes, began_ms),
        }  # fmt: skip
    return {"state": closed(state)}


def some(spikes: Spikes, began_ms: float) -> Answer:
    """The spikes of the first neurons."""
    shown = spikes.neuron < RASTER
    times_ms = (spikes.time_ms[shown] + began_ms).round(2)
    return {"spike_ms": times_ms.tolist(), "spike_of": spikes.neuron[shown].tolist()}


def closed(state: State) -> str:
    """A state as text."""
    numbers = np.concatenate([[state.passed], state.y, state.v_N, state.wait_N]).astype("<f8")
    return base64.b64encode(numbers.tobytes()).decode()


def opened(text: str, model: System) -> State:
    """The state that a text holds; it must be one of such a system."""
    rest = model.rest()
    sizes = np.cumsum([1, len(rest.y), len(rest.v_N)])
    try:
        numbers = np.frombuffer(base64.b64decode(text, validate=True), "<f8")
    except (binascii.Error, ValueError):
        raise EngramError("state must be what an answer ended with.") from None
    if len(numbers) != sizes[-1] + len(rest.wait_N):
        raise EngramError("state is that of another number of neurons, or of another system: begin anew.")
    if not (np.abs(numbers) < 1e12).all():
        raise EngramError("state must hold finite numbers.")
    passed, y, v_N, wait_N = np.split(numbers, sizes)
    return State(v_N.copy(), wait_N.copy(), y.copy(), int(passed[0]))
