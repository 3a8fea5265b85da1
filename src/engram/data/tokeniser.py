"""Texts as numbers, through the library `tokenizers`: characters, bytes, byte-pair encoding, WordPiece, whole words.

tokeniser = Tokeniser.train("bpe", texts, size=2000)
tokeniser.encode("to be")           # [283, 305]
tokeniser.decode([283, 305])        # "to be"

A tokeniser is one file, tokenizer.json, which Hugging Face's libraries read as well; it is kept in the run folder.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from engram.core.errors import EngramError

Kind = Literal["characters", "bytes", "bpe", "wordpiece", "words"]

PADDING = ("[PAD]", "<pad>", "<|endoftext|>")
END = ("</s>", "[SEP]", "<|endoftext|>")
MASK = ("[MASK]", "<mask>")
UNKNOWN = ("[UNK]", "<unk>")
MOST = 1 << 24
"""tokens that there may be"""
BEGIN = "▁"
"""marks the beginning of a word while word pieces are learnt"""


class Tokeniser:
    """A text as a list of numbers, and back."""

    def __init__(self, inner: Tokenizer) -> None:
        self.inner = inner

    # ------------------------------------------------------------------ making one

    @classmethod
    def train(
        cls, kind: Kind, texts: Iterable[str], *, size: int = 2000, specials: Sequence[str] = (), template: str = ""
    ) -> "Tokeniser":
        """Learn a vocabulary of `size` from texts; `template` puts special tokens around each, as "[CLS] $A [SEP]"."""
        inner, trainer = _untrained(kind, size, list(specials))
        if trainer is None:
            vocabulary = {token: i for i, token in enumerate([*specials, *sorted(set().union(*map(set, texts)))])}
            unknown = next((token for token in UNKNOWN if token in specials), None)
            inner.model = models.WordLevel(vocabulary, unk_token=unknown or "")
            inner.add_special_tokens(list(specials))
        else:
            inner.train_from_iterator(texts, trainer)
            if kind == "wordpiece":
                inner = _word_pieces(inner, size, list(specials))
        if template:
            pairs = [(token, inner.token_to_id(token)) for token in specials if token in template.split()]
            inner.post_processor = processors.TemplateProcessing(single=template, special_tokens=pairs)
        return cls(inner)

    @classmethod
    def load(cls, path: Path) -> "Tokeniser":
        """Out of a tokenizer.json, or out of a folder that has one or a vocabulary of the older kinds."""
        with saying(f"The tokeniser in {path} cannot be read"):
            return cls(_checked(_read(path)))

    @classmethod
    def from_bytes(cls, content: bytes) -> "Tokeniser":
        with saying("The tokeniser cannot be read"):
            return cls(_checked(Tokenizer.from_str(content.decode())))

    def to_bytes(self) -> bytes:
        """The content of tokenizer.json."""
        return json.dumps(json.loads(self.inner.to_str()), ensure_ascii=False, indent=1).encode()

    # ------------------------------------------------------------------ using it

    @property
    def vocabulary(self) -> int:
        """How many different tokens there are."""
        return self.inner.get_vocab_size()

    @property
    def last(self) -> int:
        """The largest number of a token: where some are left out, it is more than there are tokens."""
        return _last(self.inner)

    @property
    def padding(self) -> int | None:
        return self._first(PADDING)

    @property
    def end(self) -> int | None:
        return self._first(END)

    @property
    def mask(self) -> int | None:
        return self._first(MASK)

    def id(self, token: str) -> int:
        """The number of a token that must be there."""
        found = self.inner.token_to_id(token)
        if found is None:
            raise EngramError(f"The tokeniser has no token {token}, which is needed here.")
        return found

    def _first(self, names: Sequence[str]) -> int | None:
        return next((i for i in map(self.inner.token_to_id, names) if i is not None), None)

    @property
    def specials(self) -> tuple[int, ...]:
        """Tokens that stand for no text."""
        return tuple(i for i, token in self.inner.get_added_tokens_decoder().items() if token.special)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens of a text, with the special ones of its template or without."""
        return self.encode_all([text], special=special)[0]

    def encode_all(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        """The tokens of many texts, on all cores."""
        try:
            with saying("The text cannot be tokenised"):
                found = self.inner.encode_batch_fast(list(texts), add_special_tokens=special)
        except EngramError:
            known = set(self.inner.get_vocab())
            strange = sorted({c for text in texts for c in text if c not in known})[:10]
            if isinstance(self.inner.model, models.WordLevel) and strange:
                raise EngramError(
                    f"These characters are not in the vocabulary: {' '.join(map(repr, strange))}."
                ) from None
            raise
        return [one.ids for one in found]

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of tokens."""
        with saying("These tokens are no text"):
            return self.inner.decode(list(ids), skip_special_tokens=not special)

    def token(self, i: int) -> str:
        """One token as people would like to read it: a space is a space, a new line is shown."""
        raw = self.inner.id_to_token(i)
        if raw is None:
            return f"⟨{i}⟩"
        text = raw if raw.startswith("##") else self.decode([i], special=True) or raw
        return (text if "�" not in text else raw).replace("\n", "⏎").replace("▁", " ")

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [self.token(i) for i in ids]


@contextmanager
def saying(what: str) -> Iterator[None]:
    """Turn what the library says into a sentence: its errors have no kind, and a panic of its is not even an error."""
    try:
        yield
    except EngramError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise EngramError(f"{what}: {str(error).rstrip('.')}.") from None


def _checked(inner: Tokenizer) -> Tokenizer:
    """Refuse tokens of huge numbers, up to which the library would count; let texts be as long as they are."""
    if (last := _last(inner)) >= MOST:
        raise EngramError(f"A tokeniser has a token of the number {last}, and may have {MOST:,} tokens at most.")
    inner.no_padding()  # a file may say that texts are cut and filled up, which is the business of batches
    inner.no_truncation()
    return inner


def _last(inner: Tokenizer) -> int:
    return max(inner.get_vocab().values(), default=0)


def _untrained(kind: Kind, size: int, specials: list[str]) -> tuple[Tokenizer, trainers.Trainer | None]:
    """A tokeniser of that kind that knows nothing yet, and who teaches it (nobody needs to teach characters)."""
    unknown = next((token for token in UNKNOWN if token in specials), None)
    if kind in ("characters", "words"):
        inner = Tokenizer(models.WordLevel({}, unk_token=unknown or ""))
        if kind == "characters":
            inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"(?m:.)"), "isolated")
            inner.decoder = decoders.Fuse()
            return inner, None
        inner.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return inner, trainers.WordLevelTrainer(vocab_size=size, special_tokens=specials, show_progress=False)
    if kind == "wordpiece":
        if unknown is None:
            raise EngramError("WordPiece needs a token for what it does not know.")
        inner = Tokenizer(models.BPE())
        inner.normalizer = normalizers.BertNormalizer(lowercase=True)
        begin = pre_tokenizers.Metaspace(BEGIN, prepend_scheme="always", split=False)
        inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), begin])
        return inner, trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False)
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    wanted = len(alphabet) + len(specials) if kind == "bytes" else max(size, len(alphabet) + len(specials))
    return inner, trainers.BpeTrainer(
        vocab_size=wanted, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )


def _word_pieces(pairs: Tokenizer, size: int, specials: list[str]) -> Tokenizer:
    """WordPiece with the vocabulary that byte-pair encoding has found: what begins a word, and ## with what goes on.

    The library's own trainer numbers its pieces differently every time, and so would make no two runs alike.
    """
    found = pairs.get_vocab()
    ordered = [token for token in sorted(found, key=lambda token: found[token]) if token not in specials]
    letters = sorted({letter for token in ordered for letter in token} - {BEGIN})
    whole = [*letters, *(f"##{letter}" for letter in letters)]
    pieces = [token.removeprefix(BEGIN) if token.startswith(BEGIN) else f"##{token}" for token in ordered]
    vocabulary = list(dict.fromkeys([*specials, *whole, *filter(None, pieces)]))[
        : max(size, len(specials) + len(whole))
    ]
    unknown = next(token for token in UNKNOWN if token in specials)
    inner = Tokenizer(models.WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token=unknown))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    inner.add_special_tokens(specials)
    return inner


def _read(path: Path) -> Tokenizer:
    if path.is_file():
        return Tokenizer.from_file(str(path))
    if (path / "tokenizer.json").exists():
        return Tokenizer.from_file(str(path / "tokenizer.json"))
    if (path / "vocab.txt").exists():
        return _bert(path)
    if (path / "vocab.json").exists() and (path / "merges.txt").exists():
        return _byte_pairs(path)
    raise EngramError(f"There is no tokeniser in {path}: neither tokenizer.json nor vocab.txt nor vocab.json is there.")


def _settings(path: Path) -> dict[str, object]:
    file = path / "tokenizer_config.json"
    return json.loads(file.read_text()) if file.exists() else {}


def _bert(path: Path) -> Tokenizer:
    """vocab.txt: a word piece per line."""
    lowercase = bool(_settings(path).get("do_lower_case", True))
    made = tokenizers.BertWordPieceTokenizer(str(path / "vocab.txt"), lowercase=lowercase)
    return made._tokenizer  # the plain tokeniser inside


def _byte_pairs(path: Path) -> Tokenizer:
    """vocab.json and merges.txt, of GPT-2 or of CLIP, whose words end in </w> and are written small."""
    vocabulary = json.loads((path / "vocab.json").read_text())
    files = str(path / "vocab.json"), str(path / "merges.txt")
    if "<|startoftext|>" not in vocabulary:
        made = tokenizers.ByteLevelBPETokenizer(*files)
        made.add_special_tokens([token for token in ("<|endoftext|>",) if token in vocabulary])
        return made._tokenizer
    inner = Tokenizer(models.BPE.from_file(*files, end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    inner.normalizer = normalizers.Sequence([normalizers.NFC(), spaces, normalizers.Lowercase()])
    words = Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+")
    inner.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(words, "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    inner.decoder = decoders.ByteLevel()
    ends = [(token, vocabulary[token]) for token in ("<|startoftext|>", "<|endoftext|>")]
    inner.post_processor = processors.RobertaProcessing(ends[1], ends[0], trim_offsets=False, add_prefix_space=False)
    inner.add_special_tokens([token for token, _ in ends])
    return inner


def chunks(text: str, size: int = 1 << 16) -> Iterator[str]:
    """A long text in pieces that end at a line break or a space where there is one, to be tokenised side by side."""
    start = 0
    while start < len(text):
        end = start + size
        if end < len(text):
            end = max(text.rfind("\n", start, end), text.rfind(" ", start, end), start) + 1
            end = end if end > start + 1 else start + size
        yield text[start:end]
        start = end
