"""engram attack: adversarial examples against the classifier of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from engram.cli.subject import open_run, with_run
from engram.cli.table import print_table
from engram.core.config import Settings


@dataclass(frozen=True, kw_only=True)
class AttackOptions(Settings):
    """How the result is shown."""

    json: bool = False
    """print JSON instead of a table"""


def command(argv: Sequence[str]) -> int:
    def arguments(cls: Any) -> Any:
        from engram.robustness.attacks.attack_run import AttackArgs

        return AttackArgs

    description = "Attack a classifier of images: accuracy under each attack, and a page of adversarial examples."
    return with_run(argv, "attack", description, AttackOptions(), arguments, attack)


def attack(source: str, args: Any, options: AttackOptions) -> None:
    """Run the attacks and print the accuracy under each."""
    from engram.robustness.attacks import attack_run

    with Console(stderr=True).status("opening the run") as status:

        def report(what: str, done: int, total: int) -> None:
            status.update(f"{what}: {done} of {total}")

        surrogate = open_run(args.surrogate) if args.surrogate else None
        rows, file = attack_run.attack_run(open_run(source), args, surrogate, report)
    for row in rows:
        row["accuracy"] = row["accuracy"] if options.json or row["accuracy"] == "" else f"{row['accuracy']:.2%}"
        row["eps"] = row["eps"] if options.json else f"{row['eps']:.4g}"
    print_table(rows, options.json)
    if not options.json:
        print(file)
