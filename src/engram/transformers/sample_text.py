"""Sample texts from a model's own data, to begin with where no prompt is given."""

from engram.data.corpus import Corpus
from engram.transformers.text_generation import validation_excerpt


def sample_text(data: Corpus, context: int, max_tokens: int) -> str:
    """Return up to `max_tokens` tokens of the validation text, from the beginning of a line on."""
    text = data.tokenizer.decode(validation_excerpt(data, context))
    cut_off, _, line = text.partition("\n")
    ids = data.tokenizer.encode(line.lstrip("\n") if len(line) > len(cut_off) else text, add_special_tokens=False)
    return data.tokenizer.decode(ids[:max_tokens]).rstrip("\n")
