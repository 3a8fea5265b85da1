"""engram predict: predictions of a trained model on new files."""

import csv
import json as jsonlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from engram.cli.flags import call
from engram.core.errors import EngramError

Row = dict[str, Any]
FORMATS = (".csv", ".jsonl", ".parquet")
LINES = ".txt"
"""ending of a file of predicted lines, of models of text"""


def command(argv: Sequence[str]) -> int:
    return call(predict, argv, "predict")


def predict(run: str, files: tuple[str, ...], out: Path | None = None, batch: int = 256, json: bool = False) -> int:
    """Predict with the model of a run: images, rows of a table, or lines of text.

    Args:
        run: the run folder of a classifier, a regressor, a translator or a masked language model, or a checkpoint
        files: files, folders or globs (required); - reads lines of text or the rows of a CSV file from standard input
        out: file of the predictions, which must not exist: .csv, .jsonl, .parquet, or .txt for lines of text; if not
            given, CSV is printed
        batch: inputs predicted at a time
        json: print a JSON object per line instead of CSV
    """
    from engram.hub.load import load_predictor

    if not files:
        raise EngramError("engram predict needs files to predict from: engram predict RUN FILES.")
    if batch < 1:
        raise EngramError(f"--batch must be at least 1, not {batch}.")
    check_suffix(out, (*FORMATS, LINES))
    if out and out.exists():
        raise EngramError(f"{out} is there already: name another file, or remove it.")
    predictor = load_predictor(run)
    check_suffix(out, (*FORMATS, LINES) if predictor.writes_lines else FORMATS)
    paths = [str(path) for path in predictor.find_files(files)]
    rows, console = 0, Console(stderr=True)
    with open_writer(out, json) as write, console.status("predicting") as status:
        for part in predictor.predict_files(paths, batch):
            write(part)
            rows += len(part)
            status.update(f"{rows:,} predicted")
    if out:
        print(f"{rows:,} predictions in {out}")
    return 0


def check_suffix(out: Path | None, formats: Sequence[str]) -> None:
    """Refuse a file of predictions of another format."""
    if out and out.suffix not in formats:
        raise EngramError(f"The predictions cannot be written as {out}: the name must end in {', '.join(formats)}.")


@contextmanager
def open_writer(out: Path | None, json: bool) -> Iterator[Callable[[list[Row]], None]]:
    """Yield a function that writes rows to standard output, or to a file that appears when complete."""
    if out is None:
        yield JSONLines(sys.stdout).write if json else CSV(sys.stdout).write
        return
    temporary = out.with_name(f".{out.name}.part")
    try:
        if out.suffix == ".parquet":
            kept: list[Row] = []
            yield kept.extend
            write_parquet(temporary, kept)
        else:
            with temporary.open("w", encoding="utf-8", newline="") as stream:
                writer = CSV(stream) if out.suffix == ".csv" else Lines(stream) if out.suffix == LINES else None
                yield (writer or JSONLines(stream)).write
        temporary.replace(out)
    except OSError as error:
        raise EngramError(f"{out} cannot be written: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)


class CSV:
    """Writes rows as CSV, with a header before the first."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.writer: csv.DictWriter[str] | None = None

    def write(self, rows: list[Row]) -> None:
        """Write rows."""
        if self.writer is None and rows:
            self.writer = csv.DictWriter(self.stream, list(rows[0]), lineterminator="\n")
            self.writer.writeheader()
        if self.writer is not None:
            self.writer.writerows(rows)


class JSONLines:
    """Writes rows as JSON objects, one per line."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, rows: list[Row]) -> None:
        """Write rows."""
        for row in rows:
            self.stream.write(jsonlib.dumps(row, ensure_ascii=False) + "\n")


class Lines:
    """Writes the predicted text of each row as a line."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, rows: list[Row]) -> None:
        """Write rows."""
        for row in rows:
            self.stream.write(" ".join(row["prediction"].splitlines()) + "\n")


def write_parquet(path: Path, rows: list[Row]) -> None:
    """Write rows as a Parquet file."""
    try:
        from pyarrow import Table, parquet
    except ImportError:
        raise EngramError("Writing Parquet files needs pyarrow: pip install 'engram[parquet]'.") from None
    parquet.write_table(Table.from_pylist(rows), path)
