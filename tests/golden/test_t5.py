"""T5 checkpoints against transformers: what it saves gives the same outputs here, and what we write the same there."""

import json

import pytest
import safetensors.torch
import torch
import transformers

from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.hub.huggingface import load_checkpoint, save_checkpoint
from engram.nn.position import RelativePosition
from engram.transformers.translate.model import Transformer
from tests.golden.test_huggingface import opened, shaken

V, PADDING = 29, 0
SMALL = {
    "vocab_size": V, "d_model": 12, "d_kv": 5, "d_ff": 20, "num_layers": 2, "num_heads": 3, "n_positions": 40,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 9, "pad_token_id": PADDING,
    "decoder_start_token_id": PADDING,
}  # fmt: skip
SHAPES = [
    {},
    {"num_decoder_layers": 3, "d_kv": 7, "relative_attention_num_buckets": 13, "relative_attention_max_distance": 7},
    {"num_layers": 1, "num_heads": 1, "d_kv": 3, "layer_norm_epsilon": 1e-3, "relative_attention_max_distance": 300},
    {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "d_ff": 7, "relative_attention_max_distance": 20,
     "relative_attention_num_buckets": 32},
    {"feed_forward_proj": "gated-silu", "d_model": 15, "d_kv": 4, "num_decoder_layers": 1},
    {"feed_forward_proj": "gelu", "tie_word_embeddings": False, "num_heads": 5},
]  # fmt: skip
SMALL_HERE = {
    "width": 12, "layers": 2, "heads": 3, "vocabulary": V, "context": 40, "position": "relative", "norm": "rms",
    "bias": (), "attention_scale": 1.0, "scale_embedding": False, "head_bias": False,
}  # fmt: skip
pytestmark = [pytest.mark.usefixtures("no_gradients", "quiet")]


def of_theirs(untied, kind="T5", **settings):
    """Their random model; transformers ties a fresh one in any case, and loads it as it is in the file."""
    of = getattr(transformers, f"{kind}ForConditionalGeneration")
    model = shaken(of(of.config_class(**{**SMALL, **settings})))
    if untied:
        model.lm_head.weight = torch.nn.Parameter(torch.randn(V, model.config.d_model))
    return model


def pairs():
    """Sources and targets of unequal lengths, with padding."""
    x_BS, y_BT = torch.randint(1, V, (4, 23)), torch.randint(1, V, (4, 17))
    x_BS[1, 11:] = x_BS[2, 2:] = x_BS[3, 1:] = PADDING
    y_BT[:, 0] = y_BT[1, 5:] = y_BT[3, 2:] = PADDING
    return x_BS, y_BT


def agree(ours, theirs):
    x_BS, y_BT = pairs()
    expected = theirs(x_BS, attention_mask=x_BS != PADDING, decoder_input_ids=y_BT).logits
    torch.testing.assert_close(ours(x_BS, y_BT), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_from_there_and_back(tmp_path, shape, untied):
    theirs = of_theirs(untied, **shape)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_checkpoint(tmp_path / "theirs").model
    agree(ours, theirs)
    save_checkpoint(ours, tmp_path / "again")
    again, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    assert again.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in theirs.state_dict().items())
    agree(ours, again.eval())


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize("shape", [{}, {"d_kv": 7, "num_decoder_layers": 1}, {"feed_forward_proj": "relu"}])
def test_mt5(tmp_path, shape, untied):
    theirs = of_theirs(untied, "MT5", **shape)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_checkpoint(tmp_path / "theirs").model
    agree(ours, theirs)
    save_checkpoint(ours, tmp_path / "again")
    agree(ours, transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again").eval())


@pytest.mark.parametrize("settings", [
    {},
    {"layers": 1, "decoder_layers": 3, "activation": "geglu_tanh", "tie_embeddings": False, "ff_width": 7},
    {"activation": "swiglu", "head_width": 5, "logit_scale": 12**-0.5, "eps": 1e-3},
    {"relative": RelativePosition(num_buckets=5, max_distance=3), "tie_embeddings": False, "logit_scale": 12**-0.5},
])  # fmt: skip
def test_from_here(tmp_path, settings):
    config = Transformer.Config(**{**SMALL_HERE, **settings})
    ours = Transformer(config)
    theirs = opened(ours, tmp_path, transformers.AutoModelForSeq2SeqLM)
    agree(ours, theirs)
    again = load_checkpoint(tmp_path).model
    assert again.config.tie_embeddings == config.tie_embeddings
    assert again.state_dict().keys() == ours.state_dict().keys()
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in ours.state_dict().items())


