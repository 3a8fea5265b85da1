"""Pictures of any size as a model wants them, as the preprocessor_config.json of a checkpoint says.

resize to a height and a width, or until the shorter side has a length; then cut out the middle          (1)
pixels from 0 to 1; the model itself standardises them with its mean and standard deviation              (2)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from engram.core.errors import EngramError

USUAL: dict[str, dict[str, Any]] = {
    "ViT": {"resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3},
    "CLIP": {
        "resample": 3,
        "do_center_crop": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    },
}
"""what transformers does where a file does not say"""


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """How a picture becomes one that a model sees."""

    size: tuple[int, int] | int | None = None
    """height and width to resize to; one number is that of the shorter side; None leaves the picture as it is"""
    crop: tuple[int, int] | None = None
    """height and width of the middle that is cut out; where it is larger than the picture, the rest is black"""
    resampling: int = 2
    """Pillow's number of the filter: 0 nearest, 1 Lanczos, 2 bilinear, 3 bicubic, 4 box, 5 Hamming"""
    channels: int = 3
    """3 for colours, 1 for brightness alone"""

    @classmethod
    def of(cls, shape: Sequence[int]) -> "Preprocess":
        """Resize to the shape of a model's pictures, and nothing else."""
        return cls(size=(shape[1], shape[2]), channels=shape[0])

    def __call__(self, pictures: Iterable[Image.Image]) -> Tensor:
        """Floats from 0 to 1, B × C × H × W."""
        made = [self._array(picture) for picture in pictures]
        if len({one.shape for one in made}) != 1:
            raise EngramError("These pictures do not become all of one size: the preprocessing must resize or crop.")
        return torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2).float() / 255  # (2)

    def _array(self, picture: Image.Image) -> "np.ndarray[Any, np.dtype[np.uint8]]":
        picture = picture.convert("RGB" if self.channels == 3 else "L")
        if self.size is not None:
            height, width = self._target(picture)
            picture = picture.resize((width, height), self.resampling)
        if self.crop is not None:
            height, width = self.crop
            left, top = (picture.width - width) // 2, (picture.height - height) // 2
            picture = picture.crop((left, top, left + width, top + height))  # (1)
        return np.asarray(picture).reshape(picture.height, picture.width, self.channels)

    def _target(self, picture: Image.Image) -> tuple[int, int]:
        if isinstance(self.size, tuple):
            return self.size
        assert self.size is not None
        short, long = sorted(picture.size)
        longer = int(self.size * long / short)
        return (self.size, longer) if picture.height == short else (longer, self.size)

    # ------------------------------------------------------------------ preprocessor_config.json

    @classmethod
    def from_json(cls, about: Mapping[str, Any], shape: Sequence[int]) -> "Preprocess":
        """What the file says, for a model of pictures of that shape."""
        about = {**_usual(about), **about}
        square = {"height": shape[1], "width": shape[2]}
        clip = _is_clip(about)
        size = about.get("size") or ({"shortest_edge": min(shape[1:])} if clip else square)
        crop = about.get("crop_size") or square
        return cls(
            size=_size(size, square=not clip) if about.get("do_resize", True) else None,
            crop=_size(crop, square=True) if about.get("do_center_crop") else None,  # type: ignore[arg-type]
            resampling=about["resample"],
            channels=shape[0],
        )

    def to_json(self, kind: str, mean: Sequence[float], std: Sequence[float]) -> dict[str, Any]:
        """The content of the file, for transformers' class `kind`; mean and deviation are those of the model."""
        size = {"shortest_edge": self.size} if isinstance(self.size, int) else _sides(self.size)
        return {
            "image_processor_type": kind,
            "do_resize": self.size is not None,
            "size": size,
            "resample": self.resampling,
            "do_center_crop": self.crop is not None,
            "crop_size": _sides(self.crop),
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "do_convert_rgb": self.channels == 3,
            "image_mean": list(mean) * (self.channels if len(mean) == 1 else 1),
            "image_std": list(std) * (self.channels if len(std) == 1 else 1),
        }


def brightness(about: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Mean and standard deviation of pixels from 0 to 1, as the configuration of a model has them."""
    about = {**_usual(about), **about}
    mean, std = (about["image_mean"], about["image_std"]) if about.get("do_normalize", True) else (0.0, 1.0)
    scale = 255 * about.get("rescale_factor", 1 / 255) if about.get("do_rescale", True) else 255
    return {"mean": _channels(mean, scale), "std": _channels(std, scale)}


def _channels(value: float | Sequence[float], scale: float) -> tuple[float, ...]:
    """A number for each channel, or one for all of them if they are the same."""
    values = tuple(value) if isinstance(value, Sequence) else (value,)
    return tuple(v / scale for v in (values if len(set(values)) > 1 else values[:1]))


def _is_clip(about: Mapping[str, Any]) -> bool:
    kind = about.get("image_processor_type") or about.get("feature_extractor_type") or ""
    return kind.startswith("CLIP")


def _usual(about: Mapping[str, Any]) -> dict[str, Any]:
    return USUAL["CLIP" if _is_clip(about) else "ViT"]


def _size(value: Any, *, square: bool) -> tuple[int, int] | int:
    """Old files have one number, which is the shorter side or both."""
    if isinstance(value, Mapping):
        if {"height", "width"} <= value.keys():
            return value["height"], value["width"]
        if set(value) == {"shortest_edge"}:
            return int(value["shortest_edge"])
    if isinstance(value, int):
        return (value, value) if square else value
    raise EngramError(f"A picture cannot be resized to {value!r}: give height and width, or shortest_edge.")


def _sides(size: tuple[int, int] | None) -> dict[str, int] | None:
    return {"height": size[0], "width": size[1]} if size else None
