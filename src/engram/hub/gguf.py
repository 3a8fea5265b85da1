"""GGUF checkpoints: settings and tensors by their names in transformers, for the model families.

model = engram.load("SmolLM2-135M-Instruct.Q4_1.gguf")
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from engram.core.errors import EngramError
from engram.hub.family import HFConfig, Weights
from engram.hub.gguf_file import GGUFFile
from engram.hub.rope_settings import Rows, to_halves

FAMILIES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma2": "gemma2", "gemma3": "gemma3_text",
            "phi3": "phi3", "olmo2": "olmo2"}  # fmt: skip
"""architectures of GGUF → `model_type` of transformers"""
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
"""tensors of GGUF → of transformers; those of a layer begin with blk.N"""
OTHER_NAMES = {
    "gemma2": {"ffn_norm": "pre_feedforward_layernorm"},
    "gemma3": {"ffn_norm": "pre_feedforward_layernorm"},
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
}
"""tensors that an architecture names otherwise"""
SETTINGS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
}
"""metadata, after the name of the architecture → settings"""
NEEDED = ("context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count")


def is_gguf(path: Path) -> bool:
    """Whether a path is that of a GGUF file."""
    return path.suffix.lower() == ".gguf" and path.is_file()


def read_settings(file: GGUFFile) -> HFConfig:
    """Return the metadata as config.json of transformers."""
    kind = file.metadata.get("general.architecture")
    if kind not in FAMILIES:
        raise EngramError(f'The model in {file.path} is a "{kind}", and of GGUF {", ".join(FAMILIES)} are known.')
    about = {name.removeprefix(f"{kind}."): value for name, value in file.metadata.items()}
    for name in NEEDED:
        if type(about.get(name)) is not int or about[name] < 1:
            raise EngramError(f"{file.path} is damaged: {kind}.{name} is no whole number above 0.")
    settings: HFConfig = {theirs: about[name] for name, theirs in SETTINGS.items() if name in about}
    if wrong := [name for name, value in settings.items() if type(value) not in (int, float)]:
        raise EngramError(f"The model in {file.path} has no single number as {wrong[0]}, which is not known here.")
    embedding = file.tensors.get("token_embd.weight")
    settings |= {
        "model_type": FAMILIES[kind],
        "vocab_size": embedding.shape[0] if embedding else 0,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "rope_parameters": read_rope_parameters(about, file),
    }
    settings |= {"layer_types": None} if kind == "llama" else {}
    if kind == "gemma3" and (theta := about.get("rope.freq_base_swa", 10_000.0)):
        full = {**settings["rope_parameters"]}
        settings["rope_parameters"] = {"full_attention": full, "sliding_attention": {"rope_theta": theta}}
    if kind in ("gemma2", "gemma3"):
        settings["query_pre_attn_scalar"] = query_scalar(about)
    if kind in ("qwen2", "qwen3"):
        settings["use_sliding_window"] = False
    return settings


def query_scalar(about: Mapping[str, Any]) -> int:
    """Number whose root divides the attention scores of Gemma: the head width, but for 27 B models."""
    heads, width = about["attention.head_count"], about["embedding_length"]
    size: int = about.get("attention.key_length", width // heads)
    return width // heads if about["block_count"] in (46, 62) else size


def read_rope_parameters(about: Mapping[str, Any], file: GGUFFile) -> HFConfig:
    """Return RoPE as transformers describes it; factors of each frequency are those of llama3."""
    theta, kind = about.get("rope.freq_base", 10_000.0), about.get("rope.scaling.type", "none")
    settings: HFConfig = {"rope_theta": theta, "rope_type": "default"}
    if "rope_freqs.weight" in file.tensors:
        return {**settings, **fit_llama3(file, about, theta)}
    if kind in ("none", ""):
        return settings
    if kind not in ("linear", "yarn"):
        raise EngramError(f"The model in {file.path} has RoPE scaling {kind!r}, and linear, yarn and llama3 are known.")
    original = about.get("rope.scaling.original_context_length")
    return {**settings, "rope_type": kind, "factor": about.get("rope.scaling.factor", 1.0),
            "original_max_position_embeddings": original}  # fmt: skip


def fit_llama3(file: GGUFFile, about: Mapping[str, Any], theta: float) -> HFConfig:
    """Return the settings of llama3 scaling that give the factors in the file."""
    factors = torch.from_numpy(file.read("rope_freqs.weight")).double().flatten()
    w = theta ** (-torch.arange(len(factors), dtype=torch.float64) / len(factors))
    largest = factors.max()
    for original in (8192, about.get("rope.scaling.original_context_length") or 8192):
        rotations = w * original / (2 * torch.pi)
        g = ((rotations - 1) / 3).clamp(0, 1)
        if torch.allclose(1 / (g + (1 - g) / largest), factors, rtol=1e-3):
            return {"rope_type": "llama3", "factor": largest.item(), "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": original}  # fmt: skip
    raise EngramError(f"The factors of RoPE in {file.path} are not those of llama3.")


def read_tensors(file: GGUFFile, settings: HFConfig, *, quantized: bool = False) -> Weights:
    """Return all tensors by the names of transformers, in 32 bits or quantized as in the file.

    Rows of Llama's queries and keys are stored in pairs.
    """
    kind = file.metadata["general.architecture"]
    names = {**NAMES, **OTHER_NAMES.get(kind, {})}
    heads = {"attn_q": settings["num_attention_heads"], "attn_k": settings.get("num_key_value_heads")}
    found: Weights = {}
    for name in file.tensors:
        layer, stem, end = split_name(name)
        if stem == "rope_freqs":
            continue
        if stem not in names:
            raise EngramError(f"The model in {file.path} has a tensor {name}, which a {kind} here has not.")
        value: Any = file.read_quantized(name) if quantized else torch.from_numpy(file.read(name))
        if kind == "llama" and stem in heads:
            value = in_halves(value, heads[stem] or settings["num_attention_heads"], file, name)
        if kind.startswith("gemma") and stem.endswith("norm"):
            value = value - 1
        found[f"model.layers.{layer}.{names[stem]}.{end}" if layer else f"{names[stem]}.{end}"] = value
    return found


def split_name(name: str) -> tuple[str, str, str]:
    """Return the layer ("" without), the stem and the end of the name of a tensor."""
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    return (match[1] or "", match[2], match[3]) if match else ("", name, "")


def in_halves(rows: Rows, heads: int, file: GGUFFile, name: str) -> Rows:
    """Order the rows of each head as transformers does."""
    if not isinstance(heads, int) or heads < 1 or len(rows) % (2 * heads):
        raise EngramError(f"{file.path} is damaged: {heads} heads do not divide {name}.")
    size = len(rows) // heads
    return to_halves(rows, size, size)
