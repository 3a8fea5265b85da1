"""Families of Hugging Face checkpoints: mappings between their state dict and config.json and ours.

    key_mapping        our key → theirs, or a StoredTensor if it is stored in another form; `*` is a layer number,
                       and a key without .weight and .bias stands for both
    config_mapping     (their setting, our field, their default); a dot leads into a nested object
    fixed_settings     settings of theirs without counterpart here, and the one supported value
    supported_values   fields of ours without counterpart there, and the supported values

What a mapping cannot express is a function beside it.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.registry import discover
from engram.generation.quantization import QuantizedWeight, insert_quantized

Weights = dict[str, Tensor]
HFConfig = dict[str, Any]

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
}
"""activation functions, their name → ours; of several names for ours the first is written"""
GATED_ACTIVATIONS = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu": "geglu",
    "gelu_pytorch_tanh": "geglu_tanh",
    "gelu_new": "geglu_tanh",
}
"""activation functions of a gate, their name → ours; of several names for ours the first is written"""
CLASSIC: dict[str, tuple[Any, ...]] = {
    "qk_norm": ("none",),
    "kv_heads": (0,),
    "head_width": (0,),
    "norm": ("layer", "layer-no-affine"),
    "attention_window": ((0,),),
    "attention_scale": (0.0,),
    "attention_softcap": (0.0,),
}
"""supported values of families whose attention is that of 2017"""


@dataclass(frozen=True)
class StoredTensor:
    """How one of our tensors is stored in a checkpoint."""

    name: str
    third: int | None = None
    """which third of the last dimension of a fused tensor (q, k, v)"""
    transposed: bool = False
    """stored as inputs × outputs"""
    leading_ones: int = 0
    """number of leading dimensions of size 1"""
    optional: bool = False
    """may be missing, which means zeros"""

    def stored_shape(self, shape_here: torch.Size) -> tuple[int, ...]:
        """Return the shape in the file of a tensor that has shape `shape_here` here."""
        shape = list(reversed(shape_here) if self.transposed else shape_here)
        if self.third is not None:
            shape[-1] *= 3
        return (*[1] * self.leading_ones, *shape)

    def from_stored(self, stored: Tensor) -> Tensor:
        """Convert a tensor of the file to ours."""
        value = stored if self.third is None else stored.chunk(3, -1)[self.third]
        value = value.T if self.transposed else value
        return value.reshape(value.shape[self.leading_ones :])

    def to_stored(self, ours: Tensor) -> Tensor:
        """Convert our tensor to that of the file, or to its third."""
        value = ours.T if self.transposed else ours
        return value.reshape((1,) * self.leading_ones + value.shape)


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of checkpoints: how state dict and config.json of one `model_type` map to a model here."""

    name: str
    """`model_type` in config.json"""
    model: type[Any]
    architecture: Callable[[Any], str]
    """class of transformers that loads a model of this config"""
    key_mapping: Mapping[str, str | StoredTensor]
    config_mapping: tuple[tuple[str, str, Any], ...]
    fixed_settings: Mapping[str, Any] = field(default_factory=dict)
    supported_values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    task: str = ""
    """ending of `architectures`, of a family that is for one task; other families are for all others"""
    prefix: str = ""
    """prefix of the keys of a model with a head; a model saved without head has none"""
    ties: Mapping[str, str] = field(default_factory=dict)
    """tied weights: key of theirs → the key that it shares its tensor with"""
    legacy_suffixes: Mapping[str, str] = field(default_factory=dict)
    """old suffixes of keys → current ones"""
    ignored_keys: tuple[str, ...] = ()
    """regular expressions of keys to ignore: buffers, and heads of other tasks"""
    always_affine: bool = True
    """their layers always have biases and gains: zeros and ones are written where ours have none"""
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")
    """`model_input_names` of the tokenizer"""
    pieces: str = ""
    """file of SentencePiece whose pieces are the tokens in this order, before the sentinels of T5"""
    processor: str = ""
    """image processor class of transformers, of models of images"""
    derive_fields: Callable[[HFConfig, Weights], HFConfig] = lambda settings, weights: {}
    """fields of our config that depend on several settings, or on the weights"""
    extra_settings: Callable[[Any], HFConfig] = lambda config: {}
    """further settings of config.json"""
    unpack: Callable[[Weights, Any], Weights] = lambda weights, config: weights
    """converts the state dict of a file before the key mapping is applied"""
    pack: Callable[[Weights, Any], Weights] = lambda weights, config: weights
    """inverse of `unpack`"""
    find_unsupported: Callable[[Any], list[str]] = lambda config: []
    """further reasons why a config of ours has no counterpart"""

    # ------------------------------------------------------------------ config

    def to_config(self, settings: HFConfig, weights: Weights, path: Path, **more: Any) -> Any:
        """Return our model config for their config.json."""
        wrong = [
            f"{name} is {found!r} and must be {wanted!r}"
            for name, wanted in self.fixed_settings.items()
            if (found := get_setting(settings, name, wanted)) != wanted
        ]
        if wrong:
            raise EngramError(f"The model in {path} has no counterpart in engram: {'; '.join(wrong)}.")
        ours = {own: get_setting(settings, theirs, default) for theirs, own, default in self.config_mapping}
        if "activation" in ours:
            ours["activation"] = from_hf_activation(ours["activation"], path)
        try:
            return self.model.Config(**{**ours, **self.derive_fields(settings, weights), **more})
        except EngramError as error:
            raise EngramError(f"The model in {path} has no counterpart in engram: {error}") from None
        except (TypeError, ValueError, AttributeError, ArithmeticError):
            raise EngramError(f"{path / 'config.json'} is damaged: a setting is of the wrong kind.") from None

    def from_config(self, config: Any) -> HFConfig:
        """Return their config.json for our model config."""
        made: HFConfig = {"model_type": self.name, "architectures": [self.architecture(config)], "dtype": "float32"}
        for theirs, own, _ in self.config_mapping:
            value = getattr(config, own)
            if own == "activation":
                value = to_hf_activation(value)
            elif own.endswith("ff_width"):
                value = value or 4 * getattr(config, own.replace("ff_width", "width"))
            elif own == "kv_heads":
                value = value or config.heads
            elif own == "head_width":
                value = config.size_of_head
            set_setting(made, theirs, value)
        for name, value in self.extra_settings(config).items():
            set_setting(made, name, value)
        return made

    def find_incompatibilities(self, config: Any) -> list[str]:
        """Return the fields of our config that have no counterpart there, as phrases."""
        fields = {name: getattr(config, name) for name in (field.name for field in dataclasses.fields(config))}
        if fields.get("kv_heads") == fields.get("heads"):
            fields["kv_heads"] = 0
        if fields.get("head_width", 0) * fields.get("heads", 0) == fields.get("width"):
            fields["head_width"] = 0
        allowed = {"activation": tuple(dict.fromkeys(ACTIVATIONS.values())), **self.supported_values}
        return [
            f"{name} must be {' or '.join(map(repr, values))}, not {fields[name]!r}"
            for name, values in allowed.items()
            if name in fields and fields[name] not in values
        ] + self.find_unsupported(config)

    # ------------------------------------------------------------------ state dict

    def locate(self, name: str) -> StoredTensor | None:
        """Return how our tensor of that key is stored; None if the mapping has no such key."""
        general = re.sub(r"\.\d+\.", ".*.", name)
        number = re.search(r"\.(\d+)\.", name)
        stem, _, leaf = general.rpartition(".")
        found, end = (
            (self.key_mapping[general], "") if general in self.key_mapping else (self.key_mapping.get(stem), f".{leaf}")
        )
        if found is None:
            return None
        place = found if isinstance(found, StoredTensor) else StoredTensor(found)
        full = (place.name.replace("*", number[1]) if number else place.name) + end
        return dataclasses.replace(place, name=full, transposed=place.transposed and leaf == "weight")

    def tied_keys(self, config: Any) -> Mapping[str, str]:
        """Return the tied weights of a model of this config."""
        return self.ties if getattr(config, "tie_embeddings", True) else {}

    def normalize_keys(self, weights: Weights) -> Weights:
        """Rename the keys of a file to those of the key mapping, and drop ignored ones."""
        for old, new in self.legacy_suffixes.items():
            weights = {re.sub(f"{re.escape(old)}$", new, name): value for name, value in weights.items()}
        if self.prefix and not any(name.startswith(self.prefix) for name in weights):
            weights = {self.prefix + name: value for name, value in weights.items()}
        return {name: value for name, value in weights.items() if not self._ignores(name)}

    def _ignores(self, name: str) -> bool:
        return any(re.search(pattern, name) for pattern in (r"position_ids$", *self.ignored_keys))

    def load_weights(self, model: nn.Module, weights: Weights, path: Path) -> None:
        """Load the state dict of a file into a model.

        The error names missing, unexpected and misshapen tensors.
        """
        ties = self.tied_keys(model.config)
        filled, wrong, known = {}, {}, set(ties)
        quantized: dict[str, QuantizedWeight] = {}
        for name, own in model.state_dict().items():
            place = self.locate(name)
            assert place is not None, f"the key mapping of {self.name} has no {name}"
            known.add(place.name)
            stored = weights.get(place.name, weights.get(ties.get(place.name, "")))
            if stored is None and place.optional:
                filled[name] = torch.zeros_like(own)
            elif stored is None:
                wrong[place.name] = f"{place.name} is missing"
            elif stored.shape != place.stored_shape(own.shape):
                shapes = f"{tuple(stored.shape)} and should be {place.stored_shape(own.shape)}"
                wrong[place.name] = f"{place.name} is {shapes}"
            elif isinstance(stored, QuantizedWeight):
                quantized[name] = stored
            else:
                filled[name] = place.from_stored(stored)
        wrong |= {name: f"{name} is not part of the model" for name in weights if name not in known}
        wrong |= self._find_untied(ties, weights)
        if wrong:
            raise EngramError(f"The weights in {path} do not fit a {self.name}: {'; '.join(wrong.values())}.")
        model.load_state_dict(filled, strict=not quantized)
        insert_quantized(model, quantized)

    @staticmethod
    def _find_untied(ties: Mapping[str, str], weights: Weights) -> dict[str, str]:
        """Return tied tensors of the file that differ."""
        pairs = [(a, b) for a, b in ties.items() if a in weights and b in weights]
        return {a: f"{a} should be the same as {b}" for a, b in pairs if not torch.equal(weights[a], weights[b])}

    def export_weights(self, model: nn.Module) -> Weights:
        """Return the state dict of a model as a file of theirs has it."""
        made: Weights = {}
        thirds: dict[str, dict[int, Tensor]] = {}
        for name, own in self._complete_state_dict(model).items():
            place = self.locate(name)
            assert place is not None, f"the key mapping of {self.name} has no {name}"
            if place.third is None:
                made[place.name] = place.to_stored(own)
            else:
                thirds.setdefault(place.name, {})[place.third] = place.to_stored(own)
        made |= {name: torch.cat([parts[i] for i in range(3)], -1) for name, parts in thirds.items()}
        made = self.pack(made, model.config)
        for name, other in self.ties.items():
            if name in made and other in made and torch.equal(made[name], made[other]):
                del made[name]
        return made

    def _complete_state_dict(self, model: nn.Module) -> Weights:
        """Return our state dict, with zeros for biases and ones for gains that they have and we do not."""
        own = {name: value.detach().cpu().float() for name, value in model.state_dict().items()}
        for name, module in model.named_modules():
            if not self.always_affine or self.locate(f"{name}.bias") is None:
                continue
            if isinstance(module, nn.Linear) and module.bias is None:
                own[f"{name}.bias"] = torch.zeros(module.out_features)
            if isinstance(module, nn.LayerNorm) and not module.elementwise_affine:
                own |= {f"{name}.weight": torch.ones(module.normalized_shape)}
                own |= {f"{name}.bias": torch.zeros(module.normalized_shape)}
        return own


