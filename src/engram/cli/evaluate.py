"""engram evaluate: metrics of a run on other data."""

import json as jsonlib
import math
from collections.abc import Sequence

from engram.cli.flags import call
from engram.cli.table import print_table
from engram.core.errors import EngramError


def command(argv: Sequence[str]) -> int:
    return call(evaluate, argv, "evaluate")


def evaluate(run: str, data: str = "", resamples: int = 1000, json: bool = False) -> int:
    """Evaluate a run on other data; classifiers and regressors get 95 % bootstrap intervals.

    Args:
        run: the run folder, or pretrained word vectors by name: engram evaluate glove
        data: data set (its test split is used) or path (everything is used; the test split of texts, pairs and series);
            required, but for word vectors, which are evaluated on analogies and word similarity
        resamples: bootstrap samples; 0 disables the intervals
        json: print JSON instead of a table
    """
    from engram.hub.evaluate import evaluate as evaluate_run

    if not 0 <= resamples <= 100_000:
        raise EngramError(f"--resamples must be from 0 to 100000, not {resamples}.")
    found = evaluate_run(run, data or None, resamples)
    rows = [
        {"metric": name, "value": one.value, "low": none_if_nan(one.low), "high": none_if_nan(one.high)}
        for name, one in found.metrics.items()
    ]
    if json:
        print(jsonlib.dumps({"size": found.size, "unit": found.unit, "dropped": found.dropped, "metrics": rows}))
        return 0
    if all(row["low"] is None for row in rows):
        rows = [{"metric": row["metric"], "value": row["value"]} for row in rows]
    shown = [
        {name: "" if v is None else f"{v:.4g}" if isinstance(v, float) else v for name, v in row.items()}
        for row in rows
    ]
    print_table(shown, json=False)
    without = f"; rows without a target are left out: {found.dropped:,}" if found.dropped else ""
    print(f"on {found.size:,} {found.unit}{f' of {data}' if data else ''}{without}")
    return 0


def none_if_nan(value: float) -> float | None:
    """A number for JSON: None in place of NaN."""
    return None if math.isnan(value) else value
