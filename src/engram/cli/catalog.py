"""The catalog: name, title, flags and help of every recipe.

It is cached so that `list` and `--help` need not import torch.

The cache is one JSON file, which holds for the source files it was made from: another size or time of any, and it is
made anew.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

from engram import PARTS

FILE = "catalog.json"


def catalog() -> dict[str, dict[str, Any]]:
    """Every recipe by name: title, part, data, description, presets, and the controls of its flags."""
    path, signature = cache_folder() / FILE, source_signature()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(path.read_text("utf-8"))
        if found["signature"] == signature:
            recipes: dict[str, dict[str, Any]] = found["recipes"]
            return recipes
    recipes = build()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({"signature": signature, "recipes": recipes}), "utf-8")
        partial.replace(path)
    return recipes


def cache_folder() -> Path:
    """Where caches are kept: `ENGRAM_DATA`, or `~/.cache/engram`."""
    return Path(os.environ.get("ENGRAM_DATA") or Path.home() / ".cache" / "engram").expanduser()


def source_signature() -> str:
    """Hash of the names, sizes and times of the source files that recipes are read from."""
    spec = importlib.util.find_spec("engram")
    assert spec is not None
    digest = hashlib.sha256()
    for home in spec.submodule_search_locations or ():
        for folder in (*PARTS, "core", "nn", "training", "generation", "data", "hub", "cli"):
            for path in sorted(Path(home, folder).rglob("*.py")):
                about = path.stat()
                digest.update(f"{path} {about.st_size} {about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def build() -> dict[str, dict[str, Any]]:
    """Read every recipe, which imports torch."""
    import inspect

    from engram.core.config import controls
    from engram.core.registry import registry

    return {
        name: {
            "title": cls.title,
            "part": cls.part(),
            "data": cls().data,
            "description": " ".join((inspect.getdoc(cls) or "").split()),
            "presets": {preset: controls(cls.from_preset(preset)) for preset in cls.all_presets()},
            "sample": controls(cls.SampleArgs()),
            "inspect": controls(cls.InspectArgs()),
        }
        for name, cls in registry().items()
    }
