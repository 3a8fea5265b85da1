"""ONNX files of Transformers against the models they were made of, at other sizes than those of the example."""

import pytest
import torch

from engram.core.errors import EngramError
from engram.hub.onnx import export_onnx
from engram.nn.transformer_block import PROJECTIONS
from engram.transformers.bert.model import BERT
from engram.transformers.clip.model import CLIP
from engram.transformers.gpt.model import GPT
from engram.transformers.text_classifier.model import TextClassifier
from engram.transformers.translate.model import Transformer
from engram.transformers.vit.model import ViT
from tests.golden.onnx_file import open_onnx, shake

pytest.importorskip("onnxruntime")

SMALL = {"width": 16, "layers": 1, "heads": 2}
TEXT = {**SMALL, "vocabulary": 23, "context": 12}
IMAGE = {"shape": (3, 8, 8), "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.25)}


@pytest.fixture(autouse=True)
def no_gradients():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def made(model, folder):
    """The file as something to call, which returns its only output."""
    (path,) = export_onnx(model, folder / "model.onnx")
    run, _ = open_onnx(path)

    def call(**inputs):
        (result,) = run(**inputs).values()
        return result

    return call


def agree(ours, expected):
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("settings", [
    {"kv_heads": 1},
    {
        "position": "learned", "norm": "layer", "qk_norm": "none", "bias": PROJECTIONS, "activation": "gelu_tanh",
        "tie_embeddings": True,
    },
    {"activation": "swiglu", "position": "sinusoidal"},
])  # fmt: skip
def test_gpt(tmp_path, settings):
    model = shake(GPT(GPT.Config(**TEXT, **settings)))
    run = made(model, tmp_path)
    for size in ((5, 12), (1, 1)):
        ids = torch.randint(23, size)
        agree(run(ids=ids), model(ids))


def test_bert(tmp_path):
    model, ids = shake(BERT(BERT.Config(**TEXT))), torch.randint(23, (5, 9))
    valid = torch.arange(9) < torch.tensor([9, 4, 1, 7, 2])[:, None]
    agree(made(model, tmp_path)(ids=ids, valid=valid)[valid], model(ids, valid)[valid])


def test_bert_without_its_head(tmp_path):
    model, ids = shake(BERT(BERT.Config(**TEXT, masked=False))), torch.randint(23, (1, 3))
    agree(made(model, tmp_path)(ids=ids, valid=torch.ones(1, 3, dtype=torch.bool)), model.encode(ids))


@pytest.mark.parametrize("pooled", [False, True])
def test_text_classifier(tmp_path, pooled):
    model = shake(TextClassifier(TextClassifier.Config(**TEXT, classes=3, pooled=pooled)))
    ids, valid = torch.randint(23, (5, 9)), torch.arange(9) < torch.tensor([9, 4, 1, 7, 2])[:, None]
    agree(made(model, tmp_path)(ids=ids, valid=valid), model(ids, valid))


def test_vit(tmp_path):
    model, image = shake(ViT(ViT.Config(**SMALL, **IMAGE))), torch.rand(5, 3, 8, 8)
    agree(made(model, tmp_path)(image=image), model(image))


def test_clip(tmp_path):
    texts = {"text_width": 8, "text_heads": 2, "vocabulary": 23, "context": 12, "eos_id": 1}
    model = shake(CLIP(CLIP.Config(**SMALL, **IMAGE, **texts, activation="quick_gelu")))
    image, text = torch.rand(1, 3, 8, 8), torch.randint(1, 23, (4, 9))
    agree(made(model, tmp_path)(image=image, text=text), model(image, text))


@pytest.mark.parametrize("settings", [{}, {"position": "relative", "tie_embeddings": False, "norm": "rms"}])
def test_transformer(tmp_path, settings):
    model = shake(Transformer(Transformer.Config(**TEXT, **settings)))
    source, target = torch.randint(1, 23, (5, 9)), torch.randint(23, (5, 4))
    source[1, 5:] = source[3, 1:] = 0
    agree(made(model, tmp_path)(source=source, target=target), model(source, target))


def test_the_model_itself_stays_as_it_is(tmp_path):
    model = GPT(GPT.Config(**TEXT)).train()
    before = [type(module) for module in model.modules()]
    export_onnx(model, tmp_path / "model.onnx")
    assert model.training
    assert [type(module) for module in model.modules()] == before
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngramError, match=r"pip install engram\[onnx\]"):
        export_onnx(GPT(GPT.Config(**TEXT)), tmp_path / "model.onnx")
