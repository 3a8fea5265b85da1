"""Hugging Face checkpoints.

Load those of transformers, and save models so that transformers loads them.

checkpoint = load_checkpoint("openai-community/gpt2")              # or a folder
checkpoint.model(torch.tensor([checkpoint.tokenizer.encode("to be")]))
save_checkpoint(model, Path("mine"), tokenizer)         # AutoModelForCausalLM.from_pretrained("mine")

The mappings of keys and settings are the families (hub/family.py), registered beside the models.
"""

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn

from engram.core.errors import EngramError, with_article
from engram.core.files import read_json, writing
from engram.core.files import write as write_file
from engram.core.memory import trim_heap
from engram.core.model_size import SkipRandomWeights, bytes_of, limit_model_size
from engram.data.preprocess import Preprocess, read_normalization
from engram.data.tokenizer import Tokenizer
from engram.hub import models
from engram.hub.download import download_checkpoint
from engram.hub.family import Family, HFConfig, families
from engram.hub.formats import find_format
from engram.hub.gguf import is_gguf, read_settings, read_tensors
from engram.hub.gguf_file import GGUFFile
from engram.hub.gguf_tokenizer import read_tokenizer
from engram.hub.sentencepiece import has_sentencepiece, read_sentencepiece, read_t5_sentencepiece
from engram.hub.weights import read_weights

