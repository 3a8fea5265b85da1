"""The run folder: all that a run leaves, and all that it needs to go on.

    recipe.json          name and fields of the recipe, version, machine, when it began
    config.json          architecture and configuration of the model
    model.safetensors    the weights as of the newest checkpoint (or the best one, once stopped early)
    state/000000400/     a checkpoint: model.safetensors, learner.safetensors and checkpoint.json with their hashes
    metrics.jsonl        one line for every measurement
    samples/, report.html

A checkpoint is written into a folder of another name, flushed to disk and renamed: it is there whole or not at all.
Metrics beyond the checkpoint that a run resumes from are cut off and measured again, so an interrupted run leaves
the same folder as an undisturbed one. Nothing is ever pickled.
"""

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from torch import Tensor

from engram import __version__
from engram.core.errors import EngramError
from engram.training.files import (
    checked,
    flush,
    flush_folder,
    pack,
    read,
    read_json,
    read_text,
    sealed,
    serialise,
    tensors_of,
    unpack,
    unsealed,
    write,
    writing,
)

FORMAT = 1
"""version of the layout of the folder"""
PATIENCE = 0.2
"""seconds to wait for a claim: whoever asks whether a folder is in use holds it for less"""
STEP = re.compile("[0-9]{9}|[1-9][0-9]{9,17}")
"""what the folder of a checkpoint is called"""
TENSORS = ("model.safetensors", "learner.safetensors")
"""the files of a checkpoint that its hashes are of"""


Checkpoint = tuple[dict[str, Tensor], Any, dict[str, Any]]
"""weights of the model, state of the run, and what checkpoint.json says"""


