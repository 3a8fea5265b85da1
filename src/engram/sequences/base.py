"""Base of recipes of recurrent networks.

On text, synthetic tasks, images read row by row, and time series.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor, nn

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, Metrics
from engram.core.recipe import BatchIterator, InspectArgs, Recipe, Sample, SampleRequest
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.data.tokenizer import Kind
from engram.hub.classify import ImageSampleArgs
from engram.plots.figure import Figure
from engram.sequences import plots
from engram.sequences.bptt import gradient_by_distance
from engram.sequences.network import CELLS, RecurrentNetwork
from engram.sequences.tasks import Forecasting, LanguageModeling, SequenceLabeling, Task
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig
from engram.transformers.base import MUON
from engram.transformers.text_generation import GenerationArgs

MAX_DISTANCE = 200
"""steps back for which the gradient norm is plotted"""
UNTRAINED_WIDTH = 32
"""hidden units of the untrained cells in that plot"""


@dataclass(frozen=True, kw_only=True)
class SequenceSampleArgs(ImageSampleArgs, GenerationArgs):
    """Flags of `engram sample` for recurrent networks: those of text and those of images."""


@dataclass(frozen=True, kw_only=True)
class SequenceRecipe(Recipe[RecurrentNetwork, Any]):
    """Base of recipes that train a recurrent network."""

    Model: ClassVar[type[nn.Module]] = RecurrentNetwork
    unit: ClassVar[str] = "sequences"
    samples: ClassVar[int] = 1
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"width": 16, "layers": 1, "context": 16, "batch": 4, "steps": 20, "eval_every": 10},
        "full": {
            "width": 384, "layers": 3, "context": 256, "batch": 12, "steps": 3000, "eval_every": 300, "dropout": 0.1,
        },
    }  # fmt: skip
    SampleArgs: ClassVar[type] = SequenceSampleArgs

    data: str = "shakespeare"
    """texts, selective-copy, copy, reverse, adding, images (read row by row), or a path: .txt, .csv, .npy"""
    classify: bool = False
    """treat each row of a CSV file as a labeled sequence, instead of the whole file as a time series"""
    length: Annotated[int, Ge(0)] = 0
    """sequence length of a synthetic task such as selective-copy, at least 21; 0 means its default"""
    tokenizer: Kind = "characters"
    """kind of tokenizer: characters, bytes, bpe, wordpiece or words"""
    vocab_size: int = 2000
    """vocabulary size of bpe, wordpiece and words tokenizers"""
    context: Annotated[int, Ge(1)] = 64
    """window length of texts and time series, in steps"""
    steps: int = 800
    eval_every: int = 100
    batch: Annotated[int, Ge(1)] = 12
    """sequences per batch"""
    model: RecurrentNetwork.Config = field(default_factory=RecurrentNetwork.Config)
    """architecture"""
    optimization: OptimizerConfig = replace(
        MUON, lr=0.02, adamw_lr=0.01, warmup=0.0, stable_fraction=0.4, clip_grad_norm=1.0
    )
    """optimizer and learning-rate schedule"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.length < 21:
            raise EngramError(f"length is 0 or at least 21 steps, not {self.length}.")

    @property
    def items_per_step(self) -> float:
        return self.batch

    @property
    def task(self) -> Task:
        """The task that fits the data."""
        path = Path(self.data)
        if self.data in datasets.list_names():
            kind = datasets.get_info(self.data).kind
            tasks: dict[str, type[Task]] = {
                "text": LanguageModeling, "sequences": SequenceLabeling, "images": SequenceLabeling,
            }  # fmt: skip
            if kind not in tasks:
                raise EngramError(f"{self.data} has no sequences: choose text, a synthetic task, or images.")
            return tasks[kind](self)
        if path.suffix.lower() in (".csv", ".npy") and not self.classify:
            return Forecasting(self)
        if path.suffix.lower() in (".csv", ".npy", ".npz") or (path.is_dir() and not any(path.glob("*.txt"))):
            return SequenceLabeling(self)
        return LanguageModeling(self)

    def load(self) -> Any:
        return self.task.load(None)

    def reload(self, folder: Path) -> Any:
        return self.task.load(folder)

    def files(self, data: Any) -> Mapping[str, bytes]:
        return self.task.files(data)

    def activation_bytes(self, data: Any) -> int:
        """Bytes of the logits of texts with their gradient, and of the states of all layers at every step."""
        if not isinstance(self.task, LanguageModeling):
            return 0
        tokens = self.batch * self.context // self.optimization.grad_accum
        return 4 * tokens * (2 * data.tokenizer.vocab_size + self.model.layers * self.model.width)

    def learner(self, data: Any) -> GradientLearner[RecurrentNetwork]:
        task = self.task
        model = RecurrentNetwork(replace(self.model, **task.model_shape(data)))  # type: ignore[arg-type]

        def loss(model: RecurrentNetwork, batch: Batch) -> tuple[Tensor, Metrics]:
            return task.loss(model, batch)

        return GradientLearner(model, loss, self.optimization, self.steps)

    def batches(self, data: Any) -> BatchIterator:
        return self.task.batches(data)

    def evaluate(self, learner: Learner[RecurrentNetwork], data: Any, split: str) -> dict[str, float]:
        return self.task.evaluate(learner.model, data, split)

    def figures(self, learner: Learner[RecurrentNetwork], data: Any) -> Iterator[Figure]:
        model = learner.model
        yield from self.task.figures(model, data)
        _, x, names = self.task.example(data, 0)
        yield plots.cell_activations(record_cells(model, x), names)
        yield self.gradient_flow(model, x)

    def gradient_flow(self, model: RecurrentNetwork, x: Tensor) -> Figure:
        """Plot the gradient norm by distance: of the first trained cell, and of untrained cells of all kinds."""
        h_1TE = first_cell_input(model, x)[:, -MAX_DISTANCE:]
        trained = f"{self.model.cell}, trained"
        norms = {trained: gradient_by_distance(model.blocks[0].cell, h_1TE)}  # type: ignore[arg-type]
        random = generator(self.seed, "reach")
        x_1TI = torch.randn(1, h_1TE.shape[1], UNTRAINED_WIDTH, generator=random)
        for name, cell_class in CELLS.items():
            cell = cell_class(UNTRAINED_WIDTH, UNTRAINED_WIDTH)
            cell.chrono_init(x_1TI.shape[1])
            norms[name] = gradient_by_distance(cell, x_1TI)
        return plots.gradient_by_distance(norms, trained)

    def inspect(self, model: RecurrentNetwork, data: Any, args: InspectArgs) -> tuple[str, list[Figure]]:
        description, x, names = self.task.example(data, args.item)
        return description, [plots.cell_activations(record_cells(model, x), names), self.gradient_flow(model, x)]

    def trace(self, model: RecurrentNetwork, data: Any, item: int) -> str:
        description, x, _ = self.task.example(data, item)
        model(x)
        return description

    def sample(self, learner: Learner[RecurrentNetwork], data: Any, request: SampleRequest) -> Sample:
        """Generate text, predict test sequences, or forecast a time series."""
        if request.args.image and not isinstance(self.task, SequenceLabeling):
            raise EngramError(f"The model has learned {self.data}, which holds no images.")
        return self.task.sample(learner.model, data, request)


def record_cells(model: RecurrentNetwork, x: Tensor) -> dict[str, Tensor]:
    """Return the gates and states of all cells while the model reads a sequence, T × H each."""
    with torch.no_grad(), watch(model, "*.cell.*") as seen:
        model(x)
    return {name.removeprefix("blocks."): torch.stack(seen.all(name))[:, 0] for name in seen}


def first_cell_input(model: RecurrentNetwork, x: Tensor) -> Tensor:
    """Return the input of the first cell, 1 × T × E."""
    with torch.no_grad(), watch(model, "embedding") as seen:
        model(x)
    return model.blocks[0].norm(seen["embedding"])  # type: ignore[operator, no-any-return, union-attr]


def config_field(cell: str) -> Any:
    """Return the field `model` of a recipe whose default has this cell."""
    return field(default_factory=lambda: RecurrentNetwork.Config(cell=cell))  # type: ignore[arg-type]