SEQUENCE_CLASSIFICATION = "ForSequenceClassification"
"""how the names of classes end that classify texts"""
CLASSIFICATION = "single_label_classification"
"""`problem_type` of a classifier whose classes exclude each other"""


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: model, tokenizer, image preprocessing and class names."""

    model: nn.Module
    """in evaluation mode"""
    tokenizer: Tokenizer | None
    preprocess: Preprocess | None
    """image preprocessing, of a model of images"""
    classes: tuple[str, ...]
    """class names, of a classifier"""
    path: Path


def is_checkpoint(path: Path) -> bool:
    """Whether a path is a GGUF file or a folder with a checkpoint in a format that is known."""
    if is_gguf(Path(path)) or find_format(Path(path)):
        return True
    try:
        return "model_type" in read_json(Path(path) / "config.json")
    except (EngramError, TypeError):
        return False


# ---------------------------------------------------------------------- reading


def load_checkpoint(source: str | Path, *, quantized: bool = False) -> Checkpoint:
    """Load the checkpoint of a folder, a GGUF file, the registry of models, or a name on the hub.

    With `quantized`, matrices of a GGUF file stay in 8 or 4 bits.
    """
    path = find_checkpoint(source)
    if other := find_format(path):
        return Checkpoint(*other.read(path), None, (), path)
    gguf = GGUFFile(path) if is_gguf(path) else None
    settings = _read_settings(path, gguf)
    family = _get_family(settings, path)
    weights = family.normalize_keys(read_tensors(gguf, settings, quantized=quantized) if gguf else read_weights(path))
    with limit_model_size(bytes_of(weights), path):
        processor = _read_processor(path, family)
        config = family.to_config(settings, weights, path, **(read_normalization(processor) if processor else {}))
        preprocess = _make_preprocess(processor, config, path) if processor else None
        with warnings.catch_warnings():  # a classifier of no classes has nothing to initialize, and torch says so
            warnings.filterwarnings("ignore", message="Initializing zero-element tensors")
            with SkipRandomWeights():
                model = family.model(config)
        family.load_weights(model, family.unpack(weights, config), path)
        classes = _read_classes(settings, getattr(config, "classes", 0))
    tokenizer = read_tokenizer(gguf) if gguf else _load_tokenizer(path, family)
    del weights, gguf
    trim_heap()
    return Checkpoint(model.eval(), tokenizer, preprocess, classes, path)


def find_checkpoint(source: str | Path) -> Path:
    """Return the folder or GGUF file of a checkpoint: a path, a registered model, or a name on the hub."""
    path = Path(source)
    if path.is_dir() or is_gguf(path):
        return path
    return models.fetch_model(str(source)) if str(source) in models.MODELS else download_checkpoint(str(source))


def _read_settings(path: Path, gguf: GGUFFile | None) -> Any:
    return read_settings(gguf) if gguf else read_json(path / "config.json")


def get_model_class(source: str | Path) -> type[nn.Module]:
    """Return the model class of a checkpoint, from its config.json alone."""
    path = find_checkpoint(source)
    if other := find_format(path):
        return other.model
    return _get_family(_read_settings(path, GGUFFile(path) if is_gguf(path) else None), path).model


def _get_family(settings: Any, path: Path) -> Family:
    kind = settings.get("model_type") if isinstance(settings, dict) else None
    if kind is None:
        raise EngramError(f"{path / 'config.json'} is not that of a checkpoint of transformers: it has no model_type.")
    if not isinstance(kind, str) or kind not in families():
        known = ", ".join(name for name, family in families().items() if not family.task)
        raise EngramError(f'The model in {path} is a "{kind}", which is not known; known are {known}.')
    return families().get(kind + _find_task(settings), families()[kind])


def _find_task(settings: HFConfig) -> str:
    """Return the task of a model that tells classes apart, each text being of one; "" for all others."""
    names, labels = settings.get("architectures"), settings.get("id2label")
    if not isinstance(names, list) or not names or not str(names[0]).endswith(SEQUENCE_CLASSIFICATION):
        return ""
    several = not isinstance(labels, dict) or len(labels) > 1
    return SEQUENCE_CLASSIFICATION if several and settings.get("problem_type") in (None, CLASSIFICATION) else ""


def _read_processor(path: Path, family: Family) -> HFConfig:
    """Read preprocessor_config.json, or the image part of processor_config.json.

    {} for models without images.
    """
    if not family.processor:
        return {}
    default = {"image_processor_type": family.processor}
    if (path / "preprocessor_config.json").exists():
        return {**default, **read_json(path / "preprocessor_config.json")}
    if (path / "processor_config.json").exists():
        return {**default, **read_json(path / "processor_config.json").get("image_processor", {})}
    return default


def _make_preprocess(processor: HFConfig, config: Any, path: Path) -> Preprocess:
    channels = config.shape[0]
    if not {len(config.mean), len(config.std)} <= {1, channels}:
        raise EngramError(f"image_mean and image_std in {path} must have one number for each of {channels} channels.")
    return Preprocess.from_json(processor, config.shape)


def _read_classes(settings: HFConfig, number: int) -> tuple[str, ...]:
    names = settings.get("id2label") or {}
    return tuple(str(names.get(str(i), default_label(i))) for i in range(number))


def default_label(i: int) -> str:
    """Return the name that transformers gives a class without name."""
    return f"LABEL_{i}"


def _load_tokenizer(path: Path, family: Family) -> Tokenizer | None:
    if not (path / "tokenizer.json").exists():
        if family.pieces and (path / family.pieces).exists():
            return read_t5_sentencepiece(path / family.pieces)
        if has_sentencepiece(path):
            return read_sentencepiece(path)
    if not any((path / name).exists() for name in ("tokenizer.json", "vocab.txt", "merges.txt")):
        return None
    return Tokenizer.load(path)


# ---------------------------------------------------------------------- writing


def save_checkpoint(
    model: nn.Module,
    folder: Path,
    tokenizer: Tokenizer | None = None,
    classes: Sequence[str] = (),
    preprocess: Preprocess | None = None,
) -> Path:
    """Save a checkpoint that transformers loads with the same outputs; config.json is written last."""
    family, folder = find_family(model), Path(folder)
    config: Any = model.config
    if (folder / "recipe.json").exists():
        raise EngramError(f"{folder} holds a run, whose files would be replaced: name another folder.")
    settings = family.from_config(config)
    tokens = _find_special_tokens(tokenizer) if tokenizer else {}
    if tokenizer and tokenizer.eos_token:
        tokens["eos_token"] = tokenizer.eos_token
    _set_token_ids(settings, tokenizer, tokens)
    _set_labels(settings, classes, getattr(config, "classes", 0))
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.contiguous().clone() for name, value in family.export_weights(model).items()}
    write_file(folder / "model.safetensors", safetensors.torch.save(weights, {"format": "pt"}))
    if tokenizer:
        write_file(folder / "tokenizer.json", tokenizer.to_bytes())
        roles = json.loads(tokenizer.roles_to_bytes())
        _write_json(folder / "tokenizer_config.json", _tokenizer_config(family, settings, tokens) | roles)
    if family.processor:
        preprocess = preprocess or Preprocess.resize_to(config.shape)
        about = preprocess.to_json(family.processor, config.mean, config.std)
        _write_json(folder / "preprocessor_config.json", about)
    if generation := _generation_config(settings):
        _write_json(folder / "generation_config.json", generation)
    _write_json(folder / "config.json", settings)
    return folder


def find_family(model: nn.Module) -> Family:
    """Return the family that a model can be saved as; the error names the fields without counterpart."""
    candidates = [family for family in families().values() if type(model) is family.model]
    if not candidates:
        known = sorted({family.model.__name__ for family in families().values()})
        name = with_article(type(model).__name__).replace("a", "A", 1)
        raise EngramError(f"{name} has no counterpart in transformers; {', '.join(known)} have.")
    problems = {family.name: family.find_incompatibilities(model.config) for family in candidates}
    for family in candidates:
        if not problems[family.name]:
            return family
    nearest = sorted(problems.items(), key=lambda item: len(item[1]))[:2]
    reasons = "; ".join(f"as {name}, {' and '.join(wrong)}" for name, wrong in nearest)
    raise EngramError(f"This {type(model).__name__} has no counterpart in transformers: {reasons}.")


TOKEN_ROLES = {
    "pad_token": ("[PAD]", "<pad>", "<|endoftext|>"),
    "bos_token": ("<s>", "<|startoftext|>", "<|endoftext|>"),
    "eos_token": ("</s>", "<|endoftext|>"),
    "unk_token": ("[UNK]", "<unk>"),
    "mask_token": ("[MASK]", "<mask>"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
}
"""roles of special tokens in transformers, and the tokens that may have them"""


def _find_special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    known = set(map(tokenizer.backend.id_to_token, tokenizer.special_ids))
    found = {role: next((name for name in names if name in known), None) for role, names in TOKEN_ROLES.items()}
    return {role: name for role, name in found.items() if name is not None}


def _set_token_ids(settings: HFConfig, tokenizer: Tokenizer | None, tokens: dict[str, str]) -> None:
    """Set the ids of pad, bos and eos tokens in config.json where the model does not define them."""
    for role in ("pad", "bos", "eos"):
        name = f"{role}_token_id"
        if tokenizer and name in settings and settings[name] is None and f"{role}_token" in tokens:
            settings[name] = tokenizer.backend.token_to_id(tokens[f"{role}_token"])


def _set_labels(settings: HFConfig, classes: Sequence[str], number: int) -> None:
    """Set id2label and label2id, from which transformers takes the number of classes."""
    if classes and len(classes) != number:
        raise EngramError(f"The model tells {number} classes apart, and there are {len(classes)} names.")
    if number:
        names = list(classes) or list(map(default_label, range(number)))
        settings["id2label"] = {str(i): name for i, name in enumerate(names)}
        settings["label2id"] = {name: i for i, name in enumerate(names)}


def _tokenizer_config(family: Family, settings: HFConfig, tokens: dict[str, str]) -> HFConfig:
    longest = settings.get("n_positions") or settings.get("max_position_embeddings")
    longest = longest or settings["text_config"]["max_position_embeddings"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "model_input_names": list(family.inputs),
        "clean_up_tokenization_spaces": False,
        **tokens,
    }


GENERATION_MODELS = (
    "GPT2LMHeadModel", "NanoChatForCausalLM", "MarianMTModel", "PegasusForConditionalGeneration",
    "T5ForConditionalGeneration",
)  # fmt: skip


def _generation_config(settings: HFConfig) -> HFConfig:
    """Return generation_config.json of models that generate text, {} for others."""
    if settings["architectures"][0] not in GENERATION_MODELS:
        return {}
    names = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_eos_token_id")
    ids = {name: settings[name] for name in names if settings.get(name) is not None}
    return {**ids, "max_length": settings.get("n_positions") or settings["max_position_embeddings"]}


def _write_json(path: Path, value: HFConfig) -> None:
    write_file(path, json.dumps(value, indent=2, ensure_ascii=False).encode())
