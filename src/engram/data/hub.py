"""Texts of the Hugging Face hub, streamed by the package `datasets` where it is installed.

    hf:OWNER/NAME                         a data set of the hub
    hf:OWNER/NAME:CONFIG@REVISION         one of its configurations, at a revision
    hf:FOLDER                             a folder of files that `datasets` can read (Parquet, JSON lines, text …)

Nothing is held in memory but the texts at hand: they are tokenised as they come, and what is tokenised stays in the
cache. From then on the hub is not asked any more, so a machine without a network can go on.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from engram.core.errors import EngramError
from engram.data.dataset import Info
from engram.data.tokeniser import chunks
from engram.data.tokens import TOGETHER, Pieces, batched

PREFIX = "hf:"
NAMES = {"valid": ("validation", "valid", "val", "dev"), "test": ("test",)}
"""what splits are called on the hub"""
HELD_BACK = 50
"""where there is no split to be examined on, one text of so many is held back for it"""


def info(name: str) -> Info:
    """What is known of it without asking."""
    return Info(
        name=name, title=f"{name.removeprefix(PREFIX)} (streamed)", kind="text", licence="see its page",
        source=name, columns={"text": "str"}, sizes={},
    )  # fmt: skip


class Splits(Mapping[str, Pieces]):
    """The splits of a data set, which is asked for only when somebody wants them."""

    def __init__(self, name: str, by: str) -> None:
        self.name, self.by = name, by
        bare, _, self.revision = name.removeprefix(PREFIX).partition("@")
        self.path, _, self.config = bare.partition(":")

    def __getitem__(self, split: str) -> Pieces:
        return self.found[split]

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    @cached_property
    def found(self) -> dict[str, Pieces]:
        streams = self._streams()
        if "train" not in streams:
            raise EngramError(f"{self.name} has no split «train»; it has {', '.join(streams)}.")
        named = {part: [one for one in names if one in streams] for part, names in NAMES.items()}
        splits = {part: self._pieces(streams[names[0]]) for part, names in named.items() if names}
        if "valid" in splits:
            return {"train": self._pieces(streams["train"]), **splits}
        train = streams["train"]
        return {"train": self._pieces(train, held_back=False), "valid": self._pieces(train, held_back=True), **splits}

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
            raise EngramError(f"{self.name} cannot be had: {reason}.") from None

    def _pieces(self, stream: Any, held_back: bool | None = None) -> Pieces:
        def texts() -> Iterator[str]:
            column = None
            for i, row in enumerate(stream):
                column = column or self._column(row)
                if held_back is None or held_back == (i % HELD_BACK == 0):
                    yield row[column] or ""

        def pieces() -> Iterator[str]:
            if self.by == "lines":
                return (line for text in texts() for line in text.splitlines() if line.strip())
            joined = ("\n".join(some) + "\n" for some in batched(texts(), TOGETHER))
            return (piece for text in joined for piece in chunks(text))

        return pieces

    def _column(self, row: Mapping[str, Any]) -> str:
        """The column of texts: «text», or the first that holds any."""
        found = [name for name in ("text", *row) if isinstance(row.get(name), str)]
        if not found:
            raise EngramError(f"{self.name} has no text to learn from; its columns are {', '.join(row)}.")
        return found[0]
