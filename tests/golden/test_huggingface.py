"""Checkpoints against transformers: what it saves gives the same outputs here, and what we write the same there."""

import logging

import pytest
import torch
import transformers

from engram.hub.huggingface import load_checkpoint, save_checkpoint
from engram.nn.transformer_block import PROJECTIONS
from engram.transformers.bert.model import BERT
from engram.transformers.clip.model import CLIP
from engram.transformers.gpt.model import GPT
from engram.transformers.text_classifier.model import TextClassifier
from engram.transformers.translate.model import Transformer
from engram.transformers.vit.model import ViT

NEAR = {"atol": 1e-4, "rtol": 1e-4}
B, T = 3, 7


@pytest.fixture(autouse=True)
def quiet():
    """Tiny vocabularies lack the tokens that its defaults name, of which it warns."""
    torch.manual_seed(0)
    transformers.utils.logging.set_verbosity(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()


def shaken(model):
    """With no parameter where its initialization left it, so that none can be taken for another."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.dim():
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def saved(model, folder):
    shaken(model).save_pretrained(folder)
    return load_checkpoint(folder).model


def opened(model, folder, auto):
    """What we write, as transformers has it; nothing may be missing, left over or misshapen."""
    save_checkpoint(shaken(model), folder)
    theirs, report = auto.from_pretrained(folder, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    return theirs.eval()


def ids(vocabulary, rows=B, length=T, lowest=0):
    return torch.randint(lowest, vocabulary, (rows, length))


def valid_mask(lengths=(7, 4, 1)):
    return torch.arange(T) < torch.tensor(lengths)[:, None]


@torch.no_grad()
def agree(ours, theirs):
    torch.testing.assert_close(ours, theirs, **NEAR)


pytestmark = pytest.mark.usefixtures("no_gradients")


# ---------------------------------------------------------------------- GPT


SMALL_GPT2 = {"vocab_size": 23, "n_positions": 9, "n_embd": 12, "n_layer": 2, "n_head": 3}
GPT2_SHAPES = [
    SMALL_GPT2,
    {**SMALL_GPT2, "n_inner": 20, "activation_function": "relu", "layer_norm_epsilon": 1e-3},
    {**SMALL_GPT2, "n_head": 2, "tie_word_embeddings": False},
]


@pytest.mark.parametrize("shape", GPT2_SHAPES)
def test_gpt2_from_there(tmp_path, shape):
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape))
    ours, x_BT = saved(theirs, tmp_path), ids(23)
    agree(ours(x_BT), theirs(x_BT).logits)


def test_gpt2_without_a_head_has_that_of_its_embedding(tmp_path):
    theirs = transformers.GPT2Model(transformers.GPT2Config(**SMALL_GPT2))
    ours, x_BT = saved(theirs, tmp_path), ids(23)
    agree(ours(x_BT), theirs(x_BT).last_hidden_state @ theirs.wte.weight.T)


CLASSIC = {"vocabulary": 23, "context": 9, "width": 12, "layers": 2, "heads": 3, "position": "learned",
           "qk_norm": "none", "norm": "layer", "activation": "gelu_tanh"}  # fmt: skip
MODERN = {"vocabulary": 23, "context": 9, "width": 24, "layers": 2, "heads": 4}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("settings", [
    {**CLASSIC, "bias": PROJECTIONS},
    {**CLASSIC, "bias": (), "ff_width": 20, "activation": "silu"},
    MODERN,
    {**MODERN, "kv_heads": 2, "heads": 6, "ff_width": 40, "activation": "gelu"},
])  # fmt: skip
def test_gpt_from_here(tmp_path, settings, tied):
    ours = GPT(GPT.Config(**settings, tie_embeddings=tied))
    theirs, x_BT = opened(ours, tmp_path, transformers.AutoModelForCausalLM), ids(23)
    agree(ours(x_BT), theirs(x_BT).logits)
    agree(load_checkpoint(tmp_path).model(x_BT), ours(x_BT))


# ---------------------------------------------------------------------- BERT


SMALL_BERT = {"vocab_size": 29, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
              "intermediate_size": 20, "max_position_embeddings": 9}  # fmt: skip
BERT_SHAPES = [SMALL_BERT, {**SMALL_BERT, "type_vocab_size": 3, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3}]


@pytest.mark.parametrize("shape", BERT_SHAPES)
@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertForPreTraining"])
def test_bert_from_there(tmp_path, shape, kind):
    theirs = getattr(transformers, kind)(transformers.BertConfig(**shape))
    ours, x_BT, valid_BT, type_BT = saved(theirs, tmp_path), ids(29), valid_mask(), ids(2)
    expected = theirs(x_BT, attention_mask=valid_BT, token_type_ids=type_BT)
    agree(ours(x_BT, valid_BT, type_BT)[valid_BT], expected[0][valid_BT])
    agree(ours(x_BT), theirs(x_BT)[0])


def test_bert_without_its_head_gives_vectors(tmp_path):
    theirs = transformers.BertModel(transformers.BertConfig(**SMALL_BERT))
    ours, x_BT, valid_BT = saved(theirs, tmp_path), ids(29), valid_mask()
    expected = theirs(x_BT, attention_mask=valid_BT)
    vectors = ours.encode(x_BT, valid_BT)
    agree(vectors[valid_BT], expected.last_hidden_state[valid_BT])
    agree(ours.pooled(vectors), expected.pooler_output)


def test_bert_of_another_task_gives_vectors(tmp_path):
    theirs = transformers.BertForQuestionAnswering(transformers.BertConfig(**SMALL_BERT))
    ours, x_BT = saved(theirs, tmp_path), ids(29)
    agree(ours.encode(x_BT), theirs.bert(x_BT).last_hidden_state)


@pytest.mark.parametrize(
    "settings", [{"num_labels": 1}, {"num_labels": 3, "problem_type": "multi_label_classification"}]
)
def test_bert_whose_classes_do_not_exclude_each_other_gives_vectors(settings, tmp_path):
    theirs = transformers.BertForSequenceClassification(transformers.BertConfig(**SMALL_BERT, **settings))
    ours, x_BT = saved(theirs, tmp_path), ids(29)
    agree(ours.encode(x_BT), theirs.bert(x_BT).last_hidden_state)


@pytest.mark.parametrize("shape", BERT_SHAPES)
def test_bert_classifier_from_there(tmp_path, shape):
    names = {0: "bad", 1: "fair", 2: "good"}
    theirs = transformers.BertForSequenceClassification(transformers.BertConfig(**shape, id2label=names))
    shaken(theirs).save_pretrained(tmp_path)
    found, x_BT, valid_BT = load_checkpoint(tmp_path), ids(29), valid_mask()
    assert type(found.model) is TextClassifier
    assert found.classes == ("bad", "fair", "good")
    expected = theirs(x_BT, attention_mask=valid_BT.long()).logits
    torch.testing.assert_close(found.model(x_BT, valid_BT), expected, atol=1e-5, rtol=1e-5)


def test_bert_classifier_to_there(tmp_path):
    config = TextClassifier.Config(vocabulary=29, context=9, width=12, layers=2, heads=3, classes=3, pooled=True)
    ours, x_BT, valid_BT = TextClassifier(config), ids(29), valid_mask()
    theirs = opened(ours, tmp_path, transformers.AutoModelForSequenceClassification)
    assert type(theirs) is transformers.BertForSequenceClassification
    expected = theirs(x_BT, attention_mask=valid_BT.long()).logits
    torch.testing.assert_close(ours(x_BT, valid_BT), expected, atol=1e-5, rtol=1e-5)


def test_distilbert_classifier_there_and_back(tmp_path):
    config = {"vocab_size": 29, "dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 20, "max_position_embeddings": 9}
    theirs = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(**config, num_labels=4))
    ours, x_BT, valid_BT = saved(theirs, tmp_path), ids(29), valid_mask()
    expected = theirs(x_BT, attention_mask=valid_BT.long()).logits
    assert expected.std(0).min() > 0
    torch.testing.assert_close(ours(x_BT, valid_BT), expected, atol=1e-5, rtol=1e-5)
    again = opened(ours, tmp_path / "again", transformers.AutoModelForSequenceClassification)
    agree(ours(x_BT, valid_BT), again(x_BT, attention_mask=valid_BT.long()).logits)


@pytest.mark.parametrize("shape", [{}, {"n_heads": 2, "activation": "relu"}])
def test_distilbert_from_there(tmp_path, shape):
    config = {"vocab_size": 29, "dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 20, "max_position_embeddings": 9}
    theirs = transformers.DistilBertForMaskedLM(transformers.DistilBertConfig(**{**config, **shape}))
    ours, x_BT, valid_BT = saved(theirs, tmp_path / "masked"), ids(29), valid_mask()
    agree(ours(x_BT, valid_BT)[valid_BT], theirs(x_BT, attention_mask=valid_BT).logits[valid_BT])
    base = saved(theirs.distilbert, tmp_path / "base")
    agree(base.encode(x_BT), theirs.distilbert(x_BT).last_hidden_state)


@pytest.mark.parametrize("settings", [
    {},
    {"bias": (), "norm": "layer-no-affine", "heads": 2, "activation": "relu"},
    {"types": 0},
])  # fmt: skip
def test_bert_from_here(tmp_path, settings):
    config = {"vocabulary": 29, "context": 9, "width": 12, "layers": 2, "heads": 3, **settings}
    ours = BERT(BERT.Config(**config))
    theirs = opened(ours, tmp_path, transformers.AutoModelForMaskedLM)
    x_BT, valid_BT = ids(29), valid_mask()
    agree(ours(x_BT, valid_BT)[valid_BT], theirs(x_BT, attention_mask=valid_BT).logits[valid_BT])


def test_bert_from_here_with_a_pooled_vector(tmp_path):
    ours = BERT(BERT.Config(vocabulary=29, context=9, width=12, layers=2, heads=3, pooled=True, masked=False))
    theirs, x_BT = opened(ours, tmp_path, transformers.AutoModel), ids(29)
    agree(ours.pooled(ours.encode(x_BT)), theirs(x_BT).pooler_output)


# ---------------------------------------------------------------------- ViT


SMALL_VIT = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20,
             "image_size": 8, "patch_size": 4}  # fmt: skip


@pytest.mark.parametrize("shape", [
    {"num_labels": 5},
    {"num_labels": 3, "num_channels": 1, "image_size": [8, 12], "layer_norm_eps": 1e-3, "hidden_act": "relu"},
])  # fmt: skip
def test_vit_from_there(tmp_path, shape):
    config = transformers.ViTConfig(**{**SMALL_VIT, **shape})
    theirs = transformers.ViTForImageClassification(config)
    ours = saved(theirs, tmp_path)
    x_BCHW = torch.rand(B, *ours.config.shape)
    agree(ours(x_BCHW), theirs((x_BCHW - 0.5) / 0.5).logits)


def test_vit_without_a_classifier_gives_vectors(tmp_path):
    theirs = transformers.ViTModel(transformers.ViTConfig(**SMALL_VIT))
    ours, x_BCHW = saved(theirs, tmp_path), torch.rand(B, 3, 8, 8)
    assert ours.config.classes == 0
    agree(ours.encode(x_BCHW), theirs((x_BCHW - 0.5) / 0.5).last_hidden_state)
    save_checkpoint(ours, tmp_path / "again")
    agree(load_checkpoint(tmp_path / "again").model.encode(x_BCHW), ours.encode(x_BCHW))


@pytest.mark.parametrize("settings", [
    {"shape": (3, 8, 8), "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.25)},
    {
        "shape": (1, 8, 12), "mean": (0.13,), "std": (0.3,), "bias": (), "norm": "layer-no-affine",
        "activation": "relu",
    },
])  # fmt: skip
def test_vit_from_here(tmp_path, settings):
    ours = ViT(ViT.Config(width=12, layers=2, heads=3, classes=4, **settings))
    theirs = opened(ours, tmp_path, transformers.AutoModelForImageClassification)
    x_BCHW = torch.rand(B, *settings["shape"])
    agree(ours(x_BCHW), theirs(ours.config.standardize(x_BCHW)).logits)
    assert load_checkpoint(tmp_path).model.config.mean == settings["mean"]


def test_vit_keeps_the_names_of_its_classes(tmp_path):
    ours = ViT(ViT.Config(width=12, layers=1, heads=3, classes=2))
    save_checkpoint(ours, tmp_path, classes=("cat", "dog"))
    assert load_checkpoint(tmp_path).classes == ("cat", "dog")
    assert transformers.AutoConfig.from_pretrained(tmp_path).id2label == {0: "cat", 1: "dog"}


# ---------------------------------------------------------------------- CLIP


TEXT = {"vocab_size": 31, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20,
        "max_position_embeddings": 9, "bos_token_id": 29, "eos_token_id": 30}  # fmt: skip


def texts(end, vocabulary=31):
    """Unequal lengths: what follows the end is padding."""
    x_BT = ids(vocabulary - 2, lowest=3)
    x_BT[0, 3:] = x_BT[1, 6:] = end
    x_BT[2, 1], x_BT[2, 2:] = end, 0
    return x_BT


@pytest.mark.parametrize(("text", "vision"), [
    ({}, {}),
    ({"eos_token_id": 2}, {}),
    ({"eos_token_id": 1, "hidden_act": "gelu", "layer_norm_eps": 1e-3}, {"hidden_act": "gelu", "layer_norm_eps": 1e-3}),
])  # fmt: skip
def test_clip_from_there(tmp_path, text, vision):
    config = transformers.CLIPConfig(
        text_config={**TEXT, **text}, vision_config={**SMALL_VIT, "hidden_act": "quick_gelu", **vision},
        projection_dim=6,
    )  # fmt: skip
    if "hidden_act" not in text:
        config.vision_config.layer_norm_eps = config.text_config.layer_norm_eps
    theirs = transformers.CLIPModel(config)
    ours, x_BCHW = saved(theirs, tmp_path), torch.rand(2, 3, 8, 8)
    x_BT = texts(1 if text.get("eos_token_id") == 1 else 30)  # 2 is what old files say, and means the highest
    agree(ours(x_BCHW, x_BT), theirs(x_BT, ours.config.standardize(x_BCHW)).logits_per_image)


@pytest.mark.parametrize("settings", [{"eos_id": 4}, {"eos_id": 30, "activation": "quick_gelu", "text_ff_width": 20}])
def test_clip_from_here(tmp_path, settings):
    ours = CLIP(CLIP.Config(
        shape=(3, 8, 8), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25), width=12, layers=2, heads=3, text_width=8,
        text_layers=1, text_heads=2, vocabulary=31, context=9, projection_dim=6, **settings,
    ))  # fmt: skip
    theirs = opened(ours, tmp_path, transformers.AutoModel)
    x_BCHW, x_BT = torch.rand(2, 3, 8, 8), texts(settings["eos_id"])
    agree(ours(x_BCHW, x_BT), theirs(x_BT, ours.config.standardize(x_BCHW)).logits_per_image)
    agree(load_checkpoint(tmp_path).model(x_BCHW, x_BT), ours(x_BCHW, x_BT))


# ---------------------------------------------------------------------- Transformer


SMALL_SEQUENCES = {
    "vocab_size": 27, "d_model": 12, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20, "encoder_attention_heads": 3, "decoder_attention_heads": 3, "max_position_embeddings": 9,
    "pad_token_id": 26, "decoder_start_token_id": 26, "eos_token_id": 0, "forced_eos_token_id": 0,
}  # fmt: skip


def padded(padding, vocabulary=27):
    x_BS = ids(vocabulary - 3, length=8, lowest=2)
    x_BS[1, 5:] = x_BS[2, 2:] = padding
    return x_BS


@pytest.mark.parametrize("shape", [
    {},
    {"scale_embedding": True, "activation_function": "swish", "d_model": 15},
    {"decoder_attention_heads": 4, "decoder_ffn_dim": 7, "encoder_layers": 1, "decoder_layers": 3},
    {"encoder_attention_heads": 12, "decoder_attention_heads": 1, "encoder_ffn_dim": 5, "decoder_layers": 2},
])  # fmt: skip
@pytest.mark.parametrize("kind", ["MarianMTModel", "PegasusForConditionalGeneration"])
def test_transformer_from_there(tmp_path, kind, shape):
    of = getattr(transformers, kind)
    theirs = of(of.config_class(**{**SMALL_SEQUENCES, **shape}))
    theirs.final_logits_bias.normal_()
    ours, x_BS, y_BT = saved(theirs, tmp_path), padded(26), ids(26, length=5)
    agree(ours(x_BS, y_BT), theirs(x_BS, attention_mask=x_BS != 26, decoder_input_ids=y_BT).logits)


@pytest.mark.parametrize("settings", [
    {"decoder_layers": 1, "pad_id": 26, "eos_id": 0},
    {"decoder_layers": 3, "decoder_heads": 2, "decoder_ff_width": 5},
    {"bias": (), "norm": "layer-no-affine", "scale_embedding": False, "activation": "silu", "ff_width": 20},
])  # fmt: skip
@pytest.mark.parametrize("residual", ["post-norm", "pre-norm"])
def test_transformer_from_here(tmp_path, settings, residual):
    ours = Transformer(
        Transformer.Config(width=12, layers=2, heads=3, vocabulary=27, context=9, residual=residual, **settings)
    )
    theirs = opened(ours, tmp_path, transformers.AutoModelForSeq2SeqLM)
    pad_id = ours.config.pad_id
    x_BS, y_BT = padded(pad_id), ids(26, length=5)
    agree(ours(x_BS, y_BT), theirs(x_BS, attention_mask=x_BS != pad_id, decoder_input_ids=y_BT).logits)
    assert theirs.config.decoder_start_token_id == pad_id
    agree(load_checkpoint(tmp_path).model(x_BS, y_BT), ours(x_BS, y_BT))
