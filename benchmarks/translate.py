"""BLEU at equal time: engram's Transformer against transformers' Marian of the same size.

Both train on the same batches for the same time, with learning-rate schedules by the clock, and then translate the same
verses by greedy decoding. Marian trains as is usual, with AdamW.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.cli.bench import Contestant, Score
from engram.data.text_pairs import TextPairs, pad_rows
from engram.transformers.translate.model import Transformer, cut_at
from engram.transformers.translate.recipe import TranslateRecipe

MINUTES = 8.0
VERSES = 300
WORK = f"{MINUTES:g} minutes of training on bible-en-de, then {VERSES} test verses into German, greedily"
UNIT = "BLEU"
ROUNDS = 1
CHANGES: dict[str, Any] = {}
"""settings that differ from the preset full"""
BATCH = 50
"""verses per batch of translation"""
MARIAN_LR, MARIAN_WARMUP = 1e-3, 0.1
"""peak learning rate of AdamW, and the warmup as a fraction of the time; then it decays to zero linearly"""

Translator = Callable[[Tensor], list[list[int]]]


def contestants() -> dict[str, Contestant]:
    import sacrebleu
    from transformers import MarianConfig, MarianMTModel

    recipe = TranslateRecipe.from_preset("full", **CHANGES)
    data = recipe.load()
    pad_id, eos_id, vocabulary = data.tokenizer.pad_id or 0, data.tokenizer.eos_id or 0, data.tokenizer.vocab_size

    def bleu(model: nn.Module, translate: Translator) -> Score:
        model.eval()
        texts = translate_verses(data, translate, pad_id)
        return Score(sacrebleu.corpus_bleu(texts, [list(data["test"]["target"][:VERSES])]).score)

    def marian() -> Callable[[], Score]:
        torch.manual_seed(recipe.seed)
        size = recipe.model
        side: dict[str, Any] = {}
        for part, layers in (("encoder", size.layers), ("decoder", size.decoder_layers or size.layers)):
            ff_width = size.ff_width or 4 * size.width
            side |= {f"{part}_layers": layers, f"{part}_attention_heads": size.heads, f"{part}_ffn_dim": ff_width}
        config = MarianConfig(
            vocab_size=vocabulary, d_model=size.width, max_position_embeddings=size.context, dropout=size.dropout,
            activation_function=size.activation, scale_embedding=True, pad_token_id=pad_id, eos_token_id=eos_id,
            decoder_start_token_id=pad_id, forced_eos_token_id=None, use_cache=False, **side,
        )  # fmt: skip
        config._attn_implementation = "sdpa"
        model = MarianMTModel(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=MARIAN_LR, betas=(0.9, 0.98), fused=True)
        batches = recipe.batches(data)

        def step(elapsed: float) -> None:
            batch = next(batches)
            x_BS, y_BT = batch["x"], batch["y"]
            shifted_BT = torch.cat([torch.full_like(y_BT[:, :1], pad_id), y_BT[:, :-1]], 1)
            logits = model(input_ids=x_BS, attention_mask=(x_BS != pad_id).long(), decoder_input_ids=shifted_BT).logits
            loss = F.cross_entropy(
                logits.flatten(0, 1), y_BT.flatten(), ignore_index=pad_id, label_smoothing=recipe.label_smoothing
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = MARIAN_LR * min(elapsed / MARIAN_WARMUP, (1 - elapsed) / (1 - MARIAN_WARMUP))
            optimizer.step()

        def translate(x_BS: Tensor) -> list[list[int]]:
            output: Any = model.generate(  # type: ignore[operator]
                x_BS,
                attention_mask=(x_BS != pad_id).long(),
                max_new_tokens=size.context - 1,
                num_beams=1,
                do_sample=False,
                use_cache=True,
            )
            return [cut_at(row, eos_id) for row in output[:, 1:].tolist()]

        def work() -> Score:
            train_for_minutes(step)
            return bleu(model, translate)

        return work

    def engram() -> Callable[[], Score]:
        torch.manual_seed(recipe.seed)
        learner, batches = recipe.learner(data), recipe.batches(data)
        model = learner.model
        assert isinstance(model, Transformer)

        def step(elapsed: float) -> None:
            step_number = learner.done + 1
            learner.steps = round(step_number / max(elapsed, 1e-6))  # so that its schedule ends with the time
            learner.step(next(batches))

        def work() -> Score:
            train_for_minutes(step)
            return bleu(model, lambda x_BS: model.translate(x_BS, recipe.model.context - 1))

        return work

    return {"transformers MarianMTModel, AdamW": marian, "engram run translate": engram}


def train_for_minutes(step: Callable[[float], None]) -> None:
    """Take training steps until the time is over; each gets the fraction of the time that has passed."""
    start_time = time.perf_counter()
    while (elapsed := (time.perf_counter() - start_time) / (60 * MINUTES)) < 1:
        step(elapsed)


def translate_verses(data: TextPairs, translate: Translator, pad_id: int) -> list[str]:
    """Translate the first verses of the test split, in batches of similar lengths."""
    sources = data["test"]["source_ids"][:VERSES]
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    texts = [""] * len(sources)
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        for i, tokens in zip(rows, translate(pad_rows([sources[i] for i in rows], pad_id)), strict=True):
            texts[i] = data.tokenizer.decode(tokens)
    return texts
