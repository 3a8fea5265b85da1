"""Text generation of language models.

Sampling arguments, generated texts, perplexity, text to inspect.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.recipe import InspectArgs, Sample, SampleRequest
from engram.data.corpus import Corpus, cover_windows
from engram.data.tokenizer import Tokenizer
from engram.generation.generate import LanguageModel, stream
from engram.generation.sampling import SamplingParams, StopStrings, decode_stream

VALID_TOKENS, TEST_TOKENS = 1 << 15, 1 << 18
"""largest number of tokens of an evaluation during training, and at the end"""
EVALUATION_TOKENS = 1 << 13
"""tokens of one forward pass of an evaluation"""
SPECIALS = {"bpe": ("<|endoftext|>",), "wordpiece": ("[UNK]",), "words": ("[UNK]",)}
"""special tokens of each kind of tokenizer, for causal language models"""
INSPECTED_TOKENS = 48
"""tokens of the validation text that are inspected if no text is given"""


@dataclass(frozen=True, kw_only=True)
class GenerationArgs(SamplingParams):
    """Flags of `engram sample` for language models."""

    prompt: str = "\n"
    """beginning of the text; where the vocabulary has no newline, the default is its first token"""
    max_new_tokens: Annotated[int, Ge(1)] = 400
    """largest number of tokens to generate"""
    stop: tuple[str, ...] = ()
    """stop strings, which end the text"""
    num_beams: Annotated[int, Ge(0)] = 0
    """beam search with this many beams instead of sampling; 0 samples"""


@dataclass(frozen=True, kw_only=True)
class TextInspectArgs(InspectArgs):
    """Flags of `engram inspect` for language models."""

    text: str = ""
    """text to inspect, instead of one from the data"""


TokenStream = Callable[[list[int]], Iterator[int]]
"""a function that yields the continuation of a prompt, token by token"""


def generate_texts(
    model: LanguageModel, data: Corpus, request: SampleRequest, token_stream: TokenStream | None = None
) -> Sample:
    """Generate texts: a single one is streamed as it is generated, several are generated as a batch.

    `token_stream` generates in another way, as speculative decoding does.
    """
    tokenizer, eos_id = data.tokenizer, get_eos_id(data)
    args: GenerationArgs = request.args
    if args.prompt == GenerationArgs.prompt:
        args = replace(args, prompt=default_prompt(tokenizer))
        request = replace(request, args=args)
    prompt = tokenizer.encode(args.prompt, add_special_tokens=False)
    limit, random = args.max_new_tokens, request.generator
    if args.num_beams:
        found = model.beam_search(prompt, limit, max(args.num_beams, request.count), eos_id=eos_id)
        ids = [beam.tokens for beam in found[: request.count]]
    elif request.count > 1 and token_stream is None:
        ids = model.generate([prompt] * request.count, limit, args, generator=random, eos_id=eos_id)
    else:

        def sample(prompt: list[int]) -> Iterator[int]:
            return stream(model, prompt, limit, args, generator=random, eos_id=eos_id)

        ids = [stream_text((token_stream or sample)(prompt), data, request) for _ in range(request.count)]
    texts = [cut_at_stop(tokenizer.decode(row), args.stop) for row in ids]
    lines = [f"{args.prompt}{text}" if args.prompt.strip() else text for text in texts]
    length = max(map(len, ids))
    padded = torch.tensor([row + [-1] * (length - len(row)) for row in ids])
    rows = [{"prompt": args.prompt, "text": text} for text in texts]
    return Sample({"tokens": padded}, "\n———\n".join(lines), streams_text=True, rows=rows)


def default_prompt(tokenizer: Tokenizer) -> str:
    """Return a newline, or the first token of a vocabulary without one that is a text of its own."""
    specials = set(tokenizer.special_ids)
    tokens = (tokenizer.decode([i]) for i in range(tokenizer.max_id + 1) if i not in specials)
    return next((text for text in itertools.chain([GenerationArgs.prompt], tokens) if can_encode(tokenizer, text)), "")


def can_encode(tokenizer: Tokenizer, text: str) -> bool:
    """Return whether the tokens of a text are known, and at least one."""
    try:
        ids = tokenizer.encode(text, add_special_tokens=False)
    except EngramError:
        return False
    return bool(ids) and not set(ids) & set(tokenizer.special_ids)


def stream_text(tokens: Iterator[int], data: Corpus, request: SampleRequest) -> list[int]:
    """Pass each token to `request.on_text` as text as soon as it is generated; return all tokens."""
    args: GenerationArgs = request.args
    row: list[int] = []

    def record() -> Iterator[int]:
        for token in tokens:
            row.append(token)
            yield token

    request.on_text(args.prompt if args.prompt.strip() else "")
    for piece in decode_stream(data.tokenizer.decode, record(), args.stop):
        request.on_text(piece)
    request.on_text("\n")
    return row


def evaluate_perplexity(model: Callable[[Tensor], Tensor], data: Corpus, split: str, context: int) -> dict[str, float]:
    """Return loss and perplexity on windows of `context` tokens."""
    x_NT, y_NT = cover_windows(data[split], context, TEST_TOKENS if split == "test" else VALID_TOKENS)
    loss = mean_loss(model, x_NT, y_NT)
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}


def mean_loss(model: Callable[[Tensor], Tensor], x_NT: Tensor, y_NT: Tensor) -> float:
    """Return the cross-entropy, averaged over all tokens."""
    rows = max(1, EVALUATION_TOKENS // x_NT.shape[1])
    total = sum(
        F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").double()
        for x, y in zip(x_NT.split(rows), y_NT.split(rows), strict=True)
    )
    return float(total) / y_NT.numel()


def get_eos_id(data: Corpus) -> int | None:
    """Return the id of the token that ends a text; None if the tokenizer has none."""
    return data.tokenizer.backend.token_to_id("<|endoftext|>")


def cut_at_stop(text: str, stops: tuple[str, ...]) -> str:
    """Return the text before the first stop string."""
    return StopStrings(stops).update(text)[0] if stops else text


def validation_excerpt(data: Corpus, context: int, item: int = 0) -> list[int]:
    """Return some tokens of the validation text, from position `item` on."""
    ids = data["valid"].ids
    length = min(context, INSPECTED_TOKENS, len(ids))
    if not 0 <= item <= len(ids) - length:
        raise EngramError(f"item must be a position in the text from 0 to {len(ids) - length}, not {item}.")
    return ids[item : item + length].long().tolist()


def tokens_to_inspect(data: Corpus, args: TextInspectArgs, context: int) -> list[int]:
    """Return the tokens of the given text, or of the validation text."""
    if not args.text:
        return validation_excerpt(data, context, args.item)
    ids = data.tokenizer.encode(args.text)
    if not ids:
        raise EngramError("There is nothing to inspect in an empty text.")
    return ids[-context:]
