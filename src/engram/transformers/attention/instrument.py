"""Instrument of attention: all heads of a GPT or BERT on a text, with interventions.

L layers, H heads, T tokens, V vocabulary. Interventions are those of plots/interventions.py. A response has the
attention weights of all heads as one small image, and of one head as numbers.
"""

import math
from collections import OrderedDict
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError, with_article
from engram.core.seeding import isolated_eval
from engram.core.tap import Replacement, watch
from engram.data.corpus import Corpus
from engram.plots.ablation import find_attentions, run_without_each_head
from engram.plots.arrays import data_url, pack_array
from engram.plots.attention import describe_head, tile_heads
from engram.plots.images import png
from engram.plots.instrument import Models, Response, endpoint, register_instrument
from engram.plots.interventions import (
    COMPONENTS,
    Ablation,
    Edit,
    Patch,
    make_replacements,
    parse_interventions,
    tap_name,
)
from engram.plots.tokens import by_layer
from engram.transformers.bert.model import BERT
from engram.transformers.bert.recipe import BERTRecipe
from engram.transformers.gpt.model import GPT
from engram.transformers.sample_text import sample_text

register_instrument(
    "attention",
    title="Attention",
    about="Every head on your own sentence; switch heads off, edit weights, patch from another sentence.",
    recipes=("gpt", "bert"),
    folder=Path(__file__).parent,
)

MAX_TOKENS = 64
"""largest number of tokens that are read"""
MAX_CHARACTERS = 4000
"""largest number of characters of a text"""
CACHED_PASSES = 4
"""forward passes without interventions that are cached for each model"""
DEFAULT_TOKENS = 24
"""tokens of the validation text that are read if no text is given"""
MOST_PROBABLE, MOST_CHANGED, MARKED = 10, 4, 3
"""tokens of each prediction that are returned, those whose probability changed most, and how many are marked"""
MIN_CHANGE = 5e-4
"""smallest change of a probability that is marked"""
DEFAULT_TEXTS = {
    GPT: "When Mary and John went to the store, John gave a drink to",
    BERT: "The capital of France is [MASK].",
}
"""texts for checkpoints, which have no data"""


@dataclass(frozen=True, kw_only=True)
class AttentionArgs:
    """A text, the head that is enlarged, and interventions."""

    run: str = ""
    step: int = -1
    text: str = ""
    """by default some of the validation text"""
    layer: int = -1
    head: int = -1
    """the head that is enlarged; -1 chooses one"""
    position: int = -1
    """token after which (GPT) or in place of which (BERT) is predicted; -1: the last token, or the first mask"""
    ablations: tuple[Any, ...] = ()
    """lists of layer and head"""
    edits: tuple[Any, ...] = ()
    """lists of layer, head, query token, key token, weight"""
    source: str = ""
    """source text of the patches"""
    patches: tuple[Any, ...] = ()
    """lists of component (head, attention or residual), layer, head, and token or -1"""

    def __post_init__(self) -> None:
        for name in ("text", "source"):
            if len(getattr(self, name)) > MAX_CHARACTERS:
                raise EngramError(f"{name} may have {MAX_CHARACTERS} characters, and has {len(getattr(self, name))}.")
        for cls, name in ((Ablation, "ablations"), (Edit, "edits"), (Patch, "patches")):
            object.__setattr__(self, name, parse_interventions(cls, name, getattr(self, name)))
        if not all(0 <= edit.weight <= 1 for edit in self.edits):
            raise EngramError("edits must have weights from 0 to 1.")
        if wrong := [patch.component for patch in self.patches if patch.component not in COMPONENTS]:
            raise EngramError(f'patches are of {", ".join(COMPONENTS)}, not of "{wrong[0]}".')


# ---------------------------------------------------------------------- model and text


class AttentionInput(NamedTuple):
    """A model and the text that it reads."""

    model: Any
    data: Corpus
    text: str
    ids: list[int]
    truncated: int
    """number of tokens of the text that are not read"""

    @property
    def tokens(self) -> list[str]:
        return self.data.tokenizer.tokens(self.ids)


def load_subject(args: AttentionArgs, models: Models) -> AttentionInput:
    """Load the model, and tokenize the text."""
    run = models.open(args.run, args.step)
    model = run.learner.model
    if not isinstance(model, (GPT, BERT)):
        raise EngramError(
            f"{args.run} holds {with_article(type(model).__name__)}, and this instrument opens GPT and BERT."
        )
    if isinstance(model, BERT) and not model.config.masked:
        raise EngramError(f"{args.run} is a BERT without its masked language model head, so that it predicts nothing.")
    text = args.text or default_text(run)
    ids = run.data.tokenizer.encode(text)
    if not ids:
        raise EngramError("There is nothing to look at in an empty text.")
    kept = truncate(model, ids)
    return AttentionInput(model, run.data, text, kept, len(ids) - len(kept))


