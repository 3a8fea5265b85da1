"""Text files of the user: UTF-8, up to a size limit."""

from pathlib import Path

from engram.core.errors import EngramError

MAX_BYTES = 2 << 30
"""limit of the text read into memory"""


def read_text_file(file: Path) -> str:
    """Read a UTF-8 text file."""
    check_size(file, file.stat().st_size)
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise EngramError(f"{file} is not UTF-8 text (at byte {error.start}): save it as UTF-8.") from error


def check_size(path: Path, size: int) -> None:
    """Refuse more text than fits into memory."""
    if size > MAX_BYTES:
        raise EngramError(f"{path} is larger than the {MAX_BYTES >> 30} GB of text that are read at once.")
