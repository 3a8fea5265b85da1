"""One complete experiment per system, and the two verbs that Python users start with.

run = engram.run("cnn", data="fashion", steps=500)       # trains, and returns the run
model = engram.load("runs/cnn-1")                        # the model of a run folder, ready to use
model = engram.load("gpt2")                              # or of a Hugging Face checkpoint
"""

from pathlib import Path
from typing import Any

from torch import nn

from engram.core import together
from engram.core.device import CPU
from engram.core.errors import EngramError
from engram.core.registry import Sample, find, from_json
from engram.core.size import bytes_of, no_larger_than
from engram.data.tokeniser import Tokeniser
from engram.figures.report import write_report, write_sample
from engram.interop import huggingface
from engram.layers.lora import adapt, merge, rank_of
from engram.training import distributed
from engram.training.folder import RunFolder
from engram.training.loop import train
from engram.training.progress import Progress
from engram.training.run import Run, fill, recipe_class


def run(name: str, *, out: str | Path | None = None, preset: str = "small", quiet: bool = False, **changes: Any) -> Run:
    """Train the recipe `name` with some of its fields changed, and leave everything in the folder `out`."""
    with distributed.joined(where="auto"):
        running = Run.start(find(name).from_preset(preset, **changes), Path(out) if out else None)
        carry_on(running, Progress(quiet))
    return running


def carry_on(running: Run, progress: Progress) -> Sample | None:
    """Train to the end, then write samples and report; returns what was made, in the first process."""
    try:
        train(running, progress)
        if not together.first():
            return None
        divided = together.divided(running.learner.model)
        distributed.leave()
        with distributed.learning_on(CPU):  # where all that is shown is made
            shown = Run.open(running.folder.path) if divided or running.device != CPU else running
        made, _ = write_sample(shown)
        write_report(shown, made)
    finally:
        running.folder.release()
    return made


def load(source: str | Path) -> nn.Module:
    """The model of a run folder, or of a Hugging Face checkpoint (a folder, or a name on the hub), ready to use.

    It needs neither the data nor the checkpoints of the run. A model of texts has its `tokeniser`.
    """
    path = Path(source)
    if (path / "recipe.json").exists() or (path.exists() and not huggingface.holds_checkpoint(path)):
        return of_run(RunFolder.open(path))
    found = huggingface.read(source)
    return with_tokeniser(found.model, found.tokeniser).eval()


def of_run(folder: RunFolder) -> nn.Module:
    config = folder.read_json("config.json")
    cls = recipe_class(folder).Model
    if config.pop("architecture", None) != cls.__name__:
        raise EngramError(f"{folder.path / 'config.json'} does not describe a {cls.__name__}.")
    weights = folder.weights()
    with no_larger_than(bytes_of(weights), folder.path / "config.json"):
        model = cls(from_json(cls.Config(), config))  # type: ignore[attr-defined]
    if rank := rank_of(weights):
        adapt(model, rank)
    fill(model, weights, folder.path)
    merge(model)
    tokeniser = folder.path / "tokenizer.json"
    return with_tokeniser(model, Tokeniser.load(tokeniser) if tokeniser.exists() else None).eval()


def with_tokeniser(model: nn.Module, tokeniser: Tokeniser | None) -> nn.Module:
    model.tokeniser = tokeniser  # type: ignore[assignment]
    return model
