"""The pretrained model of letters and phonemes: beside a forward pass in NumPy, and damaged files."""

import random
from string import ascii_lowercase

import numpy as np
import pytest
import torch

import engram as library
from engram.core.errors import EngramError
from engram.hub.models import fetch_model
from engram.hub.predict import translate_rows
from engram.sequences.rnn_attention.pretrained import GRAPHEMES, PHONEMES, VOCABULARY, WEIGHTS, expected_shapes

MAX_PHONEMES = 20
"""phonemes after which g2p-en stops"""


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def cell(p, side, x, h):
    """A step of a GRU, from its equations."""
    (r_x, z_x, n_x), (r_h, z_h, n_h) = (
        np.split(p[f"{side}_w_{part}"] @ value + p[f"{side}_b_{part}"], 3) for part, value in (("ih", x), ("hh", h))
    )
    z = sigmoid(z_x + z_h)
    return (1 - z) * np.tanh(n_x + sigmoid(r_x + r_h) * n_h) + z * h


def pronounce(p, word):
    """Phonemes of a word and the logits of each step, as g2p-en computes them."""
    h = np.zeros(p["fc_w"].shape[1], np.float32)
    for letter in [*word, "</s>"]:
        h = cell(p, "enc", p["enc_emb"][GRAPHEMES.index(letter if letter in GRAPHEMES else "<unk>")], h)
    token, found, logits = PHONEMES.index("<s>"), [], []
    for _ in range(MAX_PHONEMES):
        h = cell(p, "dec", p["dec_emb"][token], h)
        logits.append(p["fc_w"] @ h + p["fc_b"])
        token = int(logits[-1].argmax())
        if PHONEMES[token] == "</s>":
            break
        found.append(PHONEMES[token])
    return found, np.stack(logits)


def arrays(width=6, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in expected_shapes(width).items()}


def test_logits_are_those_of_numpy(tmp_path):
    p = arrays()
    np.savez(tmp_path / WEIGHTS, **p)
    model = library.load(tmp_path)
    places = [VOCABULARY.index(token) for token in PHONEMES]
    for word in ("engram", "a", "x'y"):
        found, expected_TV = pronounce(p, word)
        ids = [VOCABULARY.index(token) for token in ("<s>", *found)][: len(expected_TV)]
        with torch.no_grad():
            logits_TV = model(torch.tensor([model.tokenizer.encode(word)]), torch.tensor([ids]))[0]
        np.testing.assert_allclose(logits_TV[:, places].numpy(), expected_TV, atol=1e-4)
        others = [i for i in range(len(VOCABULARY)) if i not in places]
        assert logits_TV[:, others].isneginf().all()


def test_letters_go_in_and_phonemes_come_out(tmp_path):
    np.savez(tmp_path / WEIGHTS, **arrays())
    tokenizer = library.load(tmp_path).tokenizer
    assert tokenizer.encode("Écho") == tokenizer.encode("echo") == [VOCABULARY.index(c) for c in (*"echo", "</s>")]
    assert tokenizer.decode([VOCABULARY.index(c) for c in ("EH1", "K", "OW0")]) == "EH1 K OW0"
    assert tokenizer.tokens(tokenizer.encode("a7")) == ["a", "<unk>", "</s>"]
    assert len(PHONEMES) == 74
    assert len(GRAPHEMES) == 29


def test_damaged_files_are_one_sentence(tmp_path):
    def refuse(sentence, **changes):
        np.savez(tmp_path / WEIGHTS, **{name: value for name, value in {**arrays(), **changes}.items() if len(value)})
        with pytest.raises(EngramError, match=sentence) as error:
            library.load(tmp_path)
        assert str(error.value).endswith(".")

    refuse("enc_w_ih does not fit", enc_w_ih=np.zeros((18, 5), np.float32))
    refuse("dec_emb does not fit", dec_emb=np.zeros((74, 6)))
    refuse("fc_w", fc_w=np.zeros(3, np.float32))
    refuse("fc_b does not fit", fc_b=[])
    refuse("stranger does not fit", stranger=np.zeros(1))
    refuse("is damaged", fc_b=np.array([{}] * 74, dtype=object))
    (tmp_path / WEIGHTS).write_bytes(b"PK")
    with pytest.raises(EngramError, match="is damaged"):
        library.load(tmp_path)


@pytest.mark.download
def test_words_are_spoken_as_g2p_en_speaks_them(engram):
    """Nonsense words of letters: no dictionary has them."""
    model, rng = library.load("g2p"), random.Random(0)
    words = ["".join(rng.choices(ascii_lowercase, k=rng.randint(2, 10))) for _ in range(500)]
    with np.load(fetch_model("g2p") / WEIGHTS) as p:
        expected = [" ".join(pronounce(dict(p), word)[0]) for word in words]
    found = translate_rows(model, model.tokenizer, model.tokenizer.encode_batch(words), 100)
    assert sum(ours == theirs for ours, theirs in zip(found, expected, strict=True)) >= 0.95 * len(words)
    assert "engram  →  EH1 N G R AE2 M" in engram("sample", "g2p", "--text", "engram").out
    assert engram("inspect", "g2p", "--text", "engram").code == 0
