r"""Instruction tuning: learn answers to prompts, with the loss on answers only (Ouyang et al. 2022).

    x = [u, a]                                                    prompt by the chat template, and answer    (1)
    L = -\frac{1}{|a|} \sum_{t \in a} \log p(x_t | x_{<t})        cross-entropy of the answer and its end    (2)

    Symbols:
        x        tokens of a pair
        u, a     tokens of the prompt and of the answer, which closes with the token that ends a text
        B, T     batch, tokens
        N        tokens of answers

A model without chat template gets the plain one: the prompt, a line break, and the answer.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Batch
from engram.core.recipe import Sample, SampleRequest, choose_items
from engram.core.seeding import generator
from engram.data.corpus import Corpus
from engram.data.dataset import Data, Split
from engram.data.progress import announce
from engram.data.text_pairs import PAIRS, LengthBucketLoader, pad_rows
from engram.data.tokenizer import Kind, Tokenizer
from engram.data.tokens import Tokens
from engram.generation.generate import stream
from engram.generation.sampling import decode_stream
from engram.hub.chat import render_chat
from engram.transformers.bert.model import IGNORE_INDEX
from engram.transformers.text_generation import SPECIALS, GenerationArgs

END = "<|endoftext|>"
"""token that ends a text, of tokenizers trained here"""
PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{{ eos_token if message['role'] == 'assistant' else '\\n' }}{% endfor %}"
)
"""chat template of models without one"""
EVALUATION_BATCH = 16
VALID_PAIRS = 300
"""pairs of an evaluation during training; at the end all are evaluated"""


@dataclass(frozen=True)
class Instructions(Corpus):
    """Tokenized pairs of prompts and answers."""

    pairs: Mapping[str, Split] = field(default_factory=dict)
    """by split: columns source, target, prompt (rendered), ids, start (index of the answer's first token), length"""


def are_pairs(name: str) -> bool:
    """Whether a name is that of a file or data set of pairs of texts."""
    if name in datasets.list_names():
        return datasets.get_info(name).kind == "pairs"
    return Path(name).suffix.lower() in PAIRS


def load_pairs(name: str) -> Data:
    """Load pairs of texts as columns source and target, and earlier messages where there are some."""
    loaded = datasets.load(name)
    if not {"source", "target"} <= set(loaded.train):
        raise EngramError(f"{name} has no pairs of prompts and answers: give a .tsv or .jsonl file.")
    return loaded


def train_tokenizer(kind: Kind, loaded: Data, vocab_size: int) -> Tokenizer:
    """Train a tokenizer on prompts and answers."""
    splits = loaded.splits.values()
    texts = [text for split in splits for side in ("source", "target") for text in split[side]]
    texts += [one["content"] for split in splits for i in range(len(split)) for one in messages_of(split, i)[:-1]]
    specials = dict.fromkeys((*SPECIALS.get(kind, ()), END))
    return Tokenizer.train(kind, [*texts, "\n"], vocab_size=vocab_size, special_tokens=tuple(specials))


def with_template(tokenizer: Tokenizer, source: str) -> Tokenizer:
    """Return a tokenizer with a chat template, by default the plain one, and an end token."""
    if tokenizer.eos_id is None:
        raise EngramError(f"The tokenizer of {source} has no token that ends a text, which answers need.")
    return Tokenizer(
        tokenizer.backend,
        bos_token=tokenizer.bos_token,
        eos_token=tokenizer.backend.id_to_token(tokenizer.eos_id) or "",
        chat_template=tokenizer.chat_template or PLAIN_TEMPLATE,
    )


# ---------------------------------------------------------------------- tokens


def render(tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]], *, to_answer: bool = True) -> str:
    """Render messages by the chat template, up to where the answer begins."""
    roles = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
    return render_chat(tokenizer.chat_template, messages, add_generation_prompt=to_answer, **roles)


