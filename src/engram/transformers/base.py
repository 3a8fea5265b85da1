"""Base of recipes that train Transformers: tokenizer, corpus, pretrained checkpoint, LoRA."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge

from engram.core.config import from_json
from engram.core.errors import EngramError, with_article
from engram.core.files import read_json
from engram.core.learner import M
from engram.core.recipe import D, Recipe
from engram.data import corpus
from engram.data.corpus import Corpus, Unit
from engram.data.dataset import Info
from engram.data.tokenizer import Kind, Tokenizer
from engram.hub.huggingface import Checkpoint
from engram.nn.lora import apply_lora
from engram.training.optimizer import OptimizerConfig

TOKENIZER = "tokenizer.json"
MUON = OptimizerConfig(
    optimizer="muon",
    lr=0.01,
    adamw_lr=2e-3,
    momentum=0.95,
    weight_decay=0.0,
    schedule="linear",
    warmup=0.05,
    stable_fraction=0.2,
)
"""Muon with the settings that train Transformers of these sizes fastest"""


@dataclass(frozen=True, kw_only=True)
class Pretrained(Recipe[M, D]):
    """Base of recipes whose model may start from a pretrained checkpoint."""

    from_: str = ""
    """start from this checkpoint: a run folder, or a Hugging Face folder or hub id"""
    lora: Annotated[int, Ge(0)] = 0
    """rank of low-rank adaptation (LoRA) of the checkpoint; 0 trains all weights"""

    batch: Annotated[int, Ge(1)] = 32
    """samples per batch"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lora and not self.from_:
            raise EngramError("lora adapts a checkpoint: name one with --from.")

    @abstractmethod
    def data_of_checkpoint(self, checkpoint: Checkpoint, info: Info) -> Any:
        """Return data without samples: all that a checkpoint needs to be sampled from and inspected."""

    def init_or_load_model(self, folder: Path | None, config: Any) -> M:
        """Build the model as in a run folder, as in a pretrained checkpoint, or fresh with `config`."""
        if folder is not None:
            saved = read_architecture(folder)
            model: Any = self.Model(from_json(self.Model.Config(), saved))  # type: ignore[attr-defined]
        elif self.from_:
            model = self.load_base(config)
        else:
            model = self.Model(config)
        if self.lora:
            apply_lora(model, self.lora)
        return model

    def load_base(self, config: Any) -> M:
        """Load the model of the pretrained checkpoint; `config` is that of a fresh one."""
        base: Any = load_pretrained(self.from_, self.Model)[0]
        return base  # type: ignore[no-any-return]


def require_tokenizer(tokenizer: Tokenizer | None, source: str | Path) -> Tokenizer:
    """Return the tokenizer of a checkpoint; refuse a checkpoint without one."""
    if tokenizer is None:
        raise EngramError(f"{source} has no tokenizer, and without it its tokens mean nothing.")
    return tokenizer


def train_tokenizer(
    kind: Kind, text: corpus.Text, vocab_size: int, specials: tuple[str, ...] = (), template: str = ""
) -> Tokenizer:
    """Train a tokenizer on all splits of a text."""
    pieces = (piece for split in text.splits.values() for piece in split())
    return Tokenizer.train(kind, pieces, vocab_size=vocab_size, special_tokens=specials, template=template)


def read_architecture(folder: Path) -> dict[str, Any]:
    """Read the model config of a run folder."""
    config = dict(read_json(folder / "config.json"))
    config.pop("architecture", None)
    return config


def load_pretrained(source: str, expected: type[M], *, quantized: bool = False) -> tuple[M, Tokenizer | None]:
    """Load model and tokenizer of a run folder or a Hugging Face checkpoint; refuse another model class.

    With `quantized`, matrices of a GGUF file stay in the bits that they are stored in.
    """
    from engram.hub.load import load

    model = load(source, quantized=quantized)
    if not isinstance(model, expected):
        found, needed = with_article(type(model).__name__), with_article(expected.__name__)
        raise EngramError(f"{source} holds {found}, and {needed} is needed.")
    return model, model.tokenizer  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class TextRecipe(Pretrained[M, Corpus]):
    """Base of recipes that train on one corpus of text."""

    split_by: ClassVar[Unit] = "windows"
    """how the text is cut into pieces"""
    specials: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """special tokens of each kind of tokenizer"""
    template: ClassVar[str] = ""
    """how special tokens surround a text"""
    unit: ClassVar[str] = "tokens"
    samples: ClassVar[int] = 1

    data: str = "shakespeare"
    """data set of texts (`engram data list`), path of a .txt or a folder of them, of any size, or hf:NAME, streamed"""
    tokenizer: Kind = "characters"
    """kind of tokenizer; with --from, that of the checkpoint is used"""
    vocab_size: int = 2000
    """vocabulary size of bpe, wordpiece and words tokenizers"""

    def load(self) -> Corpus:
        text = corpus.read_text(self.data, self.split_by)
        return corpus.tokenize_corpus(text, self.make_tokenizer(text))

    def make_tokenizer(self, text: corpus.Text) -> Tokenizer:
        """Return the tokenizer of the checkpoint, or train one on the text."""
        if self.from_:
            return require_tokenizer(load_pretrained(self.from_, self.Model)[1], self.from_)
        specials = self.specials.get(self.tokenizer, ())
        return train_tokenizer(self.tokenizer, text, self.vocab_size, specials, self.template)

    def reload(self, folder: Path) -> Corpus:
        text = corpus.read_text(self.data, self.split_by)
        found = corpus.tokenize_corpus(text, Tokenizer.load(folder / TOKENIZER))
        return Corpus(found.info, found.tokenizer, found.splits, folder)

    def data_of_checkpoint(self, checkpoint: Checkpoint, info: Info) -> Corpus:
        return Corpus(info, require_tokenizer(checkpoint.tokenizer, checkpoint.path), {})

    def files(self, data: Corpus) -> Mapping[str, bytes]:
        return {TOKENIZER: data.tokenizer.to_bytes()}
