"""SentencePiece tokenizers of Marian (source.spm, target.spm, vocab.json) and T5 (spiece.model).

Such a file is a protocol buffer (sentencepiece_model.proto). Fields used here: 1 piece (1 text, 2 score), 2 trainer
spec (3 model type, 1 is unigram), 3 normalizer spec (2 precompiled character map, 4 remove extra spaces, by default).

The pieces become a unigram model of `tokenizers`. Those of Marian are in the order of vocab.json: a piece of the other
language gets a score so low that it is used only for a character that would be unknown otherwise. Those of T5 are in
the order of the file, and followed by the sentinels of masked spans, <extra_id_99> to <extra_id_0>.
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
SENTINELS, MAX_SENTINELS = 100, 10_000
"""number of sentinels of T5 where tokenizer_config.json has no extra_ids, and its limit"""
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
    pieces, characters, squeeze = _read_pieces(path)
    with wrap_errors(f"{path} cannot be used"):
        return Tokenizer(_make_unigram(ids, pieces, _make_normalizer(characters, squeeze)))


def read_t5_sentencepiece(path: Path) -> Tokenizer:
    """Read the tokenizer of T5 from spiece.model, and its number of sentinels.

    Those are in tokenizer_config.json beside it.
    """
    pieces, characters, _ = _read_pieces(path)
    if missing := [piece for piece in ("</s>", "<unk>") if piece not in pieces]:
        raise EngramError(f"{path} cannot be used: it has no {' and no '.join(missing)}.")
    sentinels = [f"<extra_id_{i}>" for i in reversed(range(_count_sentinels(path.parent / "tokenizer_config.json")))]
    scores = {**pieces, **{piece: 0.0 for piece in sentinels if piece not in pieces}}
    with wrap_errors(f"{path} cannot be used"):
        backend = HFTokenizer(models.Unigram(list(scores.items()), list(scores).index("<unk>")))
        if characters:
            backend.normalizer = normalizers.Precompiled(characters)
        words = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE, "always")]
        backend.pre_tokenizer = pre_tokenizers.Sequence(words)
        return Tokenizer(_finish(backend, sentinels))


def _count_sentinels(path: Path) -> int:
    about = read_json(path) if path.exists() else {}
    count = about.get("extra_ids", SENTINELS) if isinstance(about, dict) else None
    if type(count) is not int or not 0 <= count <= MAX_SENTINELS:
        raise EngramError(f"{path} is damaged: extra_ids should be a whole number from 0 to {MAX_SENTINELS}.")
    return count


def _read_pieces(path: Path) -> tuple[dict[str, float], bytes, bool]:
    """Read a SentencePiece model as `_parse` returns it."""
    try:
        return _parse(read(path))
    except (AttributeError, LookupError, TypeError, struct.error, UnicodeDecodeError):
        raise EngramError(f"{path} is damaged: it is not a SentencePiece model.") from None
    except ValueError as error:
        raise EngramError(f"{path} cannot be used: {error}.") from None


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
    return _finish(backend, [piece for piece in ids if piece.startswith(">>") and piece.endswith("<<")])


def _finish(backend: HFTokenizer, specials: list[str]) -> HFTokenizer:
    """Return a tokenizer with its decoder and special tokens, which ends each text with </s>."""
    backend.decoder = decoders.Metaspace(SPACE, "always")
    known = [piece for piece in ("</s>", "<unk>", "<pad>") if backend.token_to_id(piece) is not None]
    backend.add_special_tokens([AddedToken(piece, normalized=False) for piece in known + specials])
    if "</s>" in known:
        end = ("</s>", backend.token_to_id("</s>"))
        backend.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[end])
    return backend


def _make_normalizer(characters: bytes, squeeze: bool) -> Any:
    steps: list[Any] = [normalizers.Precompiled(characters)] if characters else []
    if squeeze:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    return normalizers.Sequence(steps)


def _parse(content: bytes) -> tuple[dict[str, float], bytes, bool]:
    """Return the scores of pieces, the precompiled character map, and whether extra spaces are removed."""
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
