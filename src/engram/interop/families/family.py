"""A kind of checkpoint as a table: which of our tensors stands where in the file, and which setting is which.

    tensors    our name → theirs, or a Place where it is stored in another form; `*` is the number of a layer, and a
               name without .weight and .bias stands for both
    settings   theirs, ours, and what theirs is where a config.json does not say; a dot leads into an object
    must_be    settings of theirs that have no counterpart here, and the one value that is fine
    needs      settings of ours that have no counterpart there, and the values that are fine

What a table cannot say is a function beside it.
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

Weights = dict[str, Tensor]
Settings = dict[str, Any]

FUNCTIONS = {
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
"""their names of the functions of units, and ours; of several names the first is written"""


@dataclass(frozen=True)
class Place:
    """Where one of our tensors stands in a file."""

    name: str
    part: int | None = None
    """which third of the tensor's last dimension it is"""
    turned: bool = False
    """whether a matrix is stored as inputs × outputs"""
    ahead: int = 0
    """dimensions of size 1 in front"""
    optional: bool = False
    """whether a file may leave it out, which means zeros"""

    def shape(self, own: torch.Size) -> tuple[int, ...]:
        """The shape in the file of a tensor that has shape `own` here."""
        shape = list(reversed(own) if self.turned else own)
        if self.part is not None:
            shape[-1] *= 3
        return (*[1] * self.ahead, *shape)

    def ours(self, stored: Tensor) -> Tensor:
        value = stored if self.part is None else stored.chunk(3, -1)[self.part]
        value = value.T if self.turned else value
        return value.reshape(value.shape[self.ahead :])

    def theirs(self, own: Tensor) -> Tensor:
        """The tensor as it is stored, or its third."""
        value = own.T if self.turned else own
        return value.reshape((1,) * self.ahead + value.shape)


