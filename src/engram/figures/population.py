"""Populations: how neurons are tuned, how well they hold a value, and what they make of it over time."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from engram.figures.figure import COLOURS, Figure, line, plot
from engram.neurons.lif import Spikes
from engram.neurons.population import Population

CURVES, TRIALS = 40, 3
TESTED = 3777
"""samples that errors are measured on, not those that decoders are made from"""
SIZES = (10, 20, 50, 100, 200, 500, 1000)
MOST_POINTS, MOST_NEURONS, RASTER_MS = 4000, 60, 300.0


def tuning(model: Population) -> Figure:
    """The rate of each neuron along its own direction."""
    along = torch.linspace(-1, 1, 201, dtype=torch.float64)
    curves = [
        line(along * model.config.radius, model.rates(along[:, None] * model.config.radius * e_D)[:, i], f"neuron {i}",
             showlegend=False, line={"width": 1})
        for i, e_D in enumerate(model.encoder_ND[:CURVES])
    ]  # fmt: skip
    figure = plot(*curves, xaxis_title="value along the neuron's own direction", yaxis_title="rate, Hz")
    caption = f"{min(CURVES, model.config.neurons)} of {model.config.neurons} neurons: each begins somewhere else."
    return Figure("Tuning curves", caption, figure)


def error_by_size(model: Population) -> Figure:
    """How the error of a decoded value falls with more neurons, with and without noise in their rates."""
    clean, noisy = [], []
    for count in SIZES:
        errors = [decoding_errors(replace(model.config, neurons=count, seed=seed)) for seed in range(TRIALS)]
        clean.append(sum(pair[0] for pair in errors) / TRIALS)
        noisy.append(sum(pair[1] for pair in errors) / TRIALS)
    fall = [slope(SIZES, values) for values in (clean, noisy)]
    figure = plot(
        line(SIZES, clean, f"rates, ~ N^{fall[0]:.2f}", mode="lines+markers"),
        line(SIZES, noisy, f"rates with noise of 10 %, ~ N^{fall[1]:.2f}", mode="lines+markers"),
        xaxis={"type": "log", "title": "neurons"},
        yaxis={"type": "log", "title": "root mean square error"},
    )
    caption = (
        f"On values that the decoders were not made for, the error falls as N^{fall[0]:.2f} without noise and as "
        f"N^{fall[1]:.2f} with it; N^-0.5 is what chance that averages out would give."
    )
    return Figure("Error by number of neurons", caption, figure)


def decoding_errors(config: Population.Config) -> tuple[float, float]:
    """Of decoders for clean rates on clean rates, and of decoders for noisy rates on noisy ones."""
    model, g = Population(config), torch.Generator().manual_seed(config.seed + 1_000_003)
    x_SD = model.samples(TESTED, g)
    rate_SN = model.rates(x_SD)
    noise_SN = 0.1 * rate_SN.max() * torch.randn(rate_SN.shape, generator=g, dtype=torch.float64)
    pairs = (rate_SN, 1e-4), (rate_SN + noise_SN, 0.1)
    clean, noisy = ((a_SN @ model.decoders(noise=sigma) - x_SD).square().mean().sqrt().item() for a_SN, sigma in pairs)
    return clean, noisy


def slope(sizes: Sequence[int], errors: Sequence[float]) -> float:
    """Of log error over log size."""
    x, y = torch.tensor(sizes).double().log(), torch.tensor(errors).double().log()
    return ((x - x.mean()) * (y - y.mean())).sum().div((x - x.mean()).square().sum()).item()


def over_time(t_s: Tensor, seen_TK: Tensor, ideal_TK: Tensor, u_TD: Tensor, names: Sequence[str]) -> Figure:
    """What is read off the spikes, what it should be, and the input."""
    thin = max(1, len(t_s) // MOST_POINTS)
    t = t_s[::thin]
    traces = []
    for k, name in enumerate(names):
        colour = COLOURS[k % len(COLOURS)]
        traces.append(line(t, seen_TK[::thin, k], f"{name}, read off the spikes", line={"color": colour, "width": 1.5}))
        traces.append(line(t, ideal_TK[::thin, k], f"{name}, as it should be", line={"color": colour, "dash": "dot"}))
    figure = plot(*traces, height=460)
    for d, u_T in enumerate(u_TD[::thin].T):
        figure.add_trace(line(t, u_T, f"input {d + 1}", yaxis="y2", line={"color": "#8C8C8C", "width": 1}))
    figure.update_layout(
        yaxis={"title": "value", "domain": [0.3, 1]}, yaxis2={"title": "input", "domain": [0, 0.22], "anchor": "x"}
    )
    figure.update_xaxes(title="time, s", anchor="y2")
    error = (seen_TK - ideal_TK).square().mean().sqrt()
    return Figure("Over time", f"Root mean square error {error:.3g}.", figure)


def plane(seen_TK: Tensor, ideal_TK: Tensor, names: Sequence[str]) -> Figure:
    """The first and the last dimension against each other."""
    thin = max(1, len(seen_TK) // MOST_POINTS)
    figure = plot(
        line(seen_TK[::thin, 0], seen_TK[::thin, -1], "read off the spikes", line={"width": 1.2}),
        line(ideal_TK[::thin, 0], ideal_TK[::thin, -1], "the equations", line={"width": 1, "dash": "dot"}),
        xaxis_title=names[0],
        yaxis_title=names[-1],
        height=480,
    )
    figure.update_yaxes(scaleanchor="x")
    return Figure("Phase plane", "The path that the value takes, and the one that the equations take.", figure)


def last_spikes(spikes: Spikes, neurons: int) -> Figure:
    """The last spikes of some neurons."""
    end = spikes.time_ms.max(initial=0.0)
    shown = (spikes.neuron < MOST_NEURONS) & (spikes.time_ms > end - RASTER_MS)
    marker = {"symbol": "line-ns", "size": 5, "line": {"width": 1.2, "color": COLOURS[0]}}
    trace = line(spikes.time_ms[shown] / 1000, spikes.neuron[shown], "spikes", mode="markers", marker=marker)
    figure = plot(trace, xaxis_title="time, s", yaxis_title="neuron")
    return Figure("Spikes", f"The end of what passed, {min(MOST_NEURONS, neurons)} of {neurons} neurons.", figure)
