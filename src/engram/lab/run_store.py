"""Run store: the runs in the lab's folder, started by the lab or by a command line.

The folders are the only state: runs that a terminal starts or deletes appear or disappear.
"""

import io
import re
import shutil
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engram.core.config import flatten
from engram.core.errors import EngramError
from engram.core.files import load_hashed_json, writing
from engram.plots.report import command, differences, headline, python
from engram.training.run import recipe_of
from engram.training.run_folder import RunFolder, parse_metrics

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
SHOWN_FILES = {".html", ".json", ".jsonl", ".png", ".txt", ".npz", ".safetensors"}
IN_USE_SECONDS = 1.0
"""lifetime of the cached result of `in_use`"""


class RunStore:
    """Lists, describes, renames, deletes and archives the runs of a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._finished: dict[Path, tuple[int, bool]] = {}
        self._in_use: dict[str, tuple[float, bool]] = {}
        self._summaries: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {}

    def names(self) -> list[str]:
        """Names of all runs, the newest first."""
        found = [path for path in self.root.iterdir() if NAME.fullmatch(path.name) and (path / "recipe.json").exists()]
        return [path.name for path in sorted(found, key=lambda path: -(path / "recipe.json").stat().st_mtime)]

    def path(self, name: str) -> Path:
        """Path of a run; refuses names that would leave the folder."""
        if not NAME.fullmatch(name):
            raise EngramError(
                f'"{name[:80]}" is not a valid run name: use letters, digits, dots and dashes, 64 at most.'
            )
        return self.root / name

    def folder(self, name: str) -> RunFolder:
        return RunFolder.open(self.path(name))

    def release(self, name: str) -> None:
        """Delete a reserved folder in which no run has started."""
        path = self.path(name)
        if path.is_dir() and not (path / "recipe.json").exists():
            shutil.rmtree(path, ignore_errors=True)

    def rename(self, name: str, new: str) -> None:
        target = self.path(new)
        self._check_idle(name)
        if target.exists():
            raise EngramError(f"There is a run called {new} already.")
        with writing(target):
            self.path(name).rename(target)

    def delete(self, name: str) -> None:
        self._check_idle(name)
        with writing(self.path(name)):
            shutil.rmtree(self.path(name))

    def _check_idle(self, name: str) -> None:
        if self.folder(name).in_use():
            raise EngramError(f"{name} is running: stop it first.")

    def in_use(self, name: str) -> bool:
        """Whether a process writes to a run, checked at most once a second."""
        checked, answer = self._in_use.get(name, (0.0, False))
        if time.monotonic() - checked > IN_USE_SECONDS:
            answer = self.folder(name).in_use()
            self._in_use[name] = (time.monotonic(), answer)
        return answer

    def finished(self, folder: RunFolder) -> bool:
        steps = folder.checkpoints()
        if not steps:
            return False
        path = folder.path / "state" / f"{steps[-1]:09d}" / "checkpoint.json"
        stamp = modified_ns(path)
        known = self._finished.get(path)
        if known is None or known[0] != stamp:
            known = self._finished[path] = (stamp, is_finished(path))
        return known[1]

    def summary(self, name: str) -> dict[str, Any]:
        """One row of the table of runs, cached until the folder changes."""
        files = ("", "recipe.json", "metrics.jsonl", "state")
        stamp = tuple(modified_ns(self.path(name) / file) for file in files)
        if name not in self._summaries or self._summaries[name][0] != stamp:
            self._summaries[name] = (stamp, self._summary(name))
        return self._summaries[name][1]

    def _summary(self, name: str) -> dict[str, Any]:
        """The row itself; a damaged run has a row with the error."""
        try:
            folder = self.folder(name)
            recipe, metrics = recipe_of(folder), folder.metrics()
            about = folder.read_json("recipe.json")
            return {
                "name": name, "recipe": recipe.name, "title": recipe.title, "data": Path(recipe.data).name,
                "steps": recipe.steps, "step": metrics[-1]["step"] if metrics else 0,
                "seconds": metrics[-1].get("seconds", 0.0) if metrics else 0.0, "started": about.get("began", ""),
                "finished": self.finished(folder), "metrics": headline(metrics, recipe.learns),
                "checkpoints": folder.checkpoints(), "report": (folder.path / "report.html").exists(),
            }  # fmt: skip
        except (EngramError, OSError, KeyError, TypeError) as error:
            return {"name": name, "recipe": "", "title": "", "data": "", "damaged": str(error), "checkpoints": []}

    def details(self, name: str) -> dict[str, Any]:
        """Summary, settings, equivalent commands and samples of a run."""
        folder = self.folder(name)
        recipe = recipe_of(folder)
        samples = sorted(path.name for path in folder.path.glob("samples/*") if path.suffix in (".png", ".txt"))
        return {
            **self.summary(name),
            "settings": flatten(recipe), "changed": [key for key, _ in differences(recipe)],
            "command": command(recipe), "python": python(recipe), "samples": samples,
            "machine": folder.read_json("recipe.json").get("machine"),
        }  # fmt: skip

    def lines(self, name: str, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
        """Metrics after the first `offset` bytes, and the new offset; -1 if the file was truncated."""
        path = self.path(name) / "metrics.jsonl"
        if not path.is_file():
            return [], 0
        if path.stat().st_size == offset:
            return [], offset
        with path.open("rb") as file:
            size = file.seek(0, io.SEEK_END)
            if size < offset:
                return [], -1
            file.seek(offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        return parse_metrics(whole.split(b"\n")[:-1], path), offset + len(whole)

    def file(self, name: str, inside: str) -> Path:
        """A file of a run that may be looked at."""
        root = self.folder(name).path.resolve()
        path = (root / inside.replace("\0", "")).resolve()
        if not path.is_relative_to(root) or path.suffix not in SHOWN_FILES or not path.is_file():
            raise EngramError(f"{name} has no file {inside[:80]}.")
        return path

    def stream_zip(self, name: str) -> Iterator[bytes]:
        """The whole run as a zip file, piece by piece, so that a large one is never in memory."""
        root, buffer = self.folder(name).path, ZipBuffer()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for path in sorted(root.rglob("*")):
                if not path.is_file() or path.name.startswith("."):
                    continue
                inside = str(Path(name) / path.relative_to(root))
                with path.open("rb") as file, archive.open(inside, "w", force_zip64=True) as entry:
                    while part := file.read(1 << 20):
                        entry.write(part)
                        yield buffer.drain()
        yield buffer.drain()


def is_finished(path: Path) -> bool:
    """Whether a checkpoint.json belongs to a finished run."""
    try:
        return bool(dict(load_hashed_json(path)["state"]["map"]).get("finished"))
    except (KeyError, TypeError, ValueError):
        raise EngramError(f"{path} is damaged: the state of its run is missing.") from None


def modified_ns(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


class ZipBuffer(io.RawIOBase):
    """A write-only file whose content is read while it is written."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.parts.append(bytes(content))
        return len(content)

    def drain(self) -> bytes:
        content = b"".join(self.parts)
        self.parts.clear()
        return content
