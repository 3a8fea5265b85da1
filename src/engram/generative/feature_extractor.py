"""Feature extractor behind Fréchet distance, precision and recall, and the comparison of samples.

Features of labeled images are the 128 hidden units of a classifier: the convolutional network of the recipe `cnn`,
trained on the same data with settings that never change, so that values can be compared; it is cached on disk. Features
of images without classes are their principal components, those of points their coordinates.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.files import write
from engram.core.tap import watch
from engram.data import cache
from engram.data.dataset import Data, Split
from engram.data.progress import announce
from engram.foundations.cnn.model import CNN
from engram.foundations.cnn.recipe import CNNRecipe
from engram.metrics.generative import frechet_distance, novelty, precision_recall
from engram.metrics.pca import pca
from engram.nn.image_input import pixel_statistics

VERSION = 1
"""of the classifier: another number whenever anything about it changes"""
CLASSIFIER_STEPS = 600
COMPONENTS = 64
NOVELTY_SAMPLES = 500
CHUNK = 500

FeatureExtractor = Callable[[Tensor], Tensor]
"""samples (pixels from 0 to 1, or points) to features, N × D"""


@dataclass(frozen=True)
class SampleQuality:
    """Compares generated samples with real ones of a split and with the training data."""

    features_of: FeatureExtractor
    real: Tensor
    """features of 2 N real samples of the split"""
    unseen: Tensor
    """real samples of the split"""
    train: Tensor
    """all training samples"""

    @property
    def size(self) -> int:
        """number of samples to generate (N)"""
        return len(self.real) // 2

    @classmethod
    def of(cls, data: Data, split: str, column: str, most: int) -> "SampleQuality":
        """Compare with at most `most` samples of a split, and as many for the distance of real samples."""
        features_of, half = build_feature_extractor(data, column), min(most, len(data[split]) // 2)
        if half < 2:
            raise EngramError(f"The {split} split has {len(data[split])} samples: 4 are needed to compare with them.")
        real = take_samples(data[split], column, 2 * half)
        train = take_samples(data.train, column, len(data.train))
        return cls(features_of, features_of(real), real[:NOVELTY_SAMPLES], train)

    def compute(self, fake: Tensor) -> dict[str, float]:
        """All metrics of generated samples, and the Fréchet distance between two halves of the real ones."""
        first, second = self.real[::2], self.real[1::2]  # halves of MNIST's test set were written by different people
        features = self.features_of(fake)
        precision, recall = precision_recall(first, features)
        return {
            "frechet_distance": frechet_distance(features, first),
            "frechet_distance_real": frechet_distance(second, first),
            "precision": precision,
            "recall": recall,
            "novelty": novelty(fake[:NOVELTY_SAMPLES], self.unseen, self.train),
        }


def take_samples(split: Split, column: str, count: int) -> Tensor:
    """The first `count` samples of a split; pixels from 0 to 1."""
    found: Tensor = split[column][:count]
    return found.float() / 255 if found.dtype == torch.uint8 else found


# ---------------------------------------------------------------------- feature extractors


def build_feature_extractor(data: Data, column: str) -> FeatureExtractor:
    """The feature extractor of samples like these: classifier, principal components or identity."""
    if column != "image":
        return lambda x: x
    if "label" not in data.train or len(data.classes) < 2 or min(data.train["image"].shape[2:]) < 8:
        return principal_components(take_samples(data.train, "image", 2000))
    model = load_classifier(data)

    def features_of(x: Tensor) -> Tensor:
        found = []
        for part in x.split(CHUNK):
            with torch.no_grad(), watch(model, "hidden") as seen:
                model((part * 255).round() / 255)
            found.append(seen["hidden"])
        return torch.cat(found)

    return features_of


def principal_components(x: Tensor) -> FeatureExtractor:
    """Project on the first principal components of training images."""
    components = pca(x.flatten(1))
    mean, directions = components.mean_E, components.V_KE[:COMPONENTS]
    return lambda x: (x.flatten(1) - mean) @ directions.T


def load_classifier(data: Data) -> CNN:
    """Load the classifier of labeled images from the cache; if it is missing, train it in under a minute."""
    image, label = data.train["image"], data.train["label"]
    digest = hashlib.sha256(image[:10_000].contiguous().numpy().tobytes() + label[:10_000].numpy().tobytes())
    name = f"feature-extractor-{VERSION}-{digest.hexdigest()[:16]}"
    recipe = CNNRecipe(data=data.info.name, steps=CLASSIFIER_STEPS)
    shape: dict[str, Any] = {"shape": tuple(image.shape[1:]), "classes": len(data.classes), **pixel_statistics(image)}
    model = CNN(replace(recipe.model, **shape)).eval()
    path = cache.data_path(name)
    if not load_weights(model, path):
        with cache.lock_entry(name, f"the classifier that scores images of {data.info.name}"):
            if not load_weights(model, path):
                with cache.explain_errors():
                    write(path, safetensors.torch.save(train_classifier(recipe, data)))
                load_weights(model, path)
    return model


def load_weights(model: CNN, path: Path) -> bool:
    """Load weights from a file; False if there is none, or if it is damaged or of another architecture."""
    try:
        model.load_state_dict(safetensors.torch.load_file(path))
    except (SafetensorError, RuntimeError, OSError):
        return False
    return True


def train_classifier(recipe: CNNRecipe, data: Data) -> dict[str, Tensor]:
    """Train the classifier and return its weights; the global random state is left as it was."""
    announce(f"training the classifier that scores images of {data.info.name}, once, in about a minute")
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(recipe.seed)
        learner, batches = recipe.learner(data), recipe.batches(data)
        for _ in range(recipe.steps):
            learner.step(next(batches))
    return {name: value.detach().contiguous() for name, value in learner.model.state_dict().items()}
