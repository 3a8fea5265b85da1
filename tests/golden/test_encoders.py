"""RoBERTa and ModernBERT against transformers: what it saves gives the same outputs here, and ours there."""

import json
from dataclasses import replace

import pytest
import safetensors.torch
import tokenizers
import torch
import transformers

import engram as library
from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.data.tokenizer import Tokenizer
from engram.hub.huggingface import load_checkpoint, save_checkpoint
from engram.nn.position import RoPE
from engram.transformers.bert.model import BERT
from tests.golden.test_huggingface import agree, ids, opened, saved, shaken

B, T, V = 3, 11, 37
LENGTHS = (11, 4, 1)
VALID = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
ROBERTA = {"vocab_size": V, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
           "intermediate_size": 20, "max_position_embeddings": 15}  # fmt: skip
MODERN = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "cls_token_id": 0, "sep_token_id": 2}
ROPE = {"full_attention": {"rope_type": "linear", "rope_theta": 300.0, "factor": 2.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 20.0}}  # fmt: skip
SHAPES = {
    "Roberta": [
        {},
        {"pad_token_id": 5, "max_position_embeddings": 17, "hidden_act": "relu", "type_vocab_size": 1},
        {"pad_token_id": 0, "hidden_size": 15, "num_attention_heads": 5, "layer_norm_eps": 1e-3,
         "hidden_act": "gelu_new", "num_hidden_layers": 1},
    ],
    "XLMRoberta": [{"type_vocab_size": 1, "hidden_size": 14, "num_attention_heads": 7, "hidden_act": "silu"}],
    "Camembert": [{"pad_token_id": 3}],
    "ModernBert": [
        {"local_attention": 4, "num_hidden_layers": 4},
        {"local_attention": 7, "norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True,
         "hidden_activation": "silu", "classifier_activation": "relu", "hidden_size": 20, "num_attention_heads": 5,
         "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": ROPE},
        {"local_attention": 0, "decoder_bias": False, "hidden_activation": "gelu_new", "num_attention_heads": 1,
         "norm_eps": 1e-3, "layer_types": ["full_attention", "sliding_attention"], "intermediate_size": 7},
        {"local_attention": 2, "layer_types": ["sliding_attention"] * 2, "mlp_bias": True},
        {"layer_types": ["full_attention"] * 2, "attention_bias": True},
    ],
}  # fmt: skip
CASES = [(name, settings) for name, cases in SHAPES.items() for settings in cases]
pytestmark = [pytest.mark.usefixtures("no_gradients", "quiet")]


def of_theirs(name, settings, task="ForMaskedLM"):
    special = MODERN if name == "ModernBert" else {}
    heads = {"num_attention_heads": 3, "hidden_size": 12} if name != "ModernBert" else {"hidden_size": 18}
    config = getattr(transformers, f"{name}Config")(**{**ROBERTA, **special, **heads, **settings})
    return getattr(transformers, f"{name}{task}")(config)


def texts(theirs):
    """Tokens of three texts, with padding after the shorter two."""
    pad_id = theirs.config.pad_token_id
    x_BT = ids(V, rows=B, length=T)
    x_BT[x_BT == pad_id] = V - 1
    return x_BT.masked_fill(~VALID, pad_id)


