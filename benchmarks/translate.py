"""BLEU at equal time: engram's Transformer against transformers' Marian of the same size.

Both learn from the same batches for the same time, with learning rates that go by the clock, and then translate the
same verses, always taking the most probable token. Marian learns as such models usually do, with AdamW.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.bench import Contestant, Score
from engram.data.pairs import Pairs, padded
from engram.models.transformer import Transformer, until
from engram.recipes.translate import TranslateRecipe

MINUTES = 8.0
VERSES = 300
WORK = f"{MINUTES:g} minutes of training on bible-en-de, then {VERSES} test verses into German, greedily"
UNIT = "BLEU"
ROUNDS = 1
CHANGES: dict[str, Any] = {}
"""what differs from the preset «full»"""
TOGETHER = 50
"""verses that are translated at once"""
MARIAN_LR, MARIAN_WARMUP = 1e-3, 0.1
"""highest learning rate of AdamW, and the part of the time in which it rises; then it falls to zero linearly"""

Write = Callable[[Tensor], list[list[int]]]


def contestants() -> dict[str, Contestant]:
    import sacrebleu
    from transformers import MarianConfig, MarianMTModel

    recipe = TranslateRecipe.from_preset("full", **CHANGES)
    data = recipe.load()
    padding, end, vocabulary = data.tokeniser.padding or 0, data.tokeniser.end or 0, data.tokeniser.vocabulary

    def bleu(model: nn.Module, write: Write) -> Score:
        model.eval()
        said = translations(data, write, padding)
        return Score(sacrebleu.corpus_bleu(said, [list(data["test"]["target"][:VERSES])]).score)

    def marian() -> Callable[[], Score]:
        torch.manual_seed(recipe.seed)
        size = recipe.model
        side: dict[str, Any] = {}
        for part, layers in (("encoder", size.layers), ("decoder", size.decoder_layers or size.layers)):
            inside = size.inside or 4 * size.width
            side |= {f"{part}_layers": layers, f"{part}_attention_heads": size.heads, f"{part}_ffn_dim": inside}
        config = MarianConfig(
            vocab_size=vocabulary, d_model=size.width, max_position_embeddings=size.context, dropout=size.dropout,
            activation_function=size.function, scale_embedding=True, pad_token_id=padding, eos_token_id=end,
            decoder_start_token_id=padding, forced_eos_token_id=None, use_cache=False, **side,
        )  # fmt: skip
        config._attn_implementation = "sdpa"
        model = MarianMTModel(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=MARIAN_LR, betas=(0.9, 0.98), fused=True)
        batches = recipe.batches(data)

        def step(gone: float) -> None:
            batch = next(batches)
            x_BS, y_BT = batch["x"], batch["y"]
            before_BT = torch.cat([torch.full_like(y_BT[:, :1], padding), y_BT[:, :-1]], 1)
            logits = model(input_ids=x_BS, attention_mask=(x_BS != padding).long(), decoder_input_ids=before_BT).logits
            loss = F.cross_entropy(
                logits.flatten(0, 1), y_BT.flatten(), ignore_index=padding, label_smoothing=recipe.smoothing
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = MARIAN_LR * min(gone / MARIAN_WARMUP, (1 - gone) / (1 - MARIAN_WARMUP))
            optimizer.step()

        def write(x_BS: Tensor) -> list[list[int]]:
            made: Any = model.generate(  # type: ignore[operator]
                x_BS,
                attention_mask=(x_BS != padding).long(),
                max_new_tokens=size.context - 1,
                num_beams=1,
                do_sample=False,
                use_cache=True,
            )
            return [until(row, end) for row in made[:, 1:].tolist()]

        def work() -> Score:
            for_minutes(step)
            return bleu(model, write)

        return work

    def engram() -> Callable[[], Score]:
        torch.manual_seed(recipe.seed)
        learner, batches = recipe.learner(data), recipe.batches(data)
        model = learner.model
        assert isinstance(model, Transformer)

        def step(gone: float) -> None:
            next_one = learner.done + 1
            learner.steps = round(next_one / max(gone, 1e-6))  # its schedule goes by steps, of which there are so many
            learner.step(next(batches))

        def work() -> Score:
            for_minutes(step)
            return bleu(model, lambda x_BS: model.translate(x_BS, recipe.model.context - 1))

        return work

    return {"transformers MarianMTModel, AdamW": marian, "engram run translate": engram}


def for_minutes(step: Callable[[float], None]) -> None:
    """Take steps, each told which part of the time is gone, until all is."""
    began = time.perf_counter()
    while (gone := (time.perf_counter() - began) / (60 * MINUTES)) < 1:
        step(gone)


def translations(data: Pairs, write: Write, padding: int) -> list[str]:
    """What becomes of the first verses of the test; those of like length go together."""
    sources = data["test"]["source_ids"][:VERSES]
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    said = [""] * len(sources)
    for start in range(0, len(order), TOGETHER):
        rows = order[start : start + TOGETHER]
        for i, tokens in zip(rows, write(padded([sources[i] for i in rows], padding)), strict=True):
            said[i] = data.tokeniser.decode(tokens)
    return said
