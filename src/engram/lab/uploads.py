"""One's own data, brought to the lab: text, tables, pictures.

A file is written to the lab's folder under a name of letters, digits and dots, never beyond the size it may have, and
read once as the recipes will read it: what they could not use is refused with the sentence that they would say, and
leaves nothing behind. Nothing is unpacked but zip files of pictures and texts, whose entries are counted and measured
before and while they are written; nothing is executed or unpickled.
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
from engram.data.own import READERS
from engram.data.pictures import CAPTIONS, SUFFIXES
from engram.lab.workshop import OWN
from engram.training.files import writing

LARGEST = 200 << 20
"""bytes of a file"""
UNPACKED = 1 << 30
"""bytes of all that is in a zip file"""
ENTRIES = 100_000
"""files in a zip file"""
DEEPEST = 20
"""folders within folders in a zip file"""
SETS = 100
"""data sets that the lab holds"""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}(\.[a-z0-9]{1,5})?")


Look = Callable[[str], Awaitable[dict[str, Any]]]
"""what says of a file in the folder what is in it, or that nothing can be made of it"""


class Uploads:
    """The data sets that people brought."""

    def __init__(self, root: Path) -> None:
        self.folder = root / OWN / "data"

    def names(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if NAME.fullmatch(path.name))

    def path(self, name: str) -> Path:
        if name not in self.names():
            raise EngramError(f"There is no data set «{name[:80]}» in the lab.")
        return self.folder / name

    async def receive(self, name: str, parts: AsyncIterator[bytes], look: Look) -> dict[str, Any]:
        """Take a file in, piece by piece, and `look` at it before it is kept."""
        if not NAME.fullmatch(name) or Path(name).suffix not in (*READERS, ".zip"):
            allowed = ", ".join([*READERS, ".zip"])
            raise EngramError(f"«{name[:80]}» cannot be taken: letters, digits and dashes, and an ending {allowed}.")
        final = self.folder / name.removesuffix(".zip")
        if final.exists():
            raise EngramError(f"There is a data set {final.name} in the lab already: delete it, or use another name.")
        if len(self.names()) >= SETS:
            raise EngramError(f"The lab holds {SETS} data sets already: delete some first.")
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        async for part in parts:
            must_fit(name, content.tell() + len(part))
            content.write(part)
        partial = self.folder / f".{final.name}.partial{final.suffix}"
        try:
            with writing(partial):
                if name.endswith(".zip"):
                    unpack(content, partial)
                else:
                    partial.write_bytes(content.getvalue())
            about = await look(partial.name)
            with writing(final):
                partial.rename(final)
        finally:
            remove(partial)
        return {**about, "name": final.name}

    def delete(self, name: str) -> None:
        with writing(self.folder):
            remove(self.path(name))


def must_fit(name: str, size: int) -> None:
    if size > LARGEST:
        raise EngramError(f"{name[:80]} is larger than the {LARGEST >> 20} MB that a file may have.")


def unpack(content: io.BytesIO, folder: Path) -> None:
    """Pictures, texts and captions of a zip file, into a new folder; all else in it is left out."""
    try:
        archive = zipfile.ZipFile(content)
        entries = archive.infolist()
        if len(entries) > ENTRIES or sum(entry.file_size for entry in entries) > UNPACKED:
            raise EngramError(f"A zip file may hold {ENTRIES:,} files and {UNPACKED >> 30} GB at most.")
        folder.mkdir()
        left = UNPACKED
        for entry in entries:
            target = place(entry, folder)
            if target is None:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, target.open("wb") as out:
                while part := source.read(1 << 20):
                    left -= len(part)
                    if left < 0:  # an entry that is larger than it says
                        raise EngramError(f"A zip file may hold {UNPACKED >> 30} GB at most.")
                    out.write(part)
    except (EngramError, OSError):
        raise
    except Exception as error:  # what zipfile and the libraries that unpack say of damage has no common kind
        raise EngramError(f"The zip file cannot be read: {error}.") from None


def place(entry: zipfile.ZipInfo, folder: Path) -> Path | None:
    """Where an entry goes; none for folders, links, and what is neither picture, text nor captions."""
    inside = PurePosixPath(entry.filename.replace("\\", "/"))
    if not inside.name or entry.is_dir() or stat.S_ISLNK(entry.external_attr >> 16):
        return None
    if inside.is_absolute() or ".." in inside.parts or ":" in entry.filename or "\0" in entry.filename:
        raise EngramError(f"The zip file names a file outside of itself: {entry.filename[:80]!r}.")
    if len(inside.parts) > DEEPEST:
        raise EngramError(f"The zip file has more than {DEEPEST} folders within folders: {entry.filename[:80]!r}.")
    if inside.suffix.lower() not in (*SUFFIXES, ".txt") and inside.name != CAPTIONS:
        return None
    return folder.joinpath(*inside.parts)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
