"""Hugging Face checkpoints, both ways: what transformers saves is opened here, and what is written here opens there.

checkpoint = read("openai-community/gpt2")              # or a folder
checkpoint.model(torch.tensor([checkpoint.tokeniser.encode("to be")]))
write(model, Path("mine"), tokeniser)                   # AutoModelForCausalLM.from_pretrained("mine")

Which tensor and which setting is which stands in the tables of `families`.
"""

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn

from engram.core.errors import EngramError
from engram.core.size import bytes_of, no_larger_than
from engram.data.preprocess import Preprocess, brightness
from engram.data.tokeniser import Tokeniser
from engram.interop.families import FAMILIES
from engram.interop.families.family import Family, Settings
from engram.interop.hub import fetch
from engram.interop.sentencepiece import holds_sentencepiece, read_sentencepiece
from engram.interop.weights import read_weights
from engram.training.files import read_json, writing
from engram.training.files import write as write_file


@dataclass(frozen=True)
class Checkpoint:
    """A model as it was saved, and what was saved beside it."""

    model: nn.Module
    """in evaluation mode"""
    tokeniser: Tokeniser | None
    preprocess: Preprocess | None
    """how pictures of any size become those that the model sees"""
    classes: tuple[str, ...]
    """names of the classes, of a classifier"""
    path: Path


def holds_checkpoint(path: Path) -> bool:
    """Whether a folder holds a checkpoint of transformers, ours or anybody's."""
    try:
        return "model_type" in read_json(Path(path) / "config.json")
    except (EngramError, TypeError):
        return False


# ---------------------------------------------------------------------- reading


def read(source: str | Path) -> Checkpoint:
    """The checkpoint in a folder, or of that name on the hub."""
    path = Path(source) if Path(source).is_dir() else fetch(str(source))
    settings = read_json(path / "config.json")
    family = _family(settings, path)
    weights = family.normalise(read_weights(path))
    with no_larger_than(bytes_of(weights), path):
        processor = _processor(path, family)
        config = family.configure(settings, weights, path, **(brightness(processor) if processor else {}))
        preprocess = _preprocess(processor, config, path) if processor else None
        with warnings.catch_warnings():  # a classifier of no classes has nothing to initialise, and torch says so
            warnings.filterwarnings("ignore", message="Initializing zero-element tensors")
            model = family.model(config)
        family.fill(model, family.unpack(weights, config), path)
        classes = _classes(settings, getattr(config, "classes", 0))
    return Checkpoint(model.eval(), _tokeniser(path), preprocess, classes, path)


def architecture(source: str | Path) -> type[nn.Module]:
    """The class of the model in a checkpoint, by its config.json alone."""
    path = Path(source) if Path(source).is_dir() else fetch(str(source))
    return _family(read_json(path / "config.json"), path).model


def _family(settings: Any, path: Path) -> Family:
    kind = settings.get("model_type") if isinstance(settings, dict) else None
    if kind is None:
        raise EngramError(f"{path / 'config.json'} is not that of a checkpoint of transformers: it has no model_type.")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise EngramError(f"The model in {path} is a «{kind}», which is not known; known are {', '.join(FAMILIES)}.")
    return FAMILIES[kind]


def _processor(path: Path, family: Family) -> Settings:
    """How pictures are prepared: the file, or that part of a processor of pictures and texts, or what is usual."""
    if not family.processor:
        return {}
    usual = {"image_processor_type": family.processor}
    if (path / "preprocessor_config.json").exists():
        return {**usual, **read_json(path / "preprocessor_config.json")}
    if (path / "processor_config.json").exists():
        return {**usual, **read_json(path / "processor_config.json").get("image_processor", {})}
    return usual


def _preprocess(processor: Settings, config: Any, path: Path) -> Preprocess:
    channels = config.shape[0]
    if not {len(config.mean), len(config.std)} <= {1, channels}:
        raise EngramError(f"image_mean and image_std in {path} must have one number for each of {channels} channels.")
    return Preprocess.from_json(processor, config.shape)


def _classes(settings: Settings, number: int) -> tuple[str, ...]:
    names = settings.get("id2label") or {}
    return tuple(str(names.get(str(i), unnamed(i))) for i in range(number))


def unnamed(i: int) -> str:
    """What transformers calls a class that nobody has named."""
    return f"LABEL_{i}"


def _tokeniser(path: Path) -> Tokeniser | None:
    if holds_sentencepiece(path) and not (path / "tokenizer.json").exists():
        return read_sentencepiece(path)
    if not any((path / name).exists() for name in ("tokenizer.json", "vocab.txt", "merges.txt")):
        return None
    return Tokeniser.load(path)


# ---------------------------------------------------------------------- writing


