"""Neuron bench: a current that somebody chooses or draws, what one neuron answers, and its rates."""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.core.errors import EngramError
from engram.lab.arrays import packed
from engram.lab.desk import Answer, Models, ask, must_lie_within
from engram.neurons.excitability import frequency_hz, nullclines, rheobase
from engram.neurons.hodgkin_huxley import HodgkinHuxley
from engram.neurons.lif import LIF, rate_hz
from engram.neurons.stimulus import Stimulus, sampled

Array = NDArray[np.float64]
MOST_POINTS = 3000
"""moments of a recording that are shown"""
MOST_DRAWN = 1000
QUANTITIES = ("V", "m", "h", "n", "I_Na", "I_K", "I_L")
MEASURED_MS = 1000.0
"""how long the rate of a leaky neuron is measured"""
AT_ONCE = 6
"""currents whose rates come in one part"""
COARSE_MS, STEADY_MS = 0.02, 300.0
"""time step for the rates of Hodgkin and Huxley's neuron, and how long each is measured: enough for three digits"""
BOUNDS = {
    "g_Na": (0, 1000), "g_K": (0, 500), "g_L": (0.05, 50), "V_Na": (-150, 150), "V_K": (-150, 150),
    "V_L": (-150, 150), "temperature_C": (0, 40), "c": (0.1, 20), "tau_m_ms": (0.5, 500), "tau_ref_ms": (0, 100),
    "amplitude": (-100, 100), "noise": (0, 50), "onset_ms": (0, 1000), "offset_ms": (0, 2000),
    "period_ms": (0.1, 1000), "width_ms": (0.1, 1000), "tau_ms": (0.1, 1000), "duration_ms": (10, 500),
    "current": (-500, 500), "least": (-100, 100), "most": (-100, 100), "points": (2, 60), "seed": (0, 2**31),
    "step_ms": (0.01, 1),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Injected:
    """A current over time; of a neuron without dimensions, its input."""

    kind: Literal["step", "ramp", "pulses", "sine", "noise", "drawn"] = "step"
    """course in time: «noise» is constant but for its noise, «pulses» are two"""
    amplitude: float = 10.0
    """strength, µA/cm², or 1 for the threshold of a leaky neuron"""
    onset_ms: float = 20.0
    offset_ms: float = 180.0
    period_ms: float = 20.0
    """from one pulse to the other, or of the sine"""
    width_ms: float = 1.0
    """duration of a pulse"""
    noise: float = 0.0
    """standard deviation of what fluctuates on top of any course"""
    tau_ms: float = 5.0
    """how long the fluctuations last"""
    seed: int = 0
    """number that they are drawn from"""
    drawn: tuple[float, ...] = (0.0,)
    """heights at evenly spaced moments from the beginning to the end, joined by lines"""

    def __post_init__(self) -> None:
        must_lie_within(self, BOUNDS)
        if not 1 <= len(self.drawn) <= MOST_DRAWN:
            raise EngramError(f"drawn must be 1 to {MOST_DRAWN} heights, not {len(self.drawn)}.")
        if not all(abs(height) <= 100 for height in self.drawn):
            raise EngramError("drawn must be heights from -100 to 100.")

    def sample(self, duration_ms: float, step_ms: float) -> Tensor:
        """What is injected during each step, T×1."""
        steps, g = round(duration_ms / step_ms), torch.Generator().manual_seed(self.seed)
        if self.kind in ("sine", "drawn"):
            fluctuating = Stimulus(stimulus="constant", amplitude=0.0, noise=self.noise, tau_ms=self.tau_ms)
            course = self._sine if self.kind == "sine" else functools.partial(self._drawn, duration_ms)
            return sampled(course, steps, step_ms) + fluctuating.sample(steps, step_ms, 1, g)
        return self._stimulus().sample(steps, step_ms, 1, g)

    def _stimulus(self) -> Stimulus:
        pair_ms = self.onset_ms + self.period_ms + self.width_ms
        return Stimulus(
            stimulus="constant" if self.kind == "noise" else self.kind,  # type: ignore[arg-type]
            amplitude=self.amplitude, onset_ms=self.onset_ms, noise=self.noise, tau_ms=self.tau_ms,
            offset_ms=pair_ms if self.kind == "pulses" else self.offset_ms, period_ms=self.period_ms,
            width_ms=self.width_ms,
        )  # fmt: skip

    def _sine(self, t_ms: Tensor) -> Tensor:
        return self.amplitude * torch.sin(2 * math.pi * t_ms / self.period_ms)

    def _drawn(self, duration_ms: float, t_ms: Tensor) -> Tensor:
        places = np.linspace(0, duration_ms, len(self.drawn))
        return torch.from_numpy(np.interp(t_ms.numpy(), places, np.array(self.drawn, np.float64)))


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Which neuron, and its parameters."""

    cell: Literal["hodgkin-huxley", "lif"] = "hodgkin-huxley"
    channels: HodgkinHuxley.Config = field(default_factory=HodgkinHuxley.Config)
    """of Hodgkin and Huxley's"""
    leaky: LIF.Config = field(default_factory=LIF.Config)
    """of the leaky one"""

    def __post_init__(self) -> None:
        must_lie_within(self, BOUNDS)
        for config in (self.channels, self.leaky):
            must_lie_within(config, BOUNDS)
            if config.neurons != 1:
                raise EngramError(f"neurons must be 1 on this bench, not {config.neurons}.")

    def made(self) -> HodgkinHuxley | LIF:
        return resting(self.channels if self.cell == "hodgkin-huxley" else self.leaky)


@functools.lru_cache(maxsize=8)
def resting(config: HodgkinHuxley.Config | LIF.Config) -> HodgkinHuxley | LIF:
    """A neuron at rest; nothing changes its state, so that it can be taken again."""
    return HodgkinHuxley(config) if isinstance(config, HodgkinHuxley.Config) else LIF(config)


# ---------------------------------------------------------------------- what it answers


@dataclass(frozen=True, kw_only=True)
class Bench(Cell):
    """A neuron under a current."""

    injected: Injected = field(default_factory=Injected)
    duration_ms: float = 200.0


@ask("neuron")
def answered(asked: Bench, models: Models) -> Answer:
    """What the neuron does from rest on: each quantity at evenly spaced times, and when it fires."""
    model = asked.made()
    J_T1 = asked.injected.sample(asked.duration_ms, model.config.step_ms)
    _, recording_TK1, spikes = model.advance(model.state, J_T1)
    stride = -(-len(J_T1) // MOST_POINTS)
    shown = slice(stride - 1, None, stride)
    kept_KT, J_T = recording_TK1[shown, :, 0].T, J_T1[shown, 0]
    if not kept_KT.isfinite().all():
        raise EngramError("Under such a current the neuron leaves all bounds: lower it.")
    t_T = (torch.arange(len(J_T1))[shown] + 1) * model.config.step_ms
    if isinstance(model, HodgkinHuxley):
        rows = dict(zip(QUANTITIES, (*kept_KT, *model.currents(*kept_KT)), strict=True))
    else:
        rows = {"v": kept_KT[0], "slope": slope(model, t_T, kept_KT[0], J_T, spikes.time_ms)}
    series = {name: packed(row) for name, row in rows.items()}
    fired = spikes.time_ms
    return {
        "t": packed(t_T), "J": packed(J_T), "series": series,
        "spikes": fired[:MOST_POINTS].tolist(), "count": len(fired),
    }  # fmt: skip


def slope(model: LIF, t_T: Tensor, v_T: Tensor, v_in_T: Tensor, spikes_ms: Array) -> Tensor:
    """dv/dt per ms: that of the equation, but 0 while the neuron waits after a spike."""
    last = np.searchsorted(spikes_ms, t_T.numpy(), side="right") - 1
    since = np.where(last < 0, np.inf, t_T.numpy() - np.append(spikes_ms, -np.inf)[last])
    waits = torch.from_numpy(since < model.config.tau_ref_ms)
    return torch.where(waits, 0.0, (v_in_T - v_T) / model.config.tau_m_ms)


@dataclass(frozen=True, kw_only=True)
class Still(Cell):
    """A moment of Hodgkin and Huxley's neuron: the current that it is under."""

    current: float = 0.0


@ask("neuron.still")
def still(asked: Still, models: Models) -> Answer:
    """Where V, and where n would stand still under a current; null where nothing makes V do so."""
    model = resting(asked.channels)
    assert isinstance(model, HodgkinHuxley)
    V = torch.linspace(-90, 60, 151, dtype=torch.float64)
    n_still, V_still = nullclines(model, asked.current, V)
    lines = ([n if math.isfinite(n) else None for n in line.tolist()] for line in (n_still, V_still))
    return dict(zip(("V", "n_still", "V_still"), (V.tolist(), *lines), strict=True))


# ---------------------------------------------------------------------- how fast it fires


@dataclass(frozen=True, kw_only=True)
class Curve(Cell):
    """Constant currents, evenly spaced."""

    least: float = 0.0
    most: float = 40.0
    points: int = 28

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.least < self.most:
            raise EngramError(f"most must be above least ({self.least:g}), not {self.most:g}.")


@ask("neuron.rates")
def rates(asked: Curve, models: Models) -> Iterator[Answer]:
    """Measured rates a few at a time; then the rheobase, or the rates that the formula gives."""
    J_N = np.linspace(asked.least, asked.most, asked.points)
    leaky, channels = asked.cell == "lif", replace(asked.channels, step_ms=COARSE_MS)
    if leaky:
        fine = np.linspace(asked.least, asked.most, 400)
        formula = rate_hz(fine, asked.leaky.tau_m_ms, asked.leaky.tau_ref_ms)
        yield {"formula": {"current": fine.tolist(), "rate_hz": formula.tolist()}}
    for first in range(0, len(J_N), AT_ONCE):
        J = J_N[first : first + AT_ONCE]
        if leaky:
            exact = rate_hz(J, asked.leaky.tau_m_ms, asked.leaky.tau_ref_ms)
            rate = measured(asked.leaky, J)
            yield {"current": J.tolist(), "rate_hz": rate.tolist(), "apart_hz": np.abs(rate - exact).max().item()}
        else:
            yield {"current": J.tolist(), "rate_hz": frequency_hz(channels, J, STEADY_MS).tolist()}
    if leaky:
        yield {"rheobase": {"repetitive": 1.0}}
    for name in () if leaky else ("once", "repetitive"):
        least = rheobase(channels, repetitive=name == "repetitive", tolerance=0.01)
        yield {"rheobase": {name: least if math.isfinite(least) else None}}


def measured(config: LIF.Config, v_in_N: Array) -> Array:
    """The rates of leaky neurons that run, from the first spike of each to its last."""
    model = LIF(replace(config, neurons=len(v_in_N)))
    v_in_TN = torch.from_numpy(v_in_N).expand(round(MEASURED_MS / config.step_ms), -1)
    _, _, spikes = model.step(model.rest(), v_in_TN, record=False)
    trains = [spikes.of(i) for i in range(len(v_in_N))]
    return np.array([1000 * (len(t) - 1) / (t[-1] - t[0]) if len(t) > 1 else 0.0 for t in trains])
