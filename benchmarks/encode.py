"""Sentence vectors with MiniLM, of texts of unequal lengths: padded, or without the padding."""

import atexit
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.cli.bench import Contestant
from engram.core.errors import EngramError
from engram.hub import huggingface
from engram.hub.models import fetch_model
from engram.transformers.bert.model import BERT

LENGTHS = (128, 96, 64, 48, 32, 24, 16, 12) * 2
PASSES, THREADS = 4, 2
WORK = f"MiniLM (6 layers × 384), last hidden states of a batch of 16 texts of {LENGTHS[7]} to {LENGTHS[0]} tokens"
UNIT = "texts/s"
Encode = Callable[[], Tensor]


def contestants() -> dict[str, Contestant]:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    checkpoint = fetch_model("minilm")
    found = huggingface.load_checkpoint(checkpoint)
    model = found.model
    assert isinstance(model, BERT)
    assert found.tokenizer is not None
    valid_BT = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    x_BT = torch.randint(1000, 30000, valid_BT.shape) * valid_BT
    token = found.tokenizer.backend.id_to_token
    tokens = [[token(int(i)) or "" for i in row[valid]] for row, valid in zip(x_BT, valid_BT, strict=True)]
    peer = transformers(checkpoint, x_BT, valid_BT)
    rivals: dict[str, Encode] = {
        "transformers BertModel, padded, SDPA": peer,
        "onnxruntime, fp32": onnxruntime(peer.model, folder, x_BT, valid_BT, int8=False),
        "onnxruntime, int8": onnxruntime(peer.model, folder, x_BT, valid_BT, int8=True),
        "CTranslate2, fp32": ctranslate2(checkpoint, folder / "ct2", tokens, "float32"),
        "CTranslate2, int8": ctranslate2(checkpoint, folder / "ct2-int8", tokens, "int8"),
        "engram, without padding, fp32": lambda: model.encode(x_BT, valid_BT),
    }
    with torch.no_grad():
        expected = peer()[valid_BT]
        for name, encode in rivals.items():
            difference = (encode()[valid_BT] - expected).abs().max().item()
            if "int8" not in name and difference > 1e-3:
                raise EngramError(f"The vectors of {name} differ by {difference:.1e}.")
    return {name: lambda encode=encode: repeat(encode) for name, encode in rivals.items()}  # type: ignore[misc]


def repeat(encode: Encode) -> Callable[[], float]:
    """Return the function that is timed."""

    @torch.no_grad()
    def work() -> float:
        for _ in range(PASSES):
            encode()
        return PASSES * len(LENGTHS)

    return work


def transformers(checkpoint: Path, x_BT: Tensor, valid_BT: Tensor) -> Any:
    """transformers, with a mask where there is padding."""
    from transformers import BertModel
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error

    disable_progress_bar()
    set_verbosity_error()
    model = BertModel.from_pretrained(checkpoint, attn_implementation="sdpa", add_pooling_layer=False).eval()

    def encode() -> Tensor:
        return model(input_ids=x_BT, attention_mask=valid_BT.long()).last_hidden_state  # type: ignore[no-any-return]

    encode.model = model  # type: ignore[attr-defined]
    return encode


def onnxruntime(model: Any, folder: Path, x_BT: Tensor, valid_BT: Tensor, *, int8: bool) -> Encode:
    """onnxruntime, with the graph of transformers' model, whose matrices may be quantized."""
    import onnxruntime as peer
    from onnxruntime.quantization import quantize_dynamic

    path = folder / "model.onnx"
    if not path.exists():
        axes = {name: {0: "texts", 1: "tokens"} for name in ("input_ids", "attention_mask", "out")}
        names, arguments = ["input_ids", "attention_mask"], (x_BT, valid_BT.long())
        torch.onnx.export(
            Wrapped(model).eval(), arguments, str(path), input_names=names, output_names=["out"], dynamic_axes=axes,
            dynamo=False,
        )  # fmt: skip
    if int8:
        quantize_dynamic(path, folder / "int8.onnx")
        path = folder / "int8.onnx"
    options = peer.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = THREADS, 3
    session = peer.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {"input_ids": x_BT.numpy(), "attention_mask": valid_BT.long().numpy()}
    return lambda: torch.from_numpy(session.run(None, feed)[0])


class Wrapped(torch.nn.Module):
    """A model of transformers that returns its last hidden states only."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x_BT: Tensor, mask_BT: Tensor) -> Tensor:
        return self.model(input_ids=x_BT, attention_mask=mask_BT).last_hidden_state  # type: ignore[no-any-return]


def ctranslate2(checkpoint: Path, folder: Path, tokens: list[list[str]], kind: str) -> Encode:
    """CTranslate2, which pads where it must."""
    import ctranslate2 as peer

    peer.converters.TransformersConverter(str(checkpoint)).convert(str(folder), quantization=kind)
    encoder = peer.Encoder(str(folder), device="cpu", intra_threads=THREADS, compute_type=kind)
    return lambda: torch.from_numpy(np.array(encoder.forward_batch(tokens).last_hidden_state))
