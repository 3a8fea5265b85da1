"""ONNX files against the models they were made of, at other sizes than those of the example."""

import pytest
import torch

from engram.core.errors import EngramError
from engram.interop.onnx import write_onnx
from engram.models.bert import BERT
from engram.models.clip import CLIP
from engram.models.gpt import GPT
from engram.models.mlp import MLP
from engram.models.transformer import Transformer
from engram.models.vit import ViT

onnxruntime = pytest.importorskip("onnxruntime")

SMALL = {"width": 16, "layers": 1, "heads": 2}
TEXT = {**SMALL, "vocabulary": 23, "context": 12}
PICTURE = {"shape": (3, 8, 8), "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.25)}


@pytest.fixture(autouse=True)
def no_gradients():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def made(model, folder):
    """The file as something to call."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = write_onnx(model, folder / "model.onnx")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(**inputs):
        assert [one.name for one in session.get_inputs()] == list(inputs)
        (result,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        return torch.from_numpy(result)

    return run


def shaken(model):
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def agree(ours, expected):
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("settings", [
    {"kv_heads": 1},
    {"position": "learned", "norm": "layer", "qk_norm": False, "bias": True, "function": "gelu_tanh", "tied": True},
    {"function": "swiglu", "position": "sinusoidal"},
])  # fmt: skip
def test_gpt(tmp_path, settings):
    model = shaken(GPT(GPT.Config(**TEXT, **settings)))
    run = made(model, tmp_path)
    for size in ((5, 12), (1, 1)):
        ids = torch.randint(23, size)
        agree(run(ids=ids), model(ids))


def test_bert(tmp_path):
    model, ids = shaken(BERT(BERT.Config(**TEXT))), torch.randint(23, (5, 9))
    valid = torch.arange(9) < torch.tensor([9, 4, 1, 7, 2])[:, None]
    agree(made(model, tmp_path)(ids=ids, valid=valid)[valid], model(ids, valid)[valid])


def test_bert_without_its_head(tmp_path):
    model, ids = shaken(BERT(BERT.Config(**TEXT, masked=False))), torch.randint(23, (1, 3))
    agree(made(model, tmp_path)(ids=ids, valid=torch.ones(1, 3, dtype=torch.bool)), model.encode(ids))


def test_vit(tmp_path):
    model, picture = shaken(ViT(ViT.Config(**SMALL, **PICTURE))), torch.rand(5, 3, 8, 8)
    agree(made(model, tmp_path)(picture=picture), model(picture))


def test_clip(tmp_path):
    texts = {"text_width": 8, "text_heads": 2, "vocabulary": 23, "context": 12, "end": 1}
    model = shaken(CLIP(CLIP.Config(**SMALL, **PICTURE, **texts, function="quick_gelu")))
    picture, text = torch.rand(1, 3, 8, 8), torch.randint(1, 23, (4, 9))
    agree(made(model, tmp_path)(picture=picture, text=text), model(picture, text))


def test_transformer(tmp_path):
    model = shaken(Transformer(Transformer.Config(**TEXT)))
    source, target = torch.randint(1, 23, (5, 9)), torch.randint(23, (5, 4))
    source[1, 5:] = source[3, 1:] = 0
    agree(made(model, tmp_path)(source=source, target=target), model(source, target))


def test_the_model_itself_stays_as_it_is(tmp_path):
    model = GPT(GPT.Config(**TEXT)).train()
    before = [type(module) for module in model.modules()]
    write_onnx(model, tmp_path / "model.onnx")
    assert model.training
    assert [type(module) for module in model.modules()] == before
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_other_models_are_refused(tmp_path):
    with pytest.raises(EngramError, match="MLP cannot be written as ONNX; GPT"):
        write_onnx(MLP(MLP.Config()), tmp_path / "model.onnx")


def test_the_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngramError, match=r"pip install engram\[onnx\]"):
        write_onnx(GPT(GPT.Config(**TEXT)), tmp_path / "model.onnx")
