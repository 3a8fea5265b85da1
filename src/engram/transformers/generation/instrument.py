"""Instrument of text generation.

Text token by token, each with the probabilities that it was sampled from.

Tokens are sampled as by `engram sample`: one uniform number per token, by inversion of the cumulative distribution
(generation/sampling.py). The number of the n-th token depends on the seed and on n alone, so a text that is stopped and
continued is the same as without a stop, and sampling parameters may change in between.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from annotated_types import Ge, Le, Lt
from torch import Tensor

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.seeding import generator, isolated_eval
from engram.data.corpus import Corpus
from engram.data.tokenizer import Tokenizer
from engram.generation.generate import LanguageModel, check_prompts
from engram.generation.sampling import SamplingParams, StopStrings, multinomial, probabilities, window_start
from engram.plots.instrument import Models, Response, endpoint, register_instrument
from engram.transformers.sample_text import sample_text
from engram.transformers.text_generation import get_eos_id

register_instrument(
    "generation",
    title="Text generation",
    about="Text as it is generated, with the probabilities that each token is sampled from.",
    recipes=("gpt", "mingru", "gru", "lstm", "rnn"),
    folder=Path(__file__).parent,
)

MAX_CHARACTERS = 2000
"""largest number of characters of a prompt"""
MAX_TOKENS = 1000
"""largest number of generated tokens of a text"""
MAX_NEW_TOKENS = 400
"""largest number of tokens of one request"""
ALTERNATIVES = 10
"""most probable tokens that are returned with each token"""
DEFAULT_TOKENS = 12
"""tokens of the validation text that are the prompt if none is given"""
DEFAULT_PROMPT = "Once upon a time"
"""prompt of a checkpoint, which has no data"""
SCORED_AT_ONCE = 16
"""known tokens that are scored in one forward pass"""
SEND_EVERY = 0.03
"""seconds between parts of a response"""
MAX_TEMPERATURE = 5.0


@dataclass(frozen=True, kw_only=True)
class TextArgs(Settings):
    """A prompt and the tokens that were generated so far."""

    run: str = ""
    step: int = -1
    prompt: str = ""
    """by default some of the validation text"""
    tokens: tuple[Any, ...] = ()
    """ids of the tokens after the prompt; not text, which may be tokenized in several ways"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.prompt) > MAX_CHARACTERS:
            raise EngramError(f"prompt may have {MAX_CHARACTERS} characters, and has {len(self.prompt)}.")
        if len(self.tokens) > MAX_TOKENS:
            raise EngramError(f"tokens may be {MAX_TOKENS}, and there are {len(self.tokens)}.")
        if not all(type(token) is int for token in self.tokens):
            raise EngramError("tokens are whole numbers.")


@dataclass(frozen=True, kw_only=True)
class GenerateArgs(TextArgs, SamplingParams):
    """A text to continue, and the sampling parameters."""

    temperature: Annotated[float, Ge(0), Le(MAX_TEMPERATURE)] = 0.8
    seed: Annotated[int, Ge(0), Lt(1 << 31)] = 0
    max_new_tokens: Annotated[int, Ge(1), Le(MAX_NEW_TOKENS)] = 200
    """number of tokens to generate"""


class Segment(NamedTuple):
    """Consecutive tokens that were sampled with the same parameters."""

    length: int
    params: SamplingParams


@dataclass(frozen=True, kw_only=True)
class ScoreArgs(TextArgs):
    """A text to score, and the parameters that it was sampled with."""

    segments: tuple[Any, ...] = ()
    """lists of a number of tokens and temperature, top_k, top_p, min_p, repetition_penalty"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.segments) > MAX_TOKENS:
            raise EngramError(f"segments may be {MAX_TOKENS}, and there are {len(self.segments)}.")
        object.__setattr__(self, "segments", tuple(map(parse_segment, self.segments)))
        count = sum(segment.length for segment in self.segments)
        if count != len(self.tokens):
            raise EngramError(f"segments are of {count} tokens, and there are {len(self.tokens)}.")


def parse_segment(value: Any) -> Segment:
    """Convert a list of JSON to a segment."""
    valid = isinstance(value, list) and len(value) == 6 and all(type(part) in (int, float) for part in value)
    if not valid or not (type(value[0]) is type(value[2]) is int) or value[0] < 1:
        raise EngramError("segments are lists of length, temperature, top_k, top_p, min_p and repetition_penalty.")
    length, temperature, top_k, top_p, min_p, penalty = value
    params = SamplingParams(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=penalty
    )  # fmt: skip
    return Segment(length, params)


# ---------------------------------------------------------------------- model and prompt


class Prompt(NamedTuple):
    """A language model and the prompt."""

    model: Any
    data: Corpus
    prompt: str
    ids: list[int]


def load_subject(args: TextArgs, models: Models) -> Prompt:
    """Load the model, and tokenize the prompt."""
    run = models.open(args.run, args.step)
    model, data = run.learner.model, run.data
    if not isinstance(model, LanguageModel) or not isinstance(data, Corpus):
        raise EngramError(f"{args.run} does not generate text: this instrument opens causal language models.")
    prompt = args.prompt or default_prompt(model, data)
    ids = data.tokenizer.encode(prompt, add_special_tokens=False)
    check_prompts(model, [[*ids, *args.tokens]])
    return Prompt(model, data, prompt, ids)


def default_prompt(model: Any, data: Corpus) -> str:
    """Return some of the validation text, up to the end of a word; a fixed prompt for a checkpoint."""
    if not data.splits:
        return DEFAULT_PROMPT
    text = sample_text(data, getattr(model.config, "context", MAX_CHARACTERS), DEFAULT_TOKENS)
    return text.rpartition(" ")[0] or text or "\n"


class StreamDecoder:
    """Decodes a growing text: returns what each token adds.

    An incomplete character waits for its other bytes.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.ids, self.text = tokenizer, list[int](), StopStrings(())

    def decode(self, *tokens: int) -> str:
        """Return the text that these tokens add."""
        self.ids += tokens
        return self.text.update(self.tokenizer.decode(self.ids))[0]


