"""Report of a sweep: history, parallel coordinates, importance of settings, learning curves, table."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from engram.core.files import write
from engram.plots import page
from engram.plots.figure import COLORS, Figure, line, plot
from engram.plots.report import command, number
from engram.training.progress import clock
from engram.training.sweep.space import Choices, Parameter
from engram.training.sweep.study import Trial
from engram.training.sweep.sweep import Sweep

STYLES = {"complete": (COLORS[0], "circle"), "pruned": (COLORS[6], "x"), "diverged": (COLORS[1], "triangle-up")}
"""color and marker of the trials that have a metric, by their state"""
SCALE = [[0, "#b0b6bd"], [0.5, COLORS[5]], [1, COLORS[1]]]
"""colors from the worst to the best, on a light and on a dark page"""
CLIPPED = 0.25
"""share of the worst trials that have the color of the worst of the others"""


def write_sweep_report(sweep: Sweep) -> Path:
    """Write report.html into the folder of a sweep, also of one that is not finished."""
    ranked = sweep.ranked()
    states = [trial.state for trial in ranked]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    seconds = sum(trial.seconds for trial in ranked)
    complete = states[:1] == ["complete"]
    cards = {"trials": str(len(ranked)), "training time": clock(seconds)}
    if complete:
        best = {str(name).replace("_", " "): value for name, value in spelled(ranked[0]).items()}
        cards = {sweep.metric.replace("_", " "): number(sweep.metric, value_of(ranked[0]))} | best | cards
    content = page.page(
        f"{sweep.recipe.title}: sweep",
        f"{sweep.recipe.name} on {Path(sweep.recipe.data).name} · {counts}",
        page.cards(cards),
        page.code("Train with the best settings", command(sweep.space.apply(ranked[0].params))) if complete else "",
        page.figures(figures(sweep, ranked)),
        page.matrix("Trials", columns(sweep, ranked)),
    )
    write(sweep.path / "report.html", content)
    return sweep.path / "report.html"


def figures(sweep: Sweep, ranked: Sequence[Trial]) -> Iterator[Figure]:
    """All figures for which there are enough trials."""
    metric, mode = sweep.recipe.best
    measured = sorted((trial for trial in ranked if trial.value is not None), key=lambda trial: trial.number)
    if not measured:
        return
    yield optimization_history(measured, metric, mode)
    if len(measured) > 1:
        yield parallel_coordinates(measured, sweep.space.parameters, metric, mode)
    if found := sweep.study.importance():
        yield importance(found)
    yield trial_curves(measured, metric)


def optimization_history(trials: Sequence[Trial], metric: str, mode: str) -> Figure:
    """Metric of every trial in their order, and the best of the complete ones so far."""
    label = metric.replace("_", " ")
    traces = []
    for state, (color, symbol) in STYLES.items():
        if found := [trial for trial in trials if trial.state == state]:
            marker = {"color": color, "symbol": symbol, "size": 9}
            x, y = [trial.number for trial in found], [value_of(trial) for trial in found]
            traces.append(line(x, y, state, mode="markers", marker=marker, text=[describe(trial) for trial in found]))
    if complete := [trial for trial in trials if trial.state == "complete"]:
        x = [*(trial.number for trial in complete), trials[-1].number]
        values = [value_of(trial) for trial in complete]
        best = (np.minimum if mode == "min" else np.maximum).accumulate(values)
        style = {"color": COLORS[0], "shape": "hv", "width": 1.5}
        traces.insert(0, line(x, [*best, best[-1]], "best so far", line=style))
    caption = "Validation metric of every trial; of one that was pruned, at the step where it ended."
    return Figure("Optimization history", caption, plot(*traces, xaxis_title="trial", yaxis_title=label))


def trial_curves(trials: Sequence[Trial], metric: str) -> Figure:
    """Metric of every trial against the step; those that ended early were pruned or diverged."""
    traces, labeled = [], set[str]()
    for trial in trials:
        color, _ = STYLES[trial.state]
        style = {"color": color, "width": 1.5}
        traces.append(
            line(
                list(trial.values), list(trial.values.values()), trial.state, mode="lines+markers", line=style,
                opacity=0.7, marker={"size": 5}, text=describe(trial), legendgroup=trial.state,
                showlegend=trial.state not in labeled,
            )
        )  # fmt: skip
        labeled.add(trial.state)
    caption = "Validation during training. Successive halving ends trials that fall behind others at the same step."
    return Figure("Validation curves", caption, plot(*traces, xaxis_title="step", yaxis_title=metric.replace("_", " ")))


def parallel_coordinates(
    trials: Sequence[Trial], parameters: Mapping[str, Parameter], metric: str, mode: str
) -> Figure:
    """A line for every trial through its settings to its metric."""
    y = np.array([value_of(trial) for trial in trials])
    low, high = np.quantile(y, [0, 1 - CLIPPED] if mode == "min" else [CLIPPED, 1])
    dimensions = [
        dimension(name.replace("_", " "), parameter, [trial.params[name] for trial in trials])
        for name, parameter in parameters.items()
    ]
    dimensions.append({"label": metric.replace("_", " "), "values": y, "tickformat": ".4~g"})
    lines = go.Parcoords(
        line={
            "color": y, "colorscale": SCALE, "reversescale": mode == "min", "cmin": low,
            "cmax": high if high > low else low + 1, "showscale": False,
        },
        dimensions=dimensions,
        labelfont={"size": 13},
    )  # fmt: skip
    caption = (
        "A line is a trial: gray the worst, blue those between, orange the best. Drag along an axis to select trials; "
        "drag a name to move its axis."
    )
    return Figure("Parallel coordinates", caption, plot(lines, margin={"l": 80, "r": 60, "t": 60, "b": 30}))


def dimension(label: str, parameter: Parameter, values: Sequence[Any]) -> dict[str, Any]:
    """The axis of a setting: logarithmic as it is searched, or with the choices as ticks."""
    if isinstance(parameter, Choices):
        texts = list(parameter.values)
        values = [texts.index(one) for one in values]
        ticks = {"tickvals": list(range(len(texts))), "ticktext": texts}
        return {"label": label, "values": values, "range": [-0.2, len(texts) - 0.8], **ticks}
    if not parameter.log:
        return {"label": label, "values": list(values), "range": [parameter.low, parameter.high]}
    places = log_ticks(parameter.low, parameter.high)
    ends = np.log10([parameter.low, parameter.high])
    ticks = {"tickvals": np.log10(places), "ticktext": [f"{place:g}" for place in places]}
    return {"label": label, "values": np.log10(values), "range": list(ends), **ticks}


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within a range, their doubles and fives too if they are few, and its ends."""
    exponents = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    factors = (1, 2, 5) if np.log10(high / low) <= 2 else (1,)
    inner = [factor * 10.0**exponent for exponent in exponents for factor in factors]
    return [low, *(tick for tick in inner if low * 1.2 < tick < high / 1.2), high]


