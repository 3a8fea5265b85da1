"""One's own files of every kind, and what a bad one is answered."""

import io
import pickle
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from engram import data
from engram.core.errors import EngramError
from engram.data import arrays, image_files
from engram.data.series import read_series

RNG = np.random.default_rng(0)


def save_image(path, color=(255, 0, 0), size=(6, 4), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)


def refused(path, match, **options):
    with pytest.raises(EngramError, match=match) as caught:
        data.load(path, **options)
    assert str(caught.value).count("\n") == 0


# Pictures


@pytest.fixture
def folder(tmp_path):
    """Ten red and ten blue images in class folders, in four formats."""
    for i in range(10):
        suffix = (".png", ".bmp", ".gif", ".jpg")[i % 4]
        save_image(tmp_path / "red" / f"{i}{suffix}", (255, 0, 0))
        save_image(tmp_path / "blue" / f"{i}{suffix}", (0, 0, 255))
    return tmp_path


def test_a_folder_of_class_folders(folder):
    loaded = data.load(folder)
    assert loaded.classes == ("blue", "red")
    assert loaded.info.sizes == {"train": 16, "valid": 2, "test": 2}
    assert loaded.info.columns == {"image": "uint8 3×4×6", "label": "int64"}
    for split in loaded.splits.values():
        red = split["image"][:, 0, 0, 0] > 128
        assert torch.equal(red.long(), split["label"])


def test_pictures_are_divided_alike_each_time(folder):
    assert torch.equal(data.load(folder).train["label"], data.load(str(folder)).train["label"])


def test_pictures_in_grey_and_in_another_size(folder):
    assert data.load(folder, grayscale=True, size=5).info.columns["image"] == "uint8 1×5×5"
    assert data.load(folder, size=(3, 8)).info.columns["image"] == "uint8 3×3×8"


def test_odd_sizes_are_brought_to_the_most_common(folder):
    save_image(folder / "red" / "odd.png", size=(30, 30))
    assert data.load(folder).info.columns["image"] == "uint8 3×4×6"


def test_splits_that_are_given_are_kept(tmp_path):
    for part, count in (("train", 12), ("val", 3), ("test", 2)):
        for i in range(count):
            save_image(tmp_path / part / "a" / f"{i}.png")
    assert data.load(tmp_path).info.sizes == {"train": 12, "valid": 3, "test": 2}


def test_without_valid_a_tenth_of_train_becomes_it(tmp_path):
    for part, count in (("train", 20), ("test", 4)):
        for i in range(count):
            save_image(tmp_path / part / "a" / f"{i}.png")
    assert data.load(tmp_path).info.sizes == {"train": 18, "valid": 2, "test": 4}


def test_loose_pictures_have_no_labels(tmp_path):
    for i in range(5):
        save_image(tmp_path / f"{i}.png", i, mode="L")
    assert data.load(tmp_path).info.columns == {"image": "uint8 1×4×6"}


def test_what_is_transparent_becomes_white(tmp_path):
    for i in range(3):
        save_image(tmp_path / f"{i}.png", (0, 0, 0, 0), mode="RGBA")
    assert (data.load(tmp_path).train["image"] == 255).all()


@pytest.mark.parametrize("content", [b"", b"not a image"])
def test_an_unreadable_picture_is_named(folder, content):
    (folder / "red" / "bad.png").write_bytes(content)
    refused(folder, r"bad\.png cannot be read as an image")


def test_a_truncated_picture_is_named(folder):
    stream = io.BytesIO()
    Image.fromarray(RNG.integers(0, 255, (40, 40, 3), np.uint8)).save(stream, "PNG")
    (folder / "red" / "half.png").write_bytes(stream.getvalue()[:2000])
    refused(folder, r"half\.png cannot be read as an image")


def test_a_picture_that_would_fill_the_memory_is_refused(folder, monkeypatch):
    monkeypatch.setattr(image_files, "MAX_PIXELS", 1000)
    save_image(folder / "red" / "bomb.png", size=(100, 100))
    refused(folder, r"bomb\.png is 100 × 100 pixels large")


def test_too_many_pictures_ask_for_a_smaller_size(folder, monkeypatch):
    monkeypatch.setattr(image_files, "MAX_BYTES", 100)
    refused(folder, "give a smaller `size`")


def test_a_folder_without_data_is_refused(tmp_path):
    refused(tmp_path, "holds no images")


def test_two_pictures_are_too_few(tmp_path):
    save_image(tmp_path / "a" / "1.png")
    save_image(tmp_path / "a" / "2.png")
    refused(tmp_path, r"has too few samples \(2\)")


# NumPy


