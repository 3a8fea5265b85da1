"""The runs that lie in the lab's folder, whoever made them: the lab itself, or a command line elsewhere.

Nothing is remembered here that the folders do not say: what a terminal starts appears, what it deletes is gone.
"""

import io
import re
import shutil
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engram.core.errors import EngramError
from engram.core.registry import settings
from engram.figures.report import command, differences, headline, python
from engram.training.files import unsealed, writing
from engram.training.folder import RunFolder, measurements
from engram.training.run import recipe_of

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
SHOWN_FILES = {".html", ".json", ".jsonl", ".png", ".txt", ".npz", ".safetensors"}
SECONDS_IN_USE = 1.0
"""how long an answer to «is it in use?» is good for"""


class Shelf:
    """The folder of runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._finished: dict[Path, tuple[int, bool]] = {}
        self._in_use: dict[str, tuple[float, bool]] = {}
        self._summaries: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {}

    def names(self) -> list[str]:
        """Every run, the newest first."""
        found = [path for path in self.root.iterdir() if NAME.fullmatch(path.name) and (path / "recipe.json").exists()]
        return [path.name for path in sorted(found, key=lambda path: -(path / "recipe.json").stat().st_mtime)]

    def path(self, name: str) -> Path:
        """Where a run lies, or would lie; a name is never a way out of the folder."""
        if not NAME.fullmatch(name):
            raise EngramError(f"«{name[:80]}» is no name of a run: letters, digits, dots and dashes, 64 at most.")
        return self.root / name

    def folder(self, name: str) -> RunFolder:
        return RunFolder.open(self.path(name))

    def free(self, name: str) -> None:
        """Give a reserved name back, if no run has begun there."""
        path = self.path(name)
        if path.is_dir() and not (path / "recipe.json").exists():
            shutil.rmtree(path, ignore_errors=True)

    def rename(self, name: str, new: str) -> None:
        target = self.path(new)
        self._must_be_idle(name)
        if target.exists():
            raise EngramError(f"There is a run called {new} already.")
        with writing(target):
            self.path(name).rename(target)

    def delete(self, name: str) -> None:
        self._must_be_idle(name)
        with writing(self.path(name)):
            shutil.rmtree(self.path(name))

    def _must_be_idle(self, name: str) -> None:
        if self.folder(name).in_use():
            raise EngramError(f"{name} is running: stop it first.")

    def in_use(self, name: str) -> bool:
        """Whether some process writes there, asked once a second at most."""
        asked, answer = self._in_use.get(name, (0.0, False))
        if time.monotonic() - asked > SECONDS_IN_USE:
            answer = self.folder(name).in_use()
            self._in_use[name] = (time.monotonic(), answer)
        return answer

    def finished(self, folder: RunFolder) -> bool:
        steps = folder.checkpoints()
        if not steps:
            return False
        path = folder.path / "state" / f"{steps[-1]:09d}" / "checkpoint.json"
        stamp = stamp_of(path)
        known = self._finished.get(path)
        if known is None or known[0] != stamp:
            known = self._finished[path] = (stamp, said_to_be_finished(path))
        return known[1]

    def summary(self, name: str) -> dict[str, Any]:
        """A run in a row of a table; it is read anew when its folder has changed."""
        files = ("", "recipe.json", "metrics.jsonl", "state")
        stamp = tuple(stamp_of(self.path(name) / file) for file in files)
        if name not in self._summaries or self._summaries[name][0] != stamp:
            self._summaries[name] = (stamp, self._summary(name))
        return self._summaries[name][1]

    def _summary(self, name: str) -> dict[str, Any]:
        """One that is damaged says so."""
        try:
            folder = self.folder(name)
            recipe, metrics = recipe_of(folder), folder.metrics()
            about = folder.read_json("recipe.json")
            return {
                "name": name, "recipe": recipe.name, "title": recipe.title, "data": Path(recipe.data).name,
                "steps": recipe.steps, "step": metrics[-1]["step"] if metrics else 0,
                "seconds": metrics[-1].get("seconds", 0.0) if metrics else 0.0, "began": about.get("began", ""),
                "finished": self.finished(folder), "said": headline(metrics, recipe.learns),
                "checkpoints": folder.checkpoints(), "report": (folder.path / "report.html").exists(),
            }  # fmt: skip
        except (EngramError, OSError, KeyError, TypeError) as error:
            return {"name": name, "recipe": "", "title": "", "data": "", "damaged": str(error), "checkpoints": []}

    def details(self, name: str) -> dict[str, Any]:
        """All that a page shows of a run beside its curves."""
        folder = self.folder(name)
        recipe = recipe_of(folder)
        samples = sorted(path.name for path in folder.path.glob("samples/*") if path.suffix in (".png", ".txt"))
        return {
            **self.summary(name),
            "settings": settings(recipe), "changed": [key for key, _ in differences(recipe)],
            "command": command(recipe), "python": python(recipe), "samples": samples,
            "machine": folder.read_json("recipe.json").get("machine"),
        }  # fmt: skip

    def lines(self, name: str, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
        """The lines of metrics after the first `offset` bytes; a file that was cut is read anew."""
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
        return measurements(whole.split(b"\n")[:-1], path), offset + len(whole)

    def file(self, name: str, inside: str) -> Path:
        """A file of a run that may be looked at."""
        root = self.folder(name).path.resolve()
        path = (root / inside.replace("\0", "")).resolve()
        if not path.is_relative_to(root) or path.suffix not in SHOWN_FILES or not path.is_file():
            raise EngramError(f"{name} has no file {inside[:80]}.")
        return path

    def zipped(self, name: str) -> Iterator[bytes]:
        """The whole run as a zip file, piece by piece, so that a large one is never in memory."""
        root, pieces = self.folder(name).path, Pieces()
        with zipfile.ZipFile(pieces, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for path in sorted(root.rglob("*")):
                if not path.is_file() or path.name.startswith("."):
                    continue
                inside = str(Path(name) / path.relative_to(root))
                with path.open("rb") as file, archive.open(inside, "w", force_zip64=True) as entry:
                    while part := file.read(1 << 20):
                        entry.write(part)
                        yield pieces.taken()
        yield pieces.taken()


def said_to_be_finished(path: Path) -> bool:
    """Whether a checkpoint.json says that its run was at an end."""
    try:
        return bool(dict(unsealed(path)["state"]["map"]).get("finished"))
    except (KeyError, TypeError, ValueError):
        raise EngramError(f"{path} is damaged: it does not say what its run was doing.") from None


def stamp_of(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


class Pieces(io.RawIOBase):
    """A file that is read while it is written."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.waiting.append(bytes(content))
        return len(content)

    def taken(self) -> bytes:
        content = b"".join(self.waiting)
        self.waiting.clear()
        return content
