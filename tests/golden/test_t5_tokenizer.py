"""Tokenizers of T5 against transformers: SentencePiece with sentinels, and texts from source to target."""

import json
import logging

import pytest
import sentencepiece
import torch
import transformers

from engram.core.errors import EngramError
from engram.data.tokenizer import Tokenizer
from engram.hub.huggingface import load_checkpoint, save_checkpoint
from engram.hub.sentencepiece import read_t5_sentencepiece
from tests.golden.test_huggingface import shaken
from tests.golden.test_tokenizers import SOURCE, UNSEEN

TEXTS = [
    *SOURCE[:5], *UNSEEN, "the <extra_id_0> sat on<extra_id_1>the mat", "<extra_id_2>", "</s> a <pad> b",
    "two\nlines\tx", "the ①②③④ cat", " ", "▁", "a ▁ b", "THE CAT", "<extra_id_100>",
]  # fmt: skip


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """spiece.model, as T5 has it: <pad>, </s> and <unk> first."""
    folder = tmp_path_factory.mktemp("t5")
    (folder / "text.txt").write_text("\n".join(SOURCE))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"), model_prefix=str(folder / "spiece"), vocab_size=80, model_type="unigram",
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    return folder / "spiece.model"


@pytest.fixture(params=[100, 3, 0])
def folder(request, pieces, tmp_path):
    (tmp_path / "spiece.model").write_bytes(pieces.read_bytes())
    if request.param != 100:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"extra_ids": request.param}))
    return tmp_path


@pytest.fixture
def theirs(folder):
    return transformers.T5Tokenizer.from_pretrained(folder)


def test_pieces_and_sentinels(folder, theirs):
    ours = read_t5_sentencepiece(folder / "spiece.model")
    assert ours.backend.get_vocab() == theirs.get_vocab()
    assert [ours.pad_id, ours.eos_id] == [theirs.pad_token_id, theirs.eos_token_id] == [0, 1]
    for text in TEXTS:
        ids = theirs(text)["input_ids"]
        assert ours.encode(text) == ids, text
        for skip in (True, False):
            assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)


def test_a_tokenizer_file_of_transformers(folder, theirs):
    theirs.save_pretrained(folder)
    ours = Tokenizer.load(folder)
    assert [ours.encode(text) for text in TEXTS] == theirs(TEXTS)["input_ids"]


def test_words_as_sentencepiece_has_them(pieces):
    theirs, ours = sentencepiece.SentencePieceProcessor(str(pieces)), read_t5_sentencepiece(pieces)
    for text in [*SOURCE[:5], *UNSEEN]:
        assert ours.encode(text) == [*theirs.encode(text), 1]


@pytest.mark.parametrize("config", [{"extra_ids": "3"}, {"extra_ids": -1}, {"extra_ids": 10**9}, []])
def test_a_damaged_number_of_sentinels(folder, config):
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(EngramError, match="extra_ids should be a whole number from 0 to 10000"):
        read_t5_sentencepiece(folder / "spiece.model")


@pytest.mark.parametrize(("content", "said"), [
    (b"", "cannot be used"),
    (b"not a model at all", "is damaged"),
    (b"\x0a\x03\x0a\x01a", "it has no </s> and no <unk>"),
])  # fmt: skip
def test_a_damaged_model_is_refused(tmp_path, content, said):
    (tmp_path / "spiece.model").write_bytes(content)
    with pytest.raises(EngramError, match=said):
        read_t5_sentencepiece(tmp_path / "spiece.model")


@pytest.fixture
def checkpoint(pieces, tmp_path):
    """A folder as the first T5 has it, with its model in transformers."""
    torch.manual_seed(0)
    transformers.utils.logging.set_verbosity(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    config = transformers.T5Config(
        vocab_size=200, d_model=16, d_kv=6, d_ff=20, num_layers=2, num_heads=3, n_positions=20,
        decoder_start_token_id=0, relative_attention_max_distance=20,
    )  # fmt: skip
    model = shaken(transformers.T5ForConditionalGeneration(config))
    model.lm_head.weight = torch.nn.Parameter(torch.randn(200, 16))  # tied, it would repeat what it has written
    model.save_pretrained(tmp_path / "t5")
    (tmp_path / "t5" / "spiece.model").write_bytes(pieces.read_bytes())
    return tmp_path / "t5", model


@pytest.mark.parametrize("num_beams", [0, 3])
def test_texts_of_a_checkpoint(checkpoint, engram, monkeypatch, tmp_path, num_beams):
    folder, model = checkpoint
    monkeypatch.chdir(tmp_path)
    texts = ["the cat <extra_id_0> on the mat", "a friend reads"]
    answer = engram("sample", folder, "--text", *texts, "--num-beams", num_beams, "--json")
    tokenizer = transformers.T5Tokenizer.from_pretrained(folder)
    options = {"do_sample": False, "max_new_tokens": 19 if num_beams else 20, "num_beams": num_beams or 1}
    rows = [model.generate(tokenizer(text, return_tensors="pt")["input_ids"], **options)[0] for text in texts]
    expected = [tokenizer.decode(row, skip_special_tokens=True) for row in rows]
    assert [row["translation"] for row in json.loads(answer.out)["samples"]] == expected


def test_a_checkpoint_that_is_written_again(checkpoint, tmp_path):
    found = load_checkpoint(checkpoint[0])
    save_checkpoint(found.model, tmp_path / "again", found.tokenizer)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again(TEXTS)["input_ids"] == [found.tokenizer.encode(text) for text in TEXTS]
    assert [again.pad_token, again.eos_token, again.unk_token] == ["<pad>", "</s>", "<unk>"]