def default_text(run: Any) -> str:
    """Return some of the validation text, for BERT with a mask; a fixed text for a checkpoint."""
    data, model = run.data, run.learner.model
    if not data.splits:
        return DEFAULT_TEXTS[type(model)].replace("[MASK]", data.tokenizer.mask_token)
    if isinstance(model, GPT):
        return sample_text(data, model.config.context, DEFAULT_TOKENS)
    recipe: BERTRecipe = run.recipe
    lines = recipe.lines(data, "valid")
    line = max(map(lines.line, range(min(50, len(lines)))), key=lambda line: min(len(line), DEFAULT_TOKENS))
    shown = recipe.without_specials(data, recipe.mask_middle(data, line))
    return data.tokenizer.decode(shown, skip_special_tokens=False)


def truncate(model: Any, ids: list[int]) -> list[int]:
    """Return as many tokens as can be read: the last ones for GPT, the first ones and [SEP] for BERT."""
    limit = min(MAX_TOKENS, model.config.context)
    if len(ids) <= limit:
        return ids
    return ids[-limit:] if isinstance(model, GPT) else [*ids[: limit - 1], ids[-1]]


def resolve_position(subject: AttentionInput, position: int) -> int:
    """Return the position of the prediction; -1 means the last token (GPT) or the first mask (BERT)."""
    count = len(subject.ids)
    if not -1 <= position < count:
        raise EngramError(f"position must be one of {count} tokens, from 0 to {count - 1}, not {position}.")
    if position >= 0 or isinstance(subject.model, GPT):
        return position % count
    mask = subject.data.tokenizer.mask_id
    return subject.ids.index(mask) if mask in subject.ids else count // 2


# ---------------------------------------------------------------------- forward pass


Activations = dict[str, Tensor]


def forward(
    subject: AttentionInput, ids: list[int], patterns: tuple[str, ...], replace: Mapping[str, Replacement]
) -> Activations:
    """Run the model on tokens; return the taps of these patterns and the last residual stream."""
    model, x_1T = subject.model, torch.tensor([ids])
    with watch(model, *patterns, last_residual(model), replace=replace) as seen:
        if isinstance(model, GPT):
            model(x_1T, last=1)
        else:
            model.encode(x_1T)
    return dict(seen)


_cache: WeakKeyDictionary[nn.Module, OrderedDict[tuple[Any, ...], Activations]] = WeakKeyDictionary()


def cached_forward(subject: AttentionInput, ids: list[int], patterns: tuple[str, ...]) -> Activations:
    """Run the model without interventions.

    The last few passes are cached, as a slider asks for them repeatedly.
    """
    passes, key = _cache.setdefault(subject.model, OrderedDict()), (tuple(ids), patterns)
    if key not in passes:
        passes[key] = forward(subject, ids, patterns, {})
        while len(passes) > CACHED_PASSES:
            passes.popitem(last=False)
    passes.move_to_end(key)
    return passes[key]


def last_residual(model: Any) -> str:
    """Return the tap of the residual stream after the last layer."""
    return f"blocks.{model.config.layers - 1}.residual"


def logits_at(subject: AttentionInput, seen: Activations, position: int) -> Tensor:
    """Return the logits of each row of the batch at a position, from the last residual stream, B × V."""
    logits_BV: Tensor = subject.model.logits(seen[last_residual(subject.model)][:, position])
    return logits_BV.double()


def stack_weights(seen: Activations) -> Tensor:
    """Return the attention weights of all layers, L × H × T × T."""
    return torch.stack(list(by_layer(seen).values()))


def check_args(args: AttentionArgs, subject: AttentionInput) -> None:
    """Refuse layers, heads and tokens that do not exist."""
    config, T = subject.model.config, len(subject.ids)
    ranges: list[tuple[str, int, int, int]] = [
        ("layer", args.layer, -1, config.layers), ("head", args.head, -1, config.heads),
    ]  # fmt: skip
    for intervention in (*args.ablations, *args.edits, *args.patches):
        ranges += [("layer", intervention.layer, 0, config.layers), ("head", intervention.head, 0, config.heads)]
    for edit in args.edits:
        ranges += [("query", edit.query, 0, T), ("key", edit.key, 0, T)]
        if isinstance(subject.model, GPT) and edit.key > edit.query:
            raise EngramError(f"Token {edit.query} cannot attend to token {edit.key}, which comes after it.")
    ranges += [("token", patch.token, -1, T) for patch in args.patches]
    for name, value, low, end in ranges:
        if not low <= value < end:
            raise EngramError(f"{name} {value} does not exist: they go from 0 to {end - 1}.")


# ---------------------------------------------------------------------- responses


