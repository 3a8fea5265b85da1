"""engram export: a model in another format."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

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
        out: where to; in the folder of the run if not given, or NAME-hf of a model that is given by its name
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
        vectors = WordVectors.from_model(model, get_words(model.tokenizer))  # type: ignore[arg-type]
        return vectors.save(out or default_place(source, "vectors.txt"))
    classes: tuple[str, ...] = ()
    if is_run(source):
        run = Run.open(path)
        classes = getattr(run.data, "classes", ())
    return huggingface.save_checkpoint(model, out or default_place(source, "hf"), model.tokenizer, classes)  # type: ignore[arg-type]


def write_onnx(source: str, out: Path | None) -> list[Path]:
    """Write the model as ONNX with the names of recipe and classes; returns where the files are."""
    from engram.hub.load import find_recipe, load
    from engram.hub.onnx import count_classes, export_onnx

    model, recipe = load(source), find_recipe(source).name
    of_rows = len(getattr(model.config, "shape", ())) == 1
    classes, table = describe_data(source) if of_rows or count_classes(model, recipe) else ((), None)
    return export_onnx(model, out or default_place(source, "model.onnx"), recipe=recipe, classes=classes, table=table)


def default_place(source: str, name: str) -> Path:
    """Return the place of a file in that of the source, or beside it if it is a file or a name.

    A folder of the name of a model would be mistaken for the model.
    """
    path = Path(source)
    if path.is_dir():
        return path / name
    return path.with_name(f"{path.stem}-{name}") if path.is_file() else Path(f"{path.name}-{name}")


def describe_data(source: str) -> tuple[Sequence[str], dict[str, Any] | None]:
    """Return the class names and the encoding of the table of a run, or the classes of a checkpoint.

    Where the data of the run are gone there are none, and a warning says so.
    """
    from engram.hub import huggingface
    from engram.hub.load import is_run
    from engram.training.run import recipe_of
    from engram.training.run_folder import RunFolder

    if not is_run(source):
        return huggingface.load_checkpoint(source).classes, None
    folder = RunFolder.open(Path(source))
    try:
        data = recipe_of(folder).reload(folder.path)
    except EngramError as error:
        print(f"The file has no names of classes or columns: {error}", file=sys.stderr)
        return (), None
    encoder = getattr(data, "encoder", None)
    table = None if encoder is None else {"inputs": encoder.names, "target": data.target, **encoder.to_json()}
    return getattr(data, "classes", ()), table
