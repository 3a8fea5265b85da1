"""Checkpoints of the Hugging Face hub: only files that are read here are fetched, and kept in the hub's own cache."""

import re
from pathlib import Path

from engram.core.errors import EngramError

DESCRIPTIONS = (
    "config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "vocab.txt", "merges.txt",
    "source.spm", "target.spm", "preprocessor_config.json", "processor_config.json",
)  # fmt: skip
SAFE = ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors")
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*.bin")


def fetch(name: str) -> Path:
    """The folder of a checkpoint of the hub, such as `openai-community/gpt2`."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise EngramError(f"There is no folder {name}, and it is not the name of a checkpoint of the hub either.")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise EngramError("Checkpoints of the hub need huggingface_hub: pip install huggingface_hub.") from None
    try:
        folder = Path(snapshot_download(name, allow_patterns=[*DESCRIPTIONS, *SAFE]))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=[*DESCRIPTIONS, *PICKLED]))
    except Exception as error:  # its errors have no common kind: of the network, of names, of permissions, of files
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".: ")
        raise EngramError(f"«{name}» is no folder here, and the hub does not give it either: {reason}.") from None
    return folder
