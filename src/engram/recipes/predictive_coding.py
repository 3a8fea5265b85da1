"""Predictive coding on pictures and their classes, in either direction, beside back-propagation."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.learner import Descent, Learner
from engram.core.registry import Recipe, Request, Sample, must_be_item, recipe
from engram.core.seeding import generator
from engram.data.batches import Batches
from engram.data.dataset import Data, Split
from engram.figures import classification
from engram.figures import settling as views
from engram.figures.figure import Figure
from engram.figures.pictures import grid, sheet
from engram.models.predictive_coding import LocalLearning, PredictiveCoding, Settling, State
from engram.recipes.classify import labelled

INFERENCE_ROUNDS = 100
SHOWN_ROUNDS = 60
EVALUATED = 5000
VARIANCES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
"""of what is predicted in the end, as a multiple of that of the layers between: the larger, the nearer to backprop"""


@recipe
@dataclass(frozen=True, kw_only=True)
class PredictiveCodingRecipe(Recipe):
    """Predictions go down, errors go up, and every connection learns from its own two ends alone."""

    name: ClassVar[str] = "predictive-coding"
    title: ClassVar[str] = "Predictive coding"
    kind: ClassVar[str] = "memory"
    notes: ClassVar[str] = "003 §29"
    Model: ClassVar[type[nn.Module]] = PredictiveCoding
    best: ClassVar[tuple[str, str]] = ("valid_accuracy", "max")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"data": "digits", "hidden": (16,), "steps": 20, "every": 10, "rounds": 5},
        "generative": {"top": "label", "hidden": (256,), "lr": 1e-3, "bottom_variance": 1.0},
    }

    data: str = "mnist"
    """data set of labelled pictures (`engram data list`), or a path: folder of class folders, .npz, CSV"""
    steps: int = 2000
    every: int = 400
    batch: int = 128
    """pictures in a batch"""
    top: Literal["picture", "label"] = "picture"
    """what predicts: the picture its label, as a classifier does, or the label its picture, as in the notes"""
    hidden: tuple[int, ...] = (128,)
    """units of the layers between, from the bottom to the top"""
    model: PredictiveCoding.Config = field(default_factory=lambda: PredictiveCoding.Config(bottom_variance=30.0))
    settling: Settling = field(default_factory=Settling)
    """how it comes to rest"""
    descent: Descent = field(default_factory=lambda: Descent(lr=2e-3, weight_decay=0.0))
    """how to go downhill"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 1:
            raise EngramError(f"batch must be at least 1, not {self.batch}.")
        if any(units < 1 for units in self.hidden):
            raise EngramError(f"hidden must name layers of at least one unit, not {self.hidden}.")

    @property
    def per_step(self) -> float:
        return self.batch

    def load(self) -> Data:
        return labelled(self)

    def learner(self, data: Data) -> LocalLearning:
        ends = [len(data.classes), data.train["image"][0].numel()]
        bottom, top = ends if self.top == "picture" else ends[::-1]
        model = PredictiveCoding(replace(self.model, sizes=(bottom, *self.hidden, top)))
        return LocalLearning(model, self.settling, self.descent, self.steps)

    def batches(self, data: Data) -> Batches:
        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            return dict(zip(("bottom", "top"), self.ends(batch["image"], batch["label"], data), strict=True))

        columns = Split({name: data.train[name] for name in ("image", "label")})
        return Batches(columns, self.batch, generator(self.seed, "batches"), prepare)

    def ends(self, image: Tensor, label: Tensor, data: Data) -> tuple[Tensor, Tensor]:
        """What is clamped at the bottom and at the top."""
        picture, target = image.flatten(1).float() / 255, F.one_hot(label, len(data.classes)).float()
        return (target, picture) if self.top == "picture" else (picture, target)

    # ------------------------------------------------------------------ measuring

    def answers(self, model: Any, image: Tensor) -> Tensor:
        """How much of each class: predicted by the picture, or the top that explains it best."""
        found = []
        for part in image.split(500):
            picture = part.flatten(1).float() / 255
            found.append(model(picture) if self.top == "picture" else model.infer(picture, INFERENCE_ROUNDS))
        return torch.cat(found)

    def evaluate(self, learner: Learner, data: Data, split: str) -> dict[str, float]:
        image, label = data[split]["image"][:EVALUATED], data[split]["label"][:EVALUATED]
        if split == "test":
            image, label = data.test["image"], data.test["label"]
        right = (self.answers(learner.model, image).argmax(1) == label).double().mean().item()
        bottom, top = self.ends(image[:1000], label[:1000], data)
        model: Any = learner.model
        away = (bottom - model(top)).square().sum(1).mean().item()
        return {"accuracy": right, "loss": 0.5 * away / self.model.bottom_variance}

    # ------------------------------------------------------------------ looking

    def figures(self, learner: Learner, data: Data) -> Iterator[Figure]:
        model: Any = learner.model
        image, label = data.test["image"], data.test["label"]
        logits = self.answers(model, image[:2000])
        yield classification.confusion(logits, label[:2000], data.classes)
        bottom, top = self.ends(image[: self.batch], label[: self.batch], data)
        yield views.relaxing(self.layer_errors(model, bottom, top))
        yield self.beside_backprop(model, bottom, top)
        if self.top == "label":
            yield self.generated(model, data)

    def layer_errors(self, model: Any, bottom: Tensor, top: Tensor) -> Tensor:
        """nu_i |e_i|^2 / 2 of each layer, round by round, averaged over the batch: rounds × layers."""
        x = model.downwards(top)
        x[0] = bottom
        free, found = tuple(range(1, len(x) - 1)), []
        for rounds in range(SHOWN_ROUNDS):
            state: State = model.settle(x, free, rounds)
            each = [0.5 * model.config.nu(i) * e.square().sum(1).mean() for i, e in enumerate(state.e)]
            found.append(torch.stack(each))
        return torch.stack(found)

    def beside_backprop(self, model: Any, bottom: Tensor, top: Tensor) -> Figure:
        """How like the local updates are to those of back-propagation."""
        return views.likeness(VARIANCES, torch.stack([alike(model, bottom, top, nu) for nu in VARIANCES]))

    def generated(self, model: Any, data: Data) -> Figure:
        classes = torch.eye(len(data.classes))
        pictures = model(classes).clamp(0, 1).view(-1, *data.train["image"].shape[1:])
        caption = "What each label predicts: the picture of least surprise."
        return Figure("Generated", caption, sheet(pictures, 10, data.classes))

    def probe(self, model: nn.Module, data: Data, item: int) -> str:
        must_be_item(item, len(data.test))
        _, top = self.ends(data.test["image"][item : item + 1], data.test["label"][item : item + 1], data)
        model(top)
        return f"test picture {item}, «{data.classes[int(data.test['label'][item])]}»"

    def sample(self, learner: Learner, data: Data, request: Request) -> Sample:
        """Pictures of the test split and what they are taken for."""
        index = torch.randint(len(data.test), (request.count,), generator=request.generator)
        chosen = data.test.take(index)
        answer = self.answers(learner.model, chosen["image"]).argmax(1)
        lines = [
            f"{i:>6}  is {data.classes[int(t)]:<12} taken for {data.classes[int(a)]}"
            for i, t, a in zip(index.tolist(), chosen["label"], answer, strict=True)
        ]
        arrays = {"item": index, "image": chosen["image"], "label": chosen["label"], "answer": answer}
        return Sample(arrays, "\n".join(lines), grid(chosen["image"]))


def alike(model: PredictiveCoding, bottom: Tensor, top: Tensor, times: float) -> Tensor:
    """Cosine of local updates and gradients in each layer, where nu_1 is so many times the nu of the others."""
    other = copy.deepcopy(model)
    other.config = replace(model.config, bottom_variance=times * model.config.variance)
    state, _ = other.learn_from(bottom, top, 500)
    with torch.enable_grad():
        weights = [weight.detach().requires_grad_() for weight in model.M]
        x = top
        for i in reversed(range(len(weights))):
            x = torch.addmm(model.beta[i].detach(), model.sigma(x), weights[i])
        loss = 0.5 * (bottom - x).square().sum(1).mean()
        gradients = torch.autograd.grad(loss, weights)
    local = [model.sigma(state.x[i + 1]).T @ e for i, e in enumerate(state.e)]
    return torch.stack(
        [F.cosine_similarity(a.flatten(), -b.flatten(), dim=0) for a, b in zip(local, gradients, strict=True)]
    )
