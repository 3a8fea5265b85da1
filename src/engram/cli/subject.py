"""Open the run or checkpoint that `sample`, `inspect` and `attack` name, and parse its flags."""

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.cli.catalog import catalog
from engram.cli.flags import parse_settings
from engram.cli.help import grouped, print_help, wants_help
from engram.core.config import Settings, controls
from engram.core.errors import EngramError


@dataclass(frozen=True, kw_only=True)
class StepOptions(Settings):
    """Which checkpoint of a run is used."""

    step: int = -1
    """checkpoint of this step; -1 is the newest"""


def with_run(
    argv: Sequence[str],
    verb: str,
    description: str,
    options: Settings,
    arguments: Callable[[Any], Any],
    use: Callable[[str, Any, Any], None],
) -> int:
    """Parse the flags and call `use(source, args, options)`, where `source` names the run.

    Return the exit code.
    """
    usage = f"engram {verb} RUN [flags]"
    if not argv or argv[0].startswith("-"):
        about = (
            f"RUN is a run folder or a Hugging Face checkpoint. `engram {verb} RUN --help` shows its recipe's flags."
        )
        print_help(usage, f"{description} {about}", ("flags", controls(options)))
        if argv and argv[0] not in ("-h", "--help"):
            raise EngramError(f"engram {verb} begins with a run folder or a checkpoint, not with {argv[0]}.")
        return 0
    source, *flags = argv
    if wants_help(flags) and (own := cached_controls(source, verb)) is not None:
        print_help(f"engram {verb} {source} [flags]", description, *grouped(own), ("flags", controls(options)))
        return 0
    from engram.hub.load import find_recipe

    args = arguments(find_recipe(source))()
    if wants_help(flags):
        print_help(
            f"engram {verb} {source} [flags]", description, *grouped(controls(args)), ("flags", controls(options))
        )
        return 0
    parsed = parse_settings({"args": args, "options": options}, flags, f"engram {verb} {source}")
    use(source, parsed["args"], parsed["options"])
    return 0


def cached_controls(source: str, verb: str) -> list[dict[str, Any]] | None:
    """The flags of a run folder's recipe, from the catalog; none where it takes more to know the recipe."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found: list[dict[str, Any]] = catalog()[json.loads(Path(source, "recipe.json").read_text())["recipe"]][verb]
        return found
    return None


def open_run(source: str, step: int = -1) -> Any:
    """The run, or a checkpoint as a run; at a step, or the newest."""
    from engram.hub import load

    return load.open_run(source, None if step < 0 else step)
