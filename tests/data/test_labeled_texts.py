"""Labeled texts: whatever they are in, the right column is the text, the right one the class, and no row is lost."""

import numpy as np
import pandas as pd
import pytest

from engram.core.errors import EngramError
from engram.data import python_data
from engram.data.labeled_texts import TextColumns, is_labeled_table, load_labeled

ROWS = [(f"it was {'good' if i % 2 else 'bad'}, said guest {i}", "yes" if i % 2 else "no") for i in range(40)]


def rows_of(loaded):
    """All texts with the names of their classes, in alphabetical order."""
    found = [
        (text, loaded.classes[label])
        for split in loaded.splits.values()
        for text, label in zip(split["text"], split["label"].tolist(), strict=True)
    ]
    return sorted(found)


def table(path, header=("", ""), delimiter=",", rows=ROWS):
    quote = '"' if delimiter == "," else ""
    lines = [delimiter.join(header)] if any(header) else []
    path.write_text("\n".join([*lines, *(f"{quote}{text}{quote}{delimiter}{label}" for text, label in rows)]))
    return str(path)


@pytest.mark.parametrize("header", [("", ""), ("text", "label"), ("Review", "Sentiment"), ("what", "kind")])
@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.tsv", "\t"), ("a.csv", ";")])
def test_tables_with_and_without_names(name, delimiter, header, tmp_path):
    rows = ROWS if delimiter != ";" else [(text.replace(",", ""), label) for text, label in ROWS]
    loaded = load_labeled(table(tmp_path / name, header, delimiter, rows), TextColumns())
    assert rows_of(loaded) == sorted(rows)
    assert loaded.classes == ("no", "yes")
    assert {part: len(split) for part, split in loaded.splits.items()} == {"train": 32, "valid": 4, "test": 4}


def test_columns_are_named(tmp_path):
    lines = ["name,remark,long,group", *(f"n{i},r{i % 3},{'x ' * 30},g{i % 2}" for i in range(40))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    found = load_labeled(str(tmp_path / "a.csv"), TextColumns(text_column="name", target="remark"))
    assert found.classes == ("r0", "r1", "r2")
    assert rows_of(found) == sorted((f"n{i}", f"r{i % 3}") for i in range(40))
    assert load_labeled(str(tmp_path / "a.csv"), TextColumns()).classes == ("g0", "g1")
    with pytest.raises(EngramError, match='Did you mean "group"'):
        load_labeled(str(tmp_path / "a.csv"), TextColumns(target="grop"))


def test_words_that_look_missing_are_texts_and_empty_rows_are_left_out(tmp_path):
    path = table(tmp_path / "a.csv", ("text", "label"), rows=[*ROWS, ("None", "yes"), ("", "yes"), ("a text", "")])
    loaded = load_labeled(path, TextColumns())
    assert rows_of(loaded) == sorted([*ROWS, ("None", "yes")])
    assert "2 rows have no text or no class" in loaded.info.notes[1]


def test_numbers_are_classes_in_their_order(tmp_path):
    rows = [(f"text number {i}", str(i % 11)) for i in range(60)]
    loaded = load_labeled(table(tmp_path / "a.csv", ("text", "stars"), rows=rows), TextColumns())
    assert loaded.classes == tuple(map(str, range(11)))
    assert rows_of(loaded) == sorted(rows)


@pytest.mark.parametrize("train", [False, True])
def test_class_folders(train, tmp_path):
    for i, (text, label) in enumerate(ROWS):
        folder = tmp_path / ("train" if i < 30 else "test") / label if train else tmp_path / label
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i}.txt").write_text(text)
    loaded = load_labeled(str(tmp_path), TextColumns())
    assert rows_of(loaded) == sorted(ROWS)
    if train:
        assert sorted(loaded.test["text"]) == sorted(text for text, _ in ROWS[30:])


def test_from_python(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    texts, labels = [text for text, _ in ROWS], [label for _, label in ROWS]
    frame = pd.DataFrame({"n": range(40), "review": texts, "good": labels})
    for value, columns in (
        ((texts, labels), TextColumns()),
        ((np.array(texts), np.array(labels)), TextColumns()),
        (frame, TextColumns(target="good")),
    ):
        assert rows_of(load_labeled(python_data.store(value), columns)) == sorted(ROWS)
    frame.to_parquet(tmp_path / "a.parquet")
    assert rows_of(load_labeled(str(tmp_path / "a.parquet"), TextColumns())) == sorted(ROWS)
    with pytest.raises(EngramError, match="40 samples but 39 labels"):
        python_data.store((texts, labels[1:]))


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["text", *(f"one text {i}" for i in range(9))], "another one of classes"),
        (["text,label", *(f"one text {i},{i}" for i in range(9))], "9 classes for 9 texts"),
        (["a,b", *(f"{i}.5,{i % 2}" for i in range(9))], "has no texts"),
    ],
)
def test_what_is_no_labeled_text_is_refused(lines, sentence, tmp_path):
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with pytest.raises(EngramError, match=sentence):
        load_labeled(str(tmp_path / "a.csv"), TextColumns())
    assert not is_labeled_table(str(tmp_path / "a.csv"))


def test_a_table_of_texts_is_told_from_a_table_of_words(tmp_path):
    assert is_labeled_table(table(tmp_path / "a.csv", ("text", "label")))
    words = [(f"word{i % 7}", str(i % 2)) for i in range(40)]
    assert not is_labeled_table(table(tmp_path / "b.csv", ("size", "label"), rows=words))
