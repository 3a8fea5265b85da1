"""A neuron over time: voltage, gates, ionic currents."""

from collections.abc import Iterator

from torch import Tensor

from engram.figures.figure import COLOURS, Figure, line, plot
from engram.neurons.simulation import Simulation

MOST_POINTS = 4000


def neuron(simulation: Simulation, item: int = 0) -> Iterator[Figure]:
    """What one neuron of a simulation did."""
    thin = max(1, len(simulation.time_ms) // MOST_POINTS)
    t = simulation.time_ms[::thin]
    V, m, h, n = simulation.recording_T4N[::thin, :, item].T
    J = simulation.current_TN[::thin, item]
    yield voltage(t, V, J, len(simulation.spikes_ms(item)))
    yield gates(t, m, h, n)
    model = simulation.model
    whole = simulation.recording_T4N[::thin].unbind(1)
    yield ionic_currents(t, *(current[:, item] for current in model.currents(*whole)))
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


def raster(spike_ms: Tensor, neuron: Tensor, neurons: int) -> Figure:
    """When each neuron fired."""
    marker = {"symbol": "line-ns", "size": 8, "line": {"width": 1, "color": COLOURS[0]}}
    trace = line(spike_ms, neuron, "spikes", mode="markers", marker=marker)
    figure = plot(trace, xaxis_title="time, ms", yaxis_title="neuron")
    return Figure("Raster", f"{len(spike_ms)} spikes of {neurons} neurons.", figure)
