"""DeiT checkpoints: ViT with a distillation token; one classifier, two (WithTeacher), or none."""

from dataclasses import replace

from engram.hub.family import HFConfig, StoredTensor, Weights, register_family
from engram.transformers.vit.huggingface import vit
from engram.transformers.vit.model import ViT

DISTILLATION = "distillation_classifier"


def rename(place: str | StoredTensor) -> str | StoredTensor:
    """Return where DeiT stores a tensor of ViT."""
    if isinstance(place, StoredTensor):
        return replace(place, name=place.name.replace("vit.", "deit.", 1))
    return place.replace("vit.", "deit.", 1)


def derive_fields(settings: HFConfig, weights: Weights) -> HFConfig:
    """Fields of ViT, and what the distillation token is for."""
    distilled = f"{DISTILLATION}.weight" in weights
    found = vit.derive_fields(settings, _rename_classifier(weights, "cls_classifier.", "classifier."))
    return {**found, "distillation": "classifier" if distilled else "token"}


def unpack(weights: Weights, config: ViT.Config) -> Weights:
    """Name the classifier of the class token as where it is the only one."""
    return vit.unpack(_rename_classifier(weights, "cls_classifier.", "classifier."), config)


def pack(weights: Weights, config: ViT.Config) -> Weights:
    """Name the classifier of the class token as where it is one of two; drop empty ones."""
    made = vit.pack(weights, config)
    if not config.classes:
        return {name: value for name, value in made.items() if not name.startswith(DISTILLATION)}
    return made if config.distillation == "token" else _rename_classifier(made, "classifier.", "cls_classifier.")


def _rename_classifier(weights: Weights, old: str, new: str) -> Weights:
    return {new + name.removeprefix(old) if name.startswith(old) else name: value for name, value in weights.items()}


def architecture(config: ViT.Config) -> str:
    """Class of transformers."""
    if not config.classes:
        return "DeiTModel"
    teacher = "WithTeacher" if config.distillation == "classifier" else ""
    return f"DeiTForImageClassification{teacher}"


register_family(
    replace(
        vit.VIT,
        name="deit",
        architecture=architecture,
        prefix="deit.",
        processor="DeiTImageProcessor",
        key_mapping={
            **{own: rename(place) for own, place in vit.VIT.key_mapping.items()},
            "patches.distillation_token": StoredTensor("deit.embeddings.distillation_token", leading_ones=2),
            "distillation_head": DISTILLATION,
        },
        ignored_keys=(r"^deit\.pooler\.", r"mask_token$", r"^decoder\."),
        supported_values={**vit.SUPPORTED, "distillation": ("token", "classifier")},
        derive_fields=derive_fields,
        unpack=unpack,
        pack=pack,
    )
)