def messages_of(split: Split, i: int) -> list[dict[str, str]]:
    """Return the messages before an answer."""
    known = split["messages"][i] if "messages" in split else ""
    return json.loads(known) if known else [{"role": "user", "content": split["source"][i]}]


def render_pairs(split: Split, tokenizer: Tokenizer) -> Iterator[tuple[str, str]]:
    """Yield the prompt and the answer of each pair as texts to be tokenized (1)."""
    for i, answer in enumerate(split["target"]):
        messages = messages_of(split, i)
        prompt = render(tokenizer, messages)
        whole = render(tokenizer, [*messages, {"role": "assistant", "content": answer}], to_answer=False)
        yield prompt, whole.removeprefix(prompt) if whole.startswith(prompt) else answer


def encode_split(split: Split, tokenizer: Tokenizer, context: int) -> tuple[Split, int]:
    """Return the pairs whose answers begin within the context as tokens, and the longest length."""
    prompts, answers = zip(*render_pairs(split, tokenizer), strict=True)
    eos_id = tokenizer.eos_id
    before, after = (tokenizer.encode_batch(texts, add_special_tokens=False) for texts in (prompts, answers))
    rows = [
        [*u, *a[: a.index(eos_id)], eos_id] if eos_id in a else [*u, *a, eos_id]
        for u, a in zip(before, after, strict=True)
    ]
    kept = [i for i, ids in enumerate(before) if 0 < len(ids) <= context]
    ids = [rows[i][: context + 1] for i in kept]
    columns: dict[str, Any] = {
        "source": [split["source"][i] for i in kept],
        "target": [split["target"][i] for i in kept],
        "prompt": [prompts[i] for i in kept],
        "ids": ids,
        "start": torch.tensor([len(before[i]) for i in kept]),
        "length": torch.tensor([len(row) for row in ids]),
    }
    return Split(columns), max(map(len, rows))


def tokenize(loaded: Data, tokenizer: Tokenizer, context: int, folder: Path | None = None) -> Instructions:
    """Tokenize all pairs; say how many are cut or left out because they are longer than the context."""
    found = {part: encode_split(split, tokenizer, context) for part, split in loaded.splits.items()}
    pairs = {part: split for part, (split, _) in found.items()}
    longest = max(length for _, length in found.values()) - 1
    lost = sum(map(len, loaded.splits.values())) - sum(map(len, pairs.values()))
    if empty := [part for part, split in pairs.items() if not len(split)]:
        raise EngramError(
            f"The prompts of the {empty[0]} split of {loaded.info.name} leave no room for an answer in a context of "
            f"{context} tokens: raise --context, up to {longest}, the length of the longest pair."
        )
    if longest > context and folder is None:
        cut = sum(int((split["length"] > context).sum()) for split in pairs.values())
        announce(
            f"{cut} pairs are longer than the context of {context} tokens and are cut, {lost} have prompts as long and "
            f"are left out: --context {longest} keeps all"
        )
    splits = {part: to_tokens(split["ids"]) for part, split in pairs.items()}
    sizes = {part: len(split) for part, split in pairs.items()}
    return Instructions(replace(loaded.info, sizes=sizes), tokenizer, splits, folder, pairs)


def to_tokens(rows: Sequence[list[int]]) -> Tokens:
    """Return rows of tokens one after the other."""
    ids = torch.tensor([i for row in rows for i in row])
    return Tokens(ids, torch.tensor([len(row) for row in rows]).cumsum(0))


# ---------------------------------------------------------------------- batches and loss


