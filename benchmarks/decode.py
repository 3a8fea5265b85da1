"""Text generation with SmolLM2-135M at equal bits: llama.cpp, engram, CTranslate2, transformers, and the limit.

The file of the registry has weights of 4 bits (Q4_1), and one of 8 bits (Q8_0) is made of it: llama.cpp and engram read
the same files. Every token needs every weight once: the last contestant only reads those of 4 bits, once per token.
"""

import atexit
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import engram
from engram.cli.bench import Contestant
from engram.generation.sampling import GREEDY
from engram.hub import huggingface
from engram.hub.models import fetch_model

PROMPT, NEW, THREADS = 16, 64, 2
WORK = f"SmolLM2-135M, greedy, prompt of {PROMPT} and {NEW} new tokens, batch 1; last row: bandwidth limit"
UNIT = "tokens/s"
Generate = Callable[[list[list[int]], int], object]
"""a function that continues each prompt by a number of tokens"""


def contestants() -> dict[str, Contestant]:
    return contest(lambda generate: lambda: generate_batch(generate, 1))


def generate_batch(generate: Generate, batch: int) -> float:
    """Generate continuations of random prompts; return the number of new tokens."""
    generate(prompts(batch, PROMPT), NEW)
    return batch * NEW


def prompts(batch: int, length: int) -> list[list[int]]:
    """Return random tokens, at every call others, so that nobody has them in a cache."""
    return torch.randint(1000, 40000, (batch, length)).tolist()


def contest(work: Callable[[Generate], Callable[[], float]], limit: bool = True) -> dict[str, Contestant]:
    """Return all contestants for the same work."""
    torch.set_num_threads(THREADS)
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    four, eight = fetch_model("smollm2"), folder / "q8_0.gguf"
    write_q8_0(four, eight)
    found = huggingface.load_checkpoint(four)
    huggingface.save_checkpoint(found.model, folder / "hf", found.tokenizer)
    rivals: dict[str, Generate] = {
        "llama.cpp, Q4_1": llama_cpp(four),
        "engram, Q4_1": engram_gguf(four),
        "llama.cpp, Q8_0": llama_cpp(eight),
        "engram, Q8_0": engram_gguf(eight),
        "CTranslate2, int8": ctranslate2(folder / "hf", folder / "ct2"),
        "transformers, fp32": transformers(folder / "hf"),
    }
    made: dict[str, Contestant] = {name: lambda generate=generate: work(generate) for name, generate in rivals.items()}  # type: ignore[misc]
    if limit:
        weights = np.fromfile(four, np.uint8)
        made["limit: reading the weights of 4 bits at the bandwidth of this machine"] = lambda: lambda: read(weights)
    return made


def read(weights: "np.ndarray[Any, Any]") -> float:
    """Read all weights once per token, on all threads."""
    parts = np.array_split(weights[: len(weights) // 8 * 8].view(np.int64), THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(NEW):
            list(pool.map(np.max, parts))
    return NEW


def engram_gguf(path: Path) -> Generate:
    """engram, with the weights as they are in the file."""
    model: Any = engram.load(path, quantized=True)
    return lambda rows, new: model.generate(rows, new, GREEDY)


def llama_cpp(path: Path) -> Generate:
    """llama.cpp, by xllamacpp: a batch is that of its server."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.n_ctx, params.n_parallel, params.verbosity, params.cache_prompt = 4096, 4, 0, False
    server, pool = xllamacpp.Server(params), ThreadPoolExecutor(4)

    def generate(rows: list[list[int]], new: int) -> object:
        options = {"n_predict": new, "top_k": 1, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False}
        answers = list(pool.map(lambda row: server.handle_completions({"prompt": row, **options}), rows))
        assert all(answer["usage"]["completion_tokens"] == new for answer in answers)
        return answers

    return generate


def ctranslate2(checkpoint: Path, folder: Path) -> Generate:
    """CTranslate2 with weights of 8 bits, of the same checkpoint."""
    import ctranslate2 as peer

    peer.converters.TransformersConverter(str(checkpoint)).convert(str(folder), quantization="int8")
    generator = peer.Generator(str(folder), device="cpu", intra_threads=THREADS)
    names = huggingface.load_checkpoint(checkpoint).tokenizer
    assert names is not None

    def generate(rows: list[list[int]], new: int) -> object:
        tokens = [[names.backend.id_to_token(i) for i in row] for row in rows]
        options: dict[str, Any] = {"include_prompt_in_result": False, "end_token": [], "sampling_topk": 1}
        return generator.generate_batch(tokens, max_length=new, min_length=new, **options)

    return generate


def transformers(folder: Path) -> Generate:
    """transformers in 32 bits, with its KV cache."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    peer: nn.Module = AutoModelForCausalLM.from_pretrained(folder).eval()

    @torch.no_grad()
    def generate(rows: list[list[int]], new: int) -> object:
        x_BT = torch.tensor(rows)
        options = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "pad_token_id": 0}
        return peer.generate(x_BT, attention_mask=torch.ones_like(x_BT), **options)  # type: ignore[operator]

    return generate


def write_q8_0(source: Path, path: Path) -> None:
    """Write a GGUF file with all matrices of another in 8 bits."""
    import gguf

    reader = gguf.GGUFReader(source)
    settings = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    writer = gguf.GGUFWriter(path, settings.pop("general.architecture").contents())
    for name, field in settings.items():
        kind, *inner = field.types
        writer.add_key_value(name, field.contents(), kind, inner[0] if inner else None)
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    for tensor in reader.tensors:
        rows = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if rows.ndim == 2:
            writer.add_tensor(tensor.name, gguf.quants.quantize(rows, q8_0), raw_dtype=q8_0)
        else:
            writer.add_tensor(tensor.name, rows.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
