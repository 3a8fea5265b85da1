"""The files of a checkpoint: sharded, pickled, incomplete, of a kind that is not known, or on the hub."""

import json
import pickle
import shutil

import pytest
import safetensors.torch
import torch

from engram.core.errors import EngramError
from engram.foundations.mlp.model import MLP
from engram.hub.huggingface import is_checkpoint, load_checkpoint, save_checkpoint
from engram.nn.transformer_block import PROJECTIONS
from engram.transformers.bert.model import BERT
from engram.transformers.clip.model import CLIP
from engram.transformers.gpt.model import GPT
from engram.transformers.translate.model import Transformer
from engram.transformers.vit.model import ViT

SMALL = {"width": 8, "layers": 2, "heads": 2}
CLASSIC = {**SMALL, "position": "learned", "norm": "layer", "qk_norm": "none", "bias": PROJECTIONS, "vocabulary": 11}
CLIPS = {"shape": (3, 8, 8), **SMALL, "text_width": 8, "text_heads": 2, "vocabulary": 11, "projection_dim": 4}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return GPT(GPT.Config(**CLASSIC, tie_embeddings=True)).eval()


@pytest.fixture
def folder(model, tmp_path):
    return save_checkpoint(model, tmp_path / "checkpoint")


def weights(folder):
    return safetensors.torch.load_file(folder / "model.safetensors")


def rewrite(folder, changed, **settings):
    safetensors.torch.save_file(changed, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))


def same(folder, model):
    ids = torch.arange(10).view(2, 5)
    torch.testing.assert_close(load_checkpoint(folder).model(ids), model(ids))


def refusal(folder):
    with pytest.raises(EngramError) as refused:
        load_checkpoint(folder)
    return str(refused.value)


# ---------------------------------------------------------------------- how weights are kept


def shards(tensors, stem, suffix, save, folder):
    """Two files and their index."""
    names = sorted(tensors)
    where = {name: f"{stem}-0000{1 + i % 2}-of-00002{suffix}" for i, name in enumerate(names)}
    for file in set(where.values()):
        save({name: tensors[name] for name in names if where[name] == file}, folder / file)
    (folder / f"{stem}{suffix}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))


@pytest.mark.parametrize(("stem", "suffix", "save"), [
    ("model", ".safetensors", safetensors.torch.save_file), ("pytorch_model", ".bin", torch.save),
])  # fmt: skip
def test_several_files(folder, model, stem, suffix, save):
    shards(weights(folder), stem, suffix, save, folder)
    (folder / "model.safetensors").unlink()
    same(folder, model)
    (folder / f"{stem}-00002-of-00002{suffix}").unlink()
    assert f"{stem}-00002-of-00002{suffix} is missing" in refusal(folder)


def test_an_index_that_leads_out_of_its_folder(folder):
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"lm_head.weight": "../elsewhere.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "is damaged" in refusal(folder)


def test_a_pickle_of_tensors(folder, model):
    torch.save(weights(folder), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    same(folder, model)


class Command:
    def __reduce__(self):
        return print, ("this must not run",)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol 4:UserWarning")  # which the hostile file has
def test_a_pickle_that_runs_code_is_not_opened(folder, capsys):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"lm_head.weight": Command()}))
    assert "pytorch_model.bin is not opened" in refusal(folder)
    assert capsys.readouterr().out == ""


def test_half_precision_becomes_single(folder, model):
    rewrite(folder, {name: value.bfloat16() for name, value in weights(folder).items()})
    assert {value.dtype for value in load_checkpoint(folder).model.parameters()} == {torch.float32}


def test_no_weights_at_all(folder):
    (folder / "model.safetensors").unlink()
    assert "There are no weights" in refusal(folder)


def test_a_damaged_file(folder):
    (folder / "model.safetensors").write_bytes(b"not tensors")
    assert "model.safetensors is damaged" in refusal(folder)


# ---------------------------------------------------------------------- which tensors


