"""Tokenizers: every text comes back, and files of the older kinds are read as transformers reads them."""

import json
import logging

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from engram.core.errors import EngramError
from engram.data.tokenizer import Tokenizer, chunk_text

LINES = [
    "to be or not to be, that is the question:",
    "whether 'tis nobler in the mind to suffer",
    "the slings and arrows of outrageous fortune",
    "or to take arms against a sea of troubles",
] * 3
HARD = [
    "",
    " ",
    "\n",
    "\r\n\r\n",
    "  to   be\t\n",
    "naïve → 😀 ﬁ e\u0301",
    "a\u0000b",
    "'s 's",
    "\ufeffbom",
    "été 日本語",
]
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def train(kind, **options):
    return Tokenizer.train(kind, LINES, **{"vocab_size": 300, **options})


BYTES, BPE = train("bytes"), train("bpe", special_tokens=("<|endoftext|>",))

# ---------------------------------------------------------------------- there and back


@pytest.mark.parametrize("text", [*LINES[:4], *HARD])
@pytest.mark.parametrize("tokenizer", [BYTES, BPE], ids=["bytes", "bpe"])
def test_bytes_and_pairs_of_them_bring_back_any_text(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_bytes_bring_back_whatever_there_is(text):
    assert BYTES.decode(BYTES.encode(text)) == text


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_byte_pairs_bring_back_whatever_there_is(text):
    assert BPE.decode(BPE.encode(text)) == text


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_characters_bring_back_what_they_have_seen(text):
    tokenizer = Tokenizer.train("characters", [text])
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode(text)) == len(text)


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_a_token_of_bytes_is_a_byte(text):
    assert len(BYTES.encode(text)) == len(text.encode())


def test_words_and_word_pieces_bring_back_plain_text():
    for kind in ("words", "wordpiece"):
        tokenizer = train(kind, special_tokens=("[UNK]",), vocab_size=500)
        assert tokenizer.decode(tokenizer.encode("To be or not to be")) == "to be or not to be"


def test_byte_pairs_are_shorter_than_bytes():
    assert len(BPE.encode(LINES[0])) < len(BYTES.encode(LINES[0]))


@pytest.mark.parametrize("size", [10, 300, 400])
def test_byte_pairs_never_have_fewer_tokens_than_bytes(size):
    assert train("bpe", vocab_size=size).vocab_size == max(256, min(size, train("bpe", vocab_size=10_000).vocab_size))


def test_characters_are_numbered_in_order():
    tokenizer = Tokenizer.train("characters", ["cab", "d"])
    assert tokenizer.encode("abcd") == [0, 1, 2, 3]


def test_many_texts_at_once_are_each_alone():
    assert BPE.encode_batch(LINES) == [BPE.encode(line) for line in LINES]


# ---------------------------------------------------------------------- special tokens


def test_a_template_surrounds_each_text():
    tokenizer = train("wordpiece", special_tokens=BERT, template="[CLS] $A [SEP]")
    ids = tokenizer.encode("to be")
    assert tokenizer.tokens(ids)[0] == "[CLS]"
    assert tokenizer.tokens(ids)[-1] == "[SEP]"
    assert ids[1:-1] == tokenizer.encode("to be", add_special_tokens=False)


def test_special_tokens_come_first_and_stand_for_no_text():
    tokenizer = train("wordpiece", special_tokens=BERT, template="[CLS] $A [SEP]")
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.mask_id) == (0, 3, 4)
    assert tokenizer.decode(tokenizer.encode("to be")) == "to be"
    assert tokenizer.decode([2, 3], skip_special_tokens=False) == "[CLS] [SEP]"


@pytest.mark.parametrize("kind", ["characters", "bytes", "bpe"])
def test_special_tokens_of_kinds_that_bring_back_any_text(kind):
    tokenizer = train(kind, special_tokens=("<pad>", "</s>"), template="$A </s>")
    ids = tokenizer.encode("to be")
    assert (tokenizer.pad_id, tokenizer.eos_id, ids[-1]) == (0, 1, 1)
    assert tokenizer.decode(ids) == "to be"


def test_without_special_tokens_there_are_none():
    assert (BYTES.pad_id, BYTES.eos_id, BYTES.mask_id, BYTES.special_ids) == (None, None, None, ())


# ---------------------------------------------------------------------- what is not known


def test_unknown_characters_are_named():
    with pytest.raises(EngramError) as error:
        train("characters").encode("to be 日 or é not")
    assert "'é'" in str(error.value)
    assert "'日'" in str(error.value)
    assert "'t'" not in str(error.value)


def test_unknown_characters_have_a_token_where_there_is_one():
    tokenizer = train("characters", special_tokens=("[UNK]",))
    assert tokenizer.encode("t日o") == [*tokenizer.encode("t"), 0, *tokenizer.encode("o")]


