"""Uploads: user data for the lab, as text, tables or images.

A file is written to the lab's folder under a checked name, up to a size limit, and loaded once as the recipes load it:
data that no recipe can read is refused and removed. Only zip files of images and texts are unpacked, with limits on
their number and size; nothing is executed or unpickled.
"""

import io
import re
import shutil
import stat
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Any

from engram.core.errors import EngramError
from engram.core.files import writing
from engram.data.image_files import CAPTIONS, SUFFIXES
from engram.data.user_data import READERS
from engram.lab.scheduler import LAB_FOLDER

MAX_FILE_BYTES = 200 << 20
MAX_UNPACKED_BYTES = 1 << 30
"""total size of the files in a zip file"""
MAX_ENTRIES = 100_000
"""files in a zip file"""
MAX_DEPTH = 20
"""nested folders in a zip file"""
MAX_DATASETS = 100
"""data sets in the lab"""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}(\.[a-z0-9]{1,5})?")


Inspect = Callable[[str], Awaitable[dict[str, Any]]]
"""loads a file of the folder and describes it, or raises an error"""


class Uploads:
    """The uploaded data sets."""

    def __init__(self, root: Path) -> None:
        self.folder = root / LAB_FOLDER / "data"

    def names(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if NAME.fullmatch(path.name))

    def path(self, name: str) -> Path:
        if name not in self.names():
            raise EngramError(f'There is no data set "{name[:80]}" in the lab.')
        return self.folder / name

    async def receive(self, name: str, parts: AsyncIterator[bytes], inspect: Inspect) -> dict[str, Any]:
        """Store an uploaded file if `inspect` can load it, and return its description."""
        if not NAME.fullmatch(name) or Path(name).suffix not in (*READERS, ".zip"):
            allowed = ", ".join([*READERS, ".zip"])
            raise EngramError(
                f'"{name[:80]}" is refused: use letters, digits and dashes, and an extension of {allowed}.'
            )
        final = self.folder / name.removesuffix(".zip")
        if final.exists():
            raise EngramError(f"There is a data set {final.name} in the lab already: delete it, or use another name.")
        if len(self.names()) >= MAX_DATASETS:
            raise EngramError(f"The lab holds {MAX_DATASETS} data sets already: delete some first.")
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        async for part in parts:
            check_file_size(name, content.tell() + len(part))
            content.write(part)
        partial = self.folder / f".{final.name}.partial{final.suffix}"
        try:
            with writing(partial):
                if name.endswith(".zip"):
                    unpack(content, partial)
                else:
                    partial.write_bytes(content.getvalue())
            about = await inspect(partial.name)
            with writing(final):
                partial.rename(final)
        finally:
            remove(partial)
        return {**about, "name": final.name}

    def delete(self, name: str) -> None:
        with writing(self.folder):
            remove(self.path(name))


def check_file_size(name: str, size: int) -> None:
    """Refuse a file above the size limit."""
    if size > MAX_FILE_BYTES:
        raise EngramError(f"{name[:80]} is larger than the limit of {MAX_FILE_BYTES >> 20} MB.")


def unpack(content: io.BytesIO, folder: Path) -> None:
    """Extract images, texts and captions of a zip file into a new folder; other files are skipped."""
    try:
        archive = zipfile.ZipFile(content)
        entries = archive.infolist()
        if len(entries) > MAX_ENTRIES or sum(entry.file_size for entry in entries) > MAX_UNPACKED_BYTES:
            raise EngramError(f"A zip file may hold {MAX_ENTRIES:,} files and {MAX_UNPACKED_BYTES >> 30} GB at most.")
        folder.mkdir()
        left = MAX_UNPACKED_BYTES
        for entry in entries:
            target = target_path(entry, folder)
            if target is None:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, target.open("wb") as out:
                while part := source.read(1 << 20):
                    left -= len(part)
                    if left < 0:  # an entry that is larger than its header says
                        raise EngramError(f"A zip file may hold {MAX_UNPACKED_BYTES >> 30} GB at most.")
                    out.write(part)
    except (EngramError, OSError):
        raise
    except Exception as error:  # zipfile and its decompressors raise many types
        raise EngramError(f"The zip file cannot be read: {error}.") from None


def target_path(entry: zipfile.ZipInfo, folder: Path) -> Path | None:
    """Path of an entry; None for folders, links, and files that are neither images, texts nor captions."""
    relative = PurePosixPath(entry.filename.replace("\\", "/"))
    if not relative.name or entry.is_dir() or stat.S_ISLNK(entry.external_attr >> 16):
        return None
    if relative.is_absolute() or ".." in relative.parts or ":" in entry.filename or "\0" in entry.filename:
        raise EngramError(f"The zip file names a file outside itself: {entry.filename[:80]!r}.")
    if len(relative.parts) > MAX_DEPTH:
        raise EngramError(f"The zip file has more than {MAX_DEPTH} folders within folders: {entry.filename[:80]!r}.")
    if relative.suffix.lower() not in (*SUFFIXES, ".txt") and relative.name != CAPTIONS:
        return None
    return folder.joinpath(*relative.parts)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