def test_tensors_that_do_not_fit_are_all_named(folder):
    tensors = weights(folder)
    del tensors["transformer.h.1.attn.c_attn.weight"]
    tensors["transformer.h.0.mlp.c_fc.weight"] = torch.zeros(8, 3)
    tensors["transformer.h.7.ln_1.weight"] = torch.zeros(8)
    rewrite(folder, tensors)
    said = refusal(folder)
    assert said.count("c_attn") == 1
    assert "transformer.h.1.attn.c_attn.weight is missing" in said
    assert "transformer.h.0.mlp.c_fc.weight is (8, 3) and should be (8, 32)" in said
    assert "transformer.h.7.ln_1.weight is not part of the model" in said


def test_harmless_tensors_are_ignored(folder, model):
    extra = {"transformer.h.0.attn.bias": torch.ones(1, 1, 64, 64), "transformer.h.0.attn.masked_bias": torch.ones(1)}
    rewrite(folder, {**weights(folder), **extra})
    same(folder, model)


def test_a_tied_head_may_be_there_and_must_be_the_embedding(folder, model):
    tensors = weights(folder)
    assert "lm_head.weight" not in tensors
    rewrite(folder, {**tensors, "lm_head.weight": tensors["transformer.wte.weight"].clone()})
    same(folder, model)
    rewrite(folder, {**tensors, "lm_head.weight": torch.zeros(11, 8)})
    assert "lm_head.weight should be the same as transformer.wte.weight" in refusal(folder)


def test_an_untied_head_must_be_there(folder):
    rewrite(folder, weights(folder), tie_word_embeddings=False)
    assert "lm_head.weight is missing" in refusal(folder)


def test_names_of_former_times(tmp_path):
    model = BERT(BERT.Config(**SMALL, vocabulary=11)).eval()
    tensors = weights(save_checkpoint(model, tmp_path))
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
           for name, value in tensors.items()}  # fmt: skip
    rewrite(tmp_path, {**old, "bert.embeddings.position_ids": torch.arange(128)[None]})
    same(tmp_path, model)


# ---------------------------------------------------------------------- which models


def test_an_architecture_that_is_not_known(folder):
    rewrite(folder, weights(folder), model_type="mamba")
    assert '"mamba", which is not known; known are bert, distilbert, modernbert' in refusal(folder)


@pytest.mark.parametrize(("settings", "said"), [
    ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True and must be False"),
    ({"activation_function": "mish"}, 'the activation function "mish"'),
    ({"n_head": 3}, "heads must divide width"),
    ({"n_embd": "eight"}, "config.json is damaged"),
])  # fmt: skip
def test_settings_without_a_counterpart_here(folder, settings, said):
    rewrite(folder, weights(folder), **settings)
    assert said in refusal(folder)


@pytest.mark.parametrize(("settings", "said"), [
    ({"share_encoder_decoder_embeddings": False}, "share one vocabulary and one embedding"),
    ({"decoder_start_token_id": 5}, "begin with the padding token 0, not with 5"),
    ({"decoder_attention_heads": 3}, "heads must divide width, and 3 does not divide 8"),
    ({"decoder_ffn_dim": 5}, "model.decoder.layers.0.fc1.weight is (32, 8) and should be (5, 8)"),
])  # fmt: skip
def test_a_marian_without_a_counterpart_here(tmp_path, settings, said):
    save_checkpoint(Transformer(Transformer.Config(**SMALL, residual="post-norm")), tmp_path)
    rewrite(tmp_path, weights(tmp_path), **settings)
    assert said in refusal(tmp_path)


def test_a_pegasus_with_learned_positions(tmp_path):
    save_checkpoint(Transformer(Transformer.Config(**SMALL)), tmp_path)
    tensors = weights(tmp_path)
    tensors["model.encoder.embed_positions.weight"] += 0.5
    rewrite(tmp_path, tensors)
    assert "other positions than sines and cosines" in refusal(tmp_path)