def test_word_pieces_need_a_token_for_what_they_do_not_know():
    with pytest.raises(EngramError, match="unknown token"):
        train("wordpiece")


def test_unknown_words_have_a_token():
    tokenizer = train("words", special_tokens=("[UNK]",), vocab_size=500)
    assert tokenizer.encode("zebra")[0] == 0


# ---------------------------------------------------------------------- as people read it


@pytest.mark.parametrize(("text", "shown"), [("\n", "⏎"), (" ", " "), ("t", "t")])
def test_a_token_is_shown_as_people_read_it(text, shown):
    assert BYTES.tokens(BYTES.encode(text)) == [shown]


def test_half_a_character_is_shown_without_a_replacement_mark():
    assert all("\N{REPLACEMENT CHARACTER}" not in token for token in BYTES.tokens(BYTES.encode("é")))


def test_a_number_that_is_no_token_is_shown_as_one():
    assert BYTES.token(9999) == "⟨9999⟩"


# ---------------------------------------------------------------------- files


KINDS = {
    "characters": {},
    "bytes": {},
    "bpe": {"special_tokens": ("<|endoftext|>",)},
    "wordpiece": {"special_tokens": BERT, "template": "[CLS] $A [SEP]"},
    "words": {"special_tokens": ("[UNK]",)},
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_is_loaded(tmp_path, kind):
    tokenizer = train(kind, **KINDS[kind])
    (tmp_path / "tokenizer.json").write_bytes(tokenizer.to_bytes())
    for again in (Tokenizer.load(tmp_path), Tokenizer.load(tmp_path / "tokenizer.json")):
        assert again.encode_batch(LINES) == tokenizer.encode_batch(LINES)
        assert again.decode(again.encode(LINES[0])) == tokenizer.decode(tokenizer.encode(LINES[0]))
        assert again.to_bytes() == tokenizer.to_bytes()


def test_bytes_are_read_as_a_file_is():
    assert Tokenizer.from_bytes(BPE.to_bytes()).encode(LINES[0]) == BPE.encode(LINES[0])


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(EngramError, match="no tokenizer"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"nonsense", b'{"version": "1.0"}'])
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(EngramError, match="cannot be read"):
        Tokenizer.load(tmp_path)


# ---------------------------------------------------------------------- older files, as transformers reads them


TEXTS = ["to be or not to be", "That is THE question,  whether", "'tis nobler — in the mind? zebra", "été 123", ""]


@pytest.fixture(autouse=True)
def quiet():
    transformers.utils.logging.set_verbosity(logging.CRITICAL)


@pytest.mark.parametrize("lowercase", [True, False])
def test_vocab_txt(tmp_path, lowercase):
    pieces = sorted(train("wordpiece", special_tokens=BERT).backend.get_vocab().items(), key=lambda item: item[1])
    (tmp_path / "vocab.txt").write_text("\n".join(piece for piece, _ in pieces) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}))
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path, do_lower_case=lowercase)
    ours = Tokenizer.load(tmp_path)
    for text in TEXTS:
        assert ours.encode(text) == theirs(text)["input_ids"]


def byte_pair_files(folder, vocabulary, merges):
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(pair) for pair in merges) + "\n")


def test_vocab_json_and_merges_of_gpt2(tmp_path):
    inside = json.loads(BPE.to_bytes())["model"]
    byte_pair_files(tmp_path, inside["vocab"], inside["merges"])
    theirs, ours = transformers.GPT2Tokenizer.from_pretrained(tmp_path), Tokenizer.load(tmp_path)
    for text in [*TEXTS, *HARD, "to be<|endoftext|>to be"]:
        assert ours.encode(text) == theirs(text)["input_ids"]
        assert ours.decode(ours.encode(text)) == theirs.decode(ours.encode(text), skip_special_tokens=True)


def test_vocab_json_and_merges_of_clip(tmp_path):
    letters = sorted(train("bytes").backend.get_vocab())
    merges = [("t", "o</w>"), ("b", "e</w>"), ("t", "h"), ("th", "e</w>"), ("o", "r</w>"), ("n", "o"), ("i", "s</w>")]
    tokens = [*letters, *(letter + "</w>" for letter in letters), *(a + b for a, b in merges)]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    byte_pair_files(tmp_path, {token: i for i, token in enumerate(tokens)}, merges)
    theirs, ours = transformers.CLIPTokenizer.from_pretrained(tmp_path), Tokenizer.load(tmp_path)
    for text in TEXTS:
        assert ours.encode(text) == theirs(text)["input_ids"]


# ---------------------------------------------------------------------- long texts in pieces


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab \n→"), st.integers(1, 12))
def test_pieces_are_the_whole_text(text, size):
    pieces = list(chunk_text(text, size))
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= size for piece in pieces)


def test_pieces_end_between_words_where_there_are_any():
    assert list(chunk_text("one two three four", 9)) == ["one two ", "three ", "four"]