def test_npz_with_x_and_y(tmp_path):
    np.savez(tmp_path / "d.npz", x=RNG.random((50, 3)), y=np.arange(50) % 2 + 5)
    loaded = data.load(tmp_path / "d.npz")
    assert loaded.info.columns == {"point": "float32 3", "label": "int64"}
    assert loaded.info.sizes == {"train": 40, "valid": 5, "test": 5}
    assert loaded.classes == ("5", "6")
    assert loaded.train["label"].unique().tolist() == [0, 1]


def test_npz_with_splits(tmp_path):
    arrays = {f"{kind}_{part}": make(n) for part, n in (("train", 20), ("test", 10))
              for kind, make in (("x", lambda n: np.zeros((n, 8, 8), np.uint8)), ("y", np.arange))}  # fmt: skip
    np.savez(tmp_path / "d.npz", **arrays)
    loaded = data.load(tmp_path / "d.npz")
    assert loaded.info.sizes == {"train": 18, "valid": 2, "test": 10}
    assert loaded.info.columns["image"] == "uint8 1×8×8"
    assert loaded.test["label"].tolist() == list(range(10))


@pytest.mark.parametrize(
    ("array", "form"),
    [
        (np.zeros((9, 5, 4), np.uint8), "uint8 1×5×4"),
        (np.zeros((9, 5, 4, 3), np.uint8), "uint8 3×5×4"),
        (np.zeros((9, 3, 5, 4), np.uint8), "uint8 3×5×4"),
        (np.zeros((9, 64), np.int64), "uint8 1×8×8"),
        (np.zeros((9, 5, 4), bool), "uint8 1×5×4"),
    ],
)
def test_npy_of_images(tmp_path, array, form):
    np.save(tmp_path / "d.npy", array)
    assert data.load(tmp_path / "d.npy").info.columns == {"image": form}


def test_floats_from_0_to_1_are_pictures_too(tmp_path):
    np.save(tmp_path / "d.npy", np.linspace(0, 1, 9 * 16).reshape(9, 4, 4))
    image = torch.cat([split["image"] for split in data.load(tmp_path / "d.npy").splits.values()])
    assert (int(image.min()), int(image.max())) == (0, 255)


def test_npy_of_points(tmp_path):
    np.save(tmp_path / "d.npy", RNG.standard_normal((30, 2)))
    assert data.load(tmp_path / "d.npy").info.columns == {"point": "float32 2"}


@pytest.mark.parametrize("order", "<>")
def test_arrays_of_either_order_of_bytes(tmp_path, order):
    """What another machine or an instrument wrote, most significant byte first, is the same data."""
    x = RNG.standard_normal((30, 2)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x_train=x.astype(f"{order}f4"), y_train=np.arange(30).astype(f"{order}i8"))
    np.save(tmp_path / "d.npy", x.astype(f"{order}f4"))
    assert data.load(tmp_path / "d.npz").train["point"].shape[1] == 2
    assert torch.equal(read_series(tmp_path / "d.npy").float(), torch.from_numpy(x))


def test_measured_labels_are_targets(tmp_path):
    np.savez(tmp_path / "d.npz", x=RNG.random((50, 3)), y=RNG.random(50))
    assert data.load(tmp_path / "d.npz").info.columns == {"point": "float32 3", "target": "float32"}


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": np.array([{}, {}])}, "it holds Python objects"),
        ({"a": np.zeros(3)}, "has the arrays a: name them x and y"),
        ({"x": np.zeros((0, 3))}, "is empty"),
        ({"x": np.array(["a", "b"])}, "not numbers"),
        ({"x": np.zeros((5, 2)), "y": np.zeros(5, complex)}, "labels of type complex128"),
        ({"x": np.zeros((5, 2)), "y": np.zeros(4)}, "has 5 samples but 4 labels"),
        ({"x": np.array([[1.0], [2.0], [np.inf]])}, "has an infinite number"),
        ({"x": np.zeros((5, 4, 4)) * np.nan}, '"image" of .* has nan in row 1:'),
        ({"x": np.full((5, 4, 4), 300)}, "pixels from 300 to 300"),
        ({"x": np.zeros((5, 4, 4, 7))}, "1 or 3 channels"),
        ({"x": np.zeros((5, 4, 4, 3, 1))}, "images have 3 or 4 axes"),
    ],
)
def test_a_bad_npz_is_answered_in_one_sentence(tmp_path, arrays, sentence):
    np.savez(tmp_path / "d.npz", **arrays)
    refused(tmp_path / "d.npz", sentence)


def test_a_pickle_inside_an_npz_is_never_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "evil"), "w"))

    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("x.npy", pickle.dumps(Evil()))
    refused(tmp_path / "d.npz", "cannot be read as NumPy arrays")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("name", ["d.npz", "d.npy"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"rubbish"])
