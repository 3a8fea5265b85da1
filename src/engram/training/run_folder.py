"""The run folder: checkpoints, weights, metrics and settings of a run.

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
import difflib
import hashlib
import itertools
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
from engram.core.files import (
    dump_hashed_json,
    flush,
    flush_folder,
    load_hashed_json,
    pack,
    read,
    read_checked,
    read_json,
    read_text,
    serialize,
    tensors_of,
    unpack,
    write,
    writing,
)

FORMAT = 2
"""version of the layout of the folder"""
PATIENCE = 0.2
"""seconds to wait for a claim: whoever asks whether a folder is in use holds it for less"""
STEP = re.compile("[0-9]{9}|[1-9][0-9]{9,17}")
"""what the folder of a checkpoint is called"""
FIRST_FILES = {
    ".lock", "config.json", "inputs.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "state"
}  # fmt: skip
"""what is written before recipe.json completes a new run"""
MANY = 1000
"""run folders that a mistyped name is compared with"""
TENSORS = ("model.safetensors", "learner.safetensors")
"""the files of a checkpoint that its hashes are of"""


Checkpoint = tuple[dict[str, Tensor], Any, dict[str, Any]]
"""weights of the model, state of the run, and what checkpoint.json says"""


class RunFolder:
    """Reads and writes the files of one run folder."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._lock = FileLock(self.path / ".lock")

    # ------------------------------------------------------------------ beginning and opening

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """Create the folder of a new run; never overwrite a run."""
        folder = cls(path)
        folder.check_vacant()
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        folder.lock()
        folder.check_vacant()
        return folder

    def finalize(self, recipe: Mapping[str, Any]) -> None:
        """Write recipe.json, which completes the folder: from now on the run can be resumed."""
        self.write_json("recipe.json", {"format": FORMAT, "engram": __version__, **recipe})

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open the folder of a run."""
        folder = cls(path)
        if not folder.path.is_dir():
            raise EngramError(f"{path} is not a run folder: there is no such folder.{nearest_run(folder.path)}")
        if not folder.holds_run():
            raise EngramError(f"{path} is not a run folder: it has no recipe.json.")
        folder.check_complete()
        found = folder.read_json("recipe.json").get("format")
        if found != FORMAT:
            raise EngramError(
                f"{path} has run folder format {found!r}, and engram {__version__} reads {FORMAT}: train it again."
            )
        return folder

    def holds_run(self) -> bool:
        return (self.path / "recipe.json").exists()

    def check_vacant(self) -> None:
        """Refuse a folder that holds a run, or anything else than what a run that never began has left."""
        if self.holds_run():
            resume = f"engram run --resume {shlex.quote(str(self.path))}"
            raise EngramError(f"{self.path} already holds a run: continue it with `{resume}` or name another --out.")
        names = [path.name for path in self.path.iterdir()] if self.path.is_dir() else []
        if foreign := sorted(name for name in names if name not in FIRST_FILES and not name.endswith(".partial")):
            found = f"{foreign[0]} is in it"
            raise EngramError(f"{self.path} is not empty and holds no run ({found}): name a new or an empty folder.")

    def discard(self) -> None:
        """Unlock and delete the folder."""
        self.release()
        shutil.rmtree(self.path, ignore_errors=True)

    def check_complete(self) -> None:
        """Refuse links, through which files elsewhere would be written."""
        home = self.path.resolve()
        for place, folders, files in os.walk(self.path):
            for path in (Path(place, name) for name in (*folders, *files)):
                if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(home):
                    raise EngramError(f"{path} leads out of the folder of its run: put there what it leads to.")

    def lock(self) -> None:
        """Lock the folder against other writers; the system unlocks it even if this process is killed."""
        with writing(self.path):
            try:
                self._lock.acquire(timeout=PATIENCE, poll_interval=PATIENCE / 10)
            except Timeout:
                raise EngramError(f"{self.path} is in use by another process, which must end first.") from None
            self._sweep()

    def _sweep(self) -> None:
        """Remove files that a killed process had begun to write or delete."""
        for place in (self.path, self.path / "samples"):
            for left in place.glob("*.partial"):
                if not is_being_written(left):
                    left.unlink(missing_ok=True)
        for left in (self.path / "state").glob("*.partial"):
            shutil.rmtree(left, ignore_errors=True)

    def release(self) -> None:
        self._lock.release()

    def in_use(self) -> bool:
        """Return whether a process has locked the folder, by locking it for a moment."""
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
        """Return all lines of metrics, without a last line that is still being written."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        return parse_metrics(read_text(path).split(b"\n")[:-1], path)

    def cut_metrics(self, size: Any) -> None:
        """Cut metrics.jsonl to `size` bytes, its size at the checkpoint."""
        path = self.path / "metrics.jsonl"
        found = path.stat().st_size if path.exists() else 0
        if type(size) is not int or not 0 <= size <= found:
            raise EngramError(f"{path} is damaged: it has {found} bytes, and the checkpoint knows of {size}.")
        with writing(path), path.open("ab") as file:
            file.truncate(size)
            flush(file)

    # ------------------------------------------------------------------ checkpoints

    def save(self, step: int, model: Mapping[str, Tensor], state: Any, keep: set[int], published: int) -> None:
        """Write a checkpoint, link model.safetensors to the weights of `published`, prune older ones."""
        tensors: dict[str, Tensor] = {}
        tree = pack(state, tensors)
        files = {"model.safetensors": serialize(model), "learner.safetensors": serialize(tensors)}
        about = {
            "step": step,
            "state": tree,
            "metrics_bytes": self._flush_metrics(),
            "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        }
        final = self._checkpoint_path(step)
        partial = final.with_suffix(".partial")
        with writing(final):
            try:
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(parents=True)
                for name, content in files.items():
                    write(partial / name, content)
                write(partial / "checkpoint.json", dump_hashed_json(about))
                self._install(partial, final, about["sha256"])
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        self.prune(step, keep, published)

    def prune(self, step: int, keep: set[int], published: int) -> None:
        """Publish the weights of a checkpoint and delete older ones, after saving or after a kill."""
        self.publish(published)
        for other in [other for other in self.checkpoints() if other < step][:-1]:
            if other not in keep:
                self._discard(self._checkpoint_path(other))

    def _discard(self, checkpoint: Path) -> None:
        """Delete a checkpoint; rename it first, so that it is never half there."""
        doomed = checkpoint.with_suffix(".old.partial")
        with contextlib.suppress(OSError):
            shutil.rmtree(doomed, ignore_errors=True)
            checkpoint.rename(doomed)
            shutil.rmtree(doomed)

    def _flush_metrics(self) -> int:
        """Flush the metrics to disk; return their size in bytes."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return 0
        with writing(path), path.open("rb") as file:
            os.fsync(file.fileno())
            flush_folder(self.path)  # its name too: a checkpoint counts on it
            return os.fstat(file.fileno()).st_size

    def _install(self, partial: Path, final: Path, sha256: Mapping[str, str]) -> None:
        """Rename a checkpoint to its final name; if an identical one exists, only checkpoint.json is replaced."""
        if final.exists():
            with contextlib.suppress(EngramError):
                if load_hashed_json(final / "checkpoint.json")["sha256"] == sha256:
                    (partial / "checkpoint.json").replace(final / "checkpoint.json")
                    return
            self._discard(final)
        partial.rename(final)
        flush_folder(final.parent)

    def publish(self, step: int) -> None:
        """Make model.safetensors the weights of that checkpoint, as a hard link if possible."""
        source, target = self._checkpoint_path(step) / "model.safetensors", self.path / "model.safetensors"
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
        """Load model.safetensors, checked against the hashes of the checkpoints."""
        path = self.path / "model.safetensors"
        content = read(path)
        known = self._checkpoint_hashes()
        if known and hashlib.sha256(content).hexdigest() not in known:
            if read(path) != content:  # whoever writes here has gone on meanwhile
                return self.weights()
            raise EngramError(f"{path} is damaged: it is not the model of any checkpoint.")
        return tensors_of(content, path)

    def _checkpoint_hashes(self) -> set[str]:
        """Return the hashes of the weights of all checkpoints that are not being deleted."""
        known = set[str]()
        for place in self.path.glob("state/*/checkpoint.json"):
            try:
                known.add(sha256_of(place))
            except EngramError:
                if place.exists():
                    raise
        return known

    def checkpoints(self) -> list[int]:
        """Return the steps of the checkpoints, in order."""
        return sorted(int(path.name) for path in self.path.glob("state/*") if STEP.fullmatch(path.name))

    def size(self) -> int:
        """Return the size of the newest checkpoint in bytes."""
        files = [self._checkpoint_path(step) / name for step in self.checkpoints()[-1:] for name in TENSORS]
        return sum(file.stat().st_size for file in files if file.exists())

    def _checkpoint_path(self, step: int) -> Path:
        return self.path / "state" / f"{step:09d}"

    def load(self, step: int | None = None) -> Checkpoint:
        """Load a checkpoint (the newest), each file checked against its hash."""
        steps = self.checkpoints()
        if not (self.path / "state").is_dir():
            raise EngramError(
                f"{self.path / 'state'} is missing, the folder of its checkpoints: put it back, or train the run again."
            )
        if not steps and self.metrics():
            raise EngramError(f"{self.path / 'state'} has no checkpoint: put it back, or train the run again.")
        if not steps:
            raise EngramError(f"{self.path} has no checkpoint yet: the run was stopped before its first.")
        step = steps[-1] if step is None else step
        if step not in steps:
            raise EngramError(f"{self.path} has no checkpoint of step {step}; it has {', '.join(map(str, steps))}.")
        place = self._checkpoint_path(step)
        try:
            about = load_hashed_json(place / "checkpoint.json")
            model, learner = (
                tensors_of(read_checked(place / name, about["sha256"][name]), place / name) for name in TENSORS
            )
            state = unpack(about["state"], learner)
        except (EngramError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            if not place.exists() and self.checkpoints() != steps:  # forgotten meanwhile, for there are newer ones
                return self.load()
            earlier = [other for other in steps if other < step]
            advice = f"delete {place} to go on from step {earlier[-1]}" if earlier else "the run must be started again"
            raise EngramError(f"{str(error).rstrip('.')}; {advice}.") from None
        return model, state, about


def nearest_run(path: Path) -> str:
    """Return ' Did you mean "runs/cnn-1"?' if a run folder nearby has a name like it."""
    with contextlib.suppress(OSError, ValueError):
        found = (path.parent.glob("*/recipe.json"), Path().glob("*/recipe.json"), Path().glob("*/*/recipe.json"))
        known = [str(place.parent) for place in itertools.islice(itertools.chain(*found), MANY)]
        close = difflib.get_close_matches(str(path), known, n=1, cutoff=0.7)
        return f' Did you mean "{close[0]}"?' if close else ""
    return ""


def is_being_written(partial: Path) -> bool:
    """Return whether the process that writes a temporary file, named in it, is alive."""
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


def parse_metrics(lines: Sequence[bytes], path: Path) -> list[dict[str, Any]]:
    """Parse lines of metrics.jsonl."""
    try:
        found = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        raise EngramError(f"{path} is damaged: not every line is JSON.") from None
    if not all(isinstance(line, dict) and "step" in line and all(map(is_number, line.values())) for line in found):
        raise EngramError(f"{path} is damaged: not every line is a step and numbers.")
    return found


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, (int, float)) and abs(value) <= sys.float_info.max


def sha256_of(place: Path) -> str:
    """Return the hash of the weights that a checkpoint.json records."""
    try:
        found = load_hashed_json(place)["sha256"]["model.safetensors"]
    except (KeyError, TypeError):
        found = None
    if not isinstance(found, str):
        raise EngramError(f"{place} is damaged: it has no hash of the model.")
    return found
