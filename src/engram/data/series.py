"""Time series of the user: one row per time step, one column per channel."""

from pathlib import Path

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.arrays import read_array
from engram.data.checks import check_finite
from engram.data.csv_files import read_numbers


def read_series(path: str | Path) -> Tensor:
    """Read a CSV or .npy file as T × N, float64."""
    path = Path(path)
    if not path.is_file():
        raise EngramError(f"There is no file {path}: give a CSV or .npy file.")
    values = read_numbers(path) if path.suffix.lower() == ".csv" else read_array(path)
    if values.ndim not in (1, 2) or values.size == 0:
        raise EngramError(
            f"{path} must hold a table of numbers, one row per time step, and has the shape {values.shape}."
        )
    series_TN = torch.as_tensor(values, dtype=torch.float64).reshape(len(values), -1)
    check_finite(str(path), "values", series_TN)
    return series_TN
