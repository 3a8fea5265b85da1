"""Obtaining a data set: from a file the user names, else from its sources in order, each checked before it is read."""

from collections.abc import Sequence
from pathlib import Path

from engram.core.errors import EngramError
from engram.data import cache
from engram.data.catalogue import Entry
from engram.data.checks import check_known, check_splits
from engram.data.dataset import Parts
from engram.data.progress import Progress
from engram.data.sources import Archive, Files, Source, Unavailable


def obtain(entry: Entry, from_file: Path | None = None) -> Parts:
    """The set out of the cache; if it is not there or damaged, obtained first. Of several processes one downloads."""
    name = entry.info.name
    if from_file is None and (parts := _kept(name)) is not None:
        return parts
    with cache.locked(name, f"the data set {name}"):
        if from_file is None and (parts := _kept(name)) is not None:
            return parts
        parts = _from_file(entry, from_file) if from_file is not None else _from_sources(entry)
        check_known(entry.info, (entry.arrange(parts) if entry.arrange else parts).splits)
        check_splits(name, parts.splits)
        cache.write(name, parts)
    return cache.read(name)


def _kept(name: str) -> Parts | None:
    with cache.complaining():
        try:
            return cache.read(name)
        except (FileNotFoundError, cache.Damaged):
            return None


def _from_sources(entry: Entry) -> Parts:
    """The first source that delivers what it should; one sentence about all of them if none does."""
    name, failures = entry.info.name, []
    with Progress(name) as progress:
        for source in entry.sources:
            try:
                return source.read(*_download(name, source, progress))
            except Unavailable as reason:
                failures.append(f"{source} ({reason})")
    damaged = " (its file in the cache is damaged)" if cache.voucher_of(name).exists() else ""
    raise EngramError(
        f"The data set {name}{damaged} could not be obtained from {', nor from '.join(failures)}: fetch one of these "
        f"on a machine that can, and give it with `engram data get {name} --file FILE`."
    )


def _download(name: str, source: Source, progress: Progress) -> list[Files]:
    """The wanted files of each archive of a source. The archives themselves are not kept."""
    files = []
    for archive in source.archives:
        with cache.draft(name) as folder:
            progress.doing(f"downloading {archive}")
            path = archive.download(folder, progress)
            progress.doing(f"unpacking {archive}")
            files.append(archive.verified(path))
    return files


def _from_file(entry: Entry, given: Path) -> Parts:
    """The set out of an archive (or a folder of archives, where it takes several) that the user has."""
    if not given.exists():
        raise EngramError(f"There is no file {given} to take {entry.info.name} from.")
    candidates = [given] if given.is_file() else sorted(path for path in given.iterdir() if path.is_file())
    for source in entry.sources:
        found = [_matching(archive, candidates) for archive in source.archives]
        if all(files is not None for files in found):
            return source.read(*found)
    wanted = ", or ".join(map(_wanted, entry.sources))
    raise EngramError(f"{given} is not what {entry.info.name} is made of, its sha256 differs: give {wanted}.")


def _matching(archive: Archive, candidates: Sequence[Path]) -> Files | None:
    """The files of the first candidate that is this archive."""
    for path in candidates:
        try:
            return archive.verified(path)
        except Unavailable:
            continue
    return None


def _wanted(source: Source) -> str:
    """What the user would have to give, with the beginnings of the hashes."""
    hashes = ", ".join(f"{(archive.sha256 or archive.contents[0])[:12]}…" for archive in source.archives)
    what = "the file" if len(source.archives) == 1 else "a folder with all files"
    return f"{what} of {source} ({hashes})"
