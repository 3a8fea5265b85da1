"""engram export: a model in another format."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from engram.cli.flags import call
from engram.core.errors import EngramError, with_article


def command(argv: Sequence[str]) -> int:
    return call(export, argv, "export")


def export(run: str, to: Literal["hf", "onnx", "word2vec"] = "hf", out: Path | None = None) -> None:
    """Export a model to Hugging Face's format (--to hf), ONNX (--to onnx) or word2vec's (--to word2vec).

    Args:
        run: run folder, or a Hugging Face checkpoint
        to: hf: folder for transformers; onnx: one file (VAE: two, encoder and decoder); word2vec: vectors for gensim,
            as text, or binary if --out ends in .bin
        out: where to; beside the run if not given
    """
    for path in write_onnx(run, out) if to == "onnx" else [write_export(run, to, out)]:
        print(path)


def write_export(source: str, to: str, out: Path | None) -> Path:
    """Write the model in the format of Hugging Face or of word2vec; returns where it is."""
    from engram.data.sentences import get_words
    from engram.hub import huggingface
    from engram.hub.load import is_run, load
    from engram.sequences.word2vec.model import Word2Vec
    from engram.sequences.word2vec.vectors import WordVectors
    from engram.training.run import Run

    model = load(source)
    path = Path(source)
    if to == "word2vec":
        if not isinstance(model, Word2Vec):
            raise EngramError(
                f"{source} holds {with_article(type(model).__name__)}, and --to word2vec is for word vectors."
            )
        return WordVectors.from_model(model, get_words(model.tokenizer)).save(out or path / "vectors.txt")  # type: ignore[arg-type]
    classes: tuple[str, ...] = ()
    if is_run(source):
        run = Run.open(path)
        classes = getattr(run.data, "classes", ())
    return huggingface.save_checkpoint(model, out or path / "hf", model.tokenizer, classes)  # type: ignore[arg-type]


def write_onnx(source: str, out: Path | None) -> list[Path]:
    """Write the model as ONNX with the names of recipe and classes; returns where the files are."""
    from engram.hub.load import find_recipe, load
    from engram.hub.onnx import count_classes, export_onnx

    model, recipe = load(source), find_recipe(source).name
    classes = read_classes(source) if count_classes(model, recipe) else ()
    return export_onnx(model, out or Path(source) / "model.onnx", recipe=recipe, classes=classes)


def read_classes(source: str) -> Sequence[str]:
    """Return the class names of a run or checkpoint; () with a warning if the data are gone."""
    from engram.hub import huggingface
    from engram.hub.load import is_run
    from engram.training.run import recipe_of
    from engram.training.run_folder import RunFolder

    if not is_run(source):
        return huggingface.load_checkpoint(source).classes
    folder = RunFolder.open(Path(source))
    try:
        return getattr(recipe_of(folder).reload(folder.path), "classes", ())
    except EngramError as error:
        print(f"The file has no class names: {error}", file=sys.stderr)
        return ()
