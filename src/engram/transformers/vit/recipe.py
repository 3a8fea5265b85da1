"""Recipe of the Vision Transformer (ViT): image classification by patches."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.recipe import Sample, SampleRequest
from engram.core.registry import register
from engram.core.tap import watch
from engram.data.augment import Augment
from engram.data.columns import ResizedImages
from engram.data.dataset import Data, Info, Split
from engram.foundations.base import TINY, ImageClassifier, predict
from engram.hub.classify import ImageInspectArgs, load_image
from engram.hub.huggingface import Checkpoint
from engram.plots import ablation, attention, classification, images, logit_lens, position, rollout
from engram.plots.figure import Figure
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig
from engram.transformers.base import MUON, Pretrained, load_pretrained, read_architecture
from engram.transformers.vit.model import ViT


@register
@dataclass(frozen=True, kw_only=True)
class ViTRecipe(ImageClassifier[ViT], Pretrained[ViT, Data]):
    """Vision Transformer: classifies images by their patches, and shows which ones it attends to."""

    name: ClassVar[str] = "vit"
    title: ClassVar[str] = "Vision Transformer"
    Model: ClassVar[type[nn.Module]] = ViT
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY | {"width": 16, "layers": 2, "heads": 2, "patch": 4},
        "full": {"width": 128, "layers": 5, "steps": 8000, "eval_every": 1000, "dropout": 0.1},
    }

    steps: int = 1500
    eval_every: int = 300
    model: ViT.Config = field(default_factory=lambda: ViT.Config(width=96, layers=4, patch=7, activation="relu2"))
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.1
    """share of the target distribution spread over all classes; 0 disables"""
    augment: Augment = field(default_factory=Augment)
    optimization: OptimizerConfig = replace(MUON, adamw_lr=3e-3, weight_decay=0.05, warmup=0.03)
    """optimizer and learning-rate schedule"""

    def learner(self, data: Data) -> GradientLearner[ViT]:
        return self.gradient_learner(data, self.optimization)

    def load(self) -> Data:
        loaded = super().load()
        if not self.from_:
            return loaded
        return resize_images(loaded, load_pretrained(self.from_, ViT)[0].config.shape)

    def reload(self, folder: Path) -> Data:
        return replace(resize_images(super().load(), tuple(read_architecture(folder)["shape"])), folder=folder)

    def data_of_checkpoint(self, checkpoint: Checkpoint, info: Info) -> Data:
        return Data(info, {}, checkpoint.classes, preprocess=checkpoint.preprocess)

    def build_model(self, config: Any, data: Data) -> ViT:
        """Build a fresh model, or the checkpoint with a new classifier if the classes differ."""
        model = self.init_or_load_model(data.folder, config)
        if model.config.classes != len(data.classes):
            model.reset_classifier(len(data.classes))
        return model

    def figures(self, learner: Learner[ViT], data: Data) -> Iterator[Figure]:
        model = learner.model
        logits_NK, label_N = predict(model, data.test)
        yield classification.confusion(logits_NK, label_N, data.classes)
        yield classification.mistakes(data.test["image"], logits_NK, label_N, data.classes)
        yield from self.activation_figures(model, data.test["image"][:1].float() / 255, data.classes)
        yield images.filters(model.patches.project.weight.detach(), tuple(model.config.shape))

    def activation_figures(self, model: ViT, image_1CHW: Tensor, classes: tuple[str, ...]) -> Iterator[Figure]:
        """Figures of attention while the model classifies one image."""
        with torch.no_grad(), watch(model, "*attention.weights") as seen:
            logits_K = model(image_1CHW)[0]
        grid = (image_1CHW.shape[2] // model.config.patch, image_1CHW.shape[3] // model.config.patch)
        if model.config.classes:
            yield logit_lens.top_probabilities(logits_K, list(classes), "Predicted classes")
        yield rollout.rollout_image(seen, image_1CHW[0], grid)
        yield rollout.class_attention(seen, image_1CHW[0], grid)
        learned = [name.removesuffix("_token").replace("cls", "class") for name in model.patches.tokens]
        patches = [*learned, *map(str, range(1, 1 + grid[0] * grid[1]))]
        yield attention.attention_grid(seen, patches)
        yield attention.attention_head(seen, patches)
        if model.config.classes:
            yield ablation.head_ablation(model, lambda: model(image_1CHW))
        yield position.patch_positions(model.patches.position, model.patches.grid)

    def inspected(self, model: Any, data: Data, args: Any) -> tuple[str, Tensor]:
        if model.config.classes or not args.image:
            return super().inspected(model, data, args)
        return args.image, load_image(args.image, model.config.shape, data.preprocess)

    def sample(self, learner: Learner[ViT], data: Data, request: SampleRequest) -> Sample:
        if not learner.model.config.classes:
            raise EngramError("This ViT was saved without a classifier, so that it has vectors alone: use its encode.")
        return super().sample(learner, data, request)

    def inspect(self, model: ViT, data: Data, args: ImageInspectArgs) -> tuple[str, list[Figure]]:
        description, image_1CHW = self.inspected(model, data, args)
        return description, list(self.activation_figures(model, image_1CHW, data.classes))


def resize_images(data: Data, shape: tuple[int, ...]) -> Data:
    """Return the data with images resized to the shape that a checkpoint takes."""
    if tuple(data.train["image"].shape[1:]) == tuple(shape):
        return data
    splits = {
        part: Split({**split.columns, "image": ResizedImages(split["image"], tuple(shape))})
        for part, split in data.splits.items()
    }
    return replace(data, splits=splits)
