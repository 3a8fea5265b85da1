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
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from filelock import FileLock, Timeout
from torch import Tensor

from engram import __version__
from engram.core.errors import EngramError

FORMAT = 1
"""version of the layout of the folder"""
PATIENCE = 0.2
"""seconds to wait for a claim: whoever asks whether a folder is in use holds it for less"""


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

    def claim(self) -> None:
        """Keep other processes from writing here; the system lets go of the lock even if this process is killed."""
        with writing(self.path):
            try:
                self._lock.acquire(timeout=PATIENCE, poll_interval=PATIENCE / 10)
            except Timeout:
                raise EngramError(f"{self.path} is in use by another process, which must end first.") from None

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
        lines = read(path).split(b"\n")[:-1]
        try:
            return [json.loads(line) for line in lines]
        except ValueError:
            raise EngramError(f"{path} is damaged: not every line is JSON.") from None

    def cut_metrics(self, size: int) -> None:
        """Forget what was measured after the checkpoint that was made when the file had `size` bytes."""
        path = self.path / "metrics.jsonl"
        found = path.stat().st_size if path.exists() else 0
        if found < size:
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
        final = self.path / "state" / f"{step:09d}"
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
        self.publish(published)
        self._forget(step, keep)

    def _flush_metrics(self) -> int:
        """Make sure that the metrics are on disk, and return how many bytes they have."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return 0
        with writing(path), path.open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def _install(self, partial: Path, final: Path, sha256: Mapping[str, str]) -> None:
        """Give a checkpoint its name. One of the same step with the same tensors only gets the new description."""
        if final.exists():
            with contextlib.suppress(EngramError):
                if unsealed(final / "checkpoint.json")["sha256"] == sha256:
                    (partial / "checkpoint.json").replace(final / "checkpoint.json")
                    return
            shutil.rmtree(final)
        partial.rename(final)
        flush_folder(final.parent)

    def _forget(self, step: int, keep: set[int]) -> None:
        """Delete the checkpoints before `step` but for the last of them and those to keep."""
        for other in [other for other in self.checkpoints() if other < step][:-1]:
            if other not in keep:
                shutil.rmtree(self.path / "state" / f"{other:09d}", ignore_errors=True)

    def publish(self, step: int) -> None:
        """Let model.safetensors be the weights of that checkpoint: the same file under a second name if possible."""
        source, target = self.path / "state" / f"{step:09d}" / "model.safetensors", self.path / "model.safetensors"
        temporary = target.with_suffix(".partial")
        with writing(target):
            temporary.unlink(missing_ok=True)
            try:
                os.link(source, temporary)
            except OSError:
                shutil.copyfile(source, temporary)
            temporary.replace(target)
            temporary.unlink(missing_ok=True)  # renaming one name of a file to another of the same leaves both

    def weights(self) -> dict[str, Tensor]:
        """model.safetensors, checked against the hashes of the checkpoints if they are still there."""
        path = self.path / "model.safetensors"
        content = read(path)
        known = [unsealed(place)["sha256"]["model.safetensors"] for place in self.path.glob("state/*/checkpoint.json")]
        if known and hashlib.sha256(content).hexdigest() not in known:
            raise EngramError(f"{path} is damaged: it is not the model of any checkpoint.")
        try:
            return safetensors.torch.load(content)
        except safetensors.SafetensorError as error:
            raise EngramError(f"{path} is damaged: {error}.") from None

    def checkpoints(self) -> list[int]:
        """The steps that have a checkpoint, in order."""
        return sorted(int(path.name) for path in self.path.glob("state/*") if path.name.isdigit())

    def load(self, step: int | None = None) -> tuple[dict[str, Tensor], Any, dict[str, Any]]:
        """Model, learner's state and description of a checkpoint (the newest), each checked against its hash."""
        steps = self.checkpoints()
        if not steps:
            raise EngramError(f"{self.path} has no checkpoint yet: the run was stopped before its first.")
        step = steps[-1] if step is None else step
        if step not in steps:
            raise EngramError(f"{self.path} has no checkpoint of step {step}; it has {', '.join(map(str, steps))}.")
        place = self.path / "state" / f"{step:09d}"
        try:
            about = unsealed(place / "checkpoint.json")
            files = {name: checked(place / name, sha256) for name, sha256 in about["sha256"].items()}
            model = safetensors.torch.load(files["model.safetensors"])
            state = unpack(about["state"], safetensors.torch.load(files["learner.safetensors"]))
        except (EngramError, safetensors.SafetensorError, KeyError) as error:
            earlier = [other for other in steps if other < step]
            advice = f"delete {place} to go on from step {earlier[-1]}" if earlier else "the run must be started again"
            raise EngramError(f"{str(error).rstrip('.')}; {advice}.") from None
        return model, state, about


# ---------------------------------------------------------------------- files


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says (disk full, read-only, no permission) into a sentence."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EngramError(f"{path} cannot be written: {reason}; what was saved before is intact.") from None


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: a temporary one beside it, flushed to disk, then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with writing(path):
        try:
            with temporary.open("wb") as file:
                file.write(content)
                flush(file)
            temporary.replace(path)
            flush_folder(path.parent)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise EngramError(f"{path} is missing.") from None
    except OSError as error:
        raise EngramError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}.") from None


def read_json(path: Path) -> Any:
    try:
        return json.loads(read(path))
    except ValueError:
        raise EngramError(f"{path} is damaged: it is not JSON.") from None


def checked(path: Path, sha256: str) -> bytes:
    content = read(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise EngramError(f"{path} is damaged: its sha256 is not the one that was recorded when it was written.")
    return content


def sealed(value: Mapping[str, Any]) -> bytes:
    """JSON that carries the hash of its own content."""
    return json.dumps({"sha256": hashlib.sha256(json.dumps(value).encode()).hexdigest(), "content": value}).encode()


def unsealed(path: Path) -> dict[str, Any]:
    value = read_json(path)
    content: dict[str, Any] = value.get("content", {}) if isinstance(value, dict) else {}
    if not content or hashlib.sha256(json.dumps(content).encode()).hexdigest() != value.get("sha256"):
        raise EngramError(f"{path} is damaged: its content does not match its sha256.")
    return content


# ---------------------------------------------------------------------- nested state


def serialise(tensors: Mapping[str, Tensor]) -> bytes:
    """The content of a safetensors file. Tensors that share memory (a tied head) are written each for itself."""
    plain, seen = {}, set[int]()
    for name, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        plain[name] = own.clone() if own.data_ptr() in seen else own
        seen.add(own.data_ptr())
    return safetensors.torch.save(plain)


def pack(value: Any, tensors: dict[str, Tensor], path: str = "") -> Any:
    """`value` as JSON can keep it, with its tensors put aside under the path at which they stood."""
    if isinstance(value, Tensor):
        tensors[path] = value
        return {"tensor": path}
    if isinstance(value, Mapping):
        return {"map": [[key, pack(item, tensors, f"{path}/{key}")] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        items = [pack(item, tensors, f"{path}/{i}") for i, item in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": items}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a state holds tensors, numbers and strings, not {type(value).__name__} (at {path})")


def unpack(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What `pack` packed."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "map":
        return {key: unpack(item, tensors) for key, item in content}
    items = [unpack(item, tensors) for item in content]
    return items if kind == "list" else tuple(items)
