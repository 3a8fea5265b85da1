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
from engram.core.recipe import InspectArgs, Sample, SampleArgs, SampleRequest
from engram.core.registry import register
from engram.core.tap import watch
from engram.data.augment import Augment
from engram.data.columns import ResizedImages
from engram.data.dataset import Data, Info, Split
from engram.data.image_files import open_image
from engram.data.preprocess import Preprocess
from engram.foundations.base import TINY, ImageClassifier, predict
from engram.hub.huggingface import Checkpoint
from engram.plots import ablation, attention, classification, images, logit_lens, position, rollout
from engram.plots.figure import Figure
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig
from engram.transformers.base import MUON, Pretrained, load_pretrained, read_architecture
from engram.transformers.vit.model import ViT


@dataclass(frozen=True, kw_only=True)
class ViTSampleArgs(SampleArgs):
    """Flags of `engram sample` for ViT."""

    image: str = ""
    """image file to classify; by default some of the test split"""


@dataclass(frozen=True, kw_only=True)
class ViTInspectArgs(InspectArgs):
    """Flags of `engram inspect` for ViT."""

    image: str = ""
    """image file to inspect, instead of one of the test split"""


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
    SampleArgs: ClassVar[type] = ViTSampleArgs
    InspectArgs: ClassVar[type] = ViTInspectArgs

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
        return Data(info, {}, checkpoint.classes)

    def build_model(self, config: Any, data: Data) -> ViT:
        """Build a fresh model, or the checkpoint with a new classifier if the classes differ."""
        model = self.init_or_load_model(data.folder, config)
        if model.config.classes != len(data.classes):
            model.config = replace(model.config, classes=len(data.classes))
            model.head = nn.Linear(model.config.width, len(data.classes))
            nn.init.zeros_(model.head.weight)
            nn.init.zeros_(model.head.bias)
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
        yield logit_lens.top_probabilities(logits_K, list(classes), "Predicted classes")
        yield rollout.rollout_image(seen, image_1CHW[0], model.patches.grid)
        yield rollout.class_attention(seen, image_1CHW[0], model.patches.grid)
        patches = ["class", *map(str, range(1, model.patches.position.shape[0]))]
        yield attention.attention_grid(seen, patches)
        yield attention.attention_head(seen, patches)
        yield ablation.head_ablation(model, lambda: model(image_1CHW))
        yield position.patch_positions(model.patches.position, model.patches.grid)

    def inspect(self, model: ViT, data: Data, args: ViTInspectArgs) -> tuple[str, list[Figure]]:
        if args.image:
            image = load_image(args.image, model.config.shape)
            return f"{args.image}", list(self.activation_figures(model, image, data.classes))
        description = self.trace(model, data, args.item)
        image = data.test["image"][torch.tensor([args.item])].float() / 255
        return description, list(self.activation_figures(model, image, data.classes))

    def sample(self, learner: Learner[ViT], data: Data, request: SampleRequest) -> Sample:
        if not request.args.image:
            return super().sample(learner, data, request)
        image = load_image(request.args.image, learner.model.config.shape)
        p_K = learner.model(image)[0].softmax(-1)
        best = p_K.topk(min(5, len(p_K)))
        names = [data.classes[i] if i < len(data.classes) else str(i) for i in best.indices.tolist()]
        lines = [f"{p:6.1%}  {name}" for p, name in zip(best.values.tolist(), names, strict=True)]
        return Sample({"image": image, "probability": p_K}, "\n".join(lines), images.grid(image))


def resize_images(data: Data, shape: tuple[int, ...]) -> Data:
    """Return the data with images resized to the shape that a checkpoint takes."""
    if tuple(data.train["image"].shape[1:]) == tuple(shape):
        return data
    splits = {
        part: Split({**split.columns, "image": ResizedImages(split["image"], tuple(shape))})
        for part, split in data.splits.items()
    }
    return replace(data, splits=splits)


def load_image(path: str, shape: tuple[int, ...], preprocess: Preprocess | None = None) -> Tensor:
    """Load an image file as the model takes it: 1 × C × H × W from 0 to 1."""
    if not Path(path).is_file():
        raise EngramError(f"There is no image {path}.")
    with open_image(Path(path)) as image:
        return (preprocess or Preprocess.resize_to(shape))([image])
