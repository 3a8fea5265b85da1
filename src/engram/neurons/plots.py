"""Figures of single neurons.

Membrane potential, gates, ionic currents, phase plane, f–I curve, raster, intervals.
"""

import math
from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.neurons.hodgkin_huxley.excitability import frequency_hz, nullclines, rheobase
from engram.neurons.hodgkin_huxley.model import HodgkinHuxley
from engram.neurons.lif.model import firing_rate_hz
from engram.neurons.simulation import Simulation
from engram.plots.figure import COLORS, Figure, line, plot

MAX_POINTS = 4000


def plot_hodgkin_huxley(simulation: Simulation, item: int = 0) -> Iterator[Figure]:
    """Figures of one Hodgkin–Huxley neuron, and the raster of all."""
    thin = max(1, len(simulation.time_ms) // MAX_POINTS)
    t = simulation.time_ms[::thin]
    V, m, h, n = simulation.recording_TKN[::thin, :, item].T
    J = simulation.current_TN[::thin, item]
    yield plot_voltage(t, V, J, len(simulation.spikes_ms(item)))
    yield plot_gates(t, m, h, n)
    model = simulation.model
    assert isinstance(model, HodgkinHuxley)
    whole = simulation.recording_TKN[::thin].unbind(1)
    yield plot_ionic_currents(t, *(current[:, item] for current in model.currents(*whole)))
    yield plot_phase_plane(model, V, n, J.max().item(), item)
    if model.config.neurons > 1:
        yield plot_raster(*simulation.all_spikes(), model.config.neurons)


def plot_voltage(t: Tensor, V: Tensor, J: Tensor, spikes: int) -> Figure:
    """Membrane potential above the injected current."""
    figure = plot(line(t, V, "membrane potential V (mV)"), height=420, xaxis_title="time (ms)")
    figure.add_trace(line(t, J, "injected current J (µA/cm²)", yaxis="y2", line={"color": COLORS[1], "width": 1}))
    figure.update_layout(
        yaxis={"title": "V (mV)", "domain": [0.32, 1]},
        yaxis2={"title": "J (µA/cm²)", "domain": [0, 0.24], "anchor": "x"},
    )
    figure.update_xaxes(anchor="y2")
    return Figure("Membrane potential", f"{spikes} spikes under the injected current below.", figure)


def plot_gates(t: Tensor, m: Tensor, h: Tensor, n: Tensor) -> Figure:
    """Gating variables over time."""
    names = {"m, sodium activation": m, "h, sodium inactivation": h, "n, potassium activation": n}
    figure = plot(*(line(t, value, name) for name, value in names.items()), xaxis_title="time (ms)")
    figure.update_yaxes(title="open probability", range=[0, 1])
    return Figure("Gates", "m is fast and starts the spike; h closes and n opens more slowly, which ends it.", figure)


def plot_ionic_currents(t: Tensor, I_Na: Tensor, I_K: Tensor, I_L: Tensor) -> Figure:
    """Ionic currents over time."""
    names = {"I_Na, sodium": I_Na, "I_K, potassium": I_K, "I_L, leak": I_L}
    figure = plot(*(line(t, value, name) for name, value in names.items()), xaxis_title="time (ms)")
    figure.update_yaxes(title="current (µA/cm²), outward positive")
    return Figure(
        "Ionic currents",
        "Inward sodium current depolarizes the membrane, outward potassium current repolarizes it.",
        figure,
    )


def plot_phase_plane(model: HodgkinHuxley, V: Tensor, n: Tensor, J: float, item: int) -> Figure:
    """Trajectory in the plane of V and n, with the nullclines of both."""
    fine = torch.linspace(min(V.min().item(), -80.0), max(V.max().item(), 45.0), 300, dtype=torch.float64)
    n_nullcline, V_nullcline = nullclines(model, J, fine, item)
    figure = plot(
        line(V, n, "trajectory"),
        line(fine, V_nullcline, f"V-nullcline at {J:.3g} µA/cm²", line={"dash": "dash", "color": COLORS[1]}),
        line(fine, n_nullcline, "n-nullcline", line={"dash": "dot", "color": COLORS[2]}),
        xaxis_title="V (mV)",
        yaxis_title="n",
        height=420,
    )
    figure.update_yaxes(range=[0, 1])
    caption = "Each loop is a spike, counterclockwise. Where the nullclines meet is an equilibrium."
    return Figure("Phase plane", caption, figure)


def plot_fi_curve(config: HodgkinHuxley.Config) -> Figure:
    """f–I curve: firing rate over constant current, with the rheobase in the caption."""
    single, repetitive = rheobase(config), rheobase(config, repetitive=True)
    strongest = 6 * repetitive if math.isfinite(repetitive) else 40.0
    J = np.unique(np.append(np.linspace(0, strongest, 40), [repetitive] if math.isfinite(repetitive) else []))
    figure = plot(
        line(torch.from_numpy(J), torch.from_numpy(frequency_hz(config, J)), "firing rate", mode="lines+markers"),
        xaxis_title="constant current (µA/cm²)",
        yaxis_title="firing rate (Hz)",
    )
    if math.isfinite(repetitive):
        caption = (
            f"Rheobase: {single:.3g} µA/cm² for a single spike, {repetitive:.3g} for repetitive firing, which sets "
            "in at a high rate (class 2 excitability)."
        )
    else:
        caption = "No constant current up to 100 µA/cm² elicits repetitive firing."
    return Figure("f–I curve", caption, figure)


def plot_raster(spike_ms: Tensor, neuron: Tensor, neurons: int) -> Figure:
    """Spike raster of all neurons."""
    marker = {"symbol": "line-ns", "size": 8, "line": {"width": 1, "color": COLORS[0]}}
    trace = line(spike_ms, neuron, "spikes", mode="markers", marker=marker)
    figure = plot(trace, xaxis_title="time (ms)", yaxis_title="neuron")
    return Figure("Raster", f"{len(spike_ms)} spikes of {neurons} neurons.", figure)


def plot_voltage_and_input(simulation: Simulation, item: int) -> Figure:
    """Dimensionless membrane potential of a LIF neuron, threshold at 1, above its input."""
    thin = max(1, len(simulation.time_ms) // MAX_POINTS)
    t, v, v_in = (
        simulation.time_ms[::thin],
        simulation.recording_TKN[::thin, 0, item],
        simulation.current_TN[::thin, item],
    )
    figure = plot(line(t, v, "v"), height=420)
    figure.add_hline(y=1, line={"dash": "dot", "color": COLORS[6]})
    figure.add_trace(line(t, v_in, "input", yaxis="y2", line={"color": COLORS[1], "width": 1}))
    figure.update_layout(
        yaxis={"title": "v", "domain": [0.32, 1]}, yaxis2={"title": "input", "domain": [0, 0.24], "anchor": "x"}
    )
    figure.update_xaxes(title="time (ms)", anchor="y2")
    count = len(simulation.spikes_ms(item))
    return Figure(
        "Membrane potential",
        f"Neuron {item}: {count} spikes at the dotted threshold, each followed by the refractory period.",
        figure,
    )


def plot_tuning_curve(simulation: Simulation) -> Figure:
    """Firing rates of all neurons over their mean input, with the analytic rate."""
    model, mean_N = simulation.model, simulation.current_TN.mean(0)
    fine = torch.linspace(0, max(mean_N.max().item(), 1.5), 400, dtype=torch.float64)
    formula = firing_rate_hz(fine.numpy(), model.tau_m_ms[0].item(), model.tau_ref_ms[0].item())
    figure = plot(
        line(fine, formula, "analytic, constant input"),
        line(mean_N, simulation.rates_hz(), "simulated", mode="markers", marker={"color": COLORS[1]}),
        xaxis_title="mean input",
        yaxis_title="firing rate (Hz)",
    )
    error = (
        simulation.rates_hz()
        - torch.from_numpy(firing_rate_hz(mean_N.numpy(), model.tau_m_ms.numpy(), model.tau_ref_ms.numpy()))
    ).abs()
    return Figure(
        "Tuning curve",
        f"No spikes up to the threshold of 1; at most {error.max():.2g} Hz from the analytic rate.",
        figure,
    )


def plot_intervals(simulation: Simulation) -> Figure:
    """Histogram of interspike intervals (ISI), with the coefficient of variation (CV)."""
    gaps = [simulation.intervals_ms(i) for i in range(simulation.model.config.neurons)]
    pooled = torch.cat(gaps)
    cv = [(gap.std() / gap.mean()).item() for gap in gaps if len(gap) > 2]
    mean_cv = sum(cv) / len(cv) if cv else float("nan")
    figure = plot(
        go.Histogram(x=pooled.numpy(), nbinsx=80, marker={"color": COLORS[0]}),
        xaxis_title="interspike interval (ms)",
        yaxis_title="count",
    )
    caption = f"{len(pooled)} intervals; mean coefficient of variation {mean_cv:.2f} (1 for a Poisson process)."
    return Figure("Interspike intervals", caption, figure)
