"""How good made things are: the same measures for every model that makes things.

N things, D features

    F  = |mu - m|^2 + tr(S + C - 2 (S C)^1/2)        Fréchet distance of two Gaussians with the features' moments   (1)
    precision = part of what is made that lies in a ball around a real thing, as far as its third neighbour         (2)
    recall    = part of the real that lies in such a ball around a made one                                         (3)
    novelty   = nearest training thing of what is made / nearest of real things that were not learnt from           (4)

(1) is that of Heusel et al. (2017), (2) and (3) are those of Kynkäänniemi et al. (2019). Novelty is a ratio of medians:
a model that copies what it has learnt from comes to 0, one that makes what is as new as the test set to 1.

Features of pictures are the 128 units before the answer of a classifier, the `judge`: the convolutional network of the
recipe `cnn`, trained on the same data with settings that never change, so that figures can be compared. Pictures that
have no classes are judged by their principal components, points by their coordinates.
"""

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from engram.core.tap import watch
from engram.data import cache
from engram.data.dataset import Data, Split
from engram.layers.pictures import brightness
from engram.models.cnn import CNN
from engram.recipes.classify import CNNRecipe
from engram.training.files import write

VERSION = 1
"""of the judge: another number whenever anything about it changes"""
JUDGE_STEPS = 600
NEIGHBOURS = 3
COMPONENTS = 64
NOVELTY_COUNT = 500
AT_ONCE = 500

Judge = Callable[[Tensor], Tensor]
"""things (pixels from 0 to 1, or points) to features, N × D"""