def test_a_clip_with_unlike_encoders(tmp_path):
    save_checkpoint(CLIP(CLIP.Config(**CLIPS)), tmp_path)
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    rewrite(tmp_path, weights(tmp_path), text_config={**text, "hidden_act": "relu"})
    assert "both encoders must have the same hidden_act, not 'gelu' and 'relu'" in refusal(tmp_path)


@pytest.mark.parametrize(("model", "said"), [
    (GPT(GPT.Config(**SMALL, position="sinusoidal")), "position must be 'learned', not 'sinusoidal'"),
    (GPT(GPT.Config(**SMALL, activation="swiglu")), "not 'swiglu'"),
    (GPT(GPT.Config(**SMALL, eps=1e-3)), "eps must be 1e-05, not 0.001"),
    (BERT(BERT.Config(**SMALL, residual="pre-norm")), "residual must be 'post-norm', not 'pre-norm'"),
    (BERT(BERT.Config(**SMALL, kv_heads=1)), "kv_heads must be 0, not 1"),
    (Transformer(Transformer.Config(**SMALL, layout="interleaved")), "layout must be 'halves', not 'interleaved'"),
    (
        Transformer(Transformer.Config(**SMALL, decoder_heads=4, head_width=4)),
        "head_width must be 0 where the decoder has another number of heads",
    ),
    (ViT(ViT.Config(**SMALL, qk_norm="layer-no-affine")), "qk_norm must be 'none', not 'layer-no-affine'"),
    (CLIP(CLIP.Config(**CLIPS, eos_id=2)), "eos_id must not be 2"),
    (MLP(MLP.Config()), "An MLP has no counterpart in transformers; BERT, CLIP, GPT"),
])  # fmt: skip
def test_models_without_a_counterpart_there(tmp_path, model, said):
    with pytest.raises(EngramError) as refused:
        save_checkpoint(model, tmp_path / "checkpoint")
    assert said in str(refused.value)
    assert not (tmp_path / "checkpoint").exists()


def test_as_many_names_as_classes(tmp_path):
    with pytest.raises(EngramError, match="10 classes apart, and there are 2 names"):
        save_checkpoint(ViT(ViT.Config(**SMALL)), tmp_path, classes=("a", "b"))


# ---------------------------------------------------------------------- where


@pytest.mark.download
def test_which_folders_hold_a_checkpoint(folder, tmp_path, finished):
    assert is_checkpoint(folder)
    assert not is_checkpoint(tmp_path)
    assert not is_checkpoint(finished("mlp"))


@pytest.mark.download
def test_a_run_is_not_written_over(finished, model):
    with pytest.raises(EngramError, match="holds a run"):
        save_checkpoint(model, finished("mlp"))


@pytest.mark.parametrize("pickled", [False, True])
def test_the_hub(folder, model, tmp_path, monkeypatch, pickled):
    """Only what is read is asked for, and a pickle only where there is nothing better."""
    import huggingface_hub

    asked = []
    if pickled:
        torch.save(weights(folder), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()

    def snapshot_download(name, allow_patterns):
        asked.append((name, "pytorch_model.bin" in allow_patterns))
        copy = tmp_path / f"snapshot{len(asked)}"
        copy.mkdir()
        for file in folder.iterdir():
            if file.name in allow_patterns:
                shutil.copy(file, copy)
        return str(copy)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    same("somebody/something", model)
    assert asked == [("somebody/something", False)] + [("somebody/something", True)] * pickled


def test_the_hub_has_no_such_thing(monkeypatch):
    import huggingface_hub

    def snapshot_download(name, allow_patterns):
        raise OSError("Repository Not Found.\n\nMore about it.")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    sentence = "the Hugging Face hub gives no checkpoint of that name: Repository Not Found."
    assert refusal("no/thing") == f"There is no run folder no/thing, and {sentence}"
    assert "There is no folder ./a/b/c" in refusal("./a/b/c")
