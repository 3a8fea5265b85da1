"""engram check: gradients of a recipe's model against finite differences."""

from collections.abc import Sequence
from typing import Any

from engram.cli.help import wants_help
from engram.cli.run import parse_run, print_recipe_help
from engram.cli.table import print_table
from engram.core.errors import EngramError


def command(argv: Sequence[str]) -> int:
    if not argv or argv[0].startswith("-"):
        print("engram check NAME [flags]   gradients of a recipe's model against central differences, in 64 bits")
        return 0
    name, *flags = argv
    if wants_help(flags):
        return print_recipe_help(name, flags)
    import torch

    from engram.training.gradient_check import gradient_check
    from engram.training.learner import GradientLearner

    recipe, options = parse_run(name, flags)
    torch.manual_seed(recipe.seed)
    data = recipe.load()
    learner: Any = recipe.learner(data)
    learner = getattr(learner, "gradient", learner)
    if type(learner) is not GradientLearner:
        raise EngramError(f"{recipe.name} does not learn by the gradient of a loss alone: there is nothing to check.")
    rows = gradient_check(learner.model, learner.loss, next(recipe.batches(data)), seed=recipe.seed)
    print_table(
        [
            {
                "weights": one.name, "tried": f"{one.tried} of {one.weights:,}", "gradient": f"{one.gradient:.6g}",
                "difference": f"{one.difference:.6g}", "error": f"{one.wrong:.1e}", "right": one.right,
            }
            for one in rows
        ],
        options.json,
    )  # fmt: skip
    if wrong := [one for one in rows if not one.right]:
        place = ", ".join(map(str, wrong[0].place))
        raise EngramError(
            f"{len(wrong)} of {len(rows)} tensors have gradients that differ, the worst is {wrong[0].name}[{place}]."
        )
    return 0
