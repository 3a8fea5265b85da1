"""Plain text of one's own: UTF-8, and no more of it than fits."""

from pathlib import Path

from engram.core.errors import EngramError

LIMIT = 2 << 30
"""bytes of text that are read into memory at most"""


def text_of(file: Path) -> str:
    """The text of a file."""
    must_fit(file, file.stat().st_size)
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise EngramError(f"{file} is not UTF-8 text (at byte {error.start}): save it as UTF-8.") from error


def must_fit(path: Path, size: int) -> None:
    if size > LIMIT:
        raise EngramError(f"{path} is larger than the {LIMIT >> 30} GB of text that are read at once.")
