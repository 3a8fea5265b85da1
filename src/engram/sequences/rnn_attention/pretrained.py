"""A pretrained recurrent encoder-decoder.

g2p-en (Park & Kim 2019), from letters of an English word to its phonemes.

Its file has the weights of both GRUs in PyTorch's layout. Letters and phonemes become one vocabulary: a letter has no
row in the decoder, and its logit is minus infinity. The phonemes are those of ARPAbet, a vowel with its stress.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as HFTokenizer
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.tokenizer import Tokenizer
from engram.hub.formats import Format, register_format
from engram.sequences.rnn_attention.model import Seq2Seq

WEIGHTS = "checkpoint20.npz"
GRAPHEMES = ("<pad>", "<unk>", "</s>", *ascii_lowercase)
VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
"""each with no, primary or secondary stress: AA0, AA1, AA2"""
UNSTRESSED = ("B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N", "NG", "P", "R", "S", "SH", "T", "TH",
              "UW", "V", "W", "Y", "Z", "ZH")  # fmt: skip
"""consonants, and one vowel as it also stands in the dictionary"""
ARPABET = sorted([*UNSTRESSED, *(f"{vowel}{stress}" for vowel in VOWELS for stress in "012")])
PHONEMES = ("<pad>", "<unk>", "<s>", "</s>", *ARPABET)
VOCABULARY = tuple(dict.fromkeys((*GRAPHEMES, *PHONEMES)))
GATES = 3
"""gates and candidate of a GRU, one below the other in its matrices"""


def read_g2p(folder: Path) -> tuple[Seq2Seq, Tokenizer]:
    """Read the weights as a model without attention, whose encoder reads forward only."""
    arrays = read_arrays(folder / WEIGHTS)
    config = Seq2Seq.Config(
        attention="none",
        bidirectional=False,
        width=arrays["fc_w"].shape[1],
        vocabulary=len(VOCABULARY),
        pad_id=VOCABULARY.index("<pad>"),
        start_id=VOCABULARY.index("<s>"),
        eos_id=VOCABULARY.index("</s>"),
    )
    model = Seq2Seq(config)
    weights = {
        "source_embedding.weight": scatter(arrays["enc_emb"], GRAPHEMES, 0.0),
        "target_embedding.weight": scatter(arrays["dec_emb"], PHONEMES, 0.0),
        "head.weight": scatter(arrays["fc_w"], PHONEMES, 0.0),
        "head.bias": scatter(arrays["fc_b"], PHONEMES, -torch.inf),
    }
    for ours, theirs in (("encoder.0", "enc"), ("decoder", "dec")):
        for weight, part in (("U", "ih"), ("W", "hh")):
            weights[f"{ours}.{weight}.weight"] = arrays[f"{theirs}_w_{part}"]
            weights[f"{ours}.{weight}.bias"] = arrays[f"{theirs}_b_{part}"]
    model.load_state_dict(weights)
    return model.eval(), make_tokenizer()


def read_arrays(path: Path) -> dict[str, Tensor]:
    """Read all arrays, and check their names, types and shapes."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found: dict[str, Any] = {name: file[name] for name in file}
    except Exception as error:  # zipfile, zlib and NumPy share no exception class
        raise EngramError(f"{path} is damaged: {str(error).rstrip('.')}.") from None
    width = found["fc_w"].shape[-1] if "fc_w" in found and found["fc_w"].ndim == 2 else 0
    wanted = expected_shapes(width)
    wrong = [name for name in {**wanted, **found} if name not in wanted or not fits(found.get(name), wanted[name])]
    if wrong or not width:
        raise EngramError(f"{path} does not hold the weights of g2p-en: {', '.join(wrong) or 'fc_w'} does not fit.")
    return {name: torch.from_numpy(value) for name, value in found.items()}


def expected_shapes(width: int) -> Mapping[str, tuple[int, ...]]:
    """Return the shapes of all arrays of a model of this width."""
    shapes: dict[str, tuple[int, ...]] = {"fc_w": (len(PHONEMES), width), "fc_b": (len(PHONEMES),)}
    for part, tokens in (("enc", GRAPHEMES), ("dec", PHONEMES)):
        shapes[f"{part}_emb"] = (len(tokens), width)
        shapes |= {f"{part}_w_{side}": (GATES * width, width) for side in ("ih", "hh")}
        shapes |= {f"{part}_b_{side}": (GATES * width,) for side in ("ih", "hh")}
    return shapes


def fits(array: Any, shape: tuple[int, ...]) -> bool:
    """Whether an array is there and of float32 in this shape."""
    return array is not None and array.dtype == np.float32 and array.shape == shape


def scatter(rows: Tensor, tokens: Sequence[str], missing: float) -> Tensor:
    """Return a row for each token of the common vocabulary.

    Those that `tokens` have not are filled with `missing`.
    """
    found = torch.full((len(VOCABULARY), *rows.shape[1:]), missing)
    found[[VOCABULARY.index(token) for token in tokens]] = rows
    return found


def make_tokenizer() -> Tokenizer:
    """Return a tokenizer that encodes the letters of a word, and decodes phonemes with spaces between."""
    ids = {token: i for i, token in enumerate(VOCABULARY)}
    backend = HFTokenizer(models.WordLevel(ids, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([
        normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(),
    ])  # fmt: skip
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"(?m:.)"), "isolated")
    backend.add_special_tokens(["<pad>", "<unk>", "<s>", "</s>"])
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", ids["</s>"])])
    return Tokenizer(backend)


register_format(Format(Seq2Seq, (WEIGHTS,), read_g2p))
