"""Tokenizers against transformers: the same numbers for the same texts, both ways."""

import json
import warnings

import pytest
import transformers

from engram.core.errors import EngramError
from engram.data.tokenizer import Tokenizer
from engram.hub.huggingface import load_checkpoint, save_checkpoint
from engram.hub.sentencepiece import read_sentencepiece
from engram.transformers.bert.model import BERT
from engram.transformers.gpt.model import GPT
from engram.transformers.translate.model import Transformer

TEXTS = ["to be or not to be", "that is the question,  whether", "'tis nobler — in the mind?"]
LINES = (TEXTS + ["the slings and arrows of outrageous fortune", "or to take arms against a sea of troubles"]) * 4
SMALL = {"width": 8, "layers": 1, "heads": 2, "context": 16}


def gpt(tokenizer):
    return GPT(GPT.Config(**SMALL, vocabulary=tokenizer.vocab_size))


def bert(tokenizer):
    return BERT(BERT.Config(**SMALL, vocabulary=tokenizer.vocab_size))


def transformer(tokenizer):
    return Transformer(Transformer.Config(**SMALL, vocabulary=tokenizer.vocab_size, pad_id=0, eos_id=1))


@pytest.mark.parametrize(("kind", "specials", "template", "of"), [
    ("characters", (), "", gpt),
    ("bytes", ("<|endoftext|>",), "", gpt),
    ("bpe", ("<|endoftext|>",), "", gpt),
    ("wordpiece", ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), "[CLS] $A [SEP]", bert),
    ("words", ("<pad>", "</s>", "<unk>"), "$A </s>", transformer),
])  # fmt: skip
def test_from_here(tmp_path, kind, specials, template, of):
    ours = Tokenizer.train(kind, LINES, vocab_size=300, special_tokens=specials, template=template)
    save_checkpoint(of(ours), tmp_path, ours)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    again = load_checkpoint(tmp_path).tokenizer
    for text in TEXTS:
        assert theirs(text)["input_ids"] == ours.encode(text) == again.encode(text)
        assert theirs.decode(ours.encode(text), skip_special_tokens=True) == ours.decode(ours.encode(text))
    assert len(theirs) == ours.vocab_size
    assert [theirs.pad_token_id, theirs.mask_token_id] == [ours.pad_id, ours.mask_id]
    assert theirs.model_max_length == 16
    if ours.pad_id is not None:
        batch = theirs(TEXTS, padding=True, return_tensors="pt")
        transformers.AutoModel.from_pretrained(tmp_path)  # its config.json knows the same tokens
        assert ("token_type_ids" in batch) == (of is bert)


def test_padding_that_a_file_asks_for_is_left_to_batches(tmp_path):
    ours = Tokenizer.train("words", LINES, special_tokens=("<pad>", "</s>", "<unk>"))
    ours.backend.enable_padding(length=50)
    ours.backend.enable_truncation(2)
    save_checkpoint(gpt(ours), tmp_path, ours)
    assert len(load_checkpoint(tmp_path).tokenizer.encode("to be or not")) == 4


# ---------------------------------------------------------------------- SentencePiece


SOURCE = ["the cat sat on the mat", "a dog and a cat ran after the ball", "where is the old house of my friend",
          "it was raining all day and all night", "she reads a book every evening"] * 8  # fmt: skip
TARGET = ["die katze saß auf der matte", "ein hund und eine katze liefen dem ball nach", "wo ist das alte haus",
          "es regnete den ganzen tag und die ganze nacht", "sie liest jeden abend ein buch"] * 8  # fmt: skip
UNSEEN = ["the dog sat on the ball", "  a   friend reads ", "catmat raining", "ﬁne ① cats", "", "zebra 9!"]


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    """A folder as OPUS-MT has them: two models, and one numbering of all their pieces."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("marian")
    numbers = {"</s>": 0, "<unk>": 1}
    for side, lines in (("source", SOURCE), ("target", TARGET)):
        (folder / f"{side}.txt").write_text("\n".join(lines))
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / f"{side}.txt"), model_prefix=str(folder / side), vocab_size=80, model_type="unigram",
            minloglevel=2, hard_vocab_limit=False,
        )  # fmt: skip
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        model = sentencepiece.SentencePieceProcessor(str(folder / f"{side}.spm"))
        pieces = [model.IdToPiece(i) for i in range(3, model.GetPieceSize())]
        numbers |= {piece: len(numbers) + i for i, piece in enumerate(p for p in pieces if p not in numbers)}
    numbers |= {">>de<<": len(numbers), "<pad>": len(numbers) + 1}
    (folder / "vocab.json").write_text(json.dumps(numbers))
    return folder


@pytest.fixture(scope="module")
def theirs(marian):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends a package that changes nothing here
        return transformers.MarianTokenizer(*(str(marian / f) for f in ("source.spm", "target.spm", "vocab.json")))


@pytest.mark.parametrize("text", [*SOURCE[:5], *UNSEEN, ">>de<< the cat"])
def test_sentencepiece_of_the_source(marian, theirs, text):
    ours = read_sentencepiece(marian)
    assert ours.encode(text) == theirs(text)["input_ids"]


@pytest.mark.parametrize("text", [*TARGET[:5], "der hund liest", "wo  saß das buch"])
def test_sentencepiece_of_the_target(marian, theirs, text):
    ours = read_sentencepiece(marian, "target")
    ids = ours.encode(text)
    assert ids == theirs(text_target=text)["input_ids"]
    assert read_sentencepiece(marian).decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_a_checkpoint_with_sentencepiece(marian, tmp_path):
    size = len(json.loads((marian / "vocab.json").read_text()))
    config = Transformer.Config(**SMALL, residual="post-norm", vocabulary=size, pad_id=size - 1, eos_id=0)
    save_checkpoint(Transformer(config), tmp_path)
    for name in ("source.spm", "target.spm", "vocab.json"):
        (tmp_path / name).write_bytes((marian / name).read_bytes())
    tokenizer = load_checkpoint(tmp_path).tokenizer
    assert (tokenizer.pad_id, tokenizer.eos_id) == (size - 1, 0)
    save_checkpoint(load_checkpoint(tmp_path).model, tmp_path / "again", tokenizer)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again("the cat")["input_ids"] == tokenizer.encode("the cat")


@pytest.mark.parametrize("content", [b"", b"\xff\xff\xff", b"not a model at all", b"\x0a\x05abc"])
def test_a_damaged_model_is_refused(marian, tmp_path, content):
    (tmp_path / "vocab.json").write_text((marian / "vocab.json").read_text())
    (tmp_path / "source.spm").write_bytes(content)
    with pytest.raises(EngramError, match=r"source.spm (is damaged|cannot be used)"):
        read_sentencepiece(tmp_path)
