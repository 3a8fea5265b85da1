"""Corpora: texts tokenized once into memory-mapped files, so that they may be larger than memory.

A text is read in segments (long chunks for windows of a language model, or lines for sentences), tokenized, and kept in
the cache (data/tokens.py) under a name that depends on the text and the tokenizer.
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
from engram.data import cache, hub_text, tokens
from engram.data.dataset import Info, Split
from engram.data.splits import fixed_permutation
from engram.data.tokenizer import Tokenizer, chunk_text
from engram.data.tokens import ENCODE_BATCH, Segments, Tokens, batched
from engram.data.user_data import exists

Unit = Literal["windows", "lines"]
BLOCK = 1 << 20
"""bytes read from a file at once"""


@dataclass(frozen=True)
class Text:
    """A text before tokenization: its description and the segments of each split."""

    info: Info
    splits: Mapping[str, Segments]
    fingerprint: str
    """identifies the content, for the name in the cache"""


@dataclass(frozen=True)
class Corpus:
    """A tokenized text: description, tokenizer and the tokens of each split."""

    info: Info
    tokenizer: Tokenizer
    splits: Mapping[str, Tokens]
    folder: Path | None = None
    """the run folder, if the corpus was reloaded for an existing run"""

    def __getitem__(self, split: str) -> Tokens:
        """Return a split; a text without test split is tested on its validation split."""
        if not self.splits:
            raise EngramError(f"{self.info.name} comes without data: give it a --text.")
        return self.splits[split if split in self.splits else "valid"]


# ---------------------------------------------------------------------- reading


def read_text(name: str, by: Unit) -> Text:
    """Open the text of a data set, of a .txt file or folder of them, or of a data set on the hub ("hf:…")."""
    if name.startswith(hub_text.PREFIX):
        return Text(hub_text.describe(name), hub_text.StreamedSplits(name, by), f"{name} {by}")
    path = Path(name)
    if name not in datasets.list_names() and (path.suffix.lower() == ".txt" or _has_texts(path)):
        return _read_user_text(path, by)
    loaded = datasets.load(name)
    if "text" not in loaded.train:
        raise EngramError(
            f"{name} has no text to train on: give a .txt file, a folder of them, or a data set of texts."
        )
    splits = {part: _segment_rows(split, by) for part, split in loaded.splits.items()}
    if "valid" not in splits:
        splits = _hold_out_last(loaded.train, by)
    fingerprint = f"{name} {loaded.info.sha256} {dict(loaded.info.sizes)} {by}"
    if not loaded.info.sha256:  # a table or the like of the user
        fingerprint += f" {path.stat().st_size} {path.stat().st_mtime_ns}" if path.exists() else ""
    return Text(loaded.info, splits, fingerprint)


def _segment_rows(split: Split, by: Unit) -> Segments:
    texts = split["text"]
    if by == "lines":
        return lambda: (line for text in texts for line in text.splitlines() if line.strip())
    if len(texts) == 1:
        return lambda: chunk_text(texts[0])
    return lambda: ("\n".join(some) + "\n" for some in batched(iter(texts), ENCODE_BATCH))


def _hold_out_last(split: Split, by: Unit) -> dict[str, Segments]:
    """Return segments of the first 95 % for training and the last 5 % for validation."""
    place = len(split) - max(1, len(split) // 20)
    first, last = torch.arange(place), torch.arange(place, len(split))
    return {"train": _segment_rows(split.select(first), by), "valid": _segment_rows(split.select(last), by)}


def _has_texts(path: Path) -> bool:
    return exists(path) and path.is_dir() and any(path.glob("*.txt"))


def _read_user_text(path: Path, by: Unit) -> Text:
    """Read text files of the user: fewer than 10 are each cut at 90 %, more are split as whole files."""
    if not exists(path):
        raise EngramError(f"There is no file or folder {path}.")
    files = [file for file in (sorted(path.glob("*.txt")) if path.is_dir() else [path]) if file.is_file()]
    if sum(file.stat().st_size for file in files) < 100:
        raise EngramError(f"{path} is empty, or nearly: there is nothing to train on.")
    if len(files) >= 10:
        order, tenth = fixed_permutation(len(files)).tolist(), max(1, len(files) // 10)
        chosen_files = {"valid": order[:tenth], "test": order[tenth : 2 * tenth], "train": order[2 * tenth :]}
        spans = {
            part: [(files[i], 0, files[i].stat().st_size) for i in sorted(chosen)]
            for part, chosen in chosen_files.items()
        }
    else:
        cuts = {file: _find_cut(file) for file in files}
        spans = {
            "train": [(file, 0, cut) for file, cut in cuts.items()],
            "valid": [(file, cut, file.stat().st_size) for file, cut in cuts.items()],
        }
    info = Info(
        name=path.name, title=f"user text in {path}", kind="text", license="your own", source=str(path),
        columns={"text": "str"}, sizes={part: len(chosen) for part, chosen in spans.items()},
    )  # fmt: skip
    fingerprint = " ".join(f"{file.resolve()} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)
    return Text(info, {part: _segment_files(chosen, by) for part, chosen in spans.items()}, f"{fingerprint} {by}")


def _find_cut(file: Path) -> int:
    """Return a byte offset near 90 % of a file.

    It is after a line that ends before 95 %, or else between characters.
    """
    size = file.stat().st_size
    place = size * 9 // 10
    with file.open("rb") as stream:
        stream.seek(place)
        rest = stream.read(BLOCK)
    line = rest.find(b"\n", 0, (size - place) // 2) + 1
    if line:
        return place + line
    return place + next((i for i, byte in enumerate(rest[:8]) if byte & 0xC0 != 0x80), 0)


def _segment_files(spans: list[tuple[Path, int, int]], by: Unit) -> Segments:
    def segments() -> Iterator[str]:
        for file, start, end in spans:
            for block in _read_blocks(file, start, end):
                yield from (line for line in block.splitlines() if line.strip()) if by == "lines" else chunk_text(block)

    return segments


def _read_blocks(file: Path, start: int, end: int) -> Iterator[str]:
    """Decode a byte range of a file in blocks that end with a line break if there is one."""
    try:
        with file.open("rb") as stream:
            stream.seek(start)
            left, encoding = b"", "utf-8" if start else "utf-8-sig"
            while start < end:
                block = stream.read(min(BLOCK, end - start))
                start += len(block)
                whole, left = _split_block(left + block, last=start >= end or not block)
                if whole:
                    yield whole.decode(encoding)
                    encoding = "utf-8"
                if not block:
                    return
    except UnicodeDecodeError as error:
        raise EngramError(f"{file} is not UTF-8 text ({error.reason}): save it as UTF-8.") from None
    except OSError as error:
        raise EngramError(f"{file} cannot be read: {error.strerror or error}.") from None


def _split_block(block: bytes, last: bool) -> tuple[bytes, bytes]:
    """Return the bytes that can be decoded now and those left for the next block."""
    if last:
        return block, b""
    place = block.rfind(b"\n") + 1
    if not place:
        place = next((len(block) - i for i in range(1, 5) if block[-i] & 0xC0 != 0x80), len(block))
    return block[:place], block[place:]


# ---------------------------------------------------------------------- tokenizing


def tokenize_corpus(text: Text, tokenizer: Tokenizer) -> Corpus:
    """Tokenize a text, or open its tokens in the cache."""
    content = f"{text.fingerprint} ".encode() + tokenizer.to_bytes()
    place = cache.cache_folder() / "tokens" / hashlib.sha256(content).hexdigest()[:24]
    if not (place / "about.json").exists():
        with cache.lock_entry(f"tokens-{place.name}", f"the tokens of {text.info.name}"):
            if not (place / "about.json").exists():
                tokens.write_tokens(text.info.name, text.splits, tokenizer, place)
    splits = tokens.open_tokens(place)
    for part, found in splits.items():
        if len(found.ids) < 2:
            raise EngramError(f'The split "{part}" of {text.info.name} has too little text: more is needed.')
    sizes = {part: len(found.ids) for part, found in splits.items()}
    kind = str(next(iter(splits.values())).ids.dtype).removeprefix("torch.")
    return Corpus(replace(text.info, sizes=sizes, columns={"tokens": kind}), tokenizer, splits)


# ---------------------------------------------------------------------- batches


class RandomWindows:
    """Endless batches of windows `x` at random positions of the text, and their next tokens `y`."""

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


def cover_windows(tokens: Tokens, context: int, max_tokens: int) -> tuple[Tensor, Tensor]:
    """Return consecutive windows N × T and next tokens; chosen evenly if more than `max_tokens`."""
    context = min(context, len(tokens.ids) - 1)
    count = (len(tokens.ids) - 1) // context
    chosen = torch.linspace(0, count - 1, min(count, max(1, max_tokens // context))).round().long().unique()
    window_NT = tokens.ids[chosen[:, None] * context + torch.arange(context + 1)].long()
    return window_NT[:, :-1], window_NT[:, 1:]
