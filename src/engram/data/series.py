"""One's own time series: values in the order of time, one column per channel."""

from pathlib import Path

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.checks import check_finite
from engram.data.tables import read_array


def read_series(path: str | Path) -> Tensor:
    """A CSV or .npy file as T × N, float64, in its own order."""
    path = Path(path)
    if not path.is_file():
        raise EngramError(f"There is no file {path}: a CSV or .npy file is wanted.")
    values = read_array(path)
    if values.ndim not in (1, 2) or values.size == 0:
        raise EngramError(
            f"{path} must hold a table of numbers, one row per time step, and has the shape {values.shape}."
        )
    series_TN = torch.as_tensor(values, dtype=torch.float64).reshape(len(values), -1)
    check_finite(str(path), "values", series_TN)
    return series_TN
