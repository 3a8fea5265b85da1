"""Attention: every head of a GPT or a BERT on a text of one's own, and what is predicted once some are changed.

L layers, H heads, T tokens, D width of a head, E width of the stream, V vocabulary

What can be changed is in lab/interventions. An answer has all heads as one small picture, and numbers of one head only.
"""

import math
from collections import OrderedDict
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.seeding import aside
from engram.core.tap import Replacement, watch
from engram.data.corpus import Corpus
from engram.figures.ablation import attentions, without
from engram.figures.attention import habit, tiled
from engram.figures.pictures import png
from engram.figures.tokens import layers
from engram.lab.arrays import packed, picture
from engram.lab.desk import Answer, Models, ask
from engram.lab.interventions import PARTS, Edit, Off, Patch, changes, each, tap_of
from engram.lab.passages import passage
from engram.models.bert import BERT
from engram.models.gpt import GPT
from engram.recipes.bert import BERTRecipe

MOST = 64
"""tokens that are read"""
LONGEST = 4000
"""characters of a text"""
KEPT = 4
"""passes of a model that are remembered"""
FIRST = 24
"""tokens of the text that is read where none was given"""
LIKELIEST, LARGEST, MARKED = 10, 4, 3
"""tokens that are told of each prediction, those whose probability changed most, and how many of them are marked"""
SEEN = 5e-4
"""change of a probability that is worth a mark"""
USUAL = {GPT: "When Mary and John went to the store, John gave a drink to", BERT: "The capital of France is [MASK]."}
"""what is read where there is neither text nor data"""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A text, the head that is looked at, and what is changed on the way."""

    run: str = ""
    step: int = -1
    text: str = ""
    """without one, some of the model's own data"""
    layer: int = -1
    head: int = -1
    """the head that is enlarged; -1 takes one that is worth it"""
    place: int = -1
    """the token after which (GPT) or in whose place (BERT) something is predicted; -1: the last, or what is masked"""
    off: tuple[Any, ...] = ()
    """lists of layer and head"""
    edits: tuple[Any, ...] = ()
    """lists of layer, head, token that asks, token that answers, weight"""
    second: str = ""
    """the text that patches come from"""
    patches: tuple[Any, ...] = ()
    """lists of head, attention or stream, layer, head, and token or -1"""

    def __post_init__(self) -> None:
        for name in ("text", "second"):
            if len(getattr(self, name)) > LONGEST:
                raise EngramError(f"{name} may have {LONGEST} characters, and has {len(getattr(self, name))}.")
        for cls, name in ((Off, "off"), (Edit, "edits"), (Patch, "patches")):
            object.__setattr__(self, name, each(cls, name, getattr(self, name)))
        if not all(0 <= edit.weight <= 1 for edit in self.edits):
            raise EngramError("edits must have weights from 0 to 1.")
        if wrong := [patch.what for patch in self.patches if patch.what not in PARTS]:
            raise EngramError(f"patches are of {', '.join(PARTS)}, not of «{wrong[0]}».")


# ---------------------------------------------------------------------- what is read


class Subject(NamedTuple):
    """A model and what it reads."""

    model: Any
    data: Corpus
    text: str
    ids: list[int]
    left: int
    """tokens of the text that are not read"""

    @property
    def names(self) -> list[str]:
        return self.data.tokeniser.tokens(self.ids)


def opened(asked: Reading, models: Models) -> Subject:
    run = models.open(asked.run, asked.step)
    model = run.learner.model
    if not isinstance(model, (GPT, BERT)):
        raise EngramError(f"{asked.run} holds a {type(model).__name__}, and this instrument opens GPT and BERT.")
    if isinstance(model, BERT) and not model.config.masked:
        raise EngramError(f"{asked.run} is a BERT without its head for masked words, so that it predicts nothing.")
    text = asked.text or own_text(run)
    ids = run.data.tokeniser.encode(text)
    if not ids:
        raise EngramError("There is nothing to look at in an empty text.")
    short = cut(model, ids)
    return Subject(model, run.data, text, short, len(ids) - len(short))


def own_text(run: Any) -> str:
    """Some of the text that validates the model; a checkpoint has none, and reads what is usual."""
    data, model = run.data, run.learner.model
    if not data.splits:
        return USUAL[type(model)]
    if isinstance(model, GPT):
        return passage(data, model.config.context, FIRST)
    recipe: BERTRecipe = run.recipe
    lines = recipe.lines(data, "valid")
    line = max(map(lines.line, range(min(50, len(lines)))), key=lambda line: min(len(line), FIRST))
    shown = [i for i in recipe.one_hidden(data, line) if i not in recipe.around(data)]
    return data.tokeniser.decode(shown, special=True)


