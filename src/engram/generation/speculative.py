"""Speculative decoding: one pass of the model checks drafted tokens; the distribution is unchanged.

The draft comes from a smaller model (Leviathan et al. 2023), or is copied from what followed the last words where they
stood before (prompt lookup; Saxena 2023). The acceptance rule is (7) of generation/sampling.py.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.generation.generate import TransformerDecoder, check_prompts, seen_tokens
from engram.generation.sampling import SamplingParams, accept_draft, probabilities, window_start

LONGEST_NGRAM = 3
"""words at the end of the text that are looked up in it"""
Draft = Callable[[Sequence[int], int], tuple[list[int], Tensor]]
"""a function from a text and a number of tokens to at most as many drafted tokens, and their distributions, T × V"""


def speculative_decode(
    model: Any,
    draft: Any,
    prompt: Sequence[int],
    max_new_tokens: int,
    params: SamplingParams,
    *,
    draft_tokens: int = 4,
    generator: torch.Generator | None = None,
    eos_id: int | None = None,
) -> Iterator[int]:
    """Yield the continuation of a prompt: a smaller model drafts what `model` accepts or replaces."""
    if draft.config.vocabulary != model.config.vocabulary:
        sizes = f"{draft.config.vocabulary} and {model.config.vocabulary}"
        raise EngramError(f"The draft must have the model's own vocabulary, and they have {sizes} tokens.")
    decoder = draft.make_decoder()

    def sample_draft(row: Sequence[int], count: int) -> tuple[list[int], Tensor]:
        drafted, q = list[int](), [torch.empty(0, model.config.vocabulary)]
        for _ in range(count):
            text = [*row, *drafted]
            q.append(probabilities(decoder([text])[:, -1], params, seen_tokens([text])))
            drafted.append(int(torch.multinomial(q[-1], 1, generator=generator)))
        return drafted, torch.cat(q)

    longest = min(draft_tokens, draft.config.context // 2)
    return _decode(model, sample_draft, prompt, max_new_tokens, params, longest, generator, eos_id)


def prompt_lookup_decode(
    model: Any,
    prompt: Sequence[int],
    max_new_tokens: int,
    params: SamplingParams,
    *,
    draft_tokens: int = 8,
    generator: torch.Generator | None = None,
    eos_id: int | None = None,
) -> Iterator[int]:
    """Yield the continuation of a prompt: drafts are copied from what followed its last tokens before."""
    vocabulary = model.config.vocabulary

    def copy_draft(row: Sequence[int], count: int) -> tuple[list[int], Tensor]:
        drafted = look_up(row, count)
        return drafted, F.one_hot(torch.tensor(drafted, dtype=torch.long), vocabulary).float()

    return _decode(model, copy_draft, prompt, max_new_tokens, params, draft_tokens, generator, eos_id)


def look_up(row: Sequence[int], count: int) -> list[int]:
    """Return at most `count` tokens that followed the n-gram at the end of a text where it stood before."""
    row = list(row)
    for length in range(min(LONGEST_NGRAM, len(row) - 1), 0, -1):
        ngram = row[-length:]
        for start in range(len(row) - length - 1, -1, -1):
            if row[start : start + length] == ngram:
                return row[start + length : start + length + count]
    return []


def _decode(
    model: Any,
    draft: Draft,
    prompt: Sequence[int],
    max_new_tokens: int,
    params: SamplingParams,
    draft_tokens: int,
    generator: torch.Generator | None,
    eos_id: int | None,
) -> Iterator[int]:
    """Yield tokens that the model accepts from drafts, and one of its own after each draft."""
    check_prompts(model, [prompt])
    longest = min(draft_tokens, model.config.context // 2)
    row, left, decoder = list(prompt), max_new_tokens, model.make_decoder()
    while left > 0:
        drafted, q_TV = draft(row, min(longest, left - 1))
        p_TV = _target_probabilities(decoder, row, drafted, params)
        accepted = accept_draft(drafted, p_TV, q_TV, generator)
        for token in accepted[:left]:
            if token == eos_id:
                return
            yield token
            row.append(token)
        left -= len(accepted)


def _target_probabilities(
    decoder: TransformerDecoder, row: list[int], drafted: list[int], params: SamplingParams
) -> Tensor:
    """Return the probabilities of the model after the row and after each drafted token, T × V."""
    context = decoder.model.config.context
    prefixes = [row + drafted[:i] for i in range(len(drafted) + 1)]
    if window_start(len(row) + len(drafted), context) != window_start(len(row), context):  # the window moves between
        return torch.cat([probabilities(decoder([one])[:, -1], params, seen_tokens([one])) for one in prefixes])
    logits_TV = decoder([row + drafted], last=len(drafted) + 1)[0]
    if params.repetition_penalty == 1:
        return probabilities(logits_TV, params)
    seen = [seen_tokens([one]) for one in prefixes]
    return torch.cat([probabilities(z[None], params, ids) for z, ids in zip(logits_TV, seen, strict=True)])
