"""Causal language models against transformers: what it saves gives the same outputs here, and what we write there."""

import json

import pytest
import torch
import transformers

from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.generation.sampling import GREEDY
from engram.hub.huggingface import load_checkpoint, save_checkpoint
from engram.transformers.gpt.model import GPT
from tests.golden.test_huggingface import agree, ids, opened, saved, shaken

SMALL = {"vocab_size": 41, "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 4,
         "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 40}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 10}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "original_max_position_embeddings": 16,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip
PARTIAL = {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5}
LOCAL = {"rope_type": "default", "rope_theta": 77.0}
LINEAR = {"rope_type": "linear", "rope_theta": 300.0, "factor": 2.5}
SMALL_NEOX = {name: value for name, value in SMALL.items() if name != "num_key_value_heads"}
SMALL_OPT = {"vocab_size": 41, "hidden_size": 24, "word_embed_proj_dim": 24, "ffn_dim": 20, "num_hidden_layers": 2,
             "num_attention_heads": 3, "max_position_embeddings": 40, "dropout": 0.0}  # fmt: skip
FAMILIES = {
    "Llama": [
        {},
        {"num_key_value_heads": 6, "tie_word_embeddings": True, "rope_parameters": LLAMA3, "rms_norm_eps": 1e-3},
        {"head_dim": 8, "attention_bias": True, "mlp_bias": True, "hidden_act": "gelu", "rope_parameters": LINEAR},
        {"num_attention_heads": 3, "num_key_value_heads": 3, "num_hidden_layers": 1, "rope_parameters": YARN},
        {"rope_parameters": {**YARN, "attention_factor": 1.7, "beta_fast": 6, "beta_slow": 2}},
    ],
    "Mistral": [
        {"sliding_window": 5},
        {"sliding_window": None, "head_dim": 10, "tie_word_embeddings": True},
        {"sliding_window": 1, "num_key_value_heads": 1},
    ],
    "SmolLM3": [
        {},
        {"no_rope_layers": [0, 1, 1, 0], "tie_word_embeddings": False, "attention_bias": True},
        {"use_sliding_window": True, "sliding_window": 4, "no_rope_layer_interval": 2, "mlp_bias": True},
    ],
    "Qwen2": [
        {},
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2, "tie_word_embeddings": True},
        {"rope_parameters": YARN, "num_hidden_layers": 1, "num_attention_heads": 2},
    ],
    "Qwen3": [
        {"head_dim": 8},
        {"head_dim": 4, "attention_bias": True, "tie_word_embeddings": True},
        {"head_dim": 6, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    ],
    "Gemma": [{"head_dim": 8}, {"head_dim": 4, "attention_bias": True}, {"head_dim": 6, "num_key_value_heads": 1}],
    "Gemma2": [
        {"head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 24},
        {"head_dim": 4, "sliding_window": 40, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
        {"head_dim": 6, "attn_logit_softcapping": None, "final_logit_softcapping": None, "sliding_window": 2,
         "num_hidden_layers": 3, "attention_bias": True},
    ],
    "Gemma3Text": [
        {"head_dim": 8, "sliding_window": 4, "num_hidden_layers": 7, "query_pre_attn_scalar": 24},
        {"head_dim": 4, "sliding_window": 3, "layer_types": ["full_attention", "sliding_attention"] * 2},
        {"head_dim": 6, "sliding_window": 5, "num_hidden_layers": 6, "rope_parameters": {
            "full_attention": {**LINEAR, "factor": 8.0}, "sliding_attention": LOCAL,
        }},
    ],
    "Phi3": [
        {},
        {"sliding_window": 4, "rope_parameters": {**PARTIAL, "rope_theta": 900.0}},
        {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True},
    ],
    "Olmo2": [
        {},
        {"attention_bias": True, "num_key_value_heads": 6},
        {"tie_word_embeddings": True, "rope_parameters": LINEAR},
    ],
    "GPTNeoX": [
        {"rope_parameters": PARTIAL},
        {"use_parallel_residual": False, "hidden_act": "gelu_new", "num_attention_heads": 3, "layer_norm_eps": 1e-3},
        {"attention_bias": False, "num_attention_heads": 2, "tie_word_embeddings": True,
         "rope_parameters": {**PARTIAL, "partial_rotary_factor": 1.0}},
    ],
    "OPT": [{}, {"activation_function": "gelu", "num_hidden_layers": 1}, {"tie_word_embeddings": False}],
    "NanoChat": [
        {},
        {"rms_norm_eps": 1e-3, "final_logit_softcapping": 2.0, "num_key_value_heads": 6},
        {"final_logit_softcapping": None, "num_attention_heads": 2, "rope_parameters": {
            "rope_type": "default", "rope_theta": 333.0}},
    ],
}  # fmt: skip
CASES = [(name, settings) for name, cases in FAMILIES.items() for settings in cases]
pytestmark = [pytest.mark.usefixtures("no_gradients", "quiet")]


def of_theirs(name, settings):
    kind = name.removesuffix("Text")
    base = {"OPT": SMALL_OPT, "GPTNeoX": SMALL_NEOX}.get(name, SMALL)
    special = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    config = getattr(transformers, f"{name}Config")(**{**base, **special, **settings})
    config._attn_implementation = "eager"
    return getattr(transformers, f"{kind}ForCausalLM")(config)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_from_there_and_back(name, settings, tmp_path):
    """Logits, also of left-padded rows; what we save of it is what transformers had."""
    theirs = shaken(of_theirs(name, settings))
    ours, x_BT = saved(theirs, tmp_path / "theirs"), ids(41, length=13)
    valid_BT = torch.arange(13) >= torch.tensor([0, 5, 9])[:, None]
    agree(ours(x_BT), theirs(x_BT).logits)
    position_ids = (valid_BT.cumsum(1) - 1).clamp(min=0)
    expected = theirs(x_BT, attention_mask=valid_BT, position_ids=None if name == "OPT" else position_ids).logits
    decoder = ours.make_decoder()
    rows = [row[valid].tolist() for row, valid in zip(x_BT, valid_BT, strict=True)]
    agree(decoder(rows, last=3), expected[:, -3:])
    save_checkpoint(ours, tmp_path / "ours")
    again, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    agree(again.eval()(x_BT).logits, theirs(x_BT).logits)
    agree(load_checkpoint(tmp_path / "ours").model(x_BT), ours(x_BT))


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_the_fused_kernel_and_the_taps_say_the_same(name, settings, tmp_path):
    """Greedy text token by token: by the kernel, without a cache, and with a watcher."""
    ours = saved(of_theirs(name, settings), tmp_path)
    prompt = ids(41, rows=1, length=6)[0].tolist()
    decoder, plain, row = ours.make_decoder(), ours.make_decoder(cached=False), list(prompt)
    assert decoder.fused is not None
    for _ in range(12):
        logits = decoder([row])
        agree(logits, plain([row]))
        row.append(int(logits[0, -1].argmax()))
    with watch(ours) as seen:
        agree(ours(torch.tensor([row])), plain([row], last=len(row)))
    weights = seen["blocks.0.attention.weights"]
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert {"blocks.0.residual", "blocks.0.attention.heads", "blocks.0.ff.hidden", "embedding", "logits"} <= set(seen)
    (generated,) = ours.generate([prompt], 12, GREEDY)
    assert prompt + generated == row


@pytest.mark.parametrize(("old", "name", "settings"), [
    ({"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}}, "Llama", {
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}}),
    ({"rope_theta": 500.0, "rope_scaling": {name: value for name, value in LLAMA3.items() if name != "rope_theta"}},
     "Llama", {"rope_parameters": LLAMA3}),
    ({"rope_theta": 900.0, "rope_local_base_freq": 50.0, "sliding_window_pattern": 2}, "Gemma3Text", {
        "head_dim": 8, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 900.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}}),
    ({"rotary_pct": 0.5, "rotary_emb_base": 700}, "GPTNeoX", {
        "rope_parameters": PARTIAL}),
])  # fmt: skip
def test_settings_as_earlier_versions_write_them(old, name, settings, tmp_path):
    theirs = shaken(of_theirs(name, settings))
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("rope_parameters", "layer_types"):
        config.pop(name, None)
    (tmp_path / "config.json").write_text(json.dumps({**config, **old}))
    x_BT = ids(41, length=13)
    agree(load_checkpoint(tmp_path).model(x_BT), theirs(x_BT).logits)


OURS = {
    "llama": {"norm": "rms", "qk_norm": "none", "activation": "swiglu", "kv_heads": 2, "ff_width": 20},
    "mistral": {"norm": "rms", "qk_norm": "none", "activation": "geglu", "attention_window": (3,)},
    "qwen2": {"norm": "rms", "qk_norm": "none", "activation": "swiglu", "bias": ("qkv",), "attention_window": (0, 4)},
    "qwen3": {"norm": "rms", "qk_norm": "rms", "activation": "swiglu", "head_width": 6},
    "gemma2": {"norm": "rms", "qk_norm": "none", "activation": "geglu_tanh", "residual": "sandwich-norm",
               "embedding_scale": 24**0.5, "attention_softcap": 5.0, "attention_window": (4, 0), "logit_softcap": 4.0},
    "gemma3_text": {"norm": "rms", "qk_norm": "rms", "activation": "geglu_tanh", "residual": "sandwich-norm",
                    "embedding_scale": 24**0.5, "attention_scale": 0.25, "attention_window": (4, 0)},
    "olmo2": {"norm": "rms", "qk_norm": "rms-width", "activation": "swiglu", "residual": "output-norm"},
    "gpt_neox": {"norm": "layer", "qk_norm": "none", "activation": "gelu", "residual": "parallel",
                 "bias": ("qkv", "out", "ff")},
}  # fmt: skip


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", OURS)
def test_from_here(name, tied, tmp_path):
    config = GPT.Config(vocabulary=41, context=30, width=24, layers=3, heads=4, tie_embeddings=tied, **OURS[name])
    ours, x_BT = GPT(config), ids(41, length=13)
    theirs = opened(ours, tmp_path, transformers.AutoModelForCausalLM)
    assert theirs.config.model_type == name
    agree(ours(x_BT), theirs(x_BT).logits)
    agree(load_checkpoint(tmp_path).model(x_BT), ours(x_BT))


@pytest.mark.parametrize(("name", "settings", "changes", "reason"), [
    ("Llama", {}, {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "RoPE scaling is 'longrope'"),
    ("Llama", {}, {"hidden_act": "tanh"}, "activation function is 'tanh'"),
    ("Llama", {}, {"num_key_value_heads": 4}, "kv_heads must divide heads"),
    ("Llama", {}, {"hidden_size": "many"}, "of the wrong kind"),
    ("Gemma", {"head_dim": 8}, {"use_bidirectional_attention": True}, "attention is bidirectional"),
    ("OPT", {}, {"word_embed_proj_dim": 12}, "word_embed_proj_dim must be the width"),
    ("OPT", {}, {"do_layer_norm_before": False}, "do_layer_norm_before is False"),
    ("Llama", {}, {"intermediate_size": 35}, "should be"),
    ("GPTNeoX", {}, {"num_attention_heads": 2, "hidden_size": 28}, "it rotates 3 of 14 numbers of a head"),
    ("Phi3", {}, {"intermediate_size": 35}, "do not fit a phi3"),
    ("GPTNeoX", {}, {"num_attention_heads": 4, "hidden_size": 32}, "do not fit a gpt_neox"),
])  # fmt: skip
def test_what_has_no_counterpart_is_refused_in_a_sentence(name, settings, changes, reason, tmp_path):
    of_theirs(name, settings).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(EngramError, match=reason):
        load_checkpoint(tmp_path)


def test_what_cannot_be_saved_names_the_nearest_families(tmp_path):
    config = GPT.Config(width=24, heads=4, norm="rms", qk_norm="none", activation="swiglu", attention_softcap=3.0)
    with pytest.raises(EngramError, match=r"as llama, attention_softcap must be 0\.0, not 3\.0"):
        save_checkpoint(GPT(config), tmp_path)
