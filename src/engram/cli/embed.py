"""engram embed: vectors of texts."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from engram.cli.flags import call
from engram.core.errors import EngramError, with_article


def command(argv: Sequence[str]) -> int:
    return call(embed, argv, "embed")


def embed(
    model: str,
    files: tuple[str, ...],
    out: Path = Path("vectors.npz"),
    pooling: Literal["auto", "mean", "cls", "last"] = "auto",
    raw: bool = False,
    batch: int = 64,
) -> int:
    """Embed the lines of text files as vectors, with BERT, MiniLM or a causal language model.

    Args:
        model: run folder, checkpoint, or a name of `engram models`
        files: text files, one text per line (required); - reads the standard input
        out: .npz with the arrays `vectors` (texts × width) and `texts`, or .npy with the vectors alone
        pooling: mean over all tokens, the first token (cls) or the last; auto: last of a causal model, mean of others
        raw: leave the vectors as they are, instead of scaling them to length 1
        batch: texts embedded at a time
    """
    import numpy as np

    if out.suffix not in (".npz", ".npy"):
        raise EngramError(f"The vectors cannot be written as {out}: the name must end in .npz or .npy.")
    if out.exists():
        raise EngramError(f"{out} is there already: name another file, or remove it.")
    if batch < 1:
        raise EngramError(f"--batch must be at least 1, not {batch}.")
    texts = read_lines(files)
    vectors = load_embedder(model)(texts, pooling=pooling, normalize=not raw, batch=batch)
    partial = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with partial.open("wb") as stream:
            if out.suffix == ".npy":
                np.save(stream, vectors)
            else:
                np.savez_compressed(stream, vectors=vectors, texts=np.array(texts))
        partial.replace(out)
    except OSError as error:
        raise EngramError(f"{out} cannot be written: {error.strerror or error}.") from error
    finally:
        partial.unlink(missing_ok=True)
    print(f"{len(texts):,} vectors of {vectors.shape[1]} numbers in {out}")
    return 0


def read_lines(files: Sequence[str]) -> list[str]:
    """Read the lines of text files; those without words are left out."""
    from engram.data.text_files import read_text_file

    if not files:
        raise EngramError("engram embed needs files: engram embed MODEL FILES --out vectors.npz.")
    for name in files:
        if name != "-" and not Path(name).is_file():
            raise EngramError(f"There is no file {name}.")
    whole = [sys.stdin.read() if name == "-" else read_text_file(Path(name)) for name in files]
    lines = [line for text in whole for line in text.splitlines() if line.strip()]
    if not lines:
        raise EngramError(f"{' and '.join(files)} hold no text.")
    return lines


def load_embedder(source: str) -> Any:
    """Load a model that embeds texts."""
    from engram.hub.embedding import TextEmbedder
    from engram.hub.load import load

    model = load(source)
    if not isinstance(getattr(model, "embed", None), TextEmbedder):
        raise EngramError(
            f"{source} holds {with_article(type(model).__name__)}, which gives no vectors of texts: try minilm."
        )
    return model.embed
