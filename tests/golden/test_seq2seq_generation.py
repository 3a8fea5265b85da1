"""Texts that encoder-decoders write, against `generate` of transformers: token by token, with a KV cache."""

import logging

import pytest
import torch
import transformers

from engram.core.seeding import generator
from engram.generation.sampling import SamplingParams, multinomial
from engram.hub.huggingface import load_checkpoint, save_checkpoint
from tests.golden.test_huggingface import shaken

V, PADDING, STOP, LENGTH = 31, 0, 1, 12
MARIAN = {
    "vocab_size": V, "d_model": 12, "encoder_layers": 1, "decoder_layers": 3, "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 7, "encoder_attention_heads": 3, "decoder_attention_heads": 2, "max_position_embeddings": 40,
    "pad_token_id": PADDING, "decoder_start_token_id": PADDING, "eos_token_id": STOP, "forced_eos_token_id": None,
}  # fmt: skip
T5 = {
    "vocab_size": V, "d_model": 12, "d_kv": 5, "d_ff": 20, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 3,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 9, "pad_token_id": PADDING,
    "decoder_start_token_id": PADDING, "eos_token_id": STOP,
}  # fmt: skip


def marian(**settings):
    return transformers.MarianMTModel(transformers.MarianConfig(**MARIAN, **settings))


def t5(**settings):
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**T5, **settings))


def t5_untied(**settings):
    """As version 1.1 was trained: transformers ties the output matrix of a fresh model in any case."""
    model = t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False, **settings)
    model.lm_head.weight = torch.nn.Parameter(torch.randn(V, T5["d_model"]) * 0.3)
    return model


MODELS = {"marian": marian, "t5": t5, "t5 1.1": t5_untied}
SAMPLING = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 5},
    {"temperature": 1.3, "top_p": 0.8, "repetition_penalty": 1.4},
]


@pytest.fixture(autouse=True)
def quiet():
    torch.manual_seed(0)
    transformers.utils.logging.set_verbosity(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()


@pytest.fixture(params=MODELS)
def models(request, tmp_path):
    """Their random model, and ours: what they saved, saved by us and loaded again."""
    theirs = shaken(MODELS[request.param]())
    with torch.no_grad():  # so that texts are not the same token again and again
        for name, parameter in theirs.named_parameters():
            if parameter.requires_grad and parameter.dim() == 2:
                parameter.mul_(0.3 if "shared" in name or "embed" in name else 4)
    theirs.save_pretrained(tmp_path / "theirs")
    save_checkpoint(load_checkpoint(tmp_path / "theirs").model, tmp_path / "ours")
    return theirs, load_checkpoint(tmp_path / "ours").model


def sources():
    x_BS = torch.randint(2, V, (4, 9))
    x_BS[1, 5:] = x_BS[2, 2:] = x_BS[3, 1:] = PADDING
    return x_BS


def generate(theirs, x_BS, **options):
    """Rows that they generate, without the first token and what follows the end."""
    rows = theirs.generate(x_BS, attention_mask=x_BS != PADDING, max_new_tokens=LENGTH, **options)
    return [row[: row.index(STOP)] if STOP in row else row for row in rows[:, 1:].tolist()]


@pytest.mark.parametrize("sampling", SAMPLING)
def test_a_text_token_by_token(models, monkeypatch, sampling):
    """They draw by our rule of one uniform number for a row, so that the same seed gives the same tokens."""
    theirs, ours = models
    params, random, x_BS = SamplingParams(**sampling), generator(0), sources()
    monkeypatch.setattr(torch, "multinomial", lambda p_BV, num_samples: multinomial(p_BV, random)[:, None])
    greedy = {"do_sample": False} if not params.temperature else {"do_sample": True, "top_k": 0, **sampling}
    expected = generate(theirs, x_BS, **greedy)
    for cached in (True, False):
        assert ours.translate(x_BS, LENGTH, params, generator=generator(0), cached=cached) == expected


@pytest.mark.parametrize("num_beams", [1, 2, 5])
@pytest.mark.parametrize("length_penalty", [1.0, 0.4])
def test_a_text_by_beam_search(models, num_beams, length_penalty):
    theirs, ours = models
    x_BS = sources()
    expected = generate(theirs, x_BS, do_sample=False, num_beams=num_beams, length_penalty=length_penalty)
    for row, length in enumerate((9, 5, 2, 1)):
        beams = ours.beam_search(x_BS[row : row + 1, :length], num_beams, LENGTH, length_penalty)
        assert beams[0].tokens == expected[row]
