"""Neuron bench: injects a current into a Hodgkin–Huxley or LIF neuron; f–I curve, nullclines."""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Le
from numpy.typing import NDArray
from torch import Tensor

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.neurons.hodgkin_huxley.excitability import frequency_hz, nullclines, rheobase
from engram.neurons.hodgkin_huxley.model import HodgkinHuxley
from engram.neurons.lif.model import LIF, firing_rate_hz
from engram.neurons.stimulus import Stimulus, sample_function
from engram.plots.arrays import pack_array
from engram.plots.instrument import Models, Response, check_limits, endpoint, register_instrument

register_instrument(
    "neuron",
    title="Neuron bench",
    about="Draw a current and watch a neuron respond; conductances on sliders, phase plane, f–I curve.",
    recipes=("hodgkin-huxley", "lif"),
    folder=Path(__file__).parent,
    needs_run=False,
)

Array = NDArray[np.float64]
MAX_POINTS = 3000
"""times at which a recording is shown"""
MAX_DRAWN = 1000
QUANTITIES = ("V", "m", "h", "n", "I_Na", "I_K", "I_L")
LIF_MS = 1000.0
"""duration of the measurement of a LIF neuron's firing rate, ms"""
CHUNK = 6
"""currents per part of the f–I curve"""
HH_STEP_MS, HH_MS = 0.02, 300.0
"""time step and duration of the measurement of a Hodgkin–Huxley neuron's firing rate: three digits"""
LIMITS = {
    "g_Na": (0, 1000), "g_K": (0, 500), "g_L": (0.05, 50), "V_Na": (-150, 150), "V_K": (-150, 150),
    "V_L": (-150, 150), "temperature_C": (0, 40), "c": (0.1, 20), "tau_m_ms": (0.5, 500), "tau_ref_ms": (0, 100),
    "step_ms": (0.01, 1), "neurons": (1, 1),
}  # fmt: skip
"""lowest and highest value of parameters of neurons"""


@dataclass(frozen=True, kw_only=True)
class StimulusArgs(Settings):
    """A current over time, µA/cm²; of a LIF neuron its input, with the threshold at 1."""

    kind: Literal["step", "ramp", "pulses", "sine", "noise", "drawn"] = "step"
    """time course: "noise" is constant with additive noise, "pulses" are two"""
    amplitude: Annotated[float, Ge(-100), Le(100)] = 10.0
    """amplitude of the current"""
    onset_ms: Annotated[float, Ge(0), Le(1000)] = 20.0
    """onset of a step, a ramp or pulses, ms"""
    offset_ms: Annotated[float, Ge(0), Le(2000)] = 180.0
    """end of a step, or when a ramp reaches its amplitude, ms"""
    period_ms: Annotated[float, Ge(0.1), Le(1000)] = 20.0
    """period of a sine, or time between two pulses, ms"""
    width_ms: Annotated[float, Ge(0.1), Le(1000)] = 1.0
    """duration of a pulse, ms"""
    noise: Annotated[float, Ge(0), Le(50)] = 0.0
    """standard deviation of the additive Ornstein–Uhlenbeck noise; 0 disables"""
    tau_ms: Annotated[float, Ge(0.1), Le(1000)] = 5.0
    """correlation time of the noise, ms"""
    seed: Annotated[int, Ge(0), Le(2**31)] = 0
    """seed of the noise"""
    points: tuple[float, ...] = (0.0,)
    """hand-drawn current at evenly spaced times from start to end, linearly interpolated"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.points) <= MAX_DRAWN:
            raise EngramError(f"points must be 1 to {MAX_DRAWN} values, not {len(self.points)}.")
        if not all(abs(value) <= 100 for value in self.points):
            raise EngramError("points must be values from -100 to 100.")

    def sample(self, duration_ms: float, step_ms: float) -> Tensor:
        """The current during each time step, T×1."""
        steps, g = round(duration_ms / step_ms), torch.Generator().manual_seed(self.seed)
        if self.kind in ("sine", "drawn"):
            noise = Stimulus(stimulus="constant", amplitude=0.0, noise=self.noise, tau_ms=self.tau_ms)
            course = self._sine if self.kind == "sine" else functools.partial(self._interpolate, duration_ms)
            return sample_function(course, steps, step_ms) + noise.sample(steps, step_ms, 1, g)
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

    def _interpolate(self, duration_ms: float, t_ms: Tensor) -> Tensor:
        times = np.linspace(0, duration_ms, len(self.points))
        return torch.from_numpy(np.interp(t_ms.numpy(), times, np.array(self.points, np.float64)))


@dataclass(frozen=True, kw_only=True)
class CellArgs(Settings):
    """A neuron model and its parameters."""

    cell: Literal["hodgkin-huxley", "lif"] = "hodgkin-huxley"
    """neuron model"""
    hodgkin_huxley: HodgkinHuxley.Config = field(default_factory=HodgkinHuxley.Config)
    """parameters of the Hodgkin–Huxley neuron"""
    lif: LIF.Config = field(default_factory=LIF.Config)
    """parameters of the LIF neuron"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for config in (self.hodgkin_huxley, self.lif):
            check_limits(config, LIMITS)

    def build(self) -> HodgkinHuxley | LIF:
        """The neuron at rest."""
        return resting_neuron(self.hodgkin_huxley if self.cell == "hodgkin-huxley" else self.lif)


