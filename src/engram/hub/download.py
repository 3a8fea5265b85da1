"""Download checkpoints from the Hugging Face hub into its own cache; only files that are needed."""

import re
from pathlib import Path

from engram.core.errors import EngramError
from engram.training.run_folder import nearest_run

CONFIG_FILES = (
    "config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "vocab.txt", "merges.txt",
    "source.spm", "target.spm", "spiece.model", "preprocessor_config.json", "processor_config.json",
)  # fmt: skip
SAFETENSORS = ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors")
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*.bin")

UNREACHABLE = {
    "ConnectError", "ConnectionError", "LocalEntryNotFoundError", "OfflineModeIsEnabled", "TimeoutException",
}  # fmt: skip
"""errors of huggingface_hub and its HTTP library without a network"""


def download_checkpoint(name: str) -> Path:
    """Download a checkpoint such as `openai-community/gpt2`; return its folder."""
    near = nearest_run(Path(name))
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise EngramError(f"There is no folder {name}, and it is not the name of a checkpoint of the hub either.{near}")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise EngramError("Checkpoints of the hub need huggingface_hub: pip install huggingface_hub.") from None
    try:
        folder = Path(snapshot_download(name, allow_patterns=[*CONFIG_FILES, *SAFETENSORS]))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=[*CONFIG_FILES, *PICKLED]))
    except Exception as error:  # its errors have no common kind: of the network, of names, of permissions, of files
        raise EngramError(f"There is no run folder {name}, and {explain(error)}.{near}") from None
    return folder


def explain(error: Exception) -> str:
    """Return what an error of huggingface_hub means for whoever looks for a checkpoint."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in kinds:
        return "the checkpoint of that name on the Hugging Face hub must be asked for there"
    if "RepositoryNotFoundError" in kinds:
        return "the Hugging Face hub has no checkpoint of that name"
    if kinds & UNREACHABLE:
        return "the Hugging Face hub, which may have a checkpoint of that name, could not be reached"
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".: ")
    return f"the Hugging Face hub gives no checkpoint of that name: {reason}"
