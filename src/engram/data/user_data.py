"""User data: choose the reader of a file or folder, and split what comes without splits."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engram.core.errors import EngramError
from engram.data.arrays import read_npy, read_npz
from engram.data.checks import check_splits, describe
from engram.data.columns import Strings
from engram.data.csv_files import read_csv, read_parquet
from engram.data.dataset import Data, Info, Parts, Split
from engram.data.image_files import CAPTIONS, SUFFIXES, read_captions, read_images
from engram.data.registry import check_options, get_options
from engram.data.splits import split_text, split_user_data
from engram.data.table_splits import encode_splits
from engram.data.text_files import check_size, read_text_file
from engram.data.text_pairs import read_json_pairs, read_pairs


def load_user_data(path: Path, **options: Any) -> Data:
    """Load a file or folder of the user.

    `size` and `grayscale` are options of images; `target`, `ignore` and `task` of tables.
    """
    path = path.expanduser()
    if not exists(path):
        raise EngramError(f"There is no file or folder {path}.")
    kind, read = _choose_reader(path)
    check_options(f"{kind} in {path}", get_options(read), options)
    try:
        parts = read(path, **options)
    except OSError as error:
        raise EngramError(f"{path} cannot be read: {error.strerror or error}.") from error
    return complete(path.name, str(path), kind, parts)


def complete(name: str, source: str, kind: str, parts: Parts) -> Data:
    """Complete what a reader found: split it, encode tables, check and describe it."""
    splits = _complete_splits(source, parts.splits)
    if parts.table is not None:
        parts = encode_splits(source, splits, parts.table)
        splits = dict(parts.splits)
    check_splits(source, splits)
    target = parts.table.target if parts.table else ""
    info = _describe(name, source, kind, splits, parts.encoder.notes if parts.encoder else ())
    return Data(info, splits, parts.classes, parts.encoder, target)


def exists(path: Path) -> bool:
    """Whether a path exists; False for a name that no file can have."""
    try:
        return path.exists()
    except OSError:  # longer than any name
        return False


def _choose_reader(path: Path) -> tuple[str, Callable[..., Parts]]:
    if path.is_dir():
        if (path / CAPTIONS).is_file():
            return "captions", read_captions
        images = any(file.suffix.lower() in SUFFIXES for file in path.rglob("*"))
        return ("text", read_text) if any(path.glob("*.txt")) and not images else ("images", read_images)
    if path.suffix.lower() not in READERS or not path.is_file():
        raise EngramError(
            f"{path} is of no kind that can be read: give a folder of images or of .txt files, or one file that ends "
            f"in {', '.join(READERS)}."
        )
    return READERS[path.suffix.lower()]


def read_text(path: Path) -> Parts:
    """Read a .txt file or a folder of them: fewer than 10 are each cut at 90 %, more are split whole."""
    files = sorted(file for file in path.glob("*.txt") if file.is_file()) if path.is_dir() else [path]
    check_size(path, sum(file.stat().st_size for file in files))
    texts = [_read_document(file) for file in files]
    if not texts:
        raise EngramError(f"{path} holds no text: what is called .txt there is not a file.")
    return split_texts(texts)


def split_texts(texts: Sequence[str]) -> Parts:
    """Return texts as splits: fewer than 10 are each cut at 90 %, more are split whole."""
    if len(texts) >= 10:
        return Parts({"": Split({"text": Strings.from_texts(texts)})})
    train, valid = zip(*map(split_text, texts), strict=True)
    return Parts(
        {"train": Split({"text": Strings.from_texts(train)}), "valid": Split({"text": Strings.from_texts(valid)})}
    )


def _read_document(file: Path) -> str:
    text = read_text_file(file)
    if len(text) < 10:
        raise EngramError(f"{file} is empty, or nearly: {len(text)} characters are too few to train on.")
    return text


def _complete_splits(source: str, splits: Mapping[str, Split]) -> dict[str, Split]:
    """Split unsplit data 80 : 10 : 10; take a tenth of train for valid if only train and test were given."""
    whole = splits.get("") or splits.get("train")
    if whole is None or (len(splits) > 1 and "valid" in splits):
        return dict(splits)
    alone = len(splits) == 1
    tenth = max(1, len(whole) // 10)
    if len(whole) < 3:
        raise EngramError(f"{source} has too few samples ({len(whole)}) to divide into train, valid and test.")
    sizes = {"train": len(whole) - tenth * (1 + alone), "valid": tenth, **({"test": tenth} if alone else {})}
    return {
        **split_user_data(whole, **sizes),
        **{name: split for name, split in splits.items() if name not in ("", "train")},
    }


def _describe(name: str, source: str, kind: str, splits: Mapping[str, Split], notes: tuple[str, ...]) -> Info:
    first = next(iter(splits.values()))
    return Info(
        name=name,
        title=f"user data in {source}",
        kind=kind if kind != "table" else ("images" if "image" in first else "points"),
        license="your own",
        source=source,
        columns={column: describe(first[column]) for column in first},
        sizes={part: len(split) for part, split in splits.items()},
        notes=notes,
    )


READERS: dict[str, tuple[str, Callable[..., Parts]]] = {
    ".csv": ("table", read_csv),
    ".parquet": ("table", read_parquet),
    ".npz": ("table", read_npz),
    ".npy": ("table", read_npy),
    ".txt": ("text", read_text),
    ".tsv": ("pairs", read_pairs),
    ".jsonl": ("pairs", read_json_pairs),
}
