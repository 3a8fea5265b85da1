"""Models that make things: what autoencoder, VAE, GAN and diffusion have in common."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.registry import Recipe, Sample, must_be_item
from engram.core.seeding import generator
from engram.data.batches import Batches
from engram.data.dataset import Data, Split
from engram.figures import generation as views
from engram.figures.figure import Figure
from engram.figures.pictures import grid
from engram.recipes import quality
from engram.recipes.quality import Exam

PointsName = Literal["moons", "spirals", "rings", "gaussians", "checkerboard", "swiss-roll"]
POINTS = 20_000
AT_ONCE = 250


@dataclass(frozen=True, kw_only=True)
class Generative(Recipe):
    """Things in, things of the same kind out, made from noise or from codes."""

    kind: ClassVar[str] = "generation"
    best: ClassVar[tuple[str, str]] = ("valid_frechet", "min")
    unit: ClassVar[str] = "items"
    samples: ClassVar[int] = 64

    data: str = "mnist"
    """data set of pictures (`engram data list`), or «points», or a path: folder of pictures, .npz, .npy"""
    points: PointsName = "moons"
    """which points, for --data points"""
    batch: int = 128
    """items in a batch"""
    measured: int = 5000
    """items that are made in the end and compared with as many real ones; a fifth of them on the way"""
    model: Any
    """the architecture"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 2:
            raise EngramError(f"batch must be at least 2, not {self.batch}.")
        if self.measured < 10:
            raise EngramError(f"measured must be at least 10, not {self.measured}.")

    @property
    def per_step(self) -> float:
        return self.batch

    # ------------------------------------------------------------------ data

    def load(self) -> Data:
        if self.data == "points":
            return datasets.load("points", shape=self.points, count=POINTS)
        loaded = datasets.load(self.data)
        if not {"image", "point"} & set(loaded.train):
            raise EngramError(f"{self.name} learns to make pictures or points, and {self.data} has neither.")
        quality.judge_of(loaded, column(loaded))  # which may have to be trained: better now than after an hour
        return loaded

    def space(self, data: Data) -> dict[str, Any]:
        """What the model must know of the data."""
        x = data.train[column(data)]
        shape = tuple(x.shape[1:])
        if column(data) == "image":
            return {"shape": shape}
        return {"shape": shape, "centre": x.mean().item(), "scale": x.std().item()}

    def batches(self, data: Data) -> Batches:
        name = column(data)

        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            x = batch.pop(name)
            x = x.float().div_(255) if name == "image" else x
            return {"x": x, **self.chance(x, batch, generator)}

        columns = {key: data.train[key] for key in (name, "label") if key in data.train}
        return Batches(Split(columns), self.batch, generator(self.seed, "batches"), prepare)

    @abstractmethod
    def chance(self, x: Tensor, batch: Mapping[str, Any], generator: torch.Generator) -> dict[str, Any]:
        """What else a step needs: all that is random in it."""

    # ------------------------------------------------------------------ measuring

    @abstractmethod
    def make(self, model: Any, count: int, generator: torch.Generator) -> Tensor:
        """New things."""

    def made(self, model: Any, count: int, purpose: str) -> Tensor:
        """New things, a few at a time."""
        random = generator(self.seed, purpose)
        return torch.cat([self.make(model, min(AT_ONCE, count - i), random) for i in range(0, count, AT_ONCE)])

    @abstractmethod
    def own_marks(self, model: Any, data: Data, split: str) -> dict[str, float]:
        """What only this kind of model can be asked: its loss, how well it reconstructs, a bound of likelihood."""

    def evaluate(self, learner: Learner, data: Data, split: str) -> dict[str, float]:
        """The model's own measures, and those that all have in common."""
        most = self.measured if split == "test" else self.measured // 5
        exam = Exam.of(data, split, column(data), most)
        marks = exam.marks(self.made(learner.model, exam.size, "measured"))
        if split != "test":
            del marks["frechet_real"]  # it does not change with learning
        return self.own_marks(learner.model, data, split) | marks

    def seen(self, data: Data, split: str, count: int) -> Tensor:
        """Things of a split, as a model takes them."""
        return quality.things(data[split], column(data), count)

    # ------------------------------------------------------------------ looking

    def figures(self, learner: Learner, data: Data) -> Iterator[Figure]:
        model = learner.model
        x, real = self.made(model, 64 if column(data) == "image" else 2000, "figures"), self.seen(data, "test", 2000)
        yield views.made(x, real, "What the model makes, none of it chosen.")
        exam = Exam.of(data, "test", column(data), min(1000, self.measured))
        yield views.marks(exam.marks(self.made(model, exam.size, "measured")))
        if column(data) == "image":
            _, index = quality.nearest(x[:16], exam.trained)
            yield views.neighbours(x, exam.trained[index])
        yield from self.own_figures(model, data)

    @abstractmethod
    def own_figures(self, model: Any, data: Data) -> Iterator[Figure]:
        """Views that only this kind of model has."""

    def probe(self, model: nn.Module, data: Data, item: int) -> str:
        must_be_item(item, len(data.test))
        x = quality.things(data.test.take(torch.tensor([item])), column(data), 1)
        self.pass_through(model, x)
        return f"test item {item}"

    def pass_through(self, model: Any, x: Tensor) -> None:
        model(x)


def column(data: Data) -> str:
    """Where the things are."""
    return "image" if "image" in data.train else "point"


def sample_of(x: Tensor, text: str, columns: int = 0, arrays: Mapping[str, Tensor] | None = None) -> Sample:
    """Made things as arrays and as a picture."""
    if x.ndim == 4:
        return Sample({"image": x, **(arrays or {})}, text, grid(x, columns))
    return Sample({"point": x, **(arrays or {})}, text, views.density(x))


def between(first: Tensor, last: Tensor, count: int) -> Tensor:
    """Codes on the way from one to another, along the arc on which codes of a Gaussian lie."""
    share = torch.linspace(0, 1, count)[:, None]
    cosine = torch.nn.functional.cosine_similarity(first, last, dim=-1).clamp(-0.9999, 0.9999)
    angle = torch.arccos(cosine)
    return (torch.sin((1 - share) * angle) * first + torch.sin(share * angle) * last) / torch.sin(angle)
