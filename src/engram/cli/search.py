"""engram search: semantic search in text files."""

import json as jsonlib
from collections.abc import Sequence

from rich.console import Console

from engram.cli.embed import load_embedder
from engram.cli.flags import call
from engram.core.errors import EngramError

SHOWN = 300
"""characters of a passage that are printed"""


def command(argv: Sequence[str]) -> int:
    return call(search, argv, "search")


def search(query: str, paths: tuple[str, ...], model: str = "minilm", top: int = 5, json: bool = False) -> int:
    """Find the passages of text files whose meaning is nearest to a query.

    Args:
        query: what to look for, in words or as a sentence
        paths: text files, or folders of .txt, .md and .rst files (required)
        model: run folder, checkpoint, or a name of `engram models`
        top: number of passages
        json: print a JSON object per passage
    """
    from engram.hub import search as finder

    if not paths:
        raise EngramError("engram search needs files or folders: engram search QUERY PATHS.")
    if top < 1:
        raise EngramError(f"--top must be at least 1, not {top}.")
    if not query.strip():
        raise EngramError("The query is empty.")
    passages = finder.read_passages(paths)
    with Console(stderr=True).status("loading the model") as status:
        found = finder.search(
            load_embedder(model).model, query, passages, top,
            lambda done: status.update(f"{done:,} of {len(passages):,} passages embedded"),
        )  # fmt: skip
    for hit in found:
        where = f"{hit.passage.file}:{hit.passage.line}"
        if json:
            about = {"file": hit.passage.file, "line": hit.passage.line, "cosine": hit.cosine, "text": hit.passage.text}
            print(jsonlib.dumps(about, ensure_ascii=False))
        else:
            text = hit.passage.text
            print(f"{hit.cosine:.3f}  {where}\n       {text[:SHOWN]}{'…' if len(text) > SHOWN else ''}")
    return 0