class RunFolder:
    """Reads and writes one run folder; it knows files, not what they mean."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._lock = FileLock(self.path / ".lock")

    # ------------------------------------------------------------------ beginning and opening

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """A folder for a new run, which becomes one when it is sealed; one that holds a run is never overwritten."""
        folder = cls(path)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        folder.claim()
        folder.must_be_vacant()
        return folder

    def seal(self, recipe: Mapping[str, Any]) -> None:
        """Write recipe.json, the last file of a beginning: with it the folder holds a run that can be resumed."""
        self.write_json("recipe.json", {"format": FORMAT, "engram": __version__, **recipe})

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """A folder that holds a run."""
        folder = cls(path)
        if not folder.path.is_dir():
            raise EngramError(f"{path} is not a run folder: there is no such folder.")
        if not folder.holds_run():
            raise EngramError(f"{path} is not a run folder: it has no recipe.json.")
        folder.must_be_whole()
        found = folder.read_json("recipe.json").get("format")
        if found != FORMAT:
            raise EngramError(f"{path} has layout {found!r}, and engram {__version__} reads layout {FORMAT}.")
        return folder

    def holds_run(self) -> bool:
        return (self.path / "recipe.json").exists()

    def must_be_vacant(self) -> None:
        if self.holds_run():
            resume = f"engram run --resume {shlex.quote(str(self.path))}"
            raise EngramError(f"{self.path} already holds a run: continue it with `{resume}` or name another --out.")

    def must_be_whole(self) -> None:
        """Refuse links to elsewhere: whoever writes into such a folder would write there."""
        home = self.path.resolve()
        for place, folders, files in os.walk(self.path):
            for path in (Path(place, name) for name in (*folders, *files)):
                if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(home):
                    raise EngramError(f"{path} leads out of the folder of its run: put there what it leads to.")

    def claim(self) -> None:
        """Keep other processes from writing here; the system lets go of the lock even if this process is killed."""
        with writing(self.path):
            try:
                self._lock.acquire(timeout=PATIENCE, poll_interval=PATIENCE / 10)
            except Timeout:
                raise EngramError(f"{self.path} is in use by another process, which must end first.") from None
            self._sweep()

    def _sweep(self) -> None:
        """Clear away what a process that was killed had begun to write, or to delete."""
        for place in (self.path, self.path / "samples"):
            for left in place.glob("*.partial"):
                if not still_written(left):
                    left.unlink(missing_ok=True)
        for left in (self.path / "state").glob("*.partial"):
            shutil.rmtree(left, ignore_errors=True)

    def release(self) -> None:
        self._lock.release()

    def in_use(self) -> bool:
        """Whether a process writes here now. It is found out by claiming the folder for a moment."""
        probe = FileLock(self.path / ".lock")
        try:
            probe.acquire(timeout=0)
        except Timeout:
            return True
        except OSError:  # nobody can write here
            return False
        probe.release()
        return False

    # ------------------------------------------------------------------ small files

    def read_json(self, name: str) -> dict[str, Any]:
        value = read_json(self.path / name)
        if not isinstance(value, dict):
            raise EngramError(f"{self.path / name} is damaged: it should hold an object.")
        return value

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        write(self.path / name, json.dumps(value, indent=1, ensure_ascii=False).encode())

    def write(self, name: str, content: bytes) -> Path:
        with writing(self.path / name):
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        write(self.path / name, content)
        return self.path / name

    # ------------------------------------------------------------------ metrics

    def append_metrics(self, lines: list[dict[str, Any]]) -> None:
        with writing(self.path / "metrics.jsonl"), (self.path / "metrics.jsonl").open("ab") as file:
            file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    def metrics(self) -> list[dict[str, Any]]:
        """Every measurement so far; a last line that is still being written is left out."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        return measurements(read_text(path).split(b"\n")[:-1], path)

    def cut_metrics(self, size: Any) -> None:
        """Forget what was measured after the checkpoint that says that the file had `size` bytes."""
        path = self.path / "metrics.jsonl"
        found = path.stat().st_size if path.exists() else 0
        if type(size) is not int or not 0 <= size <= found:
            raise EngramError(f"{path} is damaged: it has {found} bytes, and the checkpoint knows of {size}.")
        with writing(path), path.open("ab") as file:
            file.truncate(size)
            flush(file)

    # ------------------------------------------------------------------ checkpoints

    def save(self, step: int, model: Mapping[str, Tensor], state: Any, keep: set[int], published: int) -> None:
        """Write a checkpoint, let model.safetensors be the weights of `published`, and forget older checkpoints."""
        tensors: dict[str, Tensor] = {}
        tree = pack(state, tensors)
        files = {"model.safetensors": serialise(model), "learner.safetensors": serialise(tensors)}
        about = {
            "step": step,
            "state": tree,
            "metrics_bytes": self._flush_metrics(),
            "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        }
        final = self._place(step)
        partial = final.with_suffix(".partial")
        with writing(final):
            try:
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(parents=True)
                for name, content in files.items():
                    write(partial / name, content)
                write(partial / "checkpoint.json", sealed(about))
                self._install(partial, final, about["sha256"])
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        self.settle(step, keep, published)

    def settle(self, step: int, keep: set[int], published: int) -> None:
        """What follows a checkpoint, and may have been left undone: give out its weights, forget older ones."""
        self.publish(published)
        for other in [other for other in self.checkpoints() if other < step][:-1]:
            if other not in keep:
                self._discard(self._place(other))

    def _discard(self, checkpoint: Path) -> None:
        """Delete a checkpoint. Half of one never bears its name."""
        doomed = checkpoint.with_suffix(".old.partial")
        with contextlib.suppress(OSError):
            shutil.rmtree(doomed, ignore_errors=True)
            checkpoint.rename(doomed)
            shutil.rmtree(doomed)

    def _flush_metrics(self) -> int:
        """Make sure that the metrics are on disk, and return how many bytes they have."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return 0
        with writing(path), path.open("rb") as file:
            os.fsync(file.fileno())
            flush_folder(self.path)  # its name too: a checkpoint counts on it
            return os.fstat(file.fileno()).st_size

    def _install(self, partial: Path, final: Path, sha256: Mapping[str, str]) -> None:
        """Give a checkpoint its name. One of the same step with the same tensors only gets the new description."""
        if final.exists():
            with contextlib.suppress(EngramError):
                if unsealed(final / "checkpoint.json")["sha256"] == sha256:
                    (partial / "checkpoint.json").replace(final / "checkpoint.json")
                    return
            self._discard(final)
        partial.rename(final)
        flush_folder(final.parent)

    def publish(self, step: int) -> None:
        """Let model.safetensors be the weights of that checkpoint: the same file under a second name if possible."""
        source, target = self._place(step) / "model.safetensors", self.path / "model.safetensors"
        temporary = target.with_suffix(".partial")
        with writing(target):
            try:
                temporary.unlink(missing_ok=True)
                try:
                    os.link(source, temporary)
                except OSError:
                    shutil.copyfile(source, temporary)
                temporary.replace(target)
            finally:  # it failed; and renaming one name of a file to another of the same leaves both
                temporary.unlink(missing_ok=True)

    def weights(self) -> dict[str, Tensor]:
        """model.safetensors, checked against the hashes of the checkpoints if they are still there."""
        path = self.path / "model.safetensors"
        content = read(path)
        known = self._known()
        if known and hashlib.sha256(content).hexdigest() not in known:
            if read(path) != content:  # whoever writes here has gone on meanwhile
                return self.weights()
            raise EngramError(f"{path} is damaged: it is not the model of any checkpoint.")
        return tensors_of(content, path)

    def _known(self) -> set[str]:
        """The hashes of the weights of all checkpoints, but for those that are being forgotten at this moment."""
        known = set[str]()
        for place in self.path.glob("state/*/checkpoint.json"):
            try:
                known.add(sha256_of(place))
            except EngramError:
                if place.exists():
                    raise
        return known

    def checkpoints(self) -> list[int]:
        """The steps that have a checkpoint, in order."""
        return sorted(int(path.name) for path in self.path.glob("state/*") if STEP.fullmatch(path.name))

    def size(self) -> int:
        """The bytes of the newest checkpoint."""
        files = [self._place(step) / name for step in self.checkpoints()[-1:] for name in TENSORS]
        return sum(file.stat().st_size for file in files if file.exists())

    def _place(self, step: int) -> Path:
        return self.path / "state" / f"{step:09d}"

    def load(self, step: int | None = None) -> Checkpoint:
        """Load a checkpoint (the newest), each file checked against its hash."""
        steps = self.checkpoints()
        if not steps:
            raise EngramError(f"{self.path} has no checkpoint yet: the run was stopped before its first.")
        step = steps[-1] if step is None else step
        if step not in steps:
            raise EngramError(f"{self.path} has no checkpoint of step {step}; it has {', '.join(map(str, steps))}.")
        place = self._place(step)
        try:
            about = unsealed(place / "checkpoint.json")
            model, learner = (
                tensors_of(checked(place / name, about["sha256"][name]), place / name) for name in TENSORS
            )
            state = unpack(about["state"], learner)
        except (EngramError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            if not place.exists() and self.checkpoints() != steps:  # forgotten meanwhile, for there are newer ones
                return self.load()
            earlier = [other for other in steps if other < step]
            advice = f"delete {place} to go on from step {earlier[-1]}" if earlier else "the run must be started again"
            raise EngramError(f"{str(error).rstrip('.')}; {advice}.") from None
        return model, state, about


def still_written(partial: Path) -> bool:
    """Whether the process whose number stands in the name of a temporary file is there: a report may be under way."""
    number = partial.name.split(".")[-2]
    if not number.isdigit() or int(number) == os.getpid():  # in a container numbers come again
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        pass
    return True


def measurements(lines: Sequence[bytes], path: Path) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl: the step and the numbers that were measured there."""
    try:
        found = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        raise EngramError(f"{path} is damaged: not every line is JSON.") from None
    if not all(isinstance(line, dict) and "step" in line and all(map(is_number, line.values())) for line in found):
        raise EngramError(f"{path} is damaged: not every line is a step and numbers.")
    return found


def is_number(value: Any) -> bool:
    """Whether it is a number that can be drawn."""
    return isinstance(value, (int, float)) and abs(value) <= sys.float_info.max


def sha256_of(place: Path) -> str:
    """The hash of the model that a checkpoint.json records."""
    try:
        found = unsealed(place)["sha256"]["model.safetensors"]
    except (KeyError, TypeError):
        found = None
    if not isinstance(found, str):
        raise EngramError(f"{place} is damaged: it has no hash of the model.")
    return found
