"""A neuron over time: voltage, gates, ionic currents."""

import math
from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.figures.figure import COLOURS, Figure, line, plot
from engram.neurons.excitability import frequency_hz, nullclines, rheobase
from engram.neurons.hodgkin_huxley import HodgkinHuxley
from engram.neurons.lif import rate_hz
from engram.neurons.simulation import Simulation

MOST_POINTS = 4000


def neuron(simulation: Simulation, item: int = 0) -> Iterator[Figure]:
    """What one neuron of a simulation did."""
    thin = max(1, len(simulation.time_ms) // MOST_POINTS)
    t = simulation.time_ms[::thin]
    V, m, h, n = simulation.recording_TKN[::thin, :, item].T
    J = simulation.current_TN[::thin, item]
    yield voltage(t, V, J, len(simulation.spikes_ms(item)))
    yield gates(t, m, h, n)
    model = simulation.model
    assert isinstance(model, HodgkinHuxley)
    whole = simulation.recording_TKN[::thin].unbind(1)
    yield ionic_currents(t, *(current[:, item] for current in model.currents(*whole)))
    yield phase_plane(model, V, n, J.max().item(), item)
    if model.config.neurons > 1:
        yield raster(*simulation.all_spikes(), model.config.neurons)


def voltage(t: Tensor, V: Tensor, J: Tensor, spikes: int) -> Figure:
    figure = plot(line(t, V, "V, mV"), height=420, xaxis_title="time, ms")
    figure.add_trace(line(t, J, "injected current, µA/cm²", yaxis="y2", line={"color": COLOURS[1], "width": 1}))
    figure.update_layout(
        yaxis={"title": "V, mV", "domain": [0.32, 1]}, yaxis2={"title": "J", "domain": [0, 0.24], "anchor": "x"}
    )
    figure.update_xaxes(anchor="y2")
    return Figure("Voltage", f"{spikes} spikes under the injected current below.", figure)


def gates(t: Tensor, m: Tensor, h: Tensor, n: Tensor) -> Figure:
    names = {"m, sodium opens": m, "h, sodium lets through": h, "n, potassium opens": n}
    figure = plot(*(line(t, value, name) for name, value in names.items()), xaxis_title="time, ms")
    figure.update_yaxes(title="part open", range=[0, 1])
    return Figure("Gates", "m is quick and starts the spike; h closes and n opens, more slowly, and end it.", figure)


def ionic_currents(t: Tensor, I_Na: Tensor, I_K: Tensor, I_L: Tensor) -> Figure:
    names = {"I_Na, sodium": I_Na, "I_K, potassium": I_K, "I_L, leak": I_L}
    figure = plot(*(line(t, value, name) for name, value in names.items()), xaxis_title="time, ms")
    figure.update_yaxes(title="µA/cm², outwards positive")
    return Figure(
        "Ionic currents", "Sodium rushes in and drives the voltage up, potassium flows out and brings it back.", figure
    )


def phase_plane(model: HodgkinHuxley, V: Tensor, n: Tensor, J: float, item: int) -> Figure:
    """The path through the two variables that matter most, and where each of them would stand still."""
    fine = torch.linspace(min(V.min().item(), -80.0), max(V.max().item(), 45.0), 300, dtype=torch.float64)
    n_still, V_still = nullclines(model, J, fine, item)
    figure = plot(
        line(V, n, "what it did"),
        line(fine, V_still, f"V stands still under {J:.3g} µA/cm²", line={"dash": "dash", "color": COLOURS[1]}),
        line(fine, n_still, "n stands still", line={"dash": "dot", "color": COLOURS[2]}),
        xaxis_title="V, mV",
        yaxis_title="n",
        height=420,
    )
    figure.update_yaxes(range=[0, 1])
    caption = (
        "Each loop is a spike, anticlockwise. Where the broken lines meet, the neuron could rest under its current."
    )
    return Figure("Phase plane", caption, figure)


def frequency_current(config: HodgkinHuxley.Config) -> Figure:
    """How fast the neuron fires under constant currents, and from which one on."""
    once, forever = rheobase(config), rheobase(config, repetitive=True)
    strongest = 6 * forever if math.isfinite(forever) else 40.0
    J = np.unique(np.append(np.linspace(0, strongest, 40), [forever] if math.isfinite(forever) else []))
    figure = plot(
        line(torch.from_numpy(J), torch.from_numpy(frequency_hz(config, J)), "rate", mode="lines+markers"),
        xaxis_title="constant current, µA/cm²",
        yaxis_title="rate, Hz",
    )
    if math.isfinite(forever):
        caption = (
            f"From rest, a current of {once:.3g} µA/cm² makes one spike and one of {forever:.3g} makes it fire on and "
            "on, at once with a high rate."
        )
    else:
        caption = "No constant current up to 100 µA/cm² makes this neuron fire on and on."
    return Figure("Frequency and current", caption, figure)


def raster(spike_ms: Tensor, neuron: Tensor, neurons: int) -> Figure:
    """When each neuron fired."""
    marker = {"symbol": "line-ns", "size": 8, "line": {"width": 1, "color": COLOURS[0]}}
    trace = line(spike_ms, neuron, "spikes", mode="markers", marker=marker)
    figure = plot(trace, xaxis_title="time, ms", yaxis_title="neuron")
    return Figure("Raster", f"{len(spike_ms)} spikes of {neurons} neurons.", figure)


def dimensionless(simulation: Simulation, item: int) -> Figure:
    """The voltage of a leaky neuron, from rest at 0 to its threshold at 1, and its input."""
    thin = max(1, len(simulation.time_ms) // MOST_POINTS)
    t, v, v_in = (
        simulation.time_ms[::thin],
        simulation.recording_TKN[::thin, 0, item],
        simulation.current_TN[::thin, item],
    )
    figure = plot(line(t, v, "v"), height=420)
    figure.add_hline(y=1, line={"dash": "dot", "color": COLOURS[6]})
    figure.add_trace(line(t, v_in, "input", yaxis="y2", line={"color": COLOURS[1], "width": 1}))
    figure.update_layout(
        yaxis={"title": "v", "domain": [0.32, 1]}, yaxis2={"title": "input", "domain": [0, 0.24], "anchor": "x"}
    )
    figure.update_xaxes(title="time, ms", anchor="y2")
    count = len(simulation.spikes_ms(item))
    return Figure("Voltage", f"Neuron {item}: {count} spikes, each at the dotted line, then silence.", figure)


def tuning_curve(simulation: Simulation) -> Figure:
    """Rates of all neurons over their mean input, and the formula."""
    model, mean_N = simulation.model, simulation.current_TN.mean(0)
    fine = torch.linspace(0, max(mean_N.max().item(), 1.5), 400, dtype=torch.float64)
    formula = rate_hz(fine.numpy(), model.tau_m_ms[0].item(), model.tau_ref_ms[0].item())
    figure = plot(
        line(fine, formula, "the formula, for a constant input"),
        line(mean_N, simulation.rates_hz(), "simulated", mode="markers", marker={"color": COLOURS[1]}),
        xaxis_title="mean input",
        yaxis_title="rate, Hz",
    )
    apart = (
        simulation.rates_hz()
        - torch.from_numpy(rate_hz(mean_N.numpy(), model.tau_m_ms.numpy(), model.tau_ref_ms.numpy()))
    ).abs()
    return Figure("Tuning curve", f"Silent up to 1, then steep; at most {apart.max():.2g} Hz from the formula.", figure)


def intervals(simulation: Simulation) -> Figure:
    """How long neurons wait from one spike to the next, and how regularly."""
    gaps = [simulation.intervals_ms(i) for i in range(simulation.model.config.neurons)]
    everything = torch.cat(gaps)
    regular = [(gap.std() / gap.mean()).item() for gap in gaps if len(gap) > 2]
    mean_cv = sum(regular) / len(regular) if regular else float("nan")
    figure = plot(
        go.Histogram(x=everything.numpy(), nbinsx=80, marker={"color": COLOURS[0]}),
        xaxis_title="interval between spikes, ms",
        yaxis_title="how many",
    )
    caption = f"{len(everything)} intervals; their standard deviation is {mean_cv:.2f} of the mean (1 for pure chance)."
    return Figure("Intervals between spikes", caption, figure)
