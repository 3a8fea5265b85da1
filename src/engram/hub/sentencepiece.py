"""SentencePiece tokenizers of Marian: source.spm and target.spm, with the ids in vocab.json.

A .spm file is a protocol buffer (sentencepiece_model.proto). Fields used here: 1 piece (1 text, 2 score), 2 trainer
spec (3 model type, 1 is unigram), 3 normalizer spec (2 precompiled character map, 4 remove extra spaces, by default).

The pieces become a unigram model of `tokenizers`, in the order of vocab.json. A piece of the other language gets a
score so low that it is used only for a character that would be unknown otherwise.
"""

import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as HFTokenizer

from engram.core.errors import EngramError
from engram.core.files import read, read_json
from engram.data.tokenizer import Tokenizer, wrap_errors

FOREIGN_CHARACTER, FOREIGN_PIECE = -1e5, -2e5
"""scores of characters and pieces of the other language, below all others"""
UNIGRAM, SPACE = 1, "▁"
MAX_VARINT_BITS = 70
"""limit of a varint: ten bytes of seven bits"""


def has_sentencepiece(folder: Path) -> bool:
    """Whether a folder holds SentencePiece models of Marian."""
    return (folder / "source.spm").exists() and (folder / "vocab.json").exists()


def read_sentencepiece(folder: Path, side: Literal["source", "target"] = "source") -> Tokenizer:
    """Read the tokenizer of the source or target language; both share the ids of vocab.json."""
    path = folder / f"{side}.spm"
    ids = read_json(folder / "vocab.json")
    if not isinstance(ids, dict) or not _is_range(ids.values()) or "<unk>" not in ids:
        raise EngramError(f"{folder / 'vocab.json'} is damaged: it should number its pieces from 0, <unk> among them.")
    try:
        pieces, characters, squeeze = _parse(read(path))
    except (AttributeError, LookupError, TypeError, struct.error, UnicodeDecodeError):
        raise EngramError(f"{path} is damaged: it is not a SentencePiece model.") from None
    except ValueError as error:
        raise EngramError(f"{path} cannot be used: {error}.") from None
    with wrap_errors(f"{path} cannot be used"):
        return Tokenizer(_make_unigram(ids, pieces, _make_normalizer(characters, squeeze)))


def _is_range(numbers: Collection[Any]) -> bool:
    """Whether these are the integers from 0 on, in any order."""
    return all(type(number) is int for number in numbers) and sorted(numbers) == list(range(len(numbers)))


def _make_unigram(ids: dict[str, int], pieces: dict[str, float], normalizer: Any) -> HFTokenizer:
    scores = {piece: pieces.get(piece, FOREIGN_PIECE if len(piece) > 1 else FOREIGN_CHARACTER) for piece in ids}
    backend = HFTokenizer(
        models.Unigram([(piece, scores[piece]) for piece in sorted(ids, key=ids.__getitem__)], ids["<unk>"])
    )
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always")
    backend.decoder = decoders.Metaspace(SPACE, "always")
    languages = [piece for piece in ids if piece.startswith(">>") and piece.endswith("<<")]
    specials = [piece for piece in ("</s>", "<unk>", "<pad>") if piece in ids] + languages
    backend.add_special_tokens([AddedToken(piece, normalized=False) for piece in specials])
    if "</s>" in ids:
        backend.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", ids["</s>"])])
    return backend


def _make_normalizer(characters: bytes, squeeze: bool) -> Any:
    steps: list[Any] = [normalizers.Precompiled(characters)] if characters else []
    if squeeze:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    return normalizers.Sequence(steps)


def _parse(content: bytes) -> tuple[dict[str, float], bytes, bool]:
    """Return the scores of the pieces, the precompiled character map, and whether extra spaces are removed."""
    pieces: dict[str, float] = {}
    characters, squeeze, kind = b"", True, UNIGRAM
    for number, value in _parse_fields(content):
        if number == 1:
            piece = dict(_parse_fields(value))
            pieces[piece[1].decode()] = struct.unpack("<f", piece.get(2, bytes(4)))[0]
        elif number == 2:
            kind = dict(_parse_fields(value)).get(3, UNIGRAM)
        elif number == 3:
            normalizer = dict(_parse_fields(value))
            characters, squeeze = normalizer.get(2, b""), bool(normalizer.get(4, 1))
    if kind != UNIGRAM or not pieces:
        raise ValueError("only unigram models are known")
    return pieces, characters, squeeze


def _parse_fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a protocol buffer: an integer, or bytes."""
    at = 0
    while at < len(content):
        tag, at = _parse_varint(content, at)
        kind = tag & 7
        if kind == 0:
            value, at = _parse_varint(content, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _parse_varint(content, at)
        else:
            size = {1: 8, 5: 4}[kind] if kind in (1, 5) else len(content)
        if at + size > len(content):
            raise IndexError(at)
        yield tag >> 3, content[at : at + size]
        at += size


def _parse_varint(content: bytes, at: int) -> tuple[int, int]:
    """Parse a varint (seven bits per byte); return it and the next position."""
    value = shift = 0
    while True:
        byte = content[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if shift > MAX_VARINT_BITS:
            raise IndexError(at)
        if byte < 128:
            return value, at