def same_state_dict(ours, theirs):
    """What transformers reads of our file is what it has."""
    again = type(theirs).from_pretrained(ours).state_dict()
    expected = theirs.state_dict()
    assert set(again) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(again[name], value, atol=0, rtol=0)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_masked_language_models(name, settings, tmp_path):
    """Logits, also of padded rows; and what we save is the state dict that transformers had."""
    theirs = shaken(of_theirs(name, settings))
    ours, x_BT = saved(theirs, tmp_path / "theirs"), texts(theirs)
    expected = theirs(x_BT, attention_mask=VALID).logits
    agree(ours(x_BT, VALID)[VALID], expected[VALID])
    agree(ours(x_BT[:1]), expected[:1])
    with watch(ours) as seen:
        agree(ours(x_BT, VALID)[VALID], expected[VALID])
    assert {"blocks.0.attention.weights", "blocks.0.attention.heads", "blocks.0.residual", "logits"} <= set(seen)
    save_checkpoint(ours, tmp_path / "ours")
    same_state_dict(tmp_path / "ours", theirs)
    agree(load_checkpoint(tmp_path / "ours").model(x_BT, VALID), ours(x_BT, VALID))


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_models_without_a_head(name, settings, tmp_path):
    """Vectors, and the pooled one; a state dict without prefix and without buffers."""
    theirs = shaken(of_theirs(name, settings, "Model"))
    ours, x_BT = saved(theirs, tmp_path / "theirs"), texts(theirs)
    expected = theirs(x_BT, attention_mask=VALID)
    agree(ours.encode(x_BT, VALID)[VALID], expected.last_hidden_state[VALID])
    if ours.config.pooled:
        agree(ours.pooled(ours.encode(x_BT, VALID)), expected.pooler_output)
    with watch(ours):
        agree(ours.encode(x_BT, VALID), ours.encode(x_BT, VALID).nan_to_num())
        agree(ours.encode(x_BT, VALID)[VALID], expected.last_hidden_state[VALID])
    save_checkpoint(ours, tmp_path / "ours")
    same_state_dict(tmp_path / "ours", theirs)


@pytest.mark.parametrize("name", ["Roberta", "ModernBert"])
@pytest.mark.parametrize("task", ["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"])
def test_models_of_other_tasks_give_vectors(name, task, tmp_path):
    theirs = shaken(of_theirs(name, {}, task))
    ours, x_BT = saved(theirs, tmp_path), texts(theirs)
    assert not ours.config.masked
    expected = theirs.base_model(x_BT, attention_mask=VALID).last_hidden_state
    agree(ours.encode(x_BT, VALID)[VALID], expected[VALID])


def test_settings_that_are_left_out_have_their_defaults(tmp_path):
    """A config.json with nothing but sizes, as a person might write it."""
    sizes = {"hidden_size": 24, "intermediate_size": 3, "num_hidden_layers": 12, "num_attention_heads": 12}
    theirs = shaken(of_theirs("Roberta", {**sizes, "max_position_embeddings": 512}))
    theirs.save_pretrained(tmp_path)
    known = {"model_type": "roberta", "vocab_size": V, "hidden_size": 24, "intermediate_size": 3}
    (tmp_path / "config.json").write_text(json.dumps(known))
    x_BT = texts(theirs)
    agree(load_checkpoint(tmp_path).model(x_BT, VALID)[VALID], theirs(x_BT, attention_mask=VALID).logits[VALID])


@pytest.mark.parametrize("settings", [
    {"pad_id": 1},
    {"pad_id": 0, "bias": (), "norm": "layer-no-affine", "activation": "relu", "types": 1, "heads": 1},
    {"pad_id": 7, "activation": "gelu_tanh", "ff_width": 9, "layers": 1},
])  # fmt: skip
def test_from_here(settings, tmp_path):
    known = {"vocabulary": V, "context": T, "width": 12, "layers": 2, "heads": 3, "head_activation": "gelu"}
    ours = BERT(BERT.Config(**{**known, **settings}))
    theirs = opened(ours, tmp_path / "masked", transformers.AutoModelForMaskedLM)
    assert theirs.config.model_type == "roberta"
    x_BT = texts(theirs)
    agree(ours(x_BT, VALID)[VALID], theirs(x_BT, attention_mask=VALID).logits[VALID])
    pooled = BERT(replace(ours.config, pooled=True, masked=False))
    theirs = opened(pooled, tmp_path / "pooled", transformers.AutoModel)
    agree(pooled.pooled(pooled.encode(x_BT[:1])), theirs(x_BT[:1]).pooler_output)


MODERNBERT = {"residual": "pre-norm", "position": "rotary", "norm": "layer-no-bias", "types": 0, "activation": "geglu"}


