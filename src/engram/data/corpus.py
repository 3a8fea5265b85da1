"""Text as tokens: tokenised once into a memory-mapped file, so that it may be larger than memory.

A corpus is read piece by piece (long stretches for a model that reads on and on, lines for one that reads sentences),
and kept in the cache (data/tokens.py). What it is called there depends on the text and on the tokeniser: another of
either is another file.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from engram import data as datasets
from engram.core.errors import EngramError
from engram.data import cache, hub, tokens
from engram.data.dataset import Info, Split
from engram.data.division import shuffled
from engram.data.own import exists
from engram.data.tokeniser import Tokeniser, chunks
from engram.data.tokens import TOGETHER, Pieces, Tokens, batched

By = Literal["stretches", "lines"]
BLOCK = 1 << 20
"""bytes of a file that are read at once"""


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
    splits: Mapping[str, Tokens]
    folder: Path | None = None
    """the run that it was opened for again, if it was"""

    def __getitem__(self, split: str) -> Tokens:
        """A split; where a text has no test, it is examined on what validated it."""
        if not self.splits:
            raise EngramError(f"{self.info.name} comes without data: give it a --text.")
        return self.splits[split if split in self.splits else "valid"]


# ---------------------------------------------------------------------- reading


def read(name: str, by: By) -> Text:
    """The text of a known data set, of a text file or of a folder of them, or of a data set of the hub («hf:…»)."""
    if name.startswith(hub.PREFIX):
        return Text(hub.info(name), hub.Splits(name, by), f"{name} {by}")
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
    return lambda: ("\n".join(some) + "\n" for some in batched(iter(texts), TOGETHER))


def _divided(split: Split, by: By) -> dict[str, Pieces]:
    """A set without a split to be examined on: its last twentieth serves."""
    place = len(split) - max(1, len(split) // 20)
    first, last = torch.arange(place), torch.arange(place, len(split))
    return {"train": _listed(split.take(first), by), "valid": _listed(split.take(last), by)}


def _texts(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.txt"))


def _own(path: Path, by: By) -> Text:
    """One's own text: few files are each cut at 90 %, many are dealt out whole."""
    if not exists(path):
        raise EngramError(f"There is no file or folder {path}.")
    files = [file for file in (sorted(path.glob("*.txt")) if path.is_dir() else [path]) if file.is_file()]
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


# ---------------------------------------------------------------------- tokenising


def tokenised(text: Text, tokeniser: Tokeniser) -> Corpus:
    """The text as tokens: out of the cache, or tokenised now."""
    content = f"{text.identity} ".encode() + tokeniser.to_bytes()
    place = cache.folder() / "tokens" / hashlib.sha256(content).hexdigest()[:24]
    if not (place / "about.json").exists():
        with cache.locked(f"tokens-{place.name}", f"the tokens of {text.info.name}"):
            if not (place / "about.json").exists():
                tokens.write(text.info.name, text.splits, tokeniser, place)
    splits = tokens.mapped(place)
    for part, found in splits.items():
        if len(found.ids) < 2:
            raise EngramError(f"The split «{part}» of {text.info.name} has too little text: more is needed.")
    sizes = {part: len(found.ids) for part, found in splits.items()}
    kind = str(next(iter(splits.values())).ids.dtype).removeprefix("torch.")
    return Corpus(replace(text.info, sizes=sizes, columns={"tokens": kind}), tokeniser, splits)


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