def make_batch(columns: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return tokens x and the tokens y that follow them, IGNORE_INDEX in prompt and padding."""
    x_BT = pad_rows([ids[:-1] for ids in columns["ids"]], 0)
    y_BT = pad_rows([ids[1:] for ids in columns["ids"]], IGNORE_INDEX)
    in_prompt_BT = torch.arange(y_BT.shape[1]) < columns["start"][:, None] - 1
    return {"x": x_BT, "y": y_BT.masked_fill(in_prompt_BT, IGNORE_INDEX)}


def make_batches(data: Instructions, batch: int, seed: int) -> LengthBucketLoader:
    """Return shuffled batches of pairs of similar length."""
    columns = Split({name: data.pairs["train"][name] for name in ("ids", "start", "length")})
    return LengthBucketLoader(columns, batch, generator(seed, "batches"), lambda found, random: make_batch(found))


def answer_loss(model: Any, x_BT: Tensor, y_BT: Tensor) -> Tensor:
    """Cross-entropy (2) over the tokens that `y` names; the output layer sees no others."""
    h_BTE = model.embed_tokens(x_BT)
    for block in model.blocks:
        h_BTE = block(h_BTE)
    answered_BT = y_BT != IGNORE_INDEX
    return F.cross_entropy(model.logits(h_BTE[answered_BT]), y_BT[answered_BT])  # (2)


def count_answered(batch: Batch) -> int:
    """Number of tokens of answers in a batch, over which the loss is averaged."""
    return int((batch["y"] != IGNORE_INDEX).sum())


def evaluate_answers(model: Any, data: Instructions, split: str) -> dict[str, float]:
    """Return loss and perplexity on the tokens of answers."""
    pairs = data.pairs.get(split, data.pairs["valid"])
    count = len(pairs) if split == "test" else min(len(pairs), VALID_PAIRS)
    chosen = torch.linspace(0, len(pairs) - 1, count).round().long()
    chosen = chosen[pairs["length"][chosen].argsort(stable=True)]
    total, tokens = 0.0, 0
    for index in chosen.split(EVALUATION_BATCH):
        batch = make_batch(pairs.select(index).columns)
        answered = count_answered(batch)
        total, tokens = total + float(answer_loss(model, **lower(batch))) * answered, tokens + answered
    loss = total / tokens
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}


def lower(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a batch with the names of the arguments of `answer_loss`."""
    return {"x_BT": batch["x"], "y_BT": batch["y"]}


# ---------------------------------------------------------------------- answers


def sample_answers(model: Any, data: Instructions, request: SampleRequest) -> Sample:
    """Answer a prompt, or held-out prompts of the test split."""
    args: GenerationArgs = request.args
    if args.prompt != GenerationArgs.prompt:
        messages = [{"role": "user", "content": args.prompt}]
        chosen = [(args.prompt, render(data.tokenizer, messages))] * request.count
    else:
        pairs = data.pairs.get("test", data.pairs["valid"])
        index = choose_items(request.count, len(pairs), request.generator).tolist()
        chosen = [(pairs["source"][i], pairs["prompt"][i]) for i in index]
    rows, tokens = [], []
    for prompt, rendered in chosen:
        ids: list[int] = []
        request.on_text(f"{prompt}\n→ ")
        answer = "".join(stream_answer(model, data, rendered, request, ids.append))
        request.on_text("\n")
        rows.append({"prompt": prompt, "text": answer})
        tokens.append(ids or [-1])
    lines = [f"{row['prompt']}\n→ {row['text']}" for row in rows]
    return Sample({"tokens": pad_rows(tokens, -1)}, "\n———\n".join(lines), streams_text=True, rows=rows)


def stream_answer(
    model: Any, data: Instructions, rendered: str, request: SampleRequest, record: Callable[[int], None]
) -> Iterator[str]:
    """Yield the answer to a rendered prompt piece by piece; `record` gets its tokens."""
    tokenizer, args = data.tokenizer, request.args
    ids = tokenizer.encode(rendered, add_special_tokens=False)
    room = min(args.max_new_tokens, model.config.context - len(ids))
    if room < 1:
        raise EngramError(
            f"The prompt has {len(ids)} tokens, which is too much for a context of {model.config.context}."
        )

    def tokens() -> Iterator[int]:
        for token in stream(model, ids, room, args, generator=request.generator, eos_id=tokenizer.eos_id):
            record(token)
            yield token

    for piece in decode_stream(tokenizer.decode, tokens(), args.stop):
        request.on_text(piece)
        yield piece
