"""Pretrained word vectors: GloVe 6B (Pennington et al. 2014), a matrix and a file of its words.

The words stand in the order of their frequency, which is all that is known of it: each counts 1. What predicts the
context, the output vectors, is not part of the files and stays 0.
"""

from pathlib import Path

import numpy as np
import torch

from engram.core.errors import EngramError
from engram.core.model_size import SkipRandomWeights
from engram.data.sentences import UNK, make_word_tokenizer
from engram.data.tokenizer import Tokenizer
from engram.hub.formats import Format, register_format
from engram.sequences.word2vec.model import Word2Vec

VECTORS, WORDS = "glove_6B_50d_emb.npy", "glove_6B_index.parquet"


def read_glove(folder: Path) -> tuple[Word2Vec, Tokenizer]:
    """Read vectors and words; word 0 stands for all others."""
    words, vectors = read_words(folder / WORDS), read_matrix(folder / VECTORS)
    if len(vectors) != len(words):
        raise EngramError(f"{folder} has {len(words)} words and {len(vectors)} vectors: each word needs one.")
    names = {name: i for i, name in enumerate([UNK, *words])}
    if len(names) != len(words) + 1:
        raise EngramError(f"{folder / WORDS} is damaged: a word stands in it twice.")
    with SkipRandomWeights():
        model = Word2Vec(Word2Vec.Config(vocabulary=len(names), width=vectors.shape[1]))
    with torch.no_grad():
        model.v[1:] = torch.from_numpy(vectors)
    model.count[1:] = 1
    return model.eval(), make_word_tokenizer(names)


def read_matrix(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Read a matrix of float32."""
    try:
        found = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise EngramError(f"{path} is damaged: {str(error).rstrip('.')}.") from None
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype != np.float32 or not found.size:
        raise EngramError(f"{path} holds something else than a matrix of float32.")
    return found


def read_words(path: Path) -> list[str]:
    """Read the words, the column `index` of a Parquet file."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise EngramError("Reading Parquet files needs pyarrow: pip install 'engram[parquet]'.") from None
    try:
        words = parquet.read_table(path, columns=["index"])["index"].to_pylist()
    except (ArrowException, OSError, LookupError) as error:
        raise EngramError(f"{path} is damaged: {str(error).splitlines()[0].rstrip('.')}.") from None
    if not all(isinstance(word, str) for word in words):
        raise EngramError(f"{path} is damaged: a word of it is no text.")
    return words


register_format(Format(Word2Vec, (VECTORS, WORDS), read_glove))
