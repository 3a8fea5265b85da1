"""What recipes that learn from text have in common: a tokeniser, a corpus, a beginning from a checkpoint, LoRA."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro
from torch import nn

from engram.core.errors import EngramError
from engram.core.learner import Descent
from engram.core.registry import Recipe, from_json
from engram.data import corpus
from engram.data.corpus import By, Corpus
from engram.data.dataset import Info
from engram.data.tokeniser import Kind, Tokeniser
from engram.interop.huggingface import Checkpoint
from engram.layers.lora import adapt
from engram.training.files import read_json

TOKENISER = "tokenizer.json"
MUON = Descent(
    optimizer="muon", lr=0.01, rest_lr=2e-3, momentum=0.95, weight_decay=0.0, schedule="linear", warmup=0.05, hold=0.2
)
"""how Transformers of these sizes learn quickest"""


@dataclass(frozen=True, kw_only=True)
class Pretrained(Recipe):
    """A recipe whose model may begin as a checkpoint."""

    kind: ClassVar[str] = "transformers"

    from_: Annotated[str, tyro.conf.arg(name="from")] = ""
    """begin from this checkpoint (a run folder, or a Hugging Face folder or hub id) instead of from nothing"""
    lora: int = 0
    """rank of low-rank adaptation: the checkpoint stays, small matrices beside its own learn; 0 lets all learn"""

    batch: int = 32
    """items in a batch"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 1:
            raise EngramError(f"batch must be at least 1, not {self.batch}.")
        if self.lora < 0:
            raise EngramError(f"lora must not be negative, and is {self.lora}.")
        if self.lora and not self.from_:
            raise EngramError("lora adapts a checkpoint: name one with --from.")

    @abstractmethod
    def bare(self, found: Checkpoint, info: Info) -> Any:
        """What stands for the data where there is none: all that a checkpoint needs to be looked at and to speak."""

    def begun(self, folder: Path | None, config: Any) -> nn.Module:
        """The model: as a run that is opened again has it, as a checkpoint has it, or fresh with `config`."""
        if folder is not None:
            model = self.Model(from_json(self.Model.Config(), architecture(folder)))  # type: ignore[attr-defined]
        elif self.from_:
            model = checkpoint(self.from_, self.Model)[0]
        else:
            model = self.Model(config)
        if self.lora:
            adapt(model, self.lora)
        return model


def spoken(tokeniser: Tokeniser | None, source: str | Path) -> Tokeniser:
    """The tokeniser of a checkpoint, which must be there."""
    if tokeniser is None:
        raise EngramError(f"{source} has no tokeniser, and without it its tokens mean nothing.")
    return tokeniser


def trained(kind: Kind, text: corpus.Text, size: int, specials: tuple[str, ...] = (), template: str = "") -> Tokeniser:
    """A tokeniser that has read the whole text."""
    pieces = (piece for split in text.splits.values() for piece in split())
    return Tokeniser.train(kind, pieces, size=size, specials=specials, template=template)


def architecture(folder: Path) -> dict[str, Any]:
    config = dict(read_json(folder / "config.json"))
    config.pop("architecture", None)
    return config


def checkpoint(source: str, expected: type[nn.Module]) -> tuple[nn.Module, Tokeniser | None]:
    """Model and tokeniser of a run folder or a Hugging Face checkpoint; the model must be of the expected kind."""
    from engram.recipes import load

    model = load(source)
    if not isinstance(model, expected):
        raise EngramError(f"{source} holds a {type(model).__name__}, and a {expected.__name__} is needed.")
    return model, model.tokeniser  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class Language(Pretrained):
    """A recipe that learns from one text."""

    by: ClassVar[By] = "stretches"
    """how the text is cut into pieces"""
    specials: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """special tokens of each kind of tokeniser"""
    template: ClassVar[str] = ""
    """how special tokens surround a text"""
    unit: ClassVar[str] = "tokens"
    samples: ClassVar[int] = 1

    data: str = "shakespeare"
    """data set of texts (`engram data list`), path of a .txt or a folder of them, of any size, or hf:NAME, streamed"""
    tokeniser: Kind = "characters"
    """what a token is: characters, bytes, bpe, wordpiece or words; a checkpoint brings its own"""
    tokens: int = 2000
    """tokens that bpe, wordpiece and words learn"""

    def load(self) -> Corpus:
        text = corpus.read(self.data, self.by)
        return corpus.tokenised(text, self.made(text))

    def made(self, text: corpus.Text) -> Tokeniser:
        """The checkpoint's tokeniser, or one trained on the text."""
        if self.from_:
            return spoken(checkpoint(self.from_, self.Model)[1], self.from_)
        return trained(self.tokeniser, text, self.tokens, self.specials.get(self.tokeniser, ()), self.template)

    def reload(self, folder: Path) -> Corpus:
        found = corpus.tokenised(corpus.read(self.data, self.by), Tokeniser.load(folder / TOKENISER))
        return Corpus(found.info, found.tokeniser, found.splits, folder)

    def bare(self, found: Checkpoint, info: Info) -> Corpus:
        return Corpus(info, spoken(found.tokeniser, found.path), {})

    def files(self, data: Corpus) -> Mapping[str, bytes]:
        return {TOKENISER: data.tokeniser.to_bytes()}
