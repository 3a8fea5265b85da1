"""Checkpoints of others: headers of safetensors that lie, folders of transformers, tokenizers, word vectors."""

import contextlib
import gzip
import itertools
import json
import os
import shutil

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from engram.core.errors import EngramError
from engram.data.tokenizer import Tokenizer
from engram.hub import huggingface
from engram.hub.sentencepiece import read_sentencepiece, read_t5_sentencepiece
from engram.hub.weights import read_weights
from engram.nn.transformer_block import PROJECTIONS
from engram.sequences.word2vec import files
from engram.training.run_folder import RunFolder
from engram.transformers.bert.model import BERT
from engram.transformers.gpt.model import GPT
from engram.transformers.vit.model import ViT
from tests.fuzz.hostile import NUMBERS, changed, damaged, scalars, written
from tests.fuzz.law import lawful, trials

numbers = itertools.count()
TEXTS = ["to be or not to be", "that is the question"] * 5
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def models():
    tokenizer = Tokenizer.train("characters", TEXTS, special_tokens=("<|endoftext|>",))
    known = {"vocabulary": tokenizer.vocab_size, "width": 8, "layers": 1, "heads": 2}
    words = Tokenizer.train("wordpiece", TEXTS, vocab_size=60, special_tokens=SPECIALS, template="[CLS] $A [SEP]")
    yield (
        "gpt",
        GPT(GPT.Config(**known, context=8, position="learned", norm="layer", qk_norm="none", bias=PROJECTIONS)),
        tokenizer,
    )
    yield "bert", BERT(BERT.Config(**known | {"vocabulary": words.vocab_size}, context=8)), words
    yield "vit", ViT(ViT.Config(shape=(3, 8, 8), patch=4, width=8, layers=1, heads=2, classes=2)), None


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A small checkpoint of each kind, as transformers would save it."""
    root = tmp_path_factory.mktemp("good")
    for name, model, tokenizer in models():
        huggingface.save_checkpoint(model, root / name, tokenizer)
    return root


KINDS = ("gpt", "bert", "vit")


@pytest.fixture
def copied(good, tmp_path):
    def copy(name):
        folder = tmp_path / str(next(numbers))
        shutil.copytree(good / name, folder)
        return folder

    return copy


def opened(folder, said):
    with lawful(folder, said):
        huggingface.is_checkpoint(folder)
        found = huggingface.load_checkpoint(folder)
        if found.tokenizer:
            found.tokenizer.decode(found.tokenizer.encode("to be"))


@trials(50)
@given(st.data(), st.sampled_from(KINDS))
def test_settings_that_do_not_fit(copied, data, kind):
    folder = copied(kind)
    files = sorted(
        path.name for path in folder.glob("*.json") if path.name not in ("tokenizer.json", "generation_config.json")
    )
    file = data.draw(st.sampled_from(files))
    value = data.draw(changed(json.loads((folder / file).read_bytes()), most=2))
    (folder / file).write_bytes(written(value))
    opened(folder, (kind, file, value))


@trials(40)
@given(st.data(), st.sampled_from(KINDS))
def test_a_file_with_damage(copied, data, kind):
    folder = copied(kind)
    file = data.draw(st.sampled_from(sorted(path.name for path in folder.iterdir())))
    content = data.draw(damaged((folder / file).read_bytes()))
    (folder / file).write_bytes(content)
    opened(folder, (kind, file, content))


@trials(40)
@given(st.data(), st.sampled_from(("gpt", "bert")))
def test_a_tokenizer_of_other_values(copied, data, kind):
    path = copied(kind) / "tokenizer.json"
    value = data.draw(changed(json.loads(path.read_bytes())))
    path.write_bytes(written(value))
    with lawful(path.parent, value):
        tokenizer = Tokenizer.load(path)
        ids = tokenizer.encode("to be, or not")
        tokenizer.tokens(ids)
        tokenizer.decode(ids)
        tokenizer.pad_id, tokenizer.special_ids, tokenizer.to_bytes()
    with lawful(path.parent, value):
        Tokenizer.from_bytes(path.read_bytes())


def test_tokens_of_huge_numbers_are_refused(copied):
    """The library would count up to them, and end the process when the memory does not suffice."""
    path = copied("bert") / "tokenizer.json"
    value = json.loads(path.read_bytes())
    value["model"]["vocab"]["a"] = 2**31 - 1
    path.write_bytes(written(value))
    with pytest.raises(EngramError, match="ids must be below"):
        Tokenizer.load(path)


def test_a_file_cannot_have_texts_filled_up_without_end(copied):
    path = copied("bert") / "tokenizer.json"
    filled = {"strategy": {"Fixed": 2**40}, "direction": "Right", "pad_to_multiple_of": 2**40, "pad_id": 0}
    value = json.loads(path.read_bytes()) | {"padding": filled | {"pad_type_id": 0, "pad_token": "[PAD]"}}
    path.write_bytes(written(value))
    assert len(Tokenizer.load(path).encode("to be")) < 20


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("n_layer", 10**9, "far larger than its weights"),
        ("n_embd", 2**40, "cannot be built|far larger"),
        ("n_head", 0, "heads"),
    ],
)
def test_a_model_is_no_larger_than_its_weights(copied, name, value, said):
    path = copied("gpt") / "config.json"
    path.write_bytes(written(json.loads(path.read_bytes()) | {name: value}))
    with lawful(path.parent), pytest.raises(EngramError, match=said):
        huggingface.load_checkpoint(path.parent)


FILES = (
    "model.safetensors",
    "a.safetensors",
    "../gpt/model.safetensors",
    "/etc/passwd",
    "..",
    "",
    ".",
    "a\0",
    "x" * 300,
)


@trials(40)
@given(st.dictionaries(st.text(max_size=3), st.sampled_from(FILES) | scalars, max_size=3), scalars)
def test_an_index_of_files_that_are_elsewhere(copied, where, rest):
    folder = copied("gpt")
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    index = {"metadata": rest, "weight_map": where} if where else rest
    (folder / "model.safetensors.index.json").write_bytes(written(index))
    opened(folder, index)


entries = st.fixed_dictionaries({
    "dtype": st.sampled_from(("F32", "F64", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "C64", "", "X")) | scalars,
    "shape": st.lists(st.sampled_from((*NUMBERS, 4)), max_size=3) | scalars,
    "data_offsets": st.lists(st.sampled_from((*NUMBERS, 4, 8, 16)), min_size=1, max_size=3) | scalars,
})  # fmt: skip
headers = st.dictionaries(st.sampled_from(("a", "b", "__metadata__", "", "../x", "é")), entries | scalars, max_size=3)


@trials(80)
@given(headers, st.none() | st.sampled_from(NUMBERS), st.binary(max_size=40), st.integers(0, 2))
def test_headers_that_lie(tmp_path, header, length, rest, twice):
    folder = tmp_path / str(next(numbers))
    folder.mkdir()
    text = written(header)
    if twice == 1 and text.endswith(b"}") and len(text) > 2:  # every name a second time
        text = text[:-1] + b"," + text[1:]
    size = len(text) if length is None else length
    content = (size % 2**64).to_bytes(8, "little") + text + rest
    (folder / "model.safetensors").write_bytes(content)
    with lawful(folder, content):
        read_weights(folder)
    with lawful(folder, content):
        RunFolder(folder).weights()
    with lawful(folder, content):
        files.read_vectors(folder / "model.safetensors")


@trials(60)
@given(st.binary(max_size=60), st.sampled_from((b"\x80\x02", b"PK\x03\x04", b"")))
def test_pickles_of_anything(tmp_path, content, start):
    folder = tmp_path / str(next(numbers))
    folder.mkdir()
    (folder / "pytorch_model.bin").write_bytes(start + content)
    with lawful(folder, start + content):
        read_weights(folder)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def test_a_pickle_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Evil()}, tmp_path / "pytorch_model.bin")
    with lawful(tmp_path), pytest.raises(EngramError, match="would run code of its own"):
        read_weights(tmp_path)
    assert not (tmp_path / "evil").exists()


WORDS = (b"3 2\na 1 2\nb 3 4\nc 5 6\n", b"2 2\na " + bytes(8) + b"\nb " + bytes(8), gzip.compress(b"1 1\na 2\n"))
announced = st.builds(
    lambda a, b, rest: f"{a} {b}\n".encode() + rest, *[st.sampled_from(NUMBERS)] * 2, st.binary(max_size=20)
)


@trials(80)
@given(st.sampled_from(WORDS).flatmap(damaged) | announced)
def test_word_vectors(tmp_path, content):
    path = tmp_path / f"{next(numbers)}.txt"
    path.write_bytes(content)
    with lawful(tmp_path, content):
        files.read_vectors(path)


PIECES = b"".join(
    bytes([10, 2 + len(piece), 10, len(piece)]) + piece for piece in (b"<unk>", b"a", "▁".encode(), b"to")
)


@trials(60)
@example(b"\x10\x01\x00", {"<unk>": 0})
@example(PIECES, {"<unk>": 0, "a": "x"})
@example(PIECES + b"\x1a\x04\x12\x02ab", {"<unk>": 0})
@example(b"\x0a\x00", {"<unk>": 0})
@example(b"\xff" * 100_000, {"<unk>": 0})
@given(
    damaged(PIECES) | st.binary(max_size=30),
    scalars | st.dictionaries(st.sampled_from(("<unk>", "a", "</s>", "<pad>")), st.integers(0, 4)),
)
def test_pieces_of_sentences(tmp_path, content, vocabulary):
    folder = tmp_path / str(next(numbers))
    folder.mkdir()
    (folder / "source.spm").write_bytes(content)
    with contextlib.suppress(UnicodeEncodeError):
        (folder / "vocab.json").write_bytes(written(vocabulary))
    with lawful(folder, (content, vocabulary)):
        read_sentencepiece(folder).encode("to a")


@trials(60)
@example(PIECES + b"\x0a\x06\x0a\x04</s>", {"extra_ids": 2})
@example(PIECES + b"\x0a\x06\x0a\x04</s>\x1a\x04\x12\x02ab", {})
@given(damaged(PIECES + b"\x0a\x06\x0a\x04</s>"), scalars | st.fixed_dictionaries({"extra_ids": scalars}))
def test_pieces_and_sentinels(tmp_path, content, config):
    folder = tmp_path / str(next(numbers))
    folder.mkdir()
    (folder / "spiece.model").write_bytes(content)
    with contextlib.suppress(UnicodeEncodeError):
        (folder / "tokenizer_config.json").write_bytes(written(config))
    with lawful(folder, (content, config)):
        read_t5_sentencepiece(folder / "spiece.model").encode("to a <extra_id_0>")


@trials(40)
@given(st.data(), st.sampled_from(("vocab.txt", "merges.txt", "vocab.json", "tokenizer_config.json")))
def test_vocabularies_of_old(tmp_path, data, file):
    folder = tmp_path / str(next(numbers))
    folder.mkdir()
    kept = {
        "vocab.txt": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nto\n##be\n", "tokenizer_config.json": b'{"do_lower_case": true}',
        "vocab.json": b'{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}', "merges.txt": b"#version: 0.2\na b\n",
    }  # fmt: skip
    if data.draw(st.booleans()):
        del kept["vocab.txt"]
    for name, content in kept.items():
        value = (
            data.draw(scalars).__str__().encode("utf-8", "replace") if data.draw(st.integers(0, 5)) == 0 else content
        )
        (folder / name).write_bytes(data.draw(damaged(value)) if name == file else value)
    with lawful(folder, [(path.name, path.read_bytes()) for path in folder.iterdir()]):
        Tokenizer.load(folder).encode("to be ab")
