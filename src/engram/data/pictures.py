"""One's own pictures: a folder with a folder for each class, or with train, valid and test that hold those.

Pictures without class folders are read too, without labels. All are brought to one size, the one given or the most
common among them, and to one number of channels.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.columns import Strings
from engram.data.dataset import Parts, Split
from engram.data.plain import text_of

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif")
FORMATS = ("PNG", "JPEG", "BMP", "GIF")
"""what is opened, whatever a file is called: Pillow knows others, one of which is a program and not a picture"""
CAPTIONS = "captions.tsv"
"""in a folder of captioned pictures: a line for each with its file, a tab and its caption"""
SPLITS = {"train": "train", "valid": "valid", "val": "valid", "test": "test"}
LARGEST = 50_000_000
"""pixels of one picture: beyond that a file is a mistake, or made to fill the memory"""
LIMIT = 4 << 30
"""bytes of all pictures together"""


def read_pictures(path: Path, *, size: int | tuple[int, int] | None = None, grayscale: bool = False) -> Parts:
    """The folder's pictures; `size` is (height, width) or the side of a square."""
    folders = {SPLITS[one.name]: one for one in _folders(path) if one.name in SPLITS} or {"": path}
    files = {split: _labelled(folder) for split, folder in folders.items()}
    everything = [file for pairs in files.values() for file, _ in pairs]
    if not everything:
        raise EngramError(f"{path} holds no pictures ({', '.join(SUFFIXES)}) and no .txt files.")
    height, width, mode = _form(path, everything, size, grayscale)
    classes = sorted({name for pairs in files.values() for _, name in pairs if name is not None})
    splits = {split: _split(pairs, (height, width), mode, classes) for split, pairs in files.items() if pairs}
    return Parts(splits, tuple(classes))


def read_captions(path: Path, *, size: int | tuple[int, int] | None = None, grayscale: bool = False) -> Parts:
    """The pictures that captions.tsv lists, with their captions."""
    rows = [line.split("\t") for line in text_of(path / CAPTIONS).splitlines() if line.strip()]
    for number, row in enumerate(rows, 1):
        if len(row) != 2 or not row[1].strip():
            raise EngramError(f"Line {number} of {path / CAPTIONS} needs a file, a tab and a caption.")
        if not _holds(path, row[0]):
            raise EngramError(f"Line {number} of {path / CAPTIONS} names {row[0]}, which is not in the folder.")
    if not rows:
        raise EngramError(f"{path / CAPTIONS} is empty.")
    files = [path / row[0] for row in rows]
    height, width, mode = _form(path, files, size, grayscale)
    image = _split([(file, None) for file in files], (height, width), mode, [])["image"]
    return Parts({"": Split({"image": image, "caption": Strings.of(row[1].strip() for row in rows)})})


def _holds(path: Path, name: str) -> bool:
    """Whether that is the name of a file inside the folder."""
    try:
        return (path / name).resolve().is_relative_to(path.resolve()) and (path / name).is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _folders(path: Path) -> list[Path]:
    return sorted(one for one in path.iterdir() if one.is_dir() and not one.name.startswith("."))


def _labelled(path: Path) -> list[tuple[Path, str | None]]:
    """(picture, its class) below a folder; the class is the folder's name, or None for pictures that lie loose."""
    classes = [(folder, folder.name) for folder in _folders(path)]
    where: list[tuple[Path, str | None]] = [*classes] if classes else [(path, None)]
    return [
        (file, name)
        for folder, name in where
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()
    ]


def _form(path: Path, files: list[Path], size: int | tuple[int, int] | None, grayscale: bool) -> tuple[int, int, str]:
    """(height, width, mode) that all pictures are brought to; only the files' headers are read."""
    sizes: Counter[tuple[int, int]] = Counter()
    modes = set()
    for file in files:
        with opened(file) as picture:
            sizes[picture.height, picture.width] += 1
            modes.add(picture.mode)
    height, width = (size, size) if isinstance(size, int) else size or sizes.most_common(1)[0][0]
    if height < 1 or width < 1:
        raise EngramError(f"The size of pictures is at least 1, not {size}.")
    mode = "L" if grayscale or modes <= {"1", "L"} else "RGB"
    needed = len(files) * height * width * len(mode)
    if needed > LIMIT:
        raise EngramError(f"The pictures in {path} would take {needed >> 30} GB: give a smaller `size`.")
    return height, width, mode


def _split(pairs: list[tuple[Path, str | None]], size: tuple[int, int], mode: str, classes: list[str]) -> Split:
    image = torch.stack([_pixels(file, size, mode) for file, _ in pairs])
    if not classes:
        return Split({"image": image})
    number = {name: i for i, name in enumerate(classes)}
    return Split({"image": image, "label": torch.tensor([number[name] for _, name in pairs if name is not None])})


def _pixels(file: Path, size: tuple[int, int], mode: str) -> Tensor:
    """One picture as uint8 C × H × W; what is transparent becomes white, and of an animation the first frame counts."""
    with opened(file) as picture:
        if picture.has_transparency_data:
            colours = picture.convert("RGBA")
            white = Image.new("RGBA", colours.size, "white")
            final = Image.alpha_composite(white, colours).convert(mode)
        else:
            final = picture.convert(mode)
        if (final.height, final.width) != size:
            final = final.resize((size[1], size[0]), Image.Resampling.BILINEAR, reducing_gap=2)
    return torch.from_numpy(np.array(final)).reshape(*size, len(mode)).permute(2, 0, 1).contiguous()


@contextmanager
def opened(file: Path) -> Iterator[Image.Image]:
    """The picture in a file; one sentence that names the file if it cannot be read or is too large to be meant."""
    try:
        with Image.open(file, formats=FORMATS) as picture:
            if picture.width * picture.height > LARGEST:
                raise EngramError(f"{file} is {picture.width} × {picture.height} pixels large: more than are read.")
            yield picture
    except Image.DecompressionBombError as error:
        raise EngramError(f"{file} is too large a picture to be read safely.") from error
    except EngramError:
        raise
    except Exception as error:  # what Pillow's readers say of damage has no common kind
        raise EngramError(f"{file} cannot be read as a picture: it is damaged or not what its name says.") from error
