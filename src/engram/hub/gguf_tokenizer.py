"""Tokenizers in the metadata of GGUF files: byte-level BPE by merges, or BPE by scores of pieces."""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as HFTokenizer

from engram.core.errors import EngramError
from engram.data.tokenizer import Tokenizer, wrap_errors
from engram.hub.gguf_file import GGUFFile

CONTROL, ADDED = 3, 4
"""kinds of tokens: special ones, and others that are matched whole"""
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
WORDS = {"llama-bpe": LLAMA3, "llama3": LLAMA3, "llama-v3": LLAMA3, "smaug-bpe": LLAMA3, "dbrx": LLAMA3,
         "qwen2": QWEN2, "stablelm2": QWEN2, "deepseek-r1-qwen": QWEN2}  # fmt: skip
"""regular expressions of words before byte-pair encoding, by their names in GGUF"""
GPT2_WORDS = ("default", "gpt-2", "olmo", "phi-2", "jais", "mpt", "dolma")
"""pre-tokenizers that split words as GPT-2 does"""
SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
"""pre-tokenizers that split every digit, then words as GPT-2 does"""


def read_tokenizer(file: GGUFFile) -> Tokenizer:
    """Read the tokenizer of a GGUF file."""
    about = {name.removeprefix("tokenizer.ggml."): value for name, value in file.metadata.items()}
    tokens, kind = about.get("tokens"), about.get("model")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise EngramError(f"{file.path} has no tokenizer.")
    with wrap_errors(f"The tokenizer in {file.path} cannot be read"):
        if kind == "gpt2":
            backend = byte_level(about, tokens)
        elif kind == "llama":
            backend = by_scores(about, tokens)
        else:
            raise EngramError(f"The tokenizer in {file.path} is a {kind!r}; gpt2 and llama are known.")
        add_special_tokens(backend, about, tokens)
    template = file.metadata.get("tokenizer.chat_template")
    return Tokenizer(
        backend,
        bos_token=token_of(about, tokens, "bos"),
        eos_token=token_of(about, tokens, "eos"),
        chat_template=template if isinstance(template, str) else "",
    )


def byte_level(about: Mapping[str, Any], tokens: list[str]) -> HFTokenizer:
    """Build byte-level BPE from its merges."""
    merges, words = [tuple(pair.split(" ", 1)) for pair in about.get("merges", [])], about.get("pre", "default")
    whole = words in WORDS
    backend = HFTokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges, ignore_merges=whole))
    if whole:
        split = pre_tokenizers.Split(Regex(WORDS[words]), "isolated")
        bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    elif words in GPT2_WORDS or words in SINGLE_DIGITS:
        digits = [pre_tokenizers.Digits(individual_digits=True)] if words in SINGLE_DIGITS else []
        backend.pre_tokenizer = pre_tokenizers.Sequence([*digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    else:
        known = ", ".join([*WORDS, *GPT2_WORDS, *SINGLE_DIGITS])
        raise EngramError(f"its words are split as {words!r} does it, and {known} are known")
    if words.endswith("qwen2") or words == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend


def by_scores(about: Mapping[str, Any], tokens: list[str]) -> HFTokenizer:
    """Build the BPE of SentencePiece.

    Two pieces merge if both together are one, that of the highest score first.
    """
    scores = about.get("scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise EngramError("it has not one score for every piece")
    ids = {token: i for i, token in enumerate(tokens)}
    pairs = [
        (-scores[i], ids[token[:cut]], ids[token[cut:]], (token[:cut], token[cut:]))
        for token, i in ids.items()
        for cut in range(1, len(token))
        if token[:cut] in ids and token[cut:] in ids
    ]
    merges = [pair for *_, pair in sorted(pairs)]
    unknown = tokens[about.get("unknown_token_id", 0)]
    backend = HFTokenizer(models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    spaces: list[Any] = [normalizers.Replace(" ", "▁")]
    strip: list[Any] = []
    if about.get("add_space_prefix", True):
        spaces, strip = [normalizers.Prepend("▁"), *spaces], [decoders.Strip(" ", 1, 0)]
    backend.normalizer = normalizers.Sequence(spaces)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return backend


def add_special_tokens(backend: HFTokenizer, about: Mapping[str, Any], tokens: list[str]) -> None:
    """Mark special tokens, and begin or end each text with those that the file names."""
    kinds = about.get("token_type") or []
    for token, kind in zip(tokens, kinds, strict=False):
        if kind == CONTROL:
            backend.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif kind == ADDED:
            backend.add_tokens([AddedToken(token, special=False, normalized=False)])
    begin = token_of(about, tokens, "bos") if about.get("add_bos_token", about.get("model") == "llama") else ""
    end = token_of(about, tokens, "eos") if about.get("add_eos_token", False) else ""
    if begin or end:
        template = " ".join(filter(None, [begin, "$A", end]))
        pairs = [(token, tokens.index(token)) for token in dict.fromkeys([begin, end]) if token]
        backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=pairs)


def token_of(about: Mapping[str, Any], tokens: list[str], role: str) -> str:
    """Return the special token of a role; "" without."""
    i = about.get(f"{role}_token_id")
    return tokens[i] if isinstance(i, int) and 0 <= i < len(tokens) else ""