def importance(shares: Mapping[str, float]) -> Figure:
    """Importance of each setting, as a bar."""
    names = sorted(shares, key=lambda name: shares[name])
    labels = [name.replace("_", " ") for name in names]
    values = [shares[name] for name in names]
    bars = go.Bar(x=values, y=labels, orientation="h", marker={"color": COLORS[0]}, width=0.5)
    caption = (
        "How much each setting decides whether a trial is among the best quarter (PED-ANOVA). With few trials it is an "
        "estimate of few: take it as a hint where to look next."
    )
    figure = plot(bars, height=120 + 40 * len(names), xaxis_title="share", yaxis_automargin=True)
    figure.update_xaxes(tickformat=".0%", range=[0, 1])
    return Figure("Importance of the settings", caption, figure)


# ---------------------------------------------------------------------- text


def value_of(trial: Trial) -> float:
    """The metric of a trial that has one."""
    assert trial.value is not None
    return trial.value


def spelled(trial: Trial) -> dict[str, str]:
    """Values of the varied settings as text."""
    return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in trial.params.items()}


def describe(trial: Trial) -> str:
    """Number and settings of a trial."""
    return f"trial {trial.number}: {', '.join(f'{name} {value}' for name, value in spelled(trial).items())}"


def row(sweep: Sweep, trial: Trial) -> dict[str, str]:
    """A row of a table of trials."""
    value = "–" if trial.value is None else number(sweep.metric, trial.value)
    about = {sweep.metric: value, "state": trial.state, "step": f"{trial.step:,}", "time": clock(trial.seconds)}
    return {**spelled(trial), **about}


def columns(sweep: Sweep, trials: Sequence[Trial]) -> dict[str, dict[str, str]]:
    """The table of trials by columns."""
    rows = {f"trial {trial.number}": row(sweep, trial) for trial in trials}
    names = dict.fromkeys(name for cells in rows.values() for name in cells)
    return {name.replace("_", " "): {trial: cells[name] for trial, cells in rows.items()} for name in names}