@pytest.mark.parametrize("settings", [
    {"bias": ("head",), "attention_window": (0, 4, 4), "layers": 5},
    {"bias": ("qkv", "out", "transform"), "activation": "swiglu", "norm": "layer", "ff_width": 9, "heads": 3},
    {"bias": ("ff",), "attention_window": (3,), "head_activation": "relu", "rope": RoPE(theta=(50.0,))},
    {"attention_window": (2, 0), "activation": "geglu_tanh", "rope": RoPE(theta=(30.0, 200.0)), "masked": False},
])  # fmt: skip
def test_modernbert_from_here(settings, tmp_path):
    known = {"vocabulary": V, "context": T, "width": 12, "layers": 2, "heads": 2}
    ours = BERT(BERT.Config(**{**known, **MODERNBERT, **settings}))
    auto = transformers.AutoModelForMaskedLM if ours.config.masked else transformers.AutoModel
    theirs, x_BT = opened(ours, tmp_path, auto), ids(V, rows=B, length=T)
    assert theirs.config.model_type == "modernbert"
    expected = theirs(x_BT, attention_mask=VALID)[0]
    agree((ours if ours.config.masked else ours.encode)(x_BT, VALID)[VALID], expected[VALID])
    agree(load_checkpoint(tmp_path).model.encode(x_BT, VALID), ours.encode(x_BT, VALID))