def cut(model: Any, ids: list[int]) -> list[int]:
    """As many tokens as can be read: of a GPT the last ones, of a BERT the first ones and what ends the text."""
    most = min(MOST, model.config.context)
    if len(ids) <= most:
        return ids
    return ids[-most:] if isinstance(model, GPT) else [*ids[: most - 1], ids[-1]]


def where(subject: Subject, place: int) -> int:
    """The token that a prediction is asked for at."""
    count = len(subject.ids)
    if not -1 <= place < count:
        raise EngramError(f"place must be one of {count} tokens, from 0 to {count - 1}, not {place}.")
    if place >= 0 or isinstance(subject.model, GPT):
        return place % count
    mask = subject.data.tokeniser.mask
    return subject.ids.index(mask) if mask in subject.ids else count // 2


# ---------------------------------------------------------------------- one pass


Seen = dict[str, Tensor]


def passed(subject: Subject, ids: list[int], patterns: tuple[str, ...], replace: Mapping[str, Replacement]) -> Seen:
    """What is seen while the model reads."""
    model, x_1T = subject.model, torch.tensor([ids])
    with watch(model, *patterns, final(model), replace=replace) as seen:
        if isinstance(model, GPT):
            model(x_1T, last=1)
        else:
            model.encode(x_1T)
    return dict(seen)


_kept: WeakKeyDictionary[nn.Module, OrderedDict[tuple[Any, ...], Seen]] = WeakKeyDictionary()


def unchanged(subject: Subject, ids: list[int], patterns: tuple[str, ...]) -> Seen:
    """The same without changes; a hand that moves a slider asks for it again and again, so the last few are kept."""
    kept, key = _kept.setdefault(subject.model, OrderedDict()), (tuple(ids), patterns)
    if key not in kept:
        kept[key] = passed(subject, ids, patterns, {})
        while len(kept) > KEPT:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return kept[key]


def final(model: Any) -> str:
    return f"blocks.{model.config.layers - 1}.stream"


def said(subject: Subject, seen: Seen, place: int) -> Tensor:
    """Logits at a place."""
    logits_V: Tensor = subject.model.logits(seen[final(subject.model)][:, place])[0]
    return logits_V.double()


def weights(seen: Seen) -> Tensor:
    return torch.stack(list(layers(seen).values()))


def check(asked: Reading, subject: Subject) -> None:
    """Everything that is named must be there."""
    config, T = subject.model.config, len(subject.ids)
    one_of: list[tuple[str, int, int, int]] = [
        ("layer", asked.layer, -1, config.layers), ("head", asked.head, -1, config.heads),
    ]  # fmt: skip
    for change in (*asked.off, *asked.edits, *asked.patches):
        one_of += [("layer", change.layer, 0, config.layers), ("head", change.head, 0, config.heads)]
    for edit in asked.edits:
        one_of += [("asks", edit.asks, 0, T), ("answers", edit.answers, 0, T)]
        if isinstance(subject.model, GPT) and edit.answers > edit.asks:
            raise EngramError(f"Token {edit.asks} cannot see token {edit.answers}, which comes after it.")
    one_of += [("token", patch.token, -1, T) for patch in asked.patches]
    for name, value, low, end in one_of:
        if not low <= value < end:
            raise EngramError(f"{name} {value} is not there: they go from 0 to {end - 1}.")


# ---------------------------------------------------------------------- what is asked


@ask("attention")
def read(asked: Reading, models: Models) -> Answer:
    """All heads as small maps, one of them in full, and what is predicted before and after the changes."""
    subject = opened(asked, models)
    check(asked, subject)
    place = where(subject, asked.place)
    other, obstacle = other_ids(asked, subject)
    with aside(subject.model, 0):
        before = unchanged(subject, subject.ids, ("*attention.weights",))
        taps = tuple(sorted({tap_of(patch) for patch in asked.patches}))
        second = unchanged(subject, other, taps) if taps and not obstacle else {}
        replace = changes(asked.off, asked.edits, asked.patches, second)
        after = passed(subject, subject.ids, ("*attention.weights",), replace) if replace else before
        z_V, changed_V = said(subject, before, place), said(subject, after, place)
    was_LHTT, now_LHTT = weights(before), weights(after)
    return {
        **shape(subject), "text": subject.text, "place": place, "changed": bool(replace),
        "second": subject.data.tokeniser.tokens(other), "obstacle": obstacle,
        **enlarged(was_LHTT, now_LHTT, asked), **small(now_LHTT), **compared(z_V, changed_V, subject),
    }  # fmt: skip


