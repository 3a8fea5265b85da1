"""Figures of NEF ensembles: tuning curves, decoding error, output over time, phase plane, raster."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from engram.neurons.nef.ensemble import Ensemble
from engram.neurons.spikes import Spikes
from engram.plots.figure import COLORS, Figure, line, plot

MAX_CURVES, TRIALS = 40, 3
TEST_POINTS = 3777
"""points on which errors are measured, other than the evaluation points of the decoders"""
SIZES = (10, 20, 50, 100, 200, 500, 1000)
MAX_POINTS, MAX_NEURONS, RASTER_MS = 4000, 60, 300.0


def plot_tuning_curves(model: Ensemble) -> Figure:
    """Tuning curve of each neuron along its encoder."""
    along = torch.linspace(-1, 1, 201, dtype=torch.float64)
    curves = [
        line(along * model.config.radius, model.rates(along[:, None] * model.config.radius * e_D)[:, i], f"neuron {i}",
             showlegend=False, line={"width": 1})
        for i, e_D in enumerate(model.encoder_ND[:MAX_CURVES])
    ]  # fmt: skip
    figure = plot(*curves, xaxis_title="value along the encoder", yaxis_title="firing rate (Hz)")
    shown = min(MAX_CURVES, model.config.neurons)
    caption = f"{shown} of {model.config.neurons} neurons with random intercepts and maximal rates."
    return Figure("Tuning curves", caption, figure)


def plot_error_scaling(model: Ensemble) -> Figure:
    """Decoding error over the number of neurons, with and without noise in their firing rates."""
    clean, noisy = [], []
    for count in SIZES:
        errors = [decoding_errors(replace(model.config, neurons=count, seed=seed)) for seed in range(TRIALS)]
        clean.append(sum(pair[0] for pair in errors) / TRIALS)
        noisy.append(sum(pair[1] for pair in errors) / TRIALS)
    exponents = [fit_exponent(SIZES, values) for values in (clean, noisy)]
    figure = plot(
        line(SIZES, clean, f"rates, ~ N^{exponents[0]:.2f}", mode="lines+markers"),
        line(SIZES, noisy, f"rates with noise of 10 %, ~ N^{exponents[1]:.2f}", mode="lines+markers"),
        xaxis={"type": "log", "title": "neurons"},
        yaxis={"type": "log", "title": "root mean square error"},
    )
    caption = (
        f"On test points the error falls as N^{exponents[0]:.2f} without noise and as N^{exponents[1]:.2f} with it; "
        "averaging independent noise gives N^-0.5."
    )
    return Figure("Decoding error", caption, figure)


def decoding_errors(config: Ensemble.Config) -> tuple[float, float]:
    """Root mean square error on test points: decoded from firing rates, and from rates with noise of 10 %."""
    model, g = Ensemble(config), torch.Generator().manual_seed(config.seed + 1_000_003)
    x_SD = model.eval_points(TEST_POINTS, g)
    rate_SN = model.rates(x_SD)
    noise_SN = 0.1 * rate_SN.max() * torch.randn(rate_SN.shape, generator=g, dtype=torch.float64)
    pairs = (rate_SN, 1e-4), (rate_SN + noise_SN, 0.1)
    clean, noisy = (
        (a_SN @ model.solve_decoders(noise=sigma) - x_SD).square().mean().sqrt().item() for a_SN, sigma in pairs
    )
    return clean, noisy


def fit_exponent(sizes: Sequence[int], errors: Sequence[float]) -> float:
    """Exponent of the power law that fits errors over sizes: the slope on logarithmic axes."""
    x, y = torch.tensor(sizes).double().log(), torch.tensor(errors).double().log()
    return ((x - x.mean()) * (y - y.mean())).sum().div((x - x.mean()).square().sum()).item()


def plot_output(t_s: Tensor, output_TK: Tensor, target_TK: Tensor, u_TD: Tensor, names: Sequence[str]) -> Figure:
    """Decoded and target output over time, above the input."""
    thin = max(1, len(t_s) // MAX_POINTS)
    t = t_s[::thin]
    traces = []
    for k, name in enumerate(names):
        color = COLORS[k % len(COLORS)]
        traces.append(line(t, output_TK[::thin, k], f"{name}, decoded", line={"color": color, "width": 1.5}))
        traces.append(line(t, target_TK[::thin, k], f"{name}, target", line={"color": color, "dash": "dot"}))
    figure = plot(*traces, height=460)
    for d, u_T in enumerate(u_TD[::thin].T):
        figure.add_trace(line(t, u_T, f"input {d + 1}", yaxis="y2", line={"color": "#8C8C8C", "width": 1}))
    figure.update_layout(
        yaxis={"title": "output", "domain": [0.3, 1]}, yaxis2={"title": "input", "domain": [0, 0.22], "anchor": "x"}
    )
    figure.update_xaxes(title="time (s)", anchor="y2")
    error = (output_TK - target_TK).square().mean().sqrt()
    return Figure("Output over time", f"Root mean square error {error:.3g}.", figure)


def plot_phase_plane(output_TK: Tensor, target_TK: Tensor, names: Sequence[str]) -> Figure:
    """Decoded and target trajectories in the plane of the first and the last dimension."""
    thin = max(1, len(output_TK) // MAX_POINTS)
    figure = plot(
        line(output_TK[::thin, 0], output_TK[::thin, -1], "decoded", line={"width": 1.2}),
        line(target_TK[::thin, 0], target_TK[::thin, -1], "target", line={"width": 1, "dash": "dot"}),
        xaxis_title=names[0],
        yaxis_title=names[-1],
        height=480,
    )
    figure.update_yaxes(scaleanchor="x")
    return Figure("Phase plane", "Trajectory decoded from the neurons, and that of the differential equation.", figure)


def plot_raster(spikes: Spikes, neurons: int) -> Figure:
    """Raster of the last spikes of some neurons."""
    end = spikes.time_ms.max(initial=0.0)
    shown = (spikes.neuron < MAX_NEURONS) & (spikes.time_ms > end - RASTER_MS)
    marker = {"symbol": "line-ns", "size": 5, "line": {"width": 1.2, "color": COLORS[0]}}
    trace = line(spikes.time_ms[shown] / 1000, spikes.neuron[shown], "spikes", mode="markers", marker=marker)
    figure = plot(trace, xaxis_title="time (s)", yaxis_title="neuron")
    caption = f"The last {RASTER_MS:g} ms of {min(MAX_NEURONS, neurons)} of {neurons} neurons."
    return Figure("Raster", caption, figure)
