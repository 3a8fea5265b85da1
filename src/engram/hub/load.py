"""Load models from a run folder, from a Hugging Face checkpoint in a folder, or from the hub by name.

model = engram.load("runs/cnn-1")
model = engram.load("gpt2")
"""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import nn

from engram.core.config import from_json
from engram.core.errors import EngramError, with_article
from engram.core.model_size import bytes_of, limit_model_size
from engram.core.recipe import AnyRecipe
from engram.core.registry import registry
from engram.data.dataset import Info
from engram.data.tokenizer import Tokenizer
from engram.generation.quantized_lora import dequantize, restore_quantized_lora
from engram.hub import huggingface
from engram.hub.embedding import TextEmbedder
from engram.hub.predict import Predictor
from engram.hub.predictors import find_checkpoint_predictor, find_predictor
from engram.nn.lora import apply_lora, lora_rank
from engram.training.run import Run, load_weights, recipe_class
from engram.training.run_folder import RunFolder


def load(source: str | Path, *, quantized: bool = False) -> nn.Module:
    """Load the model of a run folder or of a Hugging Face checkpoint (folder or hub name), in eval mode.

    It needs neither the data nor the checkpoints of the run. A text model has its `tokenizer` as attribute. With
    `quantized`, matrices of a GGUF file stay in the 8 or 4 bits that they are stored in.
    """
    if is_run(source):
        return load_run_model(RunFolder.open(Path(source)))
    found = huggingface.load_checkpoint(source, quantized=quantized)
    model = attach_tokenizer(found.model, found.tokenizer).eval()
    return attach_predict(model, find_checkpoint_predictor(found))


def load_run_model(folder: RunFolder) -> nn.Module:
    """Load the model of a run folder from config.json and its weights."""
    config = folder.read_json("config.json")
    cls = recipe_class(folder).Model
    if config.pop("architecture", None) != cls.__name__:
        raise EngramError(f"{folder.path / 'config.json'} does not describe {with_article(cls.__name__)}.")
    weights = folder.weights()
    with limit_model_size(bytes_of(weights), folder.path / "config.json"):
        model = cls(from_json(cls.Config(), config))  # type: ignore[attr-defined]
    rank = lora_rank(weights)
    if not restore_quantized_lora(model, weights, rank) and rank:
        apply_lora(model, rank)
    load_weights(model, weights, folder.path)
    dequantize(model)
    has_tokenizer = (folder.path / "tokenizer.json").exists()
    attach_tokenizer(model, Tokenizer.load(folder.path) if has_tokenizer else None)
    return attach_predict(model, find_predictor(model, folder.path)).eval()


def attach_predict(model: nn.Module, predictor: Predictor | None) -> nn.Module:
    """Set `model.predict` (and `predict_proba` of a classifier) if there is a predictor."""
    for name in ("predict", "predict_proba"):
        if predictor is not None and hasattr(predictor, name):
            setattr(model, name, getattr(predictor, name))
    return model


def load_predictor(source: str | Path) -> Predictor:
    """Load the model of a run folder or a checkpoint for predictions on new inputs."""
    if is_run(source):
        folder = RunFolder.open(Path(source))
        predictor, what = (
            find_predictor(load_run_model(folder), folder.path),
            f"is a run of {recipe_class(folder).name}",
        )
    else:
        found = huggingface.load_checkpoint(source)
        attach_tokenizer(found.model, found.tokenizer).eval()
        predictor, what = find_checkpoint_predictor(found), f"holds {with_article(type(found.model).__name__)}"
    if predictor is None:
        raise EngramError(f"{source} {what}, which predicts nothing about new inputs.")
    return predictor


def attach_tokenizer(model: nn.Module, tokenizer: Tokenizer | None) -> nn.Module:
    """Set `model.tokenizer`, and `model.embed` of a model whose tokens have vectors."""
    model.tokenizer = tokenizer  # type: ignore[assignment]
    if tokenizer is not None and getattr(model, "embeds_texts", False):
        model.embed = TextEmbedder(model)  # type: ignore[assignment]
    return model


@dataclass(frozen=True)
class CheckpointRun:
    """A checkpoint with the attributes of a run that `sample` and `inspect` need."""

    recipe: AnyRecipe
    learner: Any
    data: Any
    folder: RunFolder
    step: int = 0


def is_run(source: str | Path) -> bool:
    """Whether `source` is a run folder, even a damaged one, and not a Hugging Face checkpoint."""
    path = Path(source)
    return (path / "recipe.json").exists() or (path.exists() and not huggingface.is_checkpoint(path))


def open_run(source: str, step: int | None = None) -> Any:
    """Open the run of a folder, or a checkpoint as a `CheckpointRun` whose outputs go to runs/NAME.

    Matrices of a GGUF file stay in 8 or 4 bits.
    """
    path = Path(source)
    if is_run(source):
        return Run.open(path, step)
    found = huggingface.load_checkpoint(source, quantized=True)
    recipe = recipe_of_model(type(found.model), source)
    info = Info(
        name=source, title=f"checkpoint {source}", kind="checkpoint", license="its own", source=source, columns={},
        sizes={},
    )  # fmt: skip
    made: Any = recipe()  # every family has a recipe that can start from a checkpoint
    learner = SimpleNamespace(model=found.model)
    return CheckpointRun(made, learner, made.data_of_checkpoint(found, info), RunFolder(Path("runs") / path.name))


def find_recipe(source: str) -> type[AnyRecipe]:
    """Return the recipe class of a run, or the one that trains the model class of a checkpoint."""
    if is_run(source):
        return recipe_class(RunFolder.open(Path(source)))
    return recipe_of_model(huggingface.get_model_class(source), source)


def recipe_of_model(model: type[nn.Module], source: str) -> type[AnyRecipe]:
    """Return the first recipe that trains this model class."""
    for cls in registry().values():
        if cls.Model is model:
            return cls
    raise EngramError(f"{source} holds {with_article(model.__name__)}, which no recipe trains.")
