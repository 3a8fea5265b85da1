"""A few words of what a model has learnt from, to begin with where nobody has typed anything."""

from engram.data.corpus import Corpus
from engram.recipes.continuing import excerpt


def passage(data: Corpus, context: int, most: int) -> str:
    """Up to `most` tokens of the text that validates, from the beginning of a line on."""
    text = data.tokeniser.decode(excerpt(data, context))
    cut_off, _, line = text.partition("\n")
    ids = data.tokeniser.encode(line.lstrip("\n") if len(line) > len(cut_off) else text, special=False)
    return data.tokeniser.decode(ids[:most]).rstrip("\n")
