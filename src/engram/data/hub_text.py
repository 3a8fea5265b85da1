"""Texts of data sets on the Hugging Face hub, streamed by the package `datasets`.

    hf:OWNER/NAME                         a data set of the hub
    hf:OWNER/NAME:CONFIG@REVISION         one of its configurations, at a revision
    hf:FOLDER                             a folder of files that `datasets` can read (Parquet, JSON lines, text …)

Texts are tokenized while they are streamed, and the tokens stay in the cache: from then on no network is needed.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from engram.core.errors import EngramError
from engram.data.dataset import Info
from engram.data.tokenizer import chunk_text
from engram.data.tokens import ENCODE_BATCH, Segments, batched

PREFIX = "hf:"
SPLIT_NAMES = {"valid": ("validation", "valid", "val", "dev"), "test": ("test",)}
"""names of splits on the hub"""
HOLDOUT_EVERY = 50
"""without a validation split, every 50th text is held out for validation"""


def describe(name: str) -> Info:
    """Return a description without asking the hub."""
    return Info(
        name=name, title=f"{name.removeprefix(PREFIX)} (streamed)", kind="text", license="see its page",
        source=name, columns={"text": "str"}, sizes={},
    )  # fmt: skip


class StreamedSplits(Mapping[str, Segments]):
    """The splits of a data set on the hub, opened on first access."""

    def __init__(self, name: str, by: str) -> None:
        self.name, self.by = name, by
        bare, _, self.revision = name.removeprefix(PREFIX).partition("@")
        self.path, _, self.config = bare.partition(":")

    def __getitem__(self, split: str) -> Segments:
        return self.segments[split]

    def __iter__(self) -> Iterator[str]:
        return iter(self.segments)

    def __len__(self) -> int:
        return len(self.segments)

    @cached_property
    def segments(self) -> dict[str, Segments]:
        streams = self._streams()
        if "train" not in streams:
            raise EngramError(f'{self.name} has no split "train"; it has {", ".join(streams)}.')
        named = {part: [one for one in names if one in streams] for part, names in SPLIT_NAMES.items()}
        splits = {part: self._segments(streams[names[0]]) for part, names in named.items() if names}
        if "valid" in splits:
            return {"train": self._segments(streams["train"]), **splits}
        train = streams["train"]
        return {"train": self._segments(train, held_out=False), "valid": self._segments(train, held_out=True), **splits}

    def _streams(self) -> dict[str, Any]:
        try:
            import datasets
        except ImportError:
            raise EngramError(f"{self.name} needs the package datasets: `pip install engram[datasets]`.") from None
        try:
            options = {"revision": self.revision or None, "streaming": True}
            return dict(datasets.load_dataset(self.path, self.config or None, **options))
        except (OSError, ValueError, RuntimeError) as error:  # of which DatasetNotFoundError and the like are kinds
            reason = str(error).partition("\n")[0].rstrip(".")
            raise EngramError(f"{self.name} cannot be loaded: {reason}.") from None

    def _segments(self, stream: Any, held_out: bool | None = None) -> Segments:
        def texts() -> Iterator[str]:
            column = None
            for i, row in enumerate(stream):
                column = column or self._column(row)
                if held_out is None or held_out == (i % HOLDOUT_EVERY == 0):
                    yield row[column] or ""

        def segments() -> Iterator[str]:
            if self.by == "lines":
                return (line for text in texts() for line in text.splitlines() if line.strip())
            joined = ("\n".join(some) + "\n" for some in batched(texts(), ENCODE_BATCH))
            return (chunk for text in joined for chunk in chunk_text(text))

        return segments

    def _column(self, row: Mapping[str, Any]) -> str:
        """Return the name of the text column: "text", or the first column of strings."""
        found = [name for name in ("text", *row) if isinstance(row.get(name), str)]
        if not found:
            raise EngramError(f"{self.name} has no text to train on; its columns are {', '.join(row)}.")
        return found[0]