@dataclass(frozen=True)
class Exam:
    """What made things are held against: real ones of a split, and those that were learnt from."""

    judge: Judge
    real: Tensor
    """2 N things of the split, in the features of the judge"""
    unseen: Tensor
    trained: Tensor
    """things themselves"""

    @property
    def size(self) -> int:
        """how many things are to be made (N)"""
        return len(self.real) // 2

    @classmethod
    def of(cls, data: Data, split: str, column: str, most: int) -> "Exam":
        """At most `most` things of a split, and as many again for the distance between real things."""
        judge, half = judge_of(data, column), min(most, len(data[split]) // 2)
        real = things(data[split], column, 2 * half)
        trained = things(data.train, column, len(data.train))
        return cls(judge, judge(real), real[:NOVELTY_COUNT], trained)

    def marks(self, made: Tensor) -> dict[str, float]:
        """All measures of what a model has made, and the distance between two halves of real things."""
        first, second = self.real[::2], self.real[1::2]  # halves of MNIST's test set were written by different people
        features = self.judge(made)
        precision, recall = precision_recall(first, features)
        return {
            "frechet": frechet(features, first),
            "frechet_real": frechet(second, first),
            "precision": precision,
            "recall": recall,
            "novelty": novelty(made[:NOVELTY_COUNT], self.unseen, self.trained),
        }


def things(split: Split, column: str, count: int) -> Tensor:
    """The first things of a split, pixels from 0 to 1."""
    found: Tensor = split[column][:count]
    return found.float() / 255 if found.dtype == torch.uint8 else found


# ---------------------------------------------------------------------- measures


def frechet(x_ND: Tensor, y_ND: Tensor) -> float:
    x, y = x_ND.double(), y_ND.double()
    S, C = (torch.atleast_2d(torch.cov(one.T)) for one in (x, y))
    values, vectors = torch.linalg.eigh(S)
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    between = torch.linalg.eigvalsh(root @ C @ root).clamp(min=0).sqrt().sum()  # tr (S C)^1/2, of a symmetric matrix
    return ((x.mean(0) - y.mean(0)).square().sum() + S.trace() + C.trace() - 2 * between).clamp(min=0).item()  # (1)


def precision_recall(real_ND: Tensor, made_ND: Tensor) -> tuple[float, float]:
    def covered(points_ND: Tensor, centres_ND: Tensor) -> float:
        k = min(NEIGHBOURS + 1, len(centres_ND))  # each is its own nearest neighbour
        radius_N = torch.cat([torch.cdist(part, centres_ND).kthvalue(k).values for part in centres_ND.split(AT_ONCE)])
        inside = [(torch.cdist(part, centres_ND) <= radius_N).any(1) for part in points_ND.split(AT_ONCE)]
        return torch.cat(inside).float().mean().item()

    return covered(made_ND, real_ND), covered(real_ND, made_ND)  # (2), (3)


def nearest(x: Tensor, trained: Tensor) -> tuple[Tensor, Tensor]:
    """How far the nearest training thing is from each x, and which one it is."""
    found = [torch.cdist(x.flatten(1), part.flatten(1)).min(1) for part in trained.split(10_000)]
    distance = torch.stack([one.values for one in found])
    index = torch.stack([one.indices + 10_000 * i for i, one in enumerate(found)])
    best = distance.argmin(0, keepdim=True)
    return distance.gather(0, best)[0], index.gather(0, best)[0]


def novelty(made: Tensor, unseen: Tensor, trained: Tensor) -> float:
    usual = nearest(unseen, trained)[0].median().clamp(min=1e-12)
    return (nearest(made, trained)[0].median() / usual).item()  # (4)


# ---------------------------------------------------------------------- the judge


def judge_of(data: Data, column: str) -> Judge:
    """What tells features of things of this kind."""
    if column != "image":
        return lambda x: x
    if "label" not in data.train or len(data.classes) < 2 or min(data.train["image"].shape[2:]) < 8:
        return principal(things(data.train, "image", 2000))
    model = classifier(data)

    def features(x: Tensor) -> Tensor:
        found = []
        for part in x.split(AT_ONCE):
            with torch.no_grad(), watch(model, "hidden") as seen:
                model((part * 255).round() / 255)
            found.append(seen["hidden"])
        return torch.cat(found)

    return features


def principal(x: Tensor) -> Judge:
    """The components in which training pictures differ most."""
    rows = x.flatten(1)
    mean = rows.mean(0)
    directions = torch.linalg.svd(rows - mean, full_matrices=False).Vh[:COMPONENTS]
    return lambda x: (x.flatten(1) - mean) @ directions.T


def classifier(data: Data) -> CNN:
    """The judge of labelled pictures, from the cache or trained now: under a minute."""
    image, label = data.train["image"], data.train["label"]
    seen = hashlib.sha256(image[:10_000].contiguous().numpy().tobytes() + label[:10_000].numpy().tobytes())
    name = f"judge-{VERSION}-{seen.hexdigest()[:16]}"
    recipe = CNNRecipe(data=data.info.name, steps=JUDGE_STEPS)
    shape: dict[str, Any] = {"shape": tuple(image.shape[1:]), "classes": len(data.classes), **brightness(image)}
    model = CNN(replace(recipe.model, **shape)).eval()
    path = cache.path_of(name)
    if not load_weights(model, path):
        with cache.locked(name, f"the classifier that scores images of {data.info.name}"):
            if not load_weights(model, path):
                with cache.complaining():
                    write(path, safetensors.torch.save(taught(recipe, data)))
                load_weights(model, path)
    return model


def load_weights(model: CNN, path: Path) -> bool:
    """Load weights from a file; False if there is none, or if it is damaged or of another architecture."""
    try:
        model.load_state_dict(safetensors.torch.load_file(path))
    except (SafetensorError, RuntimeError, OSError):
        return False
    return True


def taught(recipe: CNNRecipe, data: Data) -> dict[str, Tensor]:
    """The weights after all steps; nothing of it shows in what is random elsewhere."""
    print(f"engram: training the classifier that scores images of {data.info.name}, once", file=sys.stderr)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(recipe.seed)
        learner, batches = recipe.learner(data), recipe.batches(data)
        for _ in range(recipe.steps):
            learner.step(next(batches))
    return {name: value.detach().contiguous() for name, value in learner.model.state_dict().items()}