def describe_token(token: int, z_V: Tensor, p_V: Tensor, tokenizer: Tokenizer, piece: str) -> Response:
    """Return a token and its distribution: `p` after all sampling parameters, `log_p` of the model itself."""
    candidates = int((p_V > 0).sum())
    top = p_V.topk(min(ALTERNATIVES, candidates))
    return {
        "id": token, "piece": piece, "name": tokenizer.token(token), "p": p_V[token].item(),
        "log_p": z_V.float().log_softmax(0)[token].item(), "rank": int((p_V > p_V[token]).sum()) + 1,
        "candidates": candidates,
        "top": [
            [i, tokenizer.token(i), p] for i, p in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        ],
    }  # fmt: skip


# ---------------------------------------------------------------------- generation


@endpoint("generation")
def generate(args: GenerateArgs, models: Models) -> Generator[Response, None, Response]:
    """Yield the next tokens, a few at a time, and the seconds that each part took."""
    subject = load_subject(args, models)
    tokens, since, ended = list[Response](), time.perf_counter(), True
    limit = min(args.max_new_tokens, MAX_TOKENS - len(args.tokens))
    for count, token in enumerate(sample_tokens(args, subject, limit), 1):
        tokens.append(token)
        ended = count < limit
        if time.perf_counter() - since >= SEND_EVERY or not ended:
            yield {"tokens": tokens, "seconds": time.perf_counter() - since}
            tokens, since = [], time.perf_counter()
    if tokens:
        yield {"tokens": tokens, "seconds": time.perf_counter() - since}
    return {"ended": ended and limit > 0, "full": len(args.tokens) + limit >= MAX_TOKENS}


def sample_tokens(args: GenerateArgs, subject: Prompt, limit: int) -> Iterator[Response]:
    """Yield up to `limit` tokens, until the model ends the text."""
    model, tokenizer, eos_id = subject.model, subject.data.tokenizer, get_eos_id(subject.data)
    decoder, row, text = model.make_decoder(), [*subject.ids, *args.tokens], StreamDecoder(tokenizer)
    random = make_generator(args)
    text.decode(*row)
    for _ in range(limit):
        with isolated_eval(model, 0):  # left before another request is served
            z_1V = decoder([row])[:, -1]
            p_1V = probabilities(z_1V, args, torch.tensor([row]))
        token = int(p_1V.argmax(1) if args.temperature == 0 else multinomial(p_1V, random))
        if token == eos_id:
            return
        row.append(token)
        yield describe_token(token, z_1V[0], p_1V[0], tokenizer, text.decode(token))


def make_generator(args: GenerateArgs) -> torch.Generator:
    """Return the generator of `engram sample`, advanced by the tokens that were generated."""
    random = generator(args.seed, "sample")
    for _ in args.tokens:
        multinomial(torch.ones(1, 1), random)
    return random


# ---------------------------------------------------------------------- scoring


@endpoint("generation.score")
def score(args: ScoreArgs, models: Models) -> Generator[Response, None, Response]:
    """Yield the distributions of all tokens of a text.

    Those of the prompt by the model itself, others as sampled.
    """
    subject = load_subject(args, models)
    unchanged = SamplingParams(temperature=1.0)
    params = [unchanged] * len(subject.ids) + [one.params for one in args.segments for _ in range(one.length)]
    row, tokenizer, text = [*subject.ids, *args.tokens], subject.data.tokenizer, StreamDecoder(subject.data.tokenizer)
    first = {"id": row[0], "piece": text.decode(row[0]), "name": tokenizer.token(row[0])}
    yield {"prompt": subject.prompt, "prompt_tokens": len(subject.ids), "tokens": [first]}
    decoder = subject.model.make_decoder()
    for start, end in scoring_batches(row, getattr(subject.model.config, "context", len(row))):
        with isolated_eval(subject.model, 0):
            z_TV = decoder([row[: end - 1]], last=end - start)[0]
            tokens = [
                describe_token(
                    row[i], z_V, token_probabilities(z_V, params[i], row[:i]), tokenizer, text.decode(row[i])
                )
                for i, z_V in zip(range(start, end), z_TV, strict=True)
            ]
        yield {"tokens": tokens}
    return {}


def token_probabilities(z_V: Tensor, params: SamplingParams, before: Sequence[int]) -> Tensor:
    """Return the probabilities that a token is sampled from, after the tokens `before`."""
    return probabilities(z_V[None], params, torch.tensor([before]))[0]


def scoring_batches(row: Sequence[int], context: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of tokens, from the second on, that share a context window, to be scored together."""
    start = 1
    while start < len(row):
        end = start + 1
        limit = min(len(row), start + SCORED_AT_ONCE)
        while end < limit and window_start(end, context) == window_start(start, context):
            end += 1
        yield start, end
        start = end
