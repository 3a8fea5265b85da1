"""Tokenizers: characters, bytes, byte-pair encoding (BPE), WordPiece and words, by `tokenizers`.

tokenizer = Tokenizer.train("bpe", texts, vocab_size=2000)
tokenizer.encode("to be")           # [283, 305]
tokenizer.decode([283, 305])        # "to be"

A tokenizer is saved as one file, tokenizer.json, in the run folder; Hugging Face's libraries read it as well.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as HFTokenizer

from engram.core.errors import EngramError

Kind = Literal["characters", "bytes", "bpe", "wordpiece", "words"]

PAD = ("[PAD]", "<pad>", "<|endoftext|>")
EOS = ("</s>", "[SEP]", "<|endoftext|>")
MASK = ("[MASK]", "<mask>")
CLS = ("[CLS]", "<s>")
SEP = ("[SEP]", "</s>")
UNK = ("[UNK]", "<unk>")
MAX_VOCAB_SIZE = 1 << 24
"""limit of the ids in a tokenizer file"""
WORD_START = "▁"
"""marks the start of a word while a WordPiece vocabulary is trained"""


class Tokenizer:
    """Encodes a text as a list of token ids and decodes it back.

    `backend` is the tokenizer of the library.
    """

    def __init__(
        self, backend: HFTokenizer, *, bos_token: str = "", eos_token: str = "", chat_template: str = ""
    ) -> None:
        """The special tokens and the template of a chat are those of a checkpoint, where it names them."""
        self.backend, self.bos_token, self.eos_token, self.chat_template = backend, bos_token, eos_token, chat_template

    # ------------------------------------------------------------------ training, loading, saving

    @classmethod
    def train(
        cls,
        kind: Kind,
        texts: Iterable[str],
        *,
        vocab_size: int = 2000,
        special_tokens: Sequence[str] = (),
        template: str = "",
    ) -> "Tokenizer":
        """Train a tokenizer on texts; `template` puts special tokens around each text, as "[CLS] $A [SEP]"."""
        specials = list(special_tokens)
        backend, trainer = _init_backend(kind, vocab_size, specials)
        if trainer is None:
            vocab = {token: i for i, token in enumerate([*specials, *sorted(set().union(*map(set, texts)))])}
            unk_token = next((token for token in UNK if token in specials), None)
            backend.model = models.WordLevel(vocab, unk_token=unk_token or "")
            backend.add_special_tokens(specials)
        else:
            backend.train_from_iterator(texts, trainer)
            if kind == "wordpiece":
                backend = _convert_to_wordpiece(backend, vocab_size, specials)
        if template:
            pairs = [(token, backend.token_to_id(token)) for token in specials if token in template.split()]
            backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=pairs)
        return cls(backend)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Load a tokenizer.json, or a folder that has one, a vocab.txt, or a vocab.json and merges.txt."""
        with wrap_errors(f"The tokenizer in {path} cannot be read"):
            return cls(_check(_read(path)), **_read_roles(path))

    @classmethod
    def from_bytes(cls, content: bytes) -> "Tokenizer":
        """Read the content of a tokenizer.json."""
        with wrap_errors("The tokenizer cannot be read"):
            return cls(_check(HFTokenizer.from_str(content.decode())))

    def to_bytes(self) -> bytes:
        """Return the content of tokenizer.json."""
        return json.dumps(json.loads(self.backend.to_str()), ensure_ascii=False, indent=1).encode()

    def roles_to_bytes(self) -> bytes:
        """Return the content of tokenizer_config.json: special tokens and chat template."""
        roles = {"bos_token": self.bos_token, "eos_token": self.eos_token, "chat_template": self.chat_template}
        return json.dumps(
            {role: value for role, value in roles.items() if value}, ensure_ascii=False, indent=1
        ).encode()

    # ------------------------------------------------------------------ vocabulary

    @property
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary, special tokens included."""
        return self.backend.get_vocab_size()

    @property
    def max_id(self) -> int:
        """Largest token id; above `vocab_size` - 1 where ids are left out."""
        return _max_id(self.backend)

    @property
    def pad_id(self) -> int | None:
        """Id of the padding token, if there is one."""
        return self._find(PAD)

    @property
    def eos_id(self) -> int | None:
        """Id of the end-of-sequence token, if there is one: that of the checkpoint, or one of the usual names."""
        return self._find((self.eos_token, *EOS))

    @property
    def mask_id(self) -> int | None:
        """Id of the mask token, if there is one."""
        return self._find(MASK)

    @property
    def mask_token(self) -> str:
        """Mask token, as it is written in a text; [MASK] if there is none."""
        return next((token for token in MASK if self.backend.token_to_id(token) is not None), MASK[0])

    @property
    def cls_id(self) -> int:
        """Id of the token before a text (BERT, RoBERTa); an error if there is none."""
        return self._require(CLS)

    @property
    def sep_id(self) -> int:
        """Id of the token after a text (BERT, RoBERTa); an error if there is none."""
        return self._require(SEP)

    @property
    def special_ids(self) -> tuple[int, ...]:
        """Ids of the special tokens."""
        return tuple(i for i, token in self.backend.get_added_tokens_decoder().items() if token.special)

    def token_to_id(self, token: str) -> int:
        """Return the id of a token; an error if the vocabulary has no such token."""
        found = self.backend.token_to_id(token)
        if found is None:
            raise EngramError(f"The tokenizer has no token {token}, which is needed here.")
        return found

    def _find(self, names: Sequence[str]) -> int | None:
        return next((i for i in map(self.backend.token_to_id, names) if i is not None), None)

    def _require(self, names: Sequence[str]) -> int:
        found = self._find(names)
        return self.token_to_id(names[0]) if found is None else found

    # ------------------------------------------------------------------ encoding and decoding

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Encode a text as token ids, with the special tokens of the template or without."""
        return self.encode_batch([text], add_special_tokens=add_special_tokens)[0]

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        """Encode many texts, on all cores."""
        try:
            with wrap_errors("The text cannot be tokenized"):
                found = self.backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        except EngramError:
            vocab = set(self.backend.get_vocab())
            unknown = sorted({c for text in texts for c in text if c not in vocab})[:10]
            if isinstance(self.backend.model, models.WordLevel) and unknown:
                raise EngramError(
                    f"These characters are not in the vocabulary: {' '.join(map(repr, unknown))}."
                ) from None
            raise
        return [encoding.ids for encoding in found]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Decode token ids to text."""
        with wrap_errors("These tokens are no text"):
            return self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def token(self, i: int) -> str:
        """Return a token in readable form: byte symbols decoded, a line break as ⏎."""
        raw = self.backend.id_to_token(i)
        if raw is None:
            return f"⟨{i}⟩"
        text = raw if raw.startswith("##") else self.decode([i], skip_special_tokens=False) or raw
        return (text if "�" not in text else raw).replace("\n", "⏎").replace("▁", " ")

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return tokens in readable form."""
        return [self.token(i) for i in ids]