def test_rubbish_is_answered_in_one_sentence(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    refused(tmp_path / name, "cannot be read as NumPy arrays")


def test_an_npz_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "MAX_BYTES", 1000)
    np.savez_compressed(tmp_path / "d.npz", x=np.zeros((1000, 3)))
    refused(tmp_path / "d.npz", "would unpack to more than")


# CSV


def table(tmp_path, text):
    path = tmp_path / "d.csv"
    path.write_text(text)
    return path


def test_csv_with_a_named_label_anywhere(tmp_path):
    rows = "".join(f"{i % 2},{i},{i / 2}\n" for i in range(20))
    loaded = data.load(table(tmp_path, "class,height,width\n" + rows))
    assert loaded.info.columns == {"point": "float32 2", "label": "int64"}
    for split in loaded.splits.values():
        torch.testing.assert_close(split["point"][:, 0], 2 * split["point"][:, 1])
        assert torch.equal(split["point"][:, 0].long() % 2, split["label"])


def test_csv_without_header_and_with_words_as_labels(tmp_path):
    rows = "".join(f"{i}.5; {i * 2}; {'ja' if i % 3 else 'nein'}\n" for i in range(20))
    loaded = data.load(table(tmp_path, rows))
    assert loaded.classes == ("ja", "nein")
    assert loaded.info.columns["point"] == "float32 2"


def test_csv_of_measurements_only(tmp_path):
    loaded = data.load(table(tmp_path, "".join(f"{i},{i}.25\n" for i in range(20))))
    assert loaded.info.columns == {"point": "float32 2"}


@pytest.mark.parametrize("label", ["first", "last", "none"])
def test_csv_of_pictures_with_the_label_first_last_or_not_at_all(tmp_path, label):
    pixels = RNG.integers(0, 255, (30, 64))
    pixels[:, [0, -1]] = 0
    digit = np.arange(30)[:, None] % 3
    columns = {"first": [digit, pixels], "last": [pixels, digit], "none": [pixels]}[label]
    path = table(tmp_path, "")
    np.savetxt(path, np.concatenate(columns, 1), "%d", ",")
    loaded = data.load(path)
    assert loaded.info.columns["image"] == "uint8 1×8×8"
    assert loaded.classes == (() if label == "none" else ("0", "1", "2"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("a,b,label\n", "has no rows"),
        ("a,b,label\n1,inf,0\n1,2,0\n3,4,1\n2,2,1\n", 'column "b" has an infinite number'),
        ("a,b,label\n1,2,0\n1,2,0\n3,4,0\n2,2,0\n", "has the value 0 in every row"),
        ("a,b,label\n1,2,0\n", r"has too few samples \(1\)"),
    ],
)
def test_a_bad_csv_is_answered_in_one_sentence(tmp_path, text, sentence):
    refused(table(tmp_path, text), sentence)


def test_csv_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "d.csv").write_bytes(b"\xff\xfe\x00\x01\n")
    refused(tmp_path / "d.csv", "is not a CSV file in UTF-8")


# Text


def test_one_text_is_cut_at_nine_tenths(tmp_path):
    (tmp_path / "t.txt").write_text("äbcdefghij" * 10)
    loaded = data.load(tmp_path / "t.txt")
    assert [len(split["text"][0]) for split in loaded.splits.values()] == [90, 10]
    assert list(loaded.splits) == ["train", "valid"]


def test_many_texts_are_dealt_out(tmp_path):
    for i in range(20):
        (tmp_path / f"{i:02}.txt").write_text(f"this is text number {i}")
    loaded = data.load(tmp_path)
    assert loaded.info.sizes == {"train": 16, "valid": 2, "test": 2}
    assert len({text for split in loaded.splits.values() for text in split["text"]}) == 20


def test_an_empty_or_foreign_text_is_refused(tmp_path):
    (tmp_path / "t.txt").write_text("")
    refused(tmp_path / "t.txt", "is empty")
    (tmp_path / "t.txt").write_bytes("Größe".encode("latin-1") * 10)
    refused(tmp_path / "t.txt", "is not UTF-8 text")


# Others


def test_what_is_of_no_known_kind_is_refused(tmp_path):
    (tmp_path / "d.xlsx").write_text("?")
    refused(tmp_path / "d.xlsx", "is of no kind that can be read")


def test_options_are_for_images(tmp_path):
    (tmp_path / "t.txt").write_text("abcdefghij" * 10)
    refused(tmp_path / "t.txt", "There are no options for text", size=3)


def test_an_unknown_option_of_pictures_is_refused(folder):
    refused(folder, r"There is no option for images in .* .siz.\. Did you mean .size.", siz=3)