@functools.lru_cache(maxsize=8)
def resting_neuron(config: HodgkinHuxley.Config | LIF.Config) -> HodgkinHuxley | LIF:
    """A neuron at rest, cached; simulations do not change its state."""
    return HodgkinHuxley(config) if isinstance(config, HodgkinHuxley.Config) else LIF(config)


# ---------------------------------------------------------------------- response to a current


@dataclass(frozen=True, kw_only=True)
class BenchArgs(CellArgs):
    """A neuron under a current."""

    stimulus: StimulusArgs = field(default_factory=StimulusArgs)
    """injected current"""
    duration_ms: Annotated[float, Ge(10), Le(500)] = 200.0
    """simulated time, ms"""


@endpoint("neuron")
def simulate(args: BenchArgs, models: Models) -> Response:
    """State variables and ionic currents from rest at evenly spaced times, and the spike times."""
    model = args.build()
    J_T1 = args.stimulus.sample(args.duration_ms, model.config.step_ms)
    _, recording_TK1, spikes = model.simulate(model.state, J_T1)
    stride = -(-len(J_T1) // MAX_POINTS)
    shown = slice(stride - 1, None, stride)
    shown_KT, J_T = recording_TK1[shown, :, 0].T, J_T1[shown, 0]
    if not shown_KT.isfinite().all():
        raise EngramError("The membrane potential diverges under this current: lower it.")
    t_T = (torch.arange(len(J_T1))[shown] + 1) * model.config.step_ms
    if isinstance(model, HodgkinHuxley):
        rows = dict(zip(QUANTITIES, (*shown_KT, *model.currents(*shown_KT)), strict=True))
    else:
        rows = {"v": shown_KT[0], "dv_dt": voltage_derivative(model, t_T, shown_KT[0], J_T, spikes.time_ms)}
    return {
        "t": pack_array(t_T), "J": pack_array(J_T), "series": {name: pack_array(row) for name, row in rows.items()},
        "spikes": spikes.time_ms[:MAX_POINTS].tolist(), "count": len(spikes.time_ms),
    }  # fmt: skip


def voltage_derivative(model: LIF, t_T: Tensor, v_T: Tensor, v_in_T: Tensor, spikes_ms: Array) -> Tensor:
    """dv/dt of a LIF neuron, per ms; 0 during the refractory period."""
    last = np.searchsorted(spikes_ms, t_T.numpy(), side="right") - 1
    since = np.where(last < 0, np.inf, t_T.numpy() - np.append(spikes_ms, -np.inf)[last])
    refractory = torch.from_numpy(since < model.config.tau_ref_ms)
    return torch.where(refractory, 0.0, (v_in_T - v_T) / model.config.tau_m_ms)


@dataclass(frozen=True, kw_only=True)
class NullclineArgs(CellArgs):
    """A Hodgkin–Huxley neuron under a constant current."""

    current: Annotated[float, Ge(-500), Le(500)] = 0.0
    """constant current, µA/cm²"""


@endpoint("neuron.nullclines")
def phase_plane(args: NullclineArgs, models: Models) -> Response:
    """n on the n-nullcline and on the V-nullcline at each V; null where no n solves the latter."""
    model = resting_neuron(args.hodgkin_huxley)
    assert isinstance(model, HodgkinHuxley)
    V = torch.linspace(-90, 60, 151, dtype=torch.float64)
    lines = ([n if math.isfinite(n) else None for n in line.tolist()] for line in nullclines(model, args.current, V))
    return dict(zip(("V", "n_nullcline", "V_nullcline"), (V.tolist(), *lines), strict=True))


# ---------------------------------------------------------------------- f–I curve


@dataclass(frozen=True, kw_only=True)
class CurveArgs(CellArgs):
    """Evenly spaced constant currents."""

    min_current: Annotated[float, Ge(-100), Le(100)] = 0.0
    """lowest current, µA/cm²"""
    max_current: Annotated[float, Ge(-100), Le(100)] = 40.0
    """highest current, µA/cm²"""
    points: Annotated[int, Ge(2), Le(60)] = 28
    """number of currents"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.min_current < self.max_current:
            raise EngramError(
                f"max_current must be above min_current ({self.min_current:g}), not {self.max_current:g}."
            )


@endpoint("neuron.fi_curve")
def fi_curve(args: CurveArgs, models: Models) -> Iterator[Response]:
    """Measured firing rates a few at a time, and the rheobase; for a LIF neuron the analytic rates too."""
    J_N = np.linspace(args.min_current, args.max_current, args.points)
    is_lif, config = args.cell == "lif", replace(args.hodgkin_huxley, step_ms=HH_STEP_MS)
    if is_lif:
        fine = np.linspace(args.min_current, args.max_current, 400)
        analytic = firing_rate_hz(fine, args.lif.tau_m_ms, args.lif.tau_ref_ms)
        yield {"analytic": {"current": fine.tolist(), "rate_hz": analytic.tolist()}}
    for first in range(0, len(J_N), CHUNK):
        J = J_N[first : first + CHUNK]
        if is_lif:
            exact = firing_rate_hz(J, args.lif.tau_m_ms, args.lif.tau_ref_ms)
            rate = measure_rates_hz(args.lif, J)
            yield {"current": J.tolist(), "rate_hz": rate.tolist(), "error_hz": np.abs(rate - exact).max().item()}
        else:
            yield {"current": J.tolist(), "rate_hz": frequency_hz(config, J, HH_MS).tolist()}
    if is_lif:
        yield {"rheobase": {"repetitive": 1.0}}
    for name in () if is_lif else ("single", "repetitive"):
        weakest = rheobase(config, repetitive=name == "repetitive", tolerance=0.01)
        yield {"rheobase": {name: weakest if math.isfinite(weakest) else None}}


def measure_rates_hz(config: LIF.Config, v_in_N: Array) -> Array:
    """Firing rates of simulated LIF neurons under constant inputs, from the first spike to the last."""
    model = LIF(replace(config, neurons=len(v_in_N)))
    v_in_TN = torch.from_numpy(v_in_N).expand(round(LIF_MS / config.step_ms), -1)
    _, _, spikes = model.step(model.init_state(), v_in_TN, record=False)
    trains = [spikes.train(i) for i in range(len(v_in_N))]
    return np.array([1000 * (len(t) - 1) / (t[-1] - t[0]) if len(t) > 1 else 0.0 for t in trains])
