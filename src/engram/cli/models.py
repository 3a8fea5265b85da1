"""engram models: list and download pretrained models."""

from collections.abc import Callable, Sequence
from pathlib import Path

from engram.cli.flags import call
from engram.cli.table import print_table
from engram.core.errors import unknown


def command(argv: Sequence[str]) -> int:
    actions: dict[str, Callable[..., None]] = {"list": list_models, "get": get_model}
    if not argv or argv[0] in ("-h", "--help"):
        print("engram models list [--json]             every pretrained model, and whether it is on this machine")
        print("engram models get NAME [--file FILE]    download one now, or read it from a local archive")
        print("\nA name works wherever a run folder does: engram sample NAME, engram inspect NAME, engram.load(NAME).")
        return 0
    if argv[0] not in actions:
        raise unknown("action of `engram models`", argv[0], actions)
    return call(actions[argv[0]], argv[1:], f"models {argv[0]}")


def list_models(json: bool = False) -> None:
    """Every pretrained model.

    Args:
        json: print JSON instead of a table
    """
    from engram.hub.models import MODELS, is_here

    rows = [
        {"name": name, "title": model.title, "license": model.license, "MB": model.megabytes, "here": is_here(name)}
        for name, model in MODELS.items()
    ]
    print_table(rows, json)


def get_model(name: str, file: Path | None = None) -> None:
    """Download a pretrained model into the cache.

    Args:
        name: name of the model
        file: an archive that you already have, instead of its source
    """
    from engram.hub.models import fetch_model

    print(fetch_model(name, file))
