"""Classes of one image file: `engram sample --image` and `engram inspect --image`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.recipe import InspectArgs, Sample, SampleArgs
from engram.data.image_files import open_image
from engram.data.preprocess import Preprocess
from engram.plots.images import grid

SHOWN = 5
"""classes that are shown of an image"""


@dataclass(frozen=True, kw_only=True)
class ImageSampleArgs(SampleArgs):
    """Flags of `engram sample` for classifiers of images."""

    image: str = ""
    """image file to classify; by default some of the test split"""


@dataclass(frozen=True, kw_only=True)
class ImageInspectArgs(InspectArgs):
    """Flags of `engram inspect` for classifiers of images."""

    image: str = ""
    """image file to inspect, instead of one of the test split"""


def load_image(path: str, shape: Sequence[int], preprocess: Preprocess | None = None) -> Tensor:
    """Load an image file as the model takes it: 1 × C × H × W from 0 to 1."""
    if len(shape) != 3:
        raise EngramError("The model takes rows of a table, not images.")
    if not Path(path).is_file():
        raise EngramError(f"There is no image {path}.")
    with open_image(Path(path)) as image:
        return (preprocess or Preprocess.resize_to(shape))([image])


def class_scores(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the function from inputs to the scores of all classes: the model itself, if it has no other."""
    scores: Callable[[Tensor], Tensor] = getattr(model, "predict_scores", model)
    return scores


def classify_image(
    scores: Callable[[Tensor], Tensor], image_1CHW: Tensor, classes: Sequence[str], *, probabilities: bool = True
) -> Sample:
    """Return the most probable classes of an image.

    Of a model without probabilities, those of the highest scores.
    """
    score_K = scores(image_1CHW)[0]
    value_K, what = (score_K.softmax(-1), "probability") if probabilities else (score_K, "score")
    best = value_K.topk(min(SHOWN, len(value_K)))
    names = [classes[i] if i < len(classes) else str(i) for i in best.indices.tolist()]
    rows = [{"class": name, what: value} for name, value in zip(names, best.values.tolist(), strict=True)]
    lines = [
        f"{row[what]:6.1%}  {row['class']}" if probabilities else f"{row[what]:8.4f}  {row['class']}" for row in rows
    ]
    return Sample({"image": image_1CHW, what: value_K}, "\n".join(lines), grid(image_1CHW), rows=rows)
