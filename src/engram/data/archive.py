"""Read members of zip, tar and Debian archives in memory; nothing is extracted to disk or run.

A wheel and an .npz are zip files, an npm package is a tar.gz, and a Debian package is an `ar` file that holds a
`data.tar`. Any other file counts as an archive of one member, named like the file.
"""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

MAX_MEMBER_BYTES = 1 << 30
"""limit of the unpacked size of one member (against zip bombs)"""

GZIP, ZIP, AR = b"\x1f\x8b", b"PK\x03\x04", b"!<arch>\n"


def read_members(path: Path, patterns: tuple[str, ...]) -> dict[str, bytes]:
    """Return the content of every member that matches a pattern, ungzipped.

    ValueError if a pattern matches none.
    """
    with path.open("rb") as stream:
        start = stream.read(8)
    if start.startswith(ZIP):
        found = dict(_read_zip(path, patterns))
    elif start.startswith(AR):
        found = dict(_read_tar(_open_deb_data(path), patterns))
    elif tarfile.is_tarfile(path):
        found = dict(_read_tar(path.open("rb"), patterns))
    else:
        found = {path.name: path.read_bytes()}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in found):
            raise ValueError(f"{path.name} has no member {pattern}")
    return {name: _gunzip(content) for name, content in found.items()}


def _matches(name: str, size: int, patterns: tuple[str, ...]) -> bool:
    if not any(fnmatchcase(name, pattern) for pattern in patterns):
        return False
    if size > MAX_MEMBER_BYTES:
        raise ValueError(f"its member {name} would unpack to {size >> 20} MB")
    return True


def _read_zip(path: Path, patterns: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if _matches(entry.filename, entry.file_size, patterns):
                yield entry.filename, archive.read(entry)


def _read_tar(stream: io.BufferedIOBase, patterns: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    with stream, tarfile.open(fileobj=stream, mode="r:*") as archive:
        for entry in archive:
            name = entry.name.removeprefix("./")
            if entry.isfile() and _matches(name, entry.size, patterns):
                content = archive.extractfile(entry)
                assert content is not None  # a regular file always has content
                yield name, content.read()


def _open_deb_data(path: Path) -> io.BufferedIOBase:
    """Return the `data.tar.*` of a Debian package; `ar` members have 60-byte headers and even length."""
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
        unpacked = stream.read(MAX_MEMBER_BYTES + 1)
    if len(unpacked) > MAX_MEMBER_BYTES:
        raise ValueError(f"a gzipped member would unpack to more than {MAX_MEMBER_BYTES >> 20} MB")
    return unpacked
