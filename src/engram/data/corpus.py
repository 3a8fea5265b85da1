"""Text as tokens: tokenised once into a memory-mapped file, so that it may be larger than memory.

A corpus is read piece by piece (long stretches for a model that reads on and on, lines for one that reads sentences),
and kept in the cache as one file of tokens and one of the places where pieces end, for each split. What it is called
there depends on the text and on the tokeniser: another of either is another file.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
from torch import Tensor

from engram import data as datasets
from engram.core.errors import EngramError
from engram.data import cache
from engram.data.dataset import Info, Split
from engram.data.division import shuffled
from engram.data.tokeniser import Tokeniser, chunks

By = Literal["stretches", "lines"]
Pieces = Callable[[], Iterator[str]]
BLOCK = 1 << 20
"""bytes of a file that are read at once"""
TOGETHER = 1024
"""pieces that are tokenised at once, on all cores"""


@dataclass(frozen=True)
class Text:
    """A text before it is tokenised: what is known of it, and its pieces, split by split."""

    info: Info
    splits: Mapping[str, Pieces]
    identity: str
    """differs whenever the text does"""


@dataclass(frozen=True)
class Corpus:
    """A tokenised text."""

    info: Info
    tokeniser: Tokeniser
    splits: Mapping[str, "Tokens"]
    folder: Path | None = None
    """the run that it was opened for again, if it was"""

    def __getitem__(self, split: str) -> "Tokens":
        """A split; where a text has no test, it is examined on what validated it."""
        if not self.splits:
            raise EngramError(f"{self.info.name} comes without data: give it a --text.")
        return self.splits[split if split in self.splits else "valid"]


@dataclass(frozen=True)
class Tokens:
    """One split: all tokens one after the other, and where pieces end; both memory-mapped."""

    ids: Tensor
    ends: Tensor

    def piece(self, i: int) -> Tensor:
        start = int(self.ends[i - 1]) if i else 0
        return self.ids[start : int(self.ends[i])].long()

    def __len__(self) -> int:
        return len(self.ends)


# ---------------------------------------------------------------------- reading


def read(name: str, by: By) -> Text:
    """The text of a known data set, of a text file or of a folder of them."""
    path = Path(name)
    if name not in datasets.names() and (path.suffix.lower() == ".txt" or _texts(path)):
        return _own(path, by)
    loaded = datasets.load(name)
    if "text" not in loaded.train:
        raise EngramError(f"{name} has no text to learn from: give a .txt file, a folder of them, or a set of texts.")
    splits = {part: _listed(split, by) for part, split in loaded.splits.items()}
    if "valid" not in splits:
        splits = _divided(loaded.train, by)
    identity = f"{name} {loaded.info.sha256} {dict(loaded.info.sizes)} {by}"
    if not loaded.info.sha256:  # one's own file of another kind
        identity += f" {path.stat().st_size} {path.stat().st_mtime_ns}" if path.exists() else ""
    return Text(loaded.info, splits, identity)


def _listed(split: Split, by: By) -> Pieces:
    texts = split["text"]
    if by == "lines":
        return lambda: (line for text in texts for line in text.splitlines() if line.strip())
    if len(texts) == 1:
        return lambda: chunks(texts[0])
    return lambda: ("\n".join(some) + "\n" for some in _batched(iter(texts), TOGETHER))


def _divided(split: Split, by: By) -> dict[str, Pieces]:
    """A set without a split to be examined on: its last twentieth serves."""
    place = len(split) - max(1, len(split) // 20)
    first, last = torch.arange(place), torch.arange(place, len(split))
    return {"train": _listed(split.take(first), by), "valid": _listed(split.take(last), by)}


def _texts(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.txt"))


def _own(path: Path, by: By) -> Text:
    """One's own text: few files are each cut at 90 %, many are dealt out whole."""
    if not path.exists():
        raise EngramError(f"There is no file or folder {path}.")
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    if sum(file.stat().st_size for file in files) < 100:
        raise EngramError(f"{path} is empty, or nearly: there is nothing to learn from.")
    if len(files) >= 10:
        order, tenth = shuffled(len(files)).tolist(), max(1, len(files) // 10)
        dealt = {"valid": order[:tenth], "test": order[tenth : 2 * tenth], "train": order[2 * tenth :]}
        spans = {
            part: [(files[i], 0, files[i].stat().st_size) for i in sorted(chosen)] for part, chosen in dealt.items()
        }
    else:
        cuts = {file: _cut(file) for file in files}
        spans = {
            "train": [(file, 0, cut) for file, cut in cuts.items()],
            "valid": [(file, cut, file.stat().st_size) for file, cut in cuts.items()],
        }
    info = Info(
        name=path.name, title=f"own text in {path}", kind="text", licence="your own", source=str(path),
        columns={"text": "str"}, sizes={part: len(chosen) for part, chosen in spans.items()},
    )  # fmt: skip
    identity = " ".join(f"{file.resolve()} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)
    return Text(info, {part: _streamed(chosen, by) for part, chosen in spans.items()}, f"{identity} {by}")


def _cut(file: Path) -> int:
    """The byte after the first line that ends between 90 % and 95 % of a file, or else one where a character begins."""
    size = file.stat().st_size
    place = size * 9 // 10
    with file.open("rb") as stream:
        stream.seek(place)
        rest = stream.read(BLOCK)
    line = rest.find(b"\n", 0, (size - place) // 2) + 1
    if line:
        return place + line
    return place + next((i for i, byte in enumerate(rest[:8]) if byte & 0xC0 != 0x80), 0)


def _streamed(spans: list[tuple[Path, int, int]], by: By) -> Pieces:
    def pieces() -> Iterator[str]:
        for file, start, end in spans:
            for block in _blocks(file, start, end):
                yield from (line for line in block.splitlines() if line.strip()) if by == "lines" else chunks(block)

    return pieces


def _blocks(file: Path, start: int, end: int) -> Iterator[str]:
    """A part of a file as stretches of text that end with a line where there are lines."""
    try:
        with file.open("rb") as stream:
            stream.seek(start)
            left, coding = b"", "utf-8" if start else "utf-8-sig"
            while start < end:
                block = stream.read(min(BLOCK, end - start))
                start += len(block)
                whole, left = _split(left + block, last=start >= end or not block)
                if whole:
                    yield whole.decode(coding)
                    coding = "utf-8"
                if not block:
                    return
    except UnicodeDecodeError as error:
        raise EngramError(f"{file} is not UTF-8 text ({error.reason}): save it as UTF-8.") from None
    except OSError as error:
        raise EngramError(f"{file} cannot be read: {error.strerror or error}.") from None


def _split(block: bytes, last: bool) -> tuple[bytes, bytes]:
    """What can be decoded now, and what waits for the next block."""
    if last:
        return block, b""
    place = block.rfind(b"\n") + 1
    if not place:
        place = next((len(block) - i for i in range(1, 5) if block[-i] & 0xC0 != 0x80), len(block))
    return block[:place], block[place:]


def _batched(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(islice(items, size)):
        yield batch


# ---------------------------------------------------------------------- tokenising


def tokenised(text: Text, tokeniser: Tokeniser) -> Corpus:
    """The text as tokens: out of the cache, or tokenised now."""
    content = f"{text.identity} ".encode() + tokeniser.to_bytes()
    place = cache.folder() / "tokens" / hashlib.sha256(content).hexdigest()[:24]
    if not (place / "about.json").exists():
        with cache.locked(f"tokens-{place.name}"):
            if not (place / "about.json").exists():
                _write(text, tokeniser, place)
    about = json.loads((place / "about.json").read_text())
    splits = {part: _mapped(place, part, sizes, about["dtype"]) for part, sizes in about["splits"].items()}
    for part, tokens in splits.items():
        if len(tokens.ids) < 2:
            raise EngramError(f"The split «{part}» of {text.info.name} has too little text: more is needed.")
    sizes = {part: len(tokens.ids) for part, tokens in splits.items()}
    return Corpus(replace(text.info, sizes=sizes, columns={"tokens": about["dtype"]}), tokeniser, splits)


def _mapped(place: Path, part: str, sizes: list[int], dtype: str) -> Tokens:
    def mapped(name: str, size: int, kind: torch.dtype) -> Tensor:
        return (
            torch.from_file(str(place / name), shared=False, size=size, dtype=kind)
            if size
            else torch.empty(0, dtype=kind)
        )

    ids = mapped(f"{part}.ids", sizes[0], torch.int16 if dtype == "int16" else torch.int32)
    return Tokens(ids, mapped(f"{part}.ends", sizes[1], torch.int64))


def _write(text: Text, tokeniser: Tokeniser, place: Path) -> None:
    """Tokenise into a folder of another name, and give it its own when it is whole."""
    dtype = np.dtype("int16" if tokeniser.vocabulary <= 1 << 15 else "int32")
    with cache.complaining():
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=cache.folder(), prefix=f".tokens-{place.name}-"))  # `locked` clears it away
    try:
        sizes = {}
        for part, pieces in text.splits.items():
            with (
                cache.complaining(),
                (draft / f"{part}.ids").open("wb") as ids,
                (draft / f"{part}.ends").open("wb") as ends,
            ):
                sizes[part] = _tokenise(pieces(), tokeniser, dtype, ids, ends)
        with cache.complaining():
            (draft / "about.json").write_text(json.dumps({"dtype": dtype.name, "splits": sizes}))
            shutil.rmtree(place, ignore_errors=True)
            os.rename(draft, place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _tokenise(
    pieces: Iterator[str], tokeniser: Tokeniser, dtype: "np.dtype[Any]", ids: IO[bytes], ends: IO[bytes]
) -> list[int]:
    count = total = 0
    for batch in _batched(pieces, TOGETHER):
        for tokens in tokeniser.encode_all(batch, special=False):
            total += len(tokens)
            count += 1
            ids.write(np.array(tokens, dtype).tobytes())
            ends.write(np.int64(total).tobytes())
    return [total, count]


# ---------------------------------------------------------------------- batches


class Windows:
    """Endless batches of stretches from anywhere in the text, and of what follows each token."""

    def __init__(self, tokens: Tokens, batch: int, context: int, generator: torch.Generator) -> None:
        if len(tokens.ids) <= context:
            raise EngramError(
                f"The text has {len(tokens.ids)} tokens, and a context of {context} needs more: lower --context."
            )
        self.ids, self.batch, self.generator = tokens.ids, batch, generator
        self.offset_T = torch.arange(context + 1)

    def __next__(self) -> dict[str, Tensor]:
        start_B = torch.randint(len(self.ids) - len(self.offset_T) + 1, (self.batch, 1), generator=self.generator)
        window_BT = self.ids[start_B + self.offset_T].long()
        return {"x": window_BT[:, :-1], "y": window_BT[:, 1:]}

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])


def rows(tokens: Tokens, context: int, most: int) -> tuple[Tensor, Tensor]:
    """Stretches side by side that cover a text, or an even choice of `most` tokens of it, and what follows each."""
    context = min(context, len(tokens.ids) - 1)
    count = (len(tokens.ids) - 1) // context
    chosen = torch.linspace(0, count - 1, min(count, max(1, most // context))).round().long().unique()
    window_NT = tokens.ids[chosen[:, None] * context + torch.arange(context + 1)].long()
    return window_NT[:, :-1], window_NT[:, 1:]