@contextmanager
def wrap_errors(what: str) -> Iterator[None]:
    """Turn any error of `tokenizers` into an EngramError that begins with `what`.

    A Rust panic is a BaseException.
    """
    try:
        yield
    except EngramError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise EngramError(f"{what}: {str(error).rstrip('.')}.") from None


def _check(backend: HFTokenizer) -> HFTokenizer:
    """Refuse huge ids, which the library would allocate memory for; turn padding and truncation off."""
    if (largest := _max_id(backend)) >= MAX_VOCAB_SIZE:
        raise EngramError(f"The tokenizer has a token with the id {largest}: ids must be below {MAX_VOCAB_SIZE:,}.")
    backend.no_padding()  # batches are padded and cut where they are legacy
    backend.no_truncation()
    return backend


def _max_id(backend: HFTokenizer) -> int:
    return max(backend.get_vocab().values(), default=0)


def _init_backend(kind: Kind, size: int, specials: list[str]) -> tuple[HFTokenizer, trainers.Trainer | None]:
    """Return an untrained tokenizer and its trainer; characters need none."""
    unknown = next((token for token in UNK if token in specials), None)
    if kind in ("characters", "words"):
        backend = HFTokenizer(models.WordLevel({}, unk_token=unknown or ""))
        if kind == "characters":
            backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"(?m:.)"), "isolated")
            backend.decoder = decoders.Fuse()
            return backend, None
        backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return backend, trainers.WordLevelTrainer(vocab_size=size, special_tokens=specials, show_progress=False)
    if kind == "wordpiece":
        if unknown is None:
            raise EngramError("WordPiece needs an unknown token: add [UNK] to the special tokens.")
        backend = HFTokenizer(models.BPE())
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        begin = pre_tokenizers.Metaspace(WORD_START, prepend_scheme="always", split=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), begin])
        return backend, trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False)
    backend = HFTokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    wanted = len(alphabet) + len(specials) if kind == "bytes" else max(size, len(alphabet) + len(specials))
    return backend, trainers.BpeTrainer(
        vocab_size=wanted, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )


def _convert_to_wordpiece(bpe: HFTokenizer, size: int, specials: list[str]) -> HFTokenizer:
    """Return a WordPiece tokenizer with the vocabulary of a trained BPE.

    It has starts of words, and continuations with ##.

    The library's own WordPiece trainer orders its vocabulary differently every time, so runs would not be reproducible.
    """
    found = bpe.get_vocab()
    ordered = [token for token in sorted(found, key=lambda token: found[token]) if token not in specials]
    letters = sorted({letter for token in ordered for letter in token} - {WORD_START})
    whole = [*letters, *(f"##{letter}" for letter in letters)]
    pieces = [token.removeprefix(WORD_START) if token.startswith(WORD_START) else f"##{token}" for token in ordered]
    vocab = list(dict.fromkeys([*specials, *whole, *filter(None, pieces)]))[: max(size, len(specials) + len(whole))]
    unknown = next(token for token in UNK if token in specials)
    backend = HFTokenizer(models.WordPiece({token: i for i, token in enumerate(vocab)}, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(specials)
    return backend


def _read(path: Path) -> HFTokenizer:
    if path.is_file():
        return HFTokenizer.from_file(str(path))
    if (path / "tokenizer.json").exists():
        return HFTokenizer.from_file(str(path / "tokenizer.json"))
    if (path / "vocab.txt").exists():
        return _read_wordpiece(path)
    if (path / "vocab.json").exists() and (path / "merges.txt").exists():
        return _read_bpe(path)
    raise EngramError(f"There is no tokenizer in {path}: neither tokenizer.json nor vocab.txt nor vocab.json is there.")


def _tokenizer_config(path: Path) -> dict[str, object]:
    file = path / "tokenizer_config.json"
    return json.loads(file.read_text()) if file.exists() else {}


def _read_roles(path: Path) -> dict[str, str]:
    """Read the special tokens and the chat template of a folder, as strings."""
    if not path.is_dir():
        return {}
    about = _tokenizer_config(path)
    found: dict[str, str] = {}
    for role in ("bos_token", "eos_token"):
        value = about.get(role)
        value = value.get("content") if isinstance(value, dict) else value
        found[role] = value if isinstance(value, str) else ""
    template = about.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
        template = named.get("default")
    if (path / "chat_template.jinja").is_file():
        template = (path / "chat_template.jinja").read_text(encoding="utf-8")
    return {**found, "chat_template": template if isinstance(template, str) else ""}


def _read_wordpiece(path: Path) -> HFTokenizer:
    """Read vocab.txt, one word piece per line (BERT)."""
    lowercase = bool(_tokenizer_config(path).get("do_lower_case", True))
    legacy = tokenizers.BertWordPieceTokenizer(str(path / "vocab.txt"), lowercase=lowercase)
    return legacy._tokenizer  # the backend of a legacy class


def _read_bpe(path: Path) -> HFTokenizer:
    """Read vocab.json and merges.txt, of GPT-2, RoBERTa or CLIP.

    CLIP's are lowercase, and words end in </w>.
    """
    vocab = json.loads((path / "vocab.json").read_text())
    files = str(path / "vocab.json"), str(path / "merges.txt")
    if "<|startoftext|>" not in vocab:
        legacy = tokenizers.ByteLevelBPETokenizer(*files)
        legacy.add_special_tokens([token for token in ("<|endoftext|>",) if token in vocab])
        return _surround_roberta(legacy._tokenizer, vocab) if "<mask>" in vocab else legacy._tokenizer
    backend = HFTokenizer(models.BPE.from_file(*files, end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), spaces, normalizers.Lowercase()])
    words = Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+")
    backend.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(words, "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    backend.decoder = decoders.ByteLevel()
    ends = [(token, vocab[token]) for token in ("<|startoftext|>", "<|endoftext|>")]
    backend.post_processor = processors.RobertaProcessing(ends[1], ends[0], trim_offsets=False, add_prefix_space=False)
    backend.add_special_tokens([token for token, _ in ends])
    return backend


def _surround_roberta(backend: HFTokenizer, vocab: dict[str, int]) -> HFTokenizer:
    """Set the special tokens of RoBERTa, which surrounds a text by <s> and </s>."""
    backend.add_special_tokens([token for token in ("<s>", "<pad>", "</s>", "<unk>") if token in vocab])
    backend.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", vocab["</s>"]), ("<s>", vocab["<s>"]), add_prefix_space=False
    )
    return backend


def chunk_text(text: str, size: int = 1 << 16) -> Iterator[str]:
    """Cut a long text into chunks to be tokenized in parallel, at a line break or a space if possible."""
    start = 0
    while start < len(text):
        end = start + size
        if end < len(text):
            end = max(text.rfind("\n", start, end), text.rfind(" ", start, end), start) + 1
            end = end if end > start + 1 else start + size
        yield text[start:end]
        start = end
