"""Images of the user: a folder with one folder per class.

Or one with train, valid and test folders that hold those.

Images without class folders are read without labels. All are resized to one size, the given or the most common one, and
converted to one number of channels.
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
from engram.data.text_files import read_text_file

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif")
FORMATS = ("PNG", "JPEG", "BMP", "GIF")
"""formats that Pillow may open, whatever the file is called; others are unsafe (EPS is a program)"""
CAPTIONS = "captions.tsv"
"""list of captioned images: one per line, file name and caption separated by a tab"""
SPLITS = {"train": "train", "valid": "valid", "val": "valid", "test": "test"}
MAX_PIXELS = 50_000_000
"""limit of the pixels of one image (against decompression bombs)"""
MAX_BYTES = 4 << 30
"""limit of the memory of all images together"""


def read_images(path: Path, *, size: int | tuple[int, int] | None = None, grayscale: bool = False) -> Parts:
    """Read the images of a folder; `size` is (height, width) or the side of a square."""
    folders = {SPLITS[one.name]: one for one in _folders(path) if one.name in SPLITS} or {"": path}
    files = {split: _list_images(folder) for split, folder in folders.items()}
    everything = [file for pairs in files.values() for file, _ in pairs]
    if not everything:
        raise EngramError(f"{path} holds no images ({', '.join(SUFFIXES)}) and no .txt files.")
    height, width, mode = _choose_format(path, everything, size, grayscale)
    classes = sorted({name for pairs in files.values() for _, name in pairs if name is not None})
    splits = {split: _read_split(pairs, (height, width), mode, classes) for split, pairs in files.items() if pairs}
    return Parts(splits, tuple(classes))


def read_captions(path: Path, *, size: int | tuple[int, int] | None = None, grayscale: bool = False) -> Parts:
    """Read the images listed in captions.tsv, with their captions."""
    rows = [line.split("\t") for line in read_text_file(path / CAPTIONS).splitlines() if line.strip()]
    for number, row in enumerate(rows, 1):
        if len(row) != 2 or not row[1].strip():
            raise EngramError(f"Line {number} of {path / CAPTIONS} needs a file, a tab and a caption.")
        if not _contains_file(path, row[0]):
            raise EngramError(f"Line {number} of {path / CAPTIONS} names {row[0]}, which is not in the folder.")
    if not rows:
        raise EngramError(f"{path / CAPTIONS} is empty.")
    files = [path / row[0] for row in rows]
    height, width, mode = _choose_format(path, files, size, grayscale)
    image = _read_split([(file, None) for file in files], (height, width), mode, [])["image"]
    return Parts({"": Split({"image": image, "caption": Strings.from_texts(row[1].strip() for row in rows)})})


def _contains_file(path: Path, name: str) -> bool:
    """Whether `name` is a file inside the folder."""
    try:
        return (path / name).resolve().is_relative_to(path.resolve()) and (path / name).is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _folders(path: Path) -> list[Path]:
    return sorted(one for one in path.iterdir() if one.is_dir() and not one.name.startswith("."))


def _list_images(path: Path) -> list[tuple[Path, str | None]]:
    """Return (file, class) of the images of a folder; the class is the subfolder, None without subfolders."""
    classes = [(folder, folder.name) for folder in _folders(path)]
    where: list[tuple[Path, str | None]] = [*classes] if classes else [(path, None)]
    found = {folder: [file for file in sorted(folder.rglob("*")) if _is_image(file)] for folder, _ in where}
    empty = [folder for folder, files in found.items() if not files]
    if empty and any(found.values()):
        raise EngramError(f"{empty[0]} is the folder of a class and holds no images: put some there, or remove it.")
    return [(file, name) for folder, name in where for file in found[folder]]


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()


def _choose_format(
    path: Path, files: list[Path], size: int | tuple[int, int] | None, grayscale: bool
) -> tuple[int, int, str]:
    """Return (height, width, mode) that all images are converted to; only file headers are read."""
    sizes: Counter[tuple[int, int]] = Counter()
    modes = set()
    for file in files:
        with open_image(file) as image:
            sizes[image.height, image.width] += 1
            modes.add(image.mode)
    height, width = (size, size) if isinstance(size, int) else size or sizes.most_common(1)[0][0]
    if height < 1 or width < 1:
        raise EngramError(f"The size of images is at least 1, not {size}.")
    mode = "L" if grayscale or modes <= {"1", "L"} else "RGB"
    needed = len(files) * height * width * len(mode)
    if needed > MAX_BYTES:
        raise EngramError(f"The images in {path} would take {needed >> 30} GB: give a smaller `size`.")
    return height, width, mode


def _read_split(pairs: list[tuple[Path, str | None]], size: tuple[int, int], mode: str, classes: list[str]) -> Split:
    image = torch.stack([_read_pixels(file, size, mode) for file, _ in pairs])
    if not classes:
        return Split({"image": image})
    number = {name: i for i, name in enumerate(classes)}
    return Split({"image": image, "label": torch.tensor([number[name] for _, name in pairs if name is not None])})


def _read_pixels(file: Path, size: tuple[int, int], mode: str) -> Tensor:
    """Read an image as uint8 C × H × W; transparency becomes white.

    Of an animation, the first frame is taken.
    """
    with open_image(file) as image:
        if image.has_transparency_data:
            colors = image.convert("RGBA")
            white = Image.new("RGBA", colors.size, "white")
            final = Image.alpha_composite(white, colors).convert(mode)
        else:
            final = image.convert(mode)
        if (final.height, final.width) != size:
            final = final.resize((size[1], size[0]), Image.Resampling.BILINEAR, reducing_gap=2)
    return torch.from_numpy(np.array(final)).reshape(*size, len(mode)).permute(2, 0, 1).contiguous()


@contextmanager
def open_image(file: Path) -> Iterator[Image.Image]:
    """Open an image file; an EngramError names the file if it cannot be read or is too large."""
    try:
        with Image.open(file, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise EngramError(f"{file} is {image.width} × {image.height} pixels large: more than are read.")
            yield image
    except Image.DecompressionBombError as error:
        raise EngramError(f"{file} is too large an image to be read safely.") from error
    except EngramError:
        raise
    except Exception as error:  # what Pillow's readers say of damage has no common kind
        raise EngramError(f"{file} cannot be read as an image: it is damaged or not what its name says.") from error