def test_modernbert_as_earlier_versions_write_it(tmp_path):
    """Number of layers from one that attends to all tokens to the next, and the RoPE bases by their old names."""
    rope = {"full_attention": {"rope_type": "default", "rope_theta": 70.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5.0}}  # fmt: skip
    kinds = ["full_attention", "sliding_attention"] * 2
    settings = {"layer_types": kinds, "num_hidden_layers": 4, "rope_parameters": rope, "local_attention": 4}
    theirs = shaken(of_theirs("ModernBert", settings))
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("rope_parameters", "layer_types", "norm_eps", "norm_bias", "decoder_bias"):
        del config[name]
    config |= {"global_attn_every_n_layers": 2, "global_rope_theta": 70.0, "local_rope_theta": 5.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    x_BT = texts(theirs)
    agree(load_checkpoint(tmp_path).model(x_BT, VALID)[VALID], theirs(x_BT, attention_mask=VALID).logits[VALID])


@pytest.mark.parametrize(("name", "task", "changes", "reason"), [
    ("ModernBert", "ForMaskedLM", {"hidden_activation": "relu"}, "its activation function is 'relu'"),
    ("ModernBert", "ForMaskedLM", {"classifier_activation": "tanh"}, "the activation function of its head is 'tanh'"),
    ("ModernBert", "ForMaskedLM", {"num_attention_heads": 2}, "heads of even width, not 9"),
    ("ModernBert", "ForMaskedLM", {"intermediate_size": 7}, "mlp.gate.weight is"),
    ("ModernBert", "ForMaskedLM", {"hidden_size": 24}, "Wqkv.weight is not part of the model"),
    ("ModernBert", "Model", {"local_attention": "wide"}, "of the wrong kind"),
    ("ModernBert", "Model", {"layer_types": None, "global_attn_every_n_layers": 0}, "for one layer at least"),
    ("ModernBert", "Model", {"layer_types": ["full_attention", "chunked"]}, "its layers are of the kind 'chunked'"),
    ("ModernBert", "Model", {"rope_parameters": "none"}, "of the wrong kind"),
    ("ModernBert", "Model", {"num_hidden_layers": 1}, "layers.1.mlp_norm.weight is not part of the model"),
    ("ModernBert", "Model", {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
     "RoPE of its layers with a window is scaled"),
    ("Roberta", "ForMaskedLM", {"is_decoder": True}, "is_decoder is True and must be False"),
    ("Roberta", "ForMaskedLM", {"pad_token_id": 15}, "context must be at least 1"),
    ("Roberta", "ForMaskedLM", {"pad_token_id": "one"}, "of the wrong kind"),
    ("Roberta", "ForMaskedLM", {"hidden_act": "tanh"}, 'the activation function "tanh"'),
    ("Roberta", "ForMaskedLM", {"max_position_embeddings": 99}, r"position_embeddings.weight is \(15, 12\)"),
    ("Roberta", "Model", {"num_hidden_layers": 3}, "layer.2.attention.self.query.weight is missing"),
])  # fmt: skip
def test_what_has_no_counterpart_is_refused_in_a_sentence(name, task, changes, reason, tmp_path):
    of_theirs(name, {}, task).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(EngramError, match=reason):
        load_checkpoint(tmp_path)


def test_a_head_that_is_not_tied_is_refused(tmp_path):
    of_theirs("Roberta", {}).save_pretrained(tmp_path)
    weights = safetensors.torch.load_file(tmp_path / "model.safetensors")
    safetensors.torch.save_file(
        {**weights, "lm_head.decoder.weight": torch.ones(V, 12)}, tmp_path / "model.safetensors"
    )
    with pytest.raises(EngramError, match=r"lm_head\.decoder\.weight should be the same as roberta\.embeddings"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(("settings", "reason"), [
    ({"bias": ("qkv",)}, "bias must name both of qkv and out"),
    ({"attention_window": (2, 3)}, "attention_window must have one width"),
    ({"rope": RoPE(theta=(2.0, 3.0))}, "theta may differ by attention_window alone"),
    ({"rope": RoPE(rotary_fraction=0.5)}, "all of each head must be rotated"),
])  # fmt: skip
def test_modernbert_that_cannot_be_saved_says_why(settings, reason, tmp_path):
    known = {"vocabulary": V, "width": 16, "layers": 2, "heads": 2, **MODERNBERT}
    with pytest.raises(EngramError, match=reason):
        save_checkpoint(BERT(BERT.Config(**{**known, **settings})), tmp_path)


@pytest.mark.parametrize(
    "settings", [{"pad_id": 1}, {"pad_id": V, "head_activation": "gelu"}, {"head_activation": "silu"}]
)
def test_what_cannot_be_saved_says_why(settings, tmp_path):
    with pytest.raises(EngramError, match="must be"):
        save_checkpoint(BERT(BERT.Config(vocabulary=V, width=12, heads=3, activation="relu", **settings)), tmp_path)


# ---------------------------------------------------------------------- texts


TEXTS = ["to be or not to be", "my lord", "O"]


@pytest.fixture
def roberta_tokenizer(tmp_path):
    """A byte-level BPE with the files of RoBERTa: vocab.json and merges.txt."""
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(
        TEXTS, vocab_size=290, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False
    )
    trained.save_model(str(tmp_path))
    return tmp_path


def test_texts_are_embedded_as_transformers_pools_them(roberta_tokenizer):
    folder = roberta_tokenizer
    theirs = shaken(of_theirs("Roberta", {"vocab_size": 290, "max_position_embeddings": 30}, "Model"))
    theirs.save_pretrained(folder)
    ours = library.load(folder)
    mask_token = transformers.AddedToken("<mask>", lstrip=True)  # as in the tokenizer.json of roberta-base
    tokens = transformers.RobertaTokenizer.from_pretrained(folder, mask_token=mask_token)
    for text, vector in zip(TEXTS, ours.embed(TEXTS, normalize=False), strict=True):
        assert ours.tokenizer.encode(f"{text} <mask>.") == tokens(f"{text} <mask>.").input_ids
        h_TE = theirs(torch.tensor([tokens(text).input_ids])).last_hidden_state[0]
        agree(torch.from_numpy(vector), h_TE.mean(0))
    save_checkpoint(ours, folder / "ours", Tokenizer.load(folder))
    again = transformers.AutoTokenizer.from_pretrained(folder / "ours")
    assert again("my <mask>").input_ids == tokens("my <mask>").input_ids
    assert (again.mask_token, again.pad_token_id) == ("<mask>", theirs.config.pad_token_id)