def shape(subject: Subject) -> Answer:
    kind = "gpt" if isinstance(subject.model, GPT) else "bert"
    config = subject.model.config
    return {
        "kind": kind, "tokens": subject.names, "left": subject.left, "layers": config.layers, "heads": config.heads,
    }  # fmt: skip


def other_ids(asked: Reading, subject: Subject) -> tuple[list[int], str]:
    """The tokens of the second text, and why nothing can be taken from it, if so."""
    if not asked.second:
        return [], "Patches come from a second text: write one." if asked.patches else ""
    try:
        ids = cut(subject.model, subject.data.tokeniser.encode(asked.second))
    except EngramError as error:
        return [], str(error)
    if len(ids) != len(subject.ids):
        return ids, f"The second text has {len(ids)} tokens and the first {len(subject.ids)}: it takes as many."
    return ids, ""


def enlarged(was_LHTT: Tensor, now_LHTT: Tensor, asked: Reading) -> Answer:
    """One head in full, before and after."""
    layer, head = (asked.layer, asked.head) if min(asked.layer, asked.head) >= 0 else striking(was_LHTT)
    return {
        "layer": layer, "head": head, "habit": habit(now_LHTT[layer, head]).replace("<br>", ", "),
        "was": packed(was_LHTT[layer, head]), "now": packed(now_LHTT[layer, head]),
    }  # fmt: skip


def striking(weights_LHTT: Tensor) -> tuple[int, int]:
    """The head that looks most decidedly at something else than the token itself and the first."""
    T = weights_LHTT.shape[-1]
    others_LHTT = weights_LHTT * (1 - torch.eye(T))
    others_LHTT[..., 0] = 0
    return divmod(int(others_LHTT.amax(-1).mean(-1).flatten().argmax()), weights_LHTT.shape[1])


def small(weights_LHTT: Tensor) -> Answer:
    gap = 1
    return {"maps": picture(png(tiled(weights_LHTT, gap))), "gap": gap}


def compared(z_V: Tensor, changed_V: Tensor, subject: Subject) -> Answer:
    """The likeliest tokens of both predictions and those that changed most; the largest changes are marked."""
    p_V, q_V = z_V.softmax(0), changed_V.softmax(0)
    change_V = (q_V - p_V).abs()
    most, largest = min(LIKELIEST, len(p_V)), change_V.topk(min(LARGEST, len(p_V))).indices.tolist()
    chosen = {*p_V.topk(most).indices.tolist(), *q_V.topk(most).indices.tolist(), *largest}
    marked = {i for i in largest[:MARKED] if change_V[i] >= SEEN}
    token = subject.data.tokeniser.token
    words = [
        {"token": token(i), "before": p_V[i].item(), "after": q_V[i].item(), "marked": i in marked}
        for i in sorted(chosen, key=lambda i: -p_V[i].item())
    ]
    divergence = (p_V * (z_V.log_softmax(0) - changed_V.log_softmax(0))).sum().item()
    return {"words": words, "divergence": max(0.0, divergence)}


@ask("attention.effects")
def effects(asked: Reading, models: Models) -> Generator[Answer, None, Answer]:
    """What is lost of log p of the prediction as each head in turn is switched off, head by head (figures/ablation)."""
    subject = opened(asked, models)
    place = where(subject, asked.place)

    def run() -> Tensor:
        return said(subject, passed(subject, subject.ids, (), {}), place).log_softmax(0)

    with aside(subject.model, 0):
        log_p_V = run()
    target = int(log_p_V.argmax())
    for layer, (name, heads) in enumerate(attentions(subject.model, "blocks", "attention").items()):
        for head in range(heads):
            with aside(subject.model, 0):  # closed before anybody else is served
                effect = (log_p_V - without(subject.model, run, name, head))[target].item()
            yield {"layer": layer, "head": head, "effect": effect if math.isfinite(effect) else 0.0}
    return {"target": subject.data.tokeniser.token(target)}
