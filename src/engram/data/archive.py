"""Reading members out of the containers that package managers deliver, without writing or running any of it.

A wheel and an .npz are zip files, an npm package is a tar.gz, and a Debian package is an `ar` file that holds a
`data.tar`. Anything else is one plain file, whose only member carries the file's own name.
"""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

LIMIT = 1 << 30
"""bytes that one member may unpack to: far above any of ours, far below what fills a machine"""

GZIP, ZIP, AR = b"\x1f\x8b", b"PK\x03\x04", b"!<arch>\n"


def members(path: Path, patterns: tuple[str, ...]) -> dict[str, bytes]:
    """The content of every member that matches a pattern, ungzipped; ValueError if a pattern matches none."""
    with path.open("rb") as stream:
        start = stream.read(8)
    if start.startswith(ZIP):
        found = dict(_zip(path, patterns))
    elif start.startswith(AR):
        found = dict(_tar(_data_of_deb(path), patterns))
    elif tarfile.is_tarfile(path):
        found = dict(_tar(path.open("rb"), patterns))
    else:
        found = {path.name: path.read_bytes()}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in found):
            raise ValueError(f"{path.name} has no member {pattern}")
    return {name: _gunzip(content) for name, content in found.items()}


def _wanted(name: str, size: int, patterns: tuple[str, ...]) -> bool:
    if not any(fnmatchcase(name, pattern) for pattern in patterns):
        return False
    if size > LIMIT:
        raise ValueError(f"its member {name} would unpack to {size >> 20} MB")
    return True


def _zip(path: Path, patterns: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if _wanted(entry.filename, entry.file_size, patterns):
                yield entry.filename, archive.read(entry)


def _tar(stream: io.BufferedIOBase, patterns: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    with stream, tarfile.open(fileobj=stream, mode="r:*") as archive:
        for entry in archive:
            name = entry.name.removeprefix("./")
            if entry.isfile() and _wanted(name, entry.size, patterns):
                content = archive.extractfile(entry)
                assert content is not None  # a regular file always has content
                yield name, content.read()


def _data_of_deb(path: Path) -> io.BufferedIOBase:
    """The `data.tar.*` inside a Debian package: `ar` is a 60-byte header before each member, padded to even length."""
    with path.open("rb") as stream:
        stream.seek(len(AR))
        while header := stream.read(60):
            name, size = header[:16].decode().strip(), int(header[48:58])
            if name.startswith("data.tar"):
                return io.BytesIO(stream.read(size))
            stream.seek(size + size % 2, io.SEEK_CUR)
    raise ValueError(f"{path.name} holds no data.tar")


def _gunzip(content: bytes) -> bytes:
    if not content.startswith(GZIP):
        return content
    with gzip.open(io.BytesIO(content)) as stream:
        unpacked = stream.read(LIMIT + 1)
    if len(unpacked) > LIMIT:
        raise ValueError(f"a gzipped member would unpack to more than {LIMIT >> 20} MB")
    return unpacked
