"""Download data sets, each verified by checksum.

From an archive that the user has, or from their sources in order.
"""

from collections.abc import Sequence
from pathlib import Path

from engram.core.errors import EngramError
from engram.data import cache
from engram.data.checks import check_known, check_splits
from engram.data.dataset import Parts
from engram.data.progress import Progress
from engram.data.registry import Entry
from engram.data.sources import Archive, DataSource, Files, Unavailable


def fetch_dataset(entry: Entry, from_file: Path | None = None) -> Parts:
    """Return a data set from the cache, downloading it first if missing or damaged.

    One process downloads at a time.
    """
    name = entry.info.name
    if from_file is None and (parts := _read_cached(name)) is not None:
        return parts
    with cache.lock_entry(name, f"the data set {name}"):
        if from_file is None and (parts := _read_cached(name)) is not None:
            return parts
        parts = _from_file(entry, from_file) if from_file is not None else _from_sources(entry)
        check_known(entry.info, (entry.arrange(parts) if entry.arrange else parts).splits)
        check_splits(name, parts.splits)
        cache.write(name, parts)
    return cache.read(name)


def _read_cached(name: str) -> Parts | None:
    with cache.explain_errors():
        try:
            return cache.read(name)
        except (FileNotFoundError, cache.CorruptedError):
            return None


def _from_sources(entry: Entry) -> Parts:
    """Read the data set from the first source that delivers; if none does, the error names all of them."""
    name, failures = entry.info.name, []
    with Progress(name) as progress:
        for source in entry.sources:
            try:
                return source.read(*_download(name, source, progress))
            except Unavailable as reason:
                failures.append(f"{source} ({reason})")
    damaged = " (its file in the cache is damaged)" if cache.manifest_path(name).exists() else ""
    raise EngramError(
        f"The data set {name}{damaged} could not be downloaded from {', nor from '.join(failures)}: fetch one of these "
        f"on a machine that can, and give it with `engram data get {name} --file FILE`."
    )


def _download(name: str, source: DataSource, progress: Progress) -> list[Files]:
    """Download the archives of a source and return their members; the archives are not kept."""
    files = []
    for archive in source.archives:
        with cache.temporary_folder(name) as folder:
            progress.start(f"downloading {archive}")
            path = archive.download(folder, progress)
            progress.start(f"unpacking {archive}")
            files.append(archive.verify(path))
    return files


def _from_file(entry: Entry, given: Path) -> Parts:
    """Read the data set from an archive that the user has, or from a folder of archives."""
    if not given.exists():
        raise EngramError(f"There is no file {given} to take {entry.info.name} from.")
    candidates = [given] if given.is_file() else sorted(path for path in given.iterdir() if path.is_file())
    for source in entry.sources:
        found = [_match_archive(archive, candidates) for archive in source.archives]
        if all(files is not None for files in found):
            return source.read(*found)
    expected = ", or ".join(map(_describe_archives, entry.sources))
    raise EngramError(f"{given} is not what {entry.info.name} is made of, its sha256 differs: give {expected}.")


def _match_archive(archive: Archive, candidates: Sequence[Path]) -> Files | None:
    """Return the members of the first candidate that is this archive, by its checksum."""
    for path in candidates:
        try:
            return archive.verify(path)
        except Unavailable:
            continue
    return None


def _describe_archives(source: DataSource) -> str:
    """Describe the archives that the user would have to give, with the first digits of their checksums."""
    hashes = ", ".join(f"{(archive.sha256 or archive.contents[0])[:12]}…" for archive in source.archives)
    what = "the file" if len(source.archives) == 1 else "a folder with all files"
    return f"{what} of {source} ({hashes})"