def write(
    model: nn.Module,
    folder: Path,
    tokeniser: Tokeniser | None = None,
    classes: Sequence[str] = (),
    preprocess: Preprocess | None = None,
) -> Path:
    """Write a checkpoint that transformers opens with the same outputs; config.json comes last, so it is whole."""
    family, folder = fitting(model), Path(folder)
    config: Any = model.config
    if (folder / "recipe.json").exists():
        raise EngramError(f"{folder} holds a run, whose files would be replaced: name another folder.")
    settings = family.describe(config)
    tokens = _special_tokens(tokeniser) if tokeniser else {}
    _name_tokens(settings, tokeniser, tokens)
    _name_classes(settings, classes, getattr(config, "classes", 0))
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.contiguous().clone() for name, value in family.dump(model).items()}
    write_file(folder / "model.safetensors", safetensors.torch.save(weights, {"format": "pt"}))
    if tokeniser:
        write_file(folder / "tokenizer.json", tokeniser.to_bytes())
        _write_json(folder / "tokenizer_config.json", _tokeniser_config(family, settings, tokens))
    if family.processor:
        preprocess = preprocess or Preprocess.of(config.shape)
        about = preprocess.to_json(family.processor, config.mean, config.std)
        _write_json(folder / "preprocessor_config.json", about)
    if generation := _generation(settings):
        _write_json(folder / "generation_config.json", generation)
    _write_json(folder / "config.json", settings)
    return folder


def fitting(model: nn.Module) -> Family:
    """The kind of checkpoint that can say what a model is; otherwise the settings that none has are named."""
    families = [family for family in FAMILIES.values() if type(model) is family.model]
    if not families:
        known = sorted({family.model.__name__ for family in FAMILIES.values()})
        raise EngramError(f"A {type(model).__name__} has no counterpart in transformers; {', '.join(known)} have.")
    obstacles = {family.name: family.obstacles(model.config) for family in families}
    for family in families:
        if not obstacles[family.name]:
            return family
    reasons = "; ".join(f"as {name}, {' and '.join(wrong)}" for name, wrong in obstacles.items())
    raise EngramError(f"This {type(model).__name__} has no counterpart in transformers: {reasons}.")


ROLES = {
    "pad_token": ("[PAD]", "<pad>", "<|endoftext|>"),
    "bos_token": ("<s>", "<|startoftext|>", "<|endoftext|>"),
    "eos_token": ("</s>", "<|endoftext|>"),
    "unk_token": ("[UNK]", "<unk>"),
    "mask_token": ("[MASK]", "<mask>"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
}
"""which tokens transformers wants to know by their role, and what they may be called"""


def _special_tokens(tokeniser: Tokeniser) -> dict[str, str]:
    known = set(map(tokeniser.inner.id_to_token, tokeniser.specials))
    found = {role: next((name for name in names if name in known), None) for role, names in ROLES.items()}
    return {role: name for role, name in found.items() if name is not None}


def _name_tokens(settings: Settings, tokeniser: Tokeniser | None, tokens: dict[str, str]) -> None:
    """Let config.json say which tokens fill up, begin and end, where the model itself does not know."""
    for role in ("pad", "bos", "eos"):
        name = f"{role}_token_id"
        if tokeniser and name in settings and settings[name] is None and f"{role}_token" in tokens:
            settings[name] = tokeniser.inner.token_to_id(tokens[f"{role}_token"])


def _name_classes(settings: Settings, classes: Sequence[str], number: int) -> None:
    """transformers counts the names to know how many classes there are."""
    if classes and len(classes) != number:
        raise EngramError(f"The model tells {number} classes apart, and there are {len(classes)} names.")
    if number:
        names = list(classes) or list(map(unnamed, range(number)))
        settings["id2label"] = {str(i): name for i, name in enumerate(names)}
        settings["label2id"] = {name: i for i, name in enumerate(names)}


def _tokeniser_config(family: Family, settings: Settings, tokens: dict[str, str]) -> Settings:
    longest = settings.get("n_positions") or settings.get("max_position_embeddings")
    longest = longest or settings["text_config"]["max_position_embeddings"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "model_input_names": list(family.inputs),
        "clean_up_tokenization_spaces": False,
        **tokens,
    }


GENERATING = ("GPT2LMHeadModel", "NanoChatForCausalLM", "MarianMTModel", "PegasusForConditionalGeneration")


def _generation(settings: Settings) -> Settings:
    """How transformers is to begin and end texts, of those that write some."""
    if settings["architectures"][0] not in GENERATING:
        return {}
    names = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_eos_token_id")
    said = {name: settings[name] for name in names if settings.get(name) is not None}
    return {**said, "max_length": settings.get("n_positions") or settings["max_position_embeddings"]}


def _write_json(path: Path, value: Settings) -> None:
    write_file(path, json.dumps(value, indent=2, ensure_ascii=False).encode())