@endpoint("attention")
def read_text(args: AttentionArgs, models: Models) -> Response:
    """Return small maps of all heads, the weights of one, and predictions around interventions."""
    subject = load_subject(args, models)
    check_args(args, subject)
    position = resolve_position(subject, args.position)
    source_ids, patch_error = tokenize_source(args, subject)
    with isolated_eval(subject.model, 0):
        before = cached_forward(subject, subject.ids, ("*attention.weights",))
        taps = tuple(sorted({tap_name(patch) for patch in args.patches}))
        source = cached_forward(subject, source_ids, taps) if taps and not patch_error else {}
        replace = make_replacements(args.ablations, args.edits, args.patches, source)
        after = forward(subject, subject.ids, ("*attention.weights",), replace) if replace else before
        z_V, changed_V = logits_at(subject, before, position)[0], logits_at(subject, after, position)[0]
    before_LHTT, after_LHTT = stack_weights(before), stack_weights(after)
    return {
        **describe_model(subject), "text": subject.text, "position": position, "changed": bool(replace),
        "source": subject.data.tokenizer.tokens(source_ids), "patch_error": patch_error,
        **enlarge_head(before_LHTT, after_LHTT, args), **head_maps(after_LHTT),
        **compare_predictions(z_V, changed_V, subject),
    }  # fmt: skip


def describe_model(subject: AttentionInput) -> Response:
    """Return kind and size of the model, and the tokens."""
    config = subject.model.config
    return {
        "kind": "gpt" if isinstance(subject.model, GPT) else "bert", "tokens": subject.tokens,
        "truncated": subject.truncated, "layers": config.layers, "heads": config.heads,
    }  # fmt: skip


def tokenize_source(args: AttentionArgs, subject: AttentionInput) -> tuple[list[int], str]:
    """Return the tokens of the source text, and why it cannot be patched from, or ""."""
    if not args.source:
        return [], "Patches come from a source text: write one." if args.patches else ""
    try:
        ids = truncate(subject.model, subject.data.tokenizer.encode(args.source))
    except EngramError as error:
        return [], str(error)
    if len(ids) != len(subject.ids):
        return ids, f"The source text has {len(ids)} tokens, and it takes {len(subject.ids)}, as many as the text."
    return ids, ""


def enlarge_head(before_LHTT: Tensor, after_LHTT: Tensor, args: AttentionArgs) -> Response:
    """Return the attention weights of one head, before and after interventions."""
    layer, head = (args.layer, args.head) if min(args.layer, args.head) >= 0 else choose_head(before_LHTT)
    return {
        "layer": layer, "head": head, "summary": describe_head(after_LHTT[layer, head]).replace("<br>", ", "),
        "weights_before": pack_array(before_LHTT[layer, head]), "weights": pack_array(after_LHTT[layer, head]),
    }  # fmt: skip


def choose_head(weights_LHTT: Tensor) -> tuple[int, int]:
    """Return the head with the largest weights on other tokens than the query itself and the first."""
    T = weights_LHTT.shape[-1]
    others_LHTT = weights_LHTT * (1 - torch.eye(T))
    others_LHTT[..., 0] = 0
    return divmod(int(others_LHTT.amax(-1).mean(-1).flatten().argmax()), weights_LHTT.shape[1])


def head_maps(weights_LHTT: Tensor) -> Response:
    """Return the attention weights of all heads as one image, tiled with a gap in pixels."""
    gap = 1
    return {"maps": data_url(png(tile_heads(weights_LHTT, gap))), "gap": gap}


def compare_predictions(z_V: Tensor, changed_V: Tensor, subject: AttentionInput) -> Response:
    """Return the most probable tokens of both predictions, those that changed most, and the KL divergence."""
    p_V, q_V = z_V.softmax(0), changed_V.softmax(0)
    change_V = (q_V - p_V).abs()
    count, most_changed = min(MOST_PROBABLE, len(p_V)), change_V.topk(min(MOST_CHANGED, len(p_V))).indices.tolist()
    chosen = {*p_V.topk(count).indices.tolist(), *q_V.topk(count).indices.tolist(), *most_changed}
    marked = {i for i in most_changed[:MARKED] if change_V[i] >= MIN_CHANGE}
    token = subject.data.tokenizer.token
    predictions = [
        {"token": token(i), "before": p_V[i].item(), "after": q_V[i].item(), "marked": i in marked}
        for i in sorted(chosen, key=lambda i: -p_V[i].item())
    ]
    divergence = (p_V * (z_V.log_softmax(0) - changed_V.log_softmax(0))).sum().item()
    return {"predictions": predictions, "divergence": max(0.0, divergence)}


@endpoint("attention.effects")
def head_effects(args: AttentionArgs, models: Models) -> Generator[Response, None, Response]:
    """Yield the loss of log p of the prediction by ablation of each head in turn (plots/ablation.py)."""
    subject = load_subject(args, models)
    position = resolve_position(subject, args.position)

    def run() -> Tensor:
        return logits_at(subject, forward(subject, subject.ids, (), {}), position).log_softmax(1)

    with isolated_eval(subject.model, 0):
        log_p_V = run()[0]
    target = int(log_p_V.argmax())
    for layer, name in enumerate(find_attentions(subject.model, "blocks", "attention")):
        with isolated_eval(subject.model, 0):  # left before another request is served
            effect_H = (log_p_V - run_without_each_head(subject.model, run, name))[:, target]
        for head, effect in enumerate(effect_H.tolist()):
            yield {"layer": layer, "head": head, "effect": effect if math.isfinite(effect) else 0.0}
    return {"target": subject.data.tokenizer.token(target)}
