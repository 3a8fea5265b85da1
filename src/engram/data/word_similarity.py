"""Tests of word vectors: analogies, and pairs of words with human similarity ratings."""

import torch

from engram.data.columns import Strings
from engram.data.dataset import Parts, Split
from engram.data.registry import register_downloaded
from engram.data.sources import Archive, DataSource, Files


def read_analogies(files: Files) -> Parts:
    """Read analogies "a is to b as c is to d"; a line with a colon starts a category, which is the label."""
    (content,) = files.values()
    classes, rows, label = [], [], []
    for line in content.decode().splitlines():
        if line.startswith(":"):
            classes.append(line.removeprefix(":").strip())
        elif line.strip():
            rows.append(line.split())
            label.append(len(classes) - 1)
    columns = dict(zip("abcd", map(Strings.from_texts, zip(*rows, strict=True)), strict=True))
    return Parts({"test": Split({**columns, "label": torch.tensor(label)})}, tuple(classes))


def read_similarity(files: Files) -> Parts:
    """Read pairs of words and their similarity from 0 to 10, separated by tabs; # starts a comment."""
    (content,) = files.values()
    rows = [line.split("\t") for line in content.decode().splitlines() if line.strip() and not line.startswith("#")]
    first, second, score = zip(*rows, strict=True)
    scores = torch.tensor([float(one) for one in score])
    return Parts(
        {"test": Split({"first": Strings.from_texts(first), "second": Strings.from_texts(second), "score": scores})}
    )


def gensim_archive(member: str, content: str) -> Archive:
    """Return the archive of a list that the package gensim contains."""
    return Archive("pip", "gensim==4.4.0", (f"gensim/test/test_data/{member}",), contents=(content,))


LICENSE = "not stated; gensim (LGPL-2.1) carries it"

register_downloaded(
    "analogies",
    DataSource(
        read_analogies,
        gensim_archive("questions-words.txt", "8c29b3332afc46f3fb8be04cb5297bf96f39aa7131272dff57869b4485b22a36"),
    ),
    title="19 544 analogies of 14 kinds (Mikolov et al. 2013)",
    kind="words",
    license=LICENSE,
    columns={"a": "str", "b": "str", "c": "str", "d": "str", "label": "int64"},
    sizes={"test": 19_544},
)

register_downloaded(
    "wordsim353",
    DataSource(
        read_similarity,
        gensim_archive("wordsim353.tsv", "f92a022fc2537793a15bc3a8c162ebcd74990e033a228bb6388cb71e4c0b1e1d"),
    ),
    title="353 pairs of words and how related people find them",
    kind="words",
    license=LICENSE,
    columns={"first": "str", "second": "str", "score": "float32"},
    sizes={"test": 353},
)

register_downloaded(
    "simlex999",
    DataSource(
        read_similarity,
        gensim_archive("simlex999.txt", "d5e0501971478a511430ee880bd0121e94ac701ba86d90544d83e6d2ba3db05d"),
    ),
    title="999 pairs of words and how similar people find them",
    kind="words",
    license=LICENSE,
    columns={"first": "str", "second": "str", "score": "float32"},
    sizes={"test": 999},
)
