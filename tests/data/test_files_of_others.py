"""CSV and Parquet files of other packages, as they come with them: read as their owners read them, or refused."""

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import datasets as sklearn_data

from engram import data
from engram.core.errors import EngramError
from engram.data.csv_files import read_table
from engram.data.series import read_series


def inside(package: str, pattern: str) -> list[Path]:
    return sorted(Path(find_spec(package).origin).parent.glob(pattern))


FILES = [
    *inside("sklearn", "datasets/data/*.csv*"),
    *inside("plotly", "package_data/datasets/*.csv.gz"),
    *inside("numpy", "**/tests/data/*.csv"),
    *inside("pyarrow", "tests/data/parquet/*.parquet"),
    *inside("gensim", "test/test_data/*.tsv"),
]


def unpacked(file: Path, folder: Path) -> Path:
    if file.suffix != ".gz":
        return file
    (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    return folder / file.stem


def test_there_are_such_files():
    assert len({file.parts[-4:] for file in FILES}) == len(FILES) > 40


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parts[-3]}-{file.name}")
def test_a_file_is_read_or_refused_in_a_sentence(file, tmp_path):
    path = unpacked(file, tmp_path)
    try:
        found = data.load(str(path))
    except EngramError as refusal:
        sentence = str(refusal)
    else:
        assert 0 < len(next(iter(found.train.columns.values()))) == len(found.train)
        return
    assert str(path) in sentence or "The target" in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("breast_cancer.csv", sklearn_data.load_breast_cancer),
        ("iris.csv", sklearn_data.load_iris),
        ("wine_data.csv", sklearn_data.load_wine),
    ],
)
def test_files_with_a_first_row_of_counts(name, load):
    """scikit-learn's first row holds numbers of rows and inputs, then names of classes."""
    (file,) = inside("sklearn", f"datasets/data/{name}")
    table, (x, y) = read_table(file), load(return_X_y=True)
    columns = [np.asarray(column, dtype=float) for column in table.columns.values()]
    np.testing.assert_allclose(np.stack(columns[:-1], 1), x)
    np.testing.assert_array_equal(columns[-1], y)
    found = data.load(str(file))
    assert len(found.classes) == len(set(y))
    assert sum(len(found[split]) for split in ("train", "valid", "test")) == len(x)


def test_cells_between_spaces(tmp_path):
    exercise, physiological = inside("sklearn", "datasets/data/linnerud_*.csv")
    expected = sklearn_data.load_linnerud()
    for file, values, names in (
        (exercise, expected.data, expected.feature_names),
        (physiological, expected.target, expected.target_names),
    ):
        assert list(read_table(file).columns) == names
        np.testing.assert_allclose(read_series(file), values)
    (tmp_path / "padded.csv").write_text("a   b\n 1    2.5\n3  4\n")
    assert read_series(tmp_path / "padded.csv").tolist() == [[1, 2.5], [3, 4]]


def test_digits_are_images(tmp_path):
    (file,) = inside("sklearn", "datasets/data/digits.csv.gz")
    found, expected = data.load(str(unpacked(file, tmp_path))), sklearn_data.load_digits()
    every = torch.cat([found[split]["image"] for split in ("train", "valid", "test")])
    assert every.shape == (len(expected.images), 1, 8, 8)
    assert every.double().sum() == expected.images.sum()


def test_words_and_spaces_are_one_column(tmp_path):
    """A column of sentences is no table of words."""
    (tmp_path / "said.csv").write_text("what was said\nto be or\nnot to be\n")
    assert list(read_table(tmp_path / "said.csv").columns) == ["what was said"]
