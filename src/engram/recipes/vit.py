"""The Vision Transformer on pictures: patches as tokens, a class token that gathers what they know."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Descent, Learner
from engram.core.registry import Item, Request, Sample, recipe
from engram.core.tap import watch
from engram.data.augment import Augment
from engram.data.columns import Resized
from engram.data.dataset import Data, Info, Split
from engram.data.pictures import opened
from engram.data.preprocess import Preprocess
from engram.figures import ablation, attention, classification, lens, pictures, position, rollout
from engram.figures.figure import Figure
from engram.interop.huggingface import Checkpoint
from engram.models.vit import ViT
from engram.recipes.classify import TINY, Classifier, predict
from engram.recipes.language import MUON, Pretrained, architecture, checkpoint


@dataclass(frozen=True, kw_only=True)
class Seeing:
    """What is to be told apart."""

    image: str = ""
    """a picture of your own; without one, some of the test"""


@dataclass(frozen=True, kw_only=True)
class Picture(Item):
    """What is looked at."""

    image: str = ""
    """a picture of your own, instead of one of the test"""


@recipe
@dataclass(frozen=True, kw_only=True)
class ViTRecipe(Classifier, Pretrained):
    """A Transformer classifies pictures by their patches, and shows which ones it looked at."""

    name: ClassVar[str] = "vit"
    title: ClassVar[str] = "Vision Transformer"
    kind: ClassVar[str] = "transformers"
    notes: ClassVar[str] = "002 «patches», 004"
    Model: ClassVar[type[nn.Module]] = ViT
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY | {"width": 16, "layers": 2, "heads": 2, "patch": 4},
        "full": {"width": 128, "layers": 5, "steps": 8000, "every": 1000, "dropout": 0.1},
    }
    Ask: ClassVar[type] = Seeing
    Subject: ClassVar[type] = Picture

    steps: int = 1500
    every: int = 300
    model: ViT.Config = field(default_factory=lambda: ViT.Config(width=96, layers=4, patch=7, function="relu2"))
    smoothing: float = 0.1
    augment: Augment = field(default_factory=Augment)
    descent: Descent = replace(MUON, rest_lr=3e-3, weight_decay=0.05, warmup=0.03)

    def load(self) -> Data:
        loaded = super().load()
        if not self.from_:
            return loaded
        return fitted(loaded, seer(checkpoint(self.from_, ViT)[0]).config.shape)

    def reload(self, folder: Path) -> Data:
        return replace(fitted(super().load(), tuple(architecture(folder)["shape"])), folder=folder)

    def bare(self, found: Checkpoint, info: Info) -> Data:
        return Data(info, {}, found.classes)

    def built(self, config: Any, data: Data) -> nn.Module:
        """A fresh model, or the checkpoint with a classifier for these classes."""
        model = seer(self.begun(data.folder, config))
        if model.config.classes != len(data.classes):
            model.config = replace(model.config, classes=len(data.classes))
            model.head = nn.Linear(model.config.width, len(data.classes))
            nn.init.zeros_(model.head.weight)
            nn.init.zeros_(model.head.bias)
        return model

    def figures(self, learner: Learner, data: Data) -> Iterator[Figure]:
        model = seer(learner.model)
        logits_NK, label_N = predict(model, data.test)
        yield classification.confusion(logits_NK, label_N, data.classes)
        yield classification.mistakes(data.test["image"], logits_NK, label_N, data.classes)
        yield from self.views(model, data.test["image"][:1].float() / 255, data.classes)
        yield pictures.filters(model.patches.project.weight.detach(), tuple(model.config.shape))

    def views(self, model: ViT, image_1CHW: Tensor, classes: tuple[str, ...]) -> Iterator[Figure]:
        """Where the class token looks while one picture passes through."""
        with torch.no_grad(), watch(model, "*attention.weights") as seen:
            logits_K = model(image_1CHW)[0]
        yield lens.likeliest(logits_K, list(classes), "What it is taken for")
        yield rollout.rollout_picture(seen, image_1CHW[0], model.patches.grid)
        yield rollout.class_attention(seen, image_1CHW[0], model.patches.grid)
        patches = ["class", *map(str, range(1, model.patches.position.shape[0]))]
        yield attention.attention_grid(seen, patches)
        yield attention.attention_head(seen, patches)
        yield ablation.head_ablation(model, lambda: model(image_1CHW))
        yield position.patch_positions(model.patches.position, model.patches.grid)

    def look(self, model: nn.Module, data: Data, subject: Picture) -> tuple[str, list[Figure]]:
        if subject.image:
            image = own_picture(subject.image, seer(model).config.shape)
            return f"{subject.image}", list(self.views(seer(model), image, data.classes))
        said = self.probe(model, data, subject.item)
        image = data.test["image"][torch.tensor([subject.item])].float() / 255
        return said, list(self.views(seer(model), image, data.classes))

    def sample(self, learner: Learner, data: Data, request: Request) -> Sample:
        if not request.ask.image:
            return super().sample(learner, data, request)
        image = own_picture(request.ask.image, seer(learner.model).config.shape)
        p_K = learner.model(image)[0].softmax(-1)
        best = p_K.topk(min(5, len(p_K)))
        names = [data.classes[i] if i < len(data.classes) else str(i) for i in best.indices.tolist()]
        lines = [f"{p:6.1%}  {name}" for p, name in zip(best.values.tolist(), names, strict=True)]
        return Sample({"image": image, "probability": p_K}, "\n".join(lines), pictures.grid(image))


def fitted(data: Data, shape: tuple[int, ...]) -> Data:
    """The data with pictures of the shape that a checkpoint wants."""
    if tuple(data.train["image"].shape[1:]) == tuple(shape):
        return data
    splits = {
        part: Split({**split.columns, "image": Resized(split["image"], tuple(shape))})
        for part, split in data.splits.items()
    }
    return replace(data, splits=splits)


def own_picture(path: str, shape: tuple[int, ...], preprocess: Preprocess | None = None) -> Tensor:
    """A picture file as the model wants it: 1 × C × H × W from 0 to 1."""
    if not Path(path).is_file():
        raise EngramError(f"There is no picture {path}.")
    with opened(Path(path)) as picture:
        return (preprocess or Preprocess.of(shape))([picture])


def seer(model: nn.Module) -> ViT:
    assert isinstance(model, ViT)
    return model
