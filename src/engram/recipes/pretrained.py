"""A checkpoint where a run is asked for: `engram sample gpt2`, `engram look my/bert --text "…"`, `engram export …`."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import nn

from engram.core.errors import EngramError
from engram.core.registry import Recipe, catalogue
from engram.data.dataset import Info
from engram.data.sentences import names_of
from engram.interop import huggingface
from engram.interop.onnx import write_onnx
from engram.models.word2vec import Word2Vec
from engram.models.word_vectors import WordVectors
from engram.recipes import load
from engram.recipes.language import Pretrained
from engram.training.folder import RunFolder
from engram.training.run import Run, recipe_class


@dataclass(frozen=True)
class Subject:
    """A checkpoint with all that looking at it and letting it speak needs of a run."""

    recipe: Recipe
    learner: Any
    data: Any
    folder: RunFolder
    step: int = 0


def is_run(source: str) -> bool:
    return (Path(source) / "recipe.json").exists()


def subject(source: str, step: int | None = None) -> Any:
    """The run in a folder, or a checkpoint dressed as one; what it makes goes to runs/NAME."""
    path = Path(source)
    if is_run(source) or (path.exists() and not huggingface.holds_checkpoint(path)):
        return Run.open(path, step)
    found = huggingface.read(source)
    recipe = recipe_for(type(found.model), source)
    info = Info(
        name=source, title=f"checkpoint {source}", kind="checkpoint", licence="its own", source=source, columns={},
        sizes={},
    )  # fmt: skip
    made = recipe()
    assert isinstance(made, Pretrained)  # what has a family has a recipe that can begin from it
    learner = SimpleNamespace(model=found.model)
    return Subject(made, learner, made.bare(found, info), RunFolder(Path("runs") / path.name))


def recipe_named(source: str) -> type[Recipe]:
    """The recipe of a run, or the one that makes models like a checkpoint's."""
    path = Path(source)
    if is_run(source) or (path.exists() and not huggingface.holds_checkpoint(path)):
        return recipe_class(RunFolder.open(path))
    return recipe_for(huggingface.architecture(source), source)


def recipe_for(model: type[nn.Module], source: str) -> type[Recipe]:
    for cls in catalogue().values():
        if cls.Model is model:
            return cls
    raise EngramError(f"{source} holds a {model.__name__}, which no recipe makes.")


def write_export(source: str, to: str, out: Path | None) -> Path:
    """The model in another format; returns where it is."""
    model = load(source)
    path = Path(source)
    if to == "word2vec":
        if not isinstance(model, Word2Vec):
            raise EngramError(f"{source} holds a {type(model).__name__}, and --to word2vec is for word vectors.")
        return WordVectors.of(model, names_of(model.tokeniser)).save(out or path / "vectors.txt")  # type: ignore[arg-type]
    if to == "onnx":
        return write_onnx(model, out or path / "model.onnx")
    classes: tuple[str, ...] = ()
    if is_run(source):
        run = Run.open(path)
        classes = getattr(run.data, "classes", ())
    return huggingface.write(model, out or path / "hf", model.tokeniser, classes)  # type: ignore[arg-type]