def test_attention_weights_have_the_bias_of_positions(tmp_path):
    theirs = of_theirs(untied=False)
    theirs.set_attn_implementation("eager")
    theirs.save_pretrained(tmp_path)
    ours, (x_BS, y_BT) = load_checkpoint(tmp_path).model, pairs()
    expected = theirs(x_BS, attention_mask=x_BS != PADDING, decoder_input_ids=y_BT, output_attentions=True)
    with watch(ours, "*.weights") as seen:
        logits = ours(x_BS, y_BT)
    torch.testing.assert_close(logits, ours(x_BS, y_BT), atol=1e-5, rtol=0)  # the reference form and the fused one
    kinds = {"encoder.*.attention": "encoder", "decoder.*.attention": "decoder", "decoder.*.cross": "cross"}
    for ours_name, name in kinds.items():
        for layer, weights_BHTS in enumerate(expected[f"{name}_attentions"]):
            found = seen[f"{ours_name.replace('*', str(layer))}.weights"]
            torch.testing.assert_close(found, weights_BHTS, atol=1e-6, rtol=0)


def test_gradients(tmp_path):
    theirs = of_theirs(untied=True)
    theirs.save_pretrained(tmp_path)
    ours, (x_BS, y_BT) = load_checkpoint(tmp_path).model, pairs()
    y_BT[:, 0] = 1
    with torch.enable_grad():
        labels = y_BT.masked_fill(y_BT == PADDING, -100)
        theirs(x_BS, attention_mask=x_BS != PADDING, labels=labels).loss.backward()
        ours.loss(x_BS, y_BT).backward()
    bias = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    for name, their_name in {
        "embedding.weight": "shared.weight", "head.weight": "lm_head.weight",
        "encoder_position.embedding.weight": f"encoder.{bias}", "decoder_position.embedding.weight": f"decoder.{bias}",
    }.items():  # fmt: skip
        found, expected = ours.get_parameter(name).grad, theirs.get_parameter(their_name).grad
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


# ---------------------------------------------------------------------- files


@pytest.fixture
def folder(tmp_path):
    of_theirs(untied=False).save_pretrained(tmp_path)
    return tmp_path


def rewrite(folder, tensors=None, **settings):
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    safetensors.torch.save_file({**weights, **(tensors or {})}, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))
    return weights


def test_a_file_with_copies_of_the_embedding(folder):
    E_VE = rewrite(folder)["shared.weight"]
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    cross = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # which the first files have
    rewrite(folder, {**{name: E_VE.clone() for name in copies}, cross: torch.zeros(8, 3)})
    ours = load_checkpoint(folder).model
    assert ours.head is None
    agree(ours, transformers.T5ForConditionalGeneration.from_pretrained(folder).eval())
    rewrite(folder, {"decoder.embed_tokens.weight": E_VE + 1})
    with pytest.raises(EngramError, match=r"decoder.embed_tokens.weight is another than shared.weight"):
        load_checkpoint(folder)


@pytest.mark.parametrize(("settings", "said"), [
    ({"decoder_start_token_id": 3}, "begin with the padding token 0, not with 3"),
    ({"feed_forward_proj": "gated-relu"}, "its feed-forward network is 'gated-relu', and engram has gelu, "),
    ({"relative_attention_max_distance": 4}, "max_distance must be above half of num_buckets, 4, not 4"),
    ({"relative_attention_num_buckets": 7}, "relative_attention_bias.weight is (8, 3) and should be (7, 3)"),
    ({"d_model": "twelve"}, "config.json is damaged"),
])  # fmt: skip
def test_settings_without_a_counterpart_here(folder, settings, said):
    rewrite(folder, **settings)
    with pytest.raises(EngramError) as refused:
        load_checkpoint(folder)
    assert said in str(refused.value)


def test_an_encoder_alone_is_refused(tmp_path):
    transformers.T5EncoderModel(transformers.T5Config(**SMALL)).save_pretrained(tmp_path)
    with pytest.raises(EngramError, match="it is an encoder alone, and engram has T5 with its decoder"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(("settings", "said"), [
    ({"decoder_heads": 6}, "decoder_heads must be 3, not 6"),
    ({"decoder_ff_width": 5}, "decoder_ff_width must be 0, not 5"),
    ({"logit_scale": 0.3}, "logit_scale must be 1 or 1 / sqrt(width), not 0.3"),
    ({"attention_scale": 0.0}, "attention_scale must be 1.0, not 0.0"),
    ({"activation": "geglu"}, "not 'geglu'"),
])  # fmt: skip
def test_settings_without_a_counterpart_there(tmp_path, settings, said):
    with pytest.raises(EngramError) as refused:
        save_checkpoint(Transformer(Transformer.Config(**{**SMALL_HERE, **settings})), tmp_path)
    assert said in str(refused.value)