def get_setting(settings: HFConfig, name: str, default: Any = None) -> Any:
    """Return the setting of a name such as `text_config.hidden_size`."""
    value: Any = settings
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return default if value is None else value


def set_setting(settings: HFConfig, name: str, value: Any) -> None:
    *objects, last = name.split(".")
    for part in objects:
        settings = settings.setdefault(part, {})
    settings[last] = value


def from_hf_activation(name: str, path: Path) -> str:
    if name not in ACTIVATIONS:
        raise EngramError(
            f'The model in {path} has the activation function "{name}"; engram has {", ".join(ACTIVATIONS)}.'
        )
    return ACTIVATIONS[name]


def to_hf_activation(name: str) -> str:
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == name)


def from_hf_gate(name: Any) -> str:
    """Return our name of the activation function of a gate."""
    if name not in GATED_ACTIVATIONS:
        raise EngramError(f"its activation function is {name!r}, and engram has {', '.join(GATED_ACTIVATIONS)}.")
    return GATED_ACTIVATIONS[name]


def to_hf_gate(name: str) -> str:
    return next(theirs for theirs, ours in GATED_ACTIVATIONS.items() if ours == name)


def map_layer(theirs: str, names: Mapping[str, str], ours: str = "blocks.*.") -> dict[str, str | StoredTensor]:
    """Return the key mapping of a Transformer layer: our prefix and name → their prefix and name."""
    return {ours + own: theirs + name for own, name in names.items()}


_families: dict[str, Family] = {}


def register_family(family: Family) -> None:
    """Register a family of checkpoints."""
    _families[family.name + family.task] = family


def families() -> dict[str, Family]:
    """Return all families of checkpoints, by `model_type`, and the task of those that are for one."""
    discover("huggingface")
    return _families
