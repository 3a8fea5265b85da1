"""One's own files: what kind they are, and how they are divided where they do not say so themselves."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engram.core.errors import EngramError
from engram.data.catalogue import check_options, options_of
from engram.data.checks import check_splits, describe
from engram.data.columns import Strings
from engram.data.dataset import Data, Info, Parts, Split
from engram.data.division import cut, divided
from engram.data.pairs import read_pairs
from engram.data.pictures import CAPTIONS, SUFFIXES, read_captions, read_pictures
from engram.data.plain import must_fit, text_of
from engram.data.tables import read_csv, read_npy, read_npz


def load_own(path: Path, **options: Any) -> Data:
    """Read the user's file or folder; the options `size` and `grayscale` are for pictures."""
    path = path.expanduser()
    if not exists(path):
        raise EngramError(f"There is no file or folder {path}.")
    kind, read = _reader(path)
    check_options(f"{kind} in {path}", options_of(read), options)
    try:
        parts = read(path, **options)
    except OSError as error:
        raise EngramError(f"{path} cannot be read: {error.strerror or error}.") from error
    splits = _completed(path, parts.splits)
    check_splits(str(path), splits)
    return Data(_info(path, kind, splits), splits, parts.classes)


def exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # longer than any name
        return False


def _reader(path: Path) -> tuple[str, Callable[..., Parts]]:
    if path.is_dir():
        if (path / CAPTIONS).is_file():
            return "captions", read_captions
        pictures = any(file.suffix.lower() in SUFFIXES for file in path.rglob("*"))
        return ("text", read_text) if any(path.glob("*.txt")) and not pictures else ("images", read_pictures)
    if path.suffix.lower() not in READERS or not path.is_file():
        raise EngramError(
            f"{path} is of no kind that can be read: give a folder of pictures or of .txt files, or one file that ends "
            f"in {', '.join(READERS)}."
        )
    return READERS[path.suffix.lower()]


def read_text(path: Path) -> Parts:
    """A text file, or all of a folder: few documents are each cut at 90 %, many are dealt out whole."""
    files = sorted(file for file in path.glob("*.txt") if file.is_file()) if path.is_dir() else [path]
    must_fit(path, sum(file.stat().st_size for file in files))
    texts = [_decoded(file) for file in files]
    if not texts:
        raise EngramError(f"{path} holds no text: what is called .txt there is not a file.")
    if len(texts) >= 10:
        return Parts({"": Split({"text": Strings.of(texts)})})
    train, valid = zip(*(cut(text) for text in texts), strict=True)
    return Parts({"train": Split({"text": Strings.of(train)}), "valid": Split({"text": Strings.of(valid)})})


def _decoded(file: Path) -> str:
    text = text_of(file)
    if len(text) < 10:
        raise EngramError(f"{file} is empty, or nearly: there is nothing to learn from {len(text)} characters.")
    return text


def _completed(path: Path, splits: Mapping[str, Split]) -> dict[str, Split]:
    """Divide what came undivided 80 : 10 : 10, and take a tenth of train for valid where only a test was given."""
    whole = splits.get("") or splits.get("train")
    if whole is None or (len(splits) > 1 and "valid" in splits):
        return dict(splits)
    alone = len(splits) == 1
    tenth = max(1, len(whole) // 10)
    if len(whole) < 3:
        raise EngramError(f"{path} has too few items ({len(whole)}) to divide into train, valid and test.")
    sizes = {"train": len(whole) - tenth * (1 + alone), "valid": tenth, **({"test": tenth} if alone else {})}
    return {**divided(whole, **sizes), **{name: split for name, split in splits.items() if name not in ("", "train")}}


def _info(path: Path, kind: str, splits: dict[str, Split]) -> Info:
    first = next(iter(splits.values()))
    return Info(
        name=path.name,
        title=f"own data in {path}",
        kind=kind if kind != "table" else ("images" if "image" in first else "points"),
        licence="your own",
        source=str(path),
        columns={column: describe(first[column]) for column in first},
        sizes={name: len(split) for name, split in splits.items()},
    )


READERS: dict[str, tuple[str, Callable[..., Parts]]] = {
    ".csv": ("table", read_csv),
    ".npz": ("table", read_npz),
    ".npy": ("table", read_npy),
    ".txt": ("text", read_text),
    ".tsv": ("pairs", read_pairs),
}
