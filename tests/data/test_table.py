"""Tables: kinds of columns, missing values, categories, dates, targets; files of pandas and scikit-learn."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from engram import data
from engram.core.errors import EngramError
from engram.data.table import Table, TableEncoder

RNG = np.random.default_rng(0)
NEIGHBORS = 20


@pytest.fixture
def cars(tmp_path):
    """A table with every kind of column, and a number as the target."""
    size = 60
    frame = pd.DataFrame(
        {
            "brand": RNG.choice(["audi", "bmw", "fiat"], size),
            "km": RNG.integers(1000, 200_000, size).astype(float),
            "sold": pd.date_range("2020-01-30", periods=size, freq="9h").astype(str),
            "plate": [f"KA-{i}" for i in range(size)],
            "price": RNG.normal(10_000, 3000, size).round(2),
        }
    )
    frame.loc[[3, 7, 20], "km"] = np.nan
    frame.loc[[5], "brand"] = None
    frame.to_csv(tmp_path / "cars.csv", index=False)
    frame.to_parquet(tmp_path / "cars.parquet")
    return tmp_path / "cars.csv"


def test_columns_are_encoded_by_their_kind(cars):
    loaded = data.load(cars, target="price")
    kinds = {feature.name: feature.kind for feature in loaded.encoder.features}
    assert kinds == {"brand": "category", "km": "number", "sold": "date"}
    assert loaded.target == "price"
    assert loaded.info.columns["target"] == "float32"
    assert any("plate" in note for note in loaded.info.notes)
    frame = pd.read_csv(cars)
    point = torch.cat([loaded.splits[name]["point"] for name in ("train", "valid", "test")])
    names = loaded.encoder.names
    year = point[:, names.index("sold.year")]
    assert year.unique().tolist() == [2020.0]
    for brand in ("audi", "bmw", "fiat"):
        assert point[:, names.index(f"brand={brand}")].sum() == (frame["brand"] == brand).sum()
    known = sorted(frame["km"].dropna())
    assert set(np.float32(known)) <= set(point[:, names.index("km")].tolist())


def test_the_median_of_the_training_rows_stands_for_missing_numbers():
    train = Table({"a": np.array([1.0, 2.0, 9.0, np.nan])})
    encoder = TableEncoder.fit(train)
    assert encoder.names == ["a", "a is missing"]
    assert encoder.encode(Table({"a": np.array([np.nan, 5.0])})).tolist() == [[2.0, 1.0], [5.0, 0.0]]
    assert "imputed with the median 2" in encoder.notes[0]


def test_a_category_that_was_not_seen_is_all_zeros():
    encoder = TableEncoder.fit(Table({"c": np.array(["x", "y", "x"], dtype=object)}))
    assert encoder.encode(Table({"c": np.array(["y", "z", None], dtype=object)})).tolist() == [[0, 1], [0, 0], [0, 0]]


def test_decoding_inverts_encoding(cars):
    loaded = data.load(cars, ignore=("plate",), target="price")
    point = loaded.train["point"].numpy()
    standardized = loaded.encoder.standardized(point)
    again = standardized.decode(standardized.rescale(point))
    plain = loaded.encoder.decode(point)
    assert again["brand"] == plain["brand"]
    assert again["sold"] == plain["sold"]
    assert set(filter(None, again["brand"])) == {"audi", "bmw", "fiat"}
    frame = pd.read_csv(cars)
    assert {round(km) for km in again["km"] if km is not None} <= set(frame["km"].dropna().round().astype(int))


def test_an_encoder_is_restored_from_json(cars):
    encoder = data.load(cars, target="price").encoder
    assert TableEncoder.from_json(encoder.to_json()) == encoder


def test_parquet_reads_as_csv(cars):
    ours, theirs = (data.load(path, target="price") for path in (cars, cars.with_suffix(".parquet")))
    assert ours.encoder.names == theirs.encoder.names
    torch.testing.assert_close(ours.train["point"], theirs.train["point"])


def test_words_and_few_integers_are_classes_and_other_numbers_are_not(cars):
    assert data.load(cars, target="brand").classes == ("audi", "bmw", "fiat")
    assert "target" in data.load(cars, target="km").train
    assert "label" in data.load(cars, target="km", task="classification").train
    with pytest.raises(EngramError, match="regression needs numbers"):
        data.load(cars, target="brand", task="regression")


def test_rows_without_target_are_left_out(cars):
    loaded = data.load(cars, target="brand")
    assert sum(map(len, loaded.splits.values())) == 59
    assert any("1 rows have no value" in note for note in loaded.info.notes)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"target": "prize"}, "Did you mean"),
        ({"ignore": ("nothing",)}, "no column"),
        ({"target": "km", "ignore": ("km",)}, "cannot be both"),
        ({"target": "km", "ignore": ("brand", "sold", "plate", "price")}, "no column to learn from"),
    ],
)
def test_wrong_options_are_one_sentence(cars, options, sentence):
    with pytest.raises(EngramError, match=sentence) as caught:
        data.load(cars, **options)
    assert "\n" not in str(caught.value)


def test_new_rows_need_the_columns_of_the_old(cars):
    encoder = data.load(cars, target="price").encoder
    with pytest.raises(EngramError, match="lacks the column 'brand'"):
        encoder.encode(Table({"km": np.ones(2)}))
    wrong = Table(
        {"brand": np.array(["bmw"], object), "km": np.array(["far"], object), "sold": np.array([None], object)}
    )
    with pytest.raises(EngramError, match='"far", where a number'):
        encoder.encode(wrong)


def packaged_csv_files() -> list[Path]:
    """CSV files that come with scikit-learn and pandas, whoever wrote them."""
    found = []
    for package in ("sklearn", "pandas"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        found += [file for folder in spec.submodule_search_locations or () for file in Path(folder).rglob("*.csv")]
    return sorted(found)


@pytest.mark.parametrize("file", packaged_csv_files(), ids=lambda file: file.name)
def test_the_files_of_others_load_or_are_refused_in_a_sentence(file):
    try:
        sentence, rows = "", len(data.load(file).train)
    except EngramError as error:
        sentence, rows = str(error), 0
    assert bool(rows) != bool(sentence)
    assert "\n" not in sentence


def test_a_csv_of_pandas_loads_whatever_its_kinds(tmp_path):
    frame = pd.DataFrame(
        {"i": range(30), "f": RNG.normal(size=30), "b": RNG.random(30) > 0.5, "s": list("abc") * 10, "n": [None] * 30}
    )
    frame.to_csv(tmp_path / "d.csv")
    loaded = data.load(tmp_path / "d.csv", target="s")
    assert loaded.classes == ("a", "b", "c")
    assert any('"n" holds no values' in note for note in loaded.info.notes)