@dataclass(frozen=True, kw_only=True)
class Family:
    name: str
    """`model_type` in config.json"""
    model: type[Any]
    architecture: Callable[[Any], str]
    """the class of transformers that opens what a configuration of ours describes"""
    tensors: Mapping[str, str | Place]
    settings: tuple[tuple[str, str, Any], ...]
    must_be: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    prefix: str = ""
    """what stands before the names of a model with a head, and is left out where a model was saved without one"""
    ties: Mapping[str, str] = field(default_factory=dict)
    """tensors of theirs that are another's second name, where weights are tied"""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """old ends of names, and what they are called now"""
    ignored: tuple[str, ...] = ()
    """patterns of tensors that say nothing about our model: buffers, and the heads of other tasks"""
    complete: bool = True
    """whether they always have biases and gains, so that zeros and ones are written for those that we do not have"""
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")
    """what a tokeniser of theirs is to make"""
    processor: str = ""
    """the class of transformers that prepares pictures"""
    fields: Callable[[Settings, Weights], Settings] = lambda settings, weights: {}
    """what our configuration takes from more than one setting, or from the weights themselves"""
    about: Callable[[Any], Settings] = lambda config: {}
    """what a config.json says besides"""
    unpack: Callable[[Weights, Any], Weights] = lambda weights, config: weights
    """changes tensors of a file before the table is read"""
    pack: Callable[[Weights, Any], Weights] = lambda weights, config: weights
    """the opposite of unpack"""
    refuse: Callable[[Any], list[str]] = lambda config: []
    """what else about a configuration of ours has no counterpart"""

    # ------------------------------------------------------------------ settings

    def configure(self, settings: Settings, weights: Weights, path: Path, **more: Any) -> Any:
        """Our configuration for their config.json."""
        wrong = [
            f"{name} is {found!r} and must be {wanted!r}"
            for name, wanted in self.must_be.items()
            if (found := look_up(settings, name, wanted)) != wanted
        ]
        if wrong:
            raise EngramError(f"The model in {path} has no counterpart in engram: {'; '.join(wrong)}.")
        ours = {own: look_up(settings, theirs, default) for theirs, own, default in self.settings}
        if "function" in ours:
            ours["function"] = our_function(ours["function"], path)
        try:
            return self.model.Config(**{**ours, **self.fields(settings, weights), **more})
        except EngramError as error:
            raise EngramError(f"The model in {path} has no counterpart in engram: {error}") from None
        except (TypeError, ValueError):
            raise EngramError(f"{path / 'config.json'} is damaged: a setting is of the wrong kind.") from None

    def describe(self, config: Any) -> Settings:
        """Their config.json for our configuration."""
        made: Settings = {"model_type": self.name, "architectures": [self.architecture(config)], "dtype": "float32"}
        for theirs, own, _ in self.settings:
            value = getattr(config, own)
            if own == "function":
                value = their_function(value)
            elif own.endswith("inside"):
                value = value or 4 * getattr(config, own.replace("inside", "width"))
            elif own == "kv_heads":
                value = value or config.heads
            put(made, theirs, value)
        for name, value in self.about(config).items():
            put(made, name, value)
        return made

    def obstacles(self, config: Any) -> list[str]:
        """Which settings of ours have no counterpart there."""
        fields = {name: getattr(config, name) for name in (field.name for field in dataclasses.fields(config))}
        if fields.get("kv_heads") == fields.get("heads"):
            fields["kv_heads"] = 0
        allowed = {"function": tuple(dict.fromkeys(FUNCTIONS.values())), **self.needs}
        return [
            f"{name} must be {' or '.join(map(repr, values))}, not {fields[name]!r}"
            for name, values in allowed.items()
            if name in fields and fields[name] not in values
        ] + self.refuse(config)

    # ------------------------------------------------------------------ tensors

    def place(self, name: str) -> Place | None:
        """Where our tensor of that name stands."""
        general = re.sub(r"\.\d+\.", ".*.", name)
        number = re.search(r"\.(\d+)\.", name)
        stem, _, leaf = general.rpartition(".")
        found, end = (self.tensors[general], "") if general in self.tensors else (self.tensors.get(stem), f".{leaf}")
        if found is None:
            return None
        place = found if isinstance(found, Place) else Place(found)
        full = (place.name.replace("*", number[1]) if number else place.name) + end
        return dataclasses.replace(place, name=full, turned=place.turned and leaf == "weight")

    def tied(self, config: Any) -> Mapping[str, str]:
        return self.ties if getattr(config, "tied", True) else {}

    def normalise(self, weights: Weights) -> Weights:
        """The tensors of a file under the names that the table uses."""
        for old, new in self.renamed.items():
            weights = {re.sub(f"{re.escape(old)}$", new, name): value for name, value in weights.items()}
        if self.prefix and not any(name.startswith(self.prefix) for name in weights):
            weights = {self.prefix + name: value for name, value in weights.items()}
        return {name: value for name, value in weights.items() if not self._ignores(name)}

    def _ignores(self, name: str) -> bool:
        return any(re.search(pattern, name) for pattern in (r"position_ids$", *self.ignored))

    def fill(self, model: nn.Module, weights: Weights, path: Path) -> None:
        """Put the tensors of a file into a model; what is missing, left over or misshapen is named."""
        ties = self.tied(model.config)
        filled, wrong, known = {}, {}, set(ties)
        for name, own in model.state_dict().items():
            place = self.place(name)
            assert place is not None, f"the table of {self.name} has no place for {name}"
            known.add(place.name)
            stored = weights.get(place.name, weights.get(ties.get(place.name, "")))
            if stored is None and place.optional:
                filled[name] = torch.zeros_like(own)
            elif stored is None:
                wrong[place.name] = f"{place.name} is missing"
            elif stored.shape != place.shape(own.shape):
                shapes = f"{tuple(stored.shape)} and should be {place.shape(own.shape)}"
                wrong[place.name] = f"{place.name} is {shapes}"
            else:
                filled[name] = place.ours(stored)
        wrong |= {name: f"{name} is not part of the model" for name in weights if name not in known}
        wrong |= self._untied(ties, weights)
        if wrong:
            raise EngramError(f"The weights in {path} do not fit a {self.name}: {'; '.join(wrong.values())}.")
        model.load_state_dict(filled)

    @staticmethod
    def _untied(ties: Mapping[str, str], weights: Weights) -> dict[str, str]:
        """Tensors that should be two names of one, and are not."""
        pairs = [(a, b) for a, b in ties.items() if a in weights and b in weights]
        return {a: f"{a} should be the same as {b}" for a, b in pairs if not torch.equal(weights[a], weights[b])}

    def dump(self, model: nn.Module) -> Weights:
        """The tensors of a model as a file of theirs has them."""
        made: Weights = {}
        thirds: dict[str, dict[int, Tensor]] = {}
        for name, own in self._own(model).items():
            place = self.place(name)
            assert place is not None, f"the table of {self.name} has no place for {name}"
            if place.part is None:
                made[place.name] = place.theirs(own)
            else:
                thirds.setdefault(place.name, {})[place.part] = place.theirs(own)
        made |= {name: torch.cat([parts[i] for i in range(3)], -1) for name, parts in thirds.items()}
        made = self.pack(made, model.config)
        for name, other in self.ties.items():
            if name in made and other in made and torch.equal(made[name], made[other]):
                del made[name]
        return made

    def _own(self, model: nn.Module) -> Weights:
        """The tensors of our model, with zeros for biases and ones for gains that they have and we do not."""
        own = {name: value.detach().cpu().float() for name, value in model.state_dict().items()}
        for name, module in model.named_modules():
            if not self.complete or self.place(f"{name}.bias") is None:
                continue
            if isinstance(module, nn.Linear) and module.bias is None:
                own[f"{name}.bias"] = torch.zeros(module.out_features)
            if isinstance(module, nn.LayerNorm) and not module.elementwise_affine:
                own |= {f"{name}.weight": torch.ones(module.normalized_shape)}
                own |= {f"{name}.bias": torch.zeros(module.normalized_shape)}
        return own


def look_up(settings: Settings, name: str, default: Any = None) -> Any:
    """The setting of a name such as `text_config.hidden_size`."""
    value: Any = settings
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return default if value is None else value


def put(settings: Settings, name: str, value: Any) -> None:
    *objects, last = name.split(".")
    for part in objects:
        settings = settings.setdefault(part, {})
    settings[last] = value


def our_function(name: str, path: Path) -> str:
    if name not in FUNCTIONS:
        raise EngramError(
            f"The units of the model in {path} have the function «{name}»; engram has {', '.join(FUNCTIONS)}."
        )
    return FUNCTIONS[name]


def their_function(name: str) -> str:
    return next(theirs for theirs, ours in FUNCTIONS.items() if ours == name)


def block(theirs: str, names: Mapping[str, str], ours: str = "blocks.*.") -> dict[str, str | Place]:
    """The part of a table that is one round of a Transformer."""
    return {ours + own: theirs + name for own, name in names.items()}
