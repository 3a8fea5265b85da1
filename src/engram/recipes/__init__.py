"""One complete experiment per system, and the two verbs that Python users start with.

run = engram.run("cnn", data="fashion", steps=500)       # trains, and returns the run
model = engram.load("runs/cnn-1")                        # the model of a run folder, ready to use
"""

from pathlib import Path
from typing import Any

from torch import nn

from engram.core.errors import EngramError
from engram.core.registry import find, from_json
from engram.figures.report import write_report, write_sample
from engram.training.folder import RunFolder
from engram.training.loop import train
from engram.training.progress import Progress
from engram.training.run import Run, fill, recipe_class


def run(name: str, *, out: str | Path | None = None, preset: str = "small", quiet: bool = False, **changes: Any) -> Run:
    """Train the recipe `name` with some of its fields changed, and leave everything in the folder `out`."""
    running = Run.start(find(name).from_preset(preset, **changes), Path(out) if out else None)
    return carry_on(running, Progress(quiet))


def carry_on(running: Run, progress: Progress) -> Run:
    """Train to the end, then write samples and report."""
    try:
        train(running, progress)
        write_sample(running)
        write_report(running)
    finally:
        running.folder.release()
    return running


def load(path: str | Path) -> nn.Module:
    """The model of a run folder, in evaluation mode; it needs neither the data nor the checkpoints."""
    folder = RunFolder.open(Path(path))
    config = folder.read_json("config.json")
    cls = recipe_class(folder).Model
    if config.pop("architecture", None) != cls.__name__:
        raise EngramError(f"{folder.path / 'config.json'} does not describe a {cls.__name__}.")
    model = cls(from_json(cls.Config(), config))  # type: ignore[attr-defined]
    fill(model, folder.weights(), folder.path)
    return model.eval()
