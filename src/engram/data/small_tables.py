"""Small tables for classification and regression: iris, wine, breast cancer, diabetes."""

import io
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from engram.data.dataset import Parts, Split
from engram.data.registry import Builder, register_downloaded
from engram.data.sources import Archive, DataSource, Files
from engram.data.splits import random_split
from engram.data.table import Table, TableEncoder

PACKAGE, FOLDER = "scikit-learn==1.9.1", "sklearn/datasets/data"
IRIS = ("sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)")
WINE = (
    "alcohol", "malic acid", "ash", "alcalinity of ash", "magnesium", "total phenols", "flavanoids",
    "nonflavanoid phenols", "proanthocyanins", "color intensity", "hue", "OD280/OD315", "proline",
)  # fmt: skip
NUCLEUS = (
    "radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity", "concave points", "symmetry",
    "fractal dimension",
)  # fmt: skip
CANCER = tuple(f"{statistic} {name}" for statistic in ("mean", "error", "worst") for name in NUCLEUS)
DIABETES = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")


def parse_numbers(content: bytes, delimiter: str | None, header: int = 0) -> Tensor:
    """Parse rows of numbers as float64."""
    return torch.from_numpy(np.loadtxt(io.BytesIO(content), delimiter=delimiter, skiprows=header, ndmin=2))


def divide(columns: dict[str, Tensor], classes: tuple[str, ...] = ()) -> Parts:
    """Split rows 80 : 10 : 10."""
    split = Split(columns)
    tenth = len(split) // 10
    return Parts(random_split(split, train=len(split) - 2 * tenth, valid=tenth, test=tenth), classes)


def read_classes(member: str, classes: tuple[str, ...]) -> Callable[[Files], Parts]:
    """Return a reader of a CSV file whose last column is the class."""

    def read(files: Files) -> Parts:
        rows = parse_numbers(files[member], ",", header=1)
        return divide({"point": rows[:, :-1].float(), "label": rows[:, -1].long()}, classes)

    return read


def read_diabetes(files: Files) -> Parts:
    point, target = parse_numbers(files[MEMBERS[0]], None), parse_numbers(files[MEMBERS[1]], None)
    return divide({"point": point.float(), "target": target[:, 0].float()})


def name_columns(names: tuple[str, ...]) -> Builder:
    """Return a function that adds the encoder of numeric columns with these names."""

    def arrange(parts: Parts) -> Parts:
        point_NF = parts.splits["train"]["point"].double().numpy()
        encoder = TableEncoder.fit(Table(dict(zip(names, point_NF.T, strict=True))))
        return Parts(parts.splits, parts.classes, encoder)

    return arrange


MEMBERS = (f"{FOLDER}/diabetes_data_raw.csv.gz", f"{FOLDER}/diabetes_target.csv.gz")
PROGRESSION = (
    "86badf50b4f9436ddd1e497dc0ae1b93166f8120221ee7dca4634fe849f3be7c",
    "244713a551f62a291a354212d8a048adec6cb1244b2bc44e66a0698f5006d26d",
)
TABLES: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...], str, int, str], ...] = (
    ("iris", "iris.csv", IRIS, ("setosa", "versicolor", "virginica"),
     "f13ffa8fdd56fd8e6c8d16d4081a3fbd3114bcd0aae4256c43205169cd9d1449", 150, "150 flowers, 3 species"),
    ("wine", "wine_data.csv", WINE, ("class 0", "class 1", "class 2"),
     "10e8a802908b34f86e5da8ce962f3c806694bc98450a18f61851af59f324bede", 178, "178 wines of 3 cultivars"),
    ("breast-cancer", "breast_cancer.csv", CANCER, ("malignant", "benign"),
     "fed3eb72d0575ef6192293f5093c6e801b1476b577d0386bf4455504522172ed", 569, "569 tumors, malignant or benign"),
)  # fmt: skip
for name, file, features, classes, sha256, size, title in TABLES:
    member = f"{FOLDER}/{file}"
    register_downloaded(
        name,
        DataSource(read_classes(member, classes), Archive("pip", PACKAGE, (member,), contents=(sha256,))),
        arrange=name_columns(features),
        title=f"{title}, {len(features)} measurements each",
        kind="table",
        license="BSD-3-Clause",
        columns={"point": f"float32 {len(features)}", "label": "int64"},
        sizes={"train": size - 2 * (size // 10), "valid": size // 10, "test": size // 10},
    )
register_downloaded(
    "diabetes",
    DataSource(
        read_diabetes,
        Archive(
            "pip",
            PACKAGE,
            MEMBERS,
            contents=PROGRESSION,
        ),
    ),
    arrange=name_columns(DIABETES),
    title="442 patients, 10 measurements each and the progression of diabetes a year later",
    kind="table",
    license="BSD-3-Clause",
    columns={"point": "float32 10", "target": "float32"},
    sizes={"train": 354, "valid": 44, "test": 44},
)
