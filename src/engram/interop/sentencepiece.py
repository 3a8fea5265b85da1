"""Marian's vocabulary: source.spm and target.spm, which cut a text into pieces, and vocab.json, which numbers them.

A .spm file is a protocol buffer, of which a few fields matter here (sentencepiece_model.proto):

    1  piece         1 text, 2 score, 3 kind                                                      (1)
    2  trainer       3 kind of model: 1 is unigram                                                (2)
    3  normaliser    2 map of characters, 4 whether spaces are squeezed (yes, where not said)     (3)

The pieces become the unigram model of `tokenizers`, in the order of vocab.json. A piece that only the other language
has gets a score so low that it is used for nothing but a character that would be unknown otherwise.
"""

import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from engram.core.errors import EngramError
from engram.data.tokeniser import Tokeniser, saying
from engram.training.files import read, read_json

FOREIGN_CHARACTER, FOREIGN_PIECE = -1e5, -2e5
"""scores below those of any word of one's own pieces"""
UNIGRAM, SPACE = 1, "▁"
LONGEST = 70
"""bits of an integer: ten bytes of seven"""


def holds_sentencepiece(folder: Path) -> bool:
    return (folder / "source.spm").exists() and (folder / "vocab.json").exists()


def read_sentencepiece(folder: Path, side: Literal["source", "target"] = "source") -> Tokeniser:
    """The tokeniser of the language that is read, or of the one that is written; ids are the same in both."""
    path = folder / f"{side}.spm"
    ids = read_json(folder / "vocab.json")
    if not isinstance(ids, dict) or not _counts(ids.values()) or "<unk>" not in ids:
        raise EngramError(f"{folder / 'vocab.json'} is damaged: it should number its pieces from 0, <unk> among them.")
    try:
        pieces, characters, squeeze = _parse(read(path))
    except (AttributeError, LookupError, TypeError, struct.error, UnicodeDecodeError):
        raise EngramError(f"{path} is damaged: it is not a SentencePiece model.") from None
    except ValueError as error:
        raise EngramError(f"{path} cannot be used: {error}.") from None
    with saying(f"{path} cannot be used"):
        return Tokeniser(_unigram(ids, pieces, _normaliser(characters, squeeze)))


def _counts(numbers: Collection[Any]) -> bool:
    """Whether these are the numbers from 0 on, in any order."""
    return all(type(number) is int for number in numbers) and sorted(numbers) == list(range(len(numbers)))


def _unigram(ids: dict[str, int], pieces: dict[str, float], normaliser: Any) -> Tokenizer:
    scores = {piece: pieces.get(piece, FOREIGN_PIECE if len(piece) > 1 else FOREIGN_CHARACTER) for piece in ids}
    inner = Tokenizer(
        models.Unigram([(piece, scores[piece]) for piece in sorted(ids, key=ids.__getitem__)], ids["<unk>"])
    )
    inner.normalizer = normaliser
    inner.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always")
    inner.decoder = decoders.Metaspace(SPACE, "always")
    languages = [piece for piece in ids if piece.startswith(">>") and piece.endswith("<<")]
    specials = [piece for piece in ("</s>", "<unk>", "<pad>") if piece in ids] + languages
    inner.add_special_tokens([AddedToken(piece, normalized=False) for piece in specials])
    if "</s>" in ids:
        inner.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", ids["</s>"])])
    return inner


def _normaliser(characters: bytes, squeeze: bool) -> Any:
    steps: list[Any] = [normalizers.Precompiled(characters)] if characters else []
    if squeeze:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    return normalizers.Sequence(steps)


def _parse(content: bytes) -> tuple[dict[str, float], bytes, bool]:
    """Scores of the pieces, the map of characters, and whether spaces are squeezed."""
    pieces: dict[str, float] = {}
    characters, squeeze, kind = b"", True, UNIGRAM
    for number, value in _fields(content):
        if number == 1:
            piece = dict(_fields(value))
            pieces[piece[1].decode()] = struct.unpack("<f", piece.get(2, bytes(4)))[0]  # (1)
        elif number == 2:
            kind = dict(_fields(value)).get(3, UNIGRAM)  # (2)
        elif number == 3:
            normaliser = dict(_fields(value))
            characters, squeeze = normaliser.get(2, b""), bool(normaliser.get(4, 1))  # (3)
    if kind != UNIGRAM or not pieces:
        raise ValueError("only unigram models are known")
    return pieces, characters, squeeze


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a protocol buffer: an integer, or bytes whose meaning the number tells."""
    at = 0
    while at < len(content):
        tag, at = _integer(content, at)
        kind = tag & 7
        if kind == 0:
            value, at = _integer(content, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _integer(content, at)
        else:
            size = {1: 8, 5: 4}[kind] if kind in (1, 5) else len(content)
        if at + size > len(content):
            raise IndexError(at)
        yield tag >> 3, content[at : at + size]
        at += size


def _integer(content: bytes, at: int) -> tuple[int, int]:
    """An integer of seven bits per byte, and where the next thing begins."""
    value = shift = 0
    while True:
        byte = content[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if shift > LONGEST:
            raise IndexError(at)
        if byte < 128:
            return value, at
