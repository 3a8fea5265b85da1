"""Deep belief network (Hinton, Osindero & Teh 2006).   B batch, layers 1 … L of Boltzmann machines

    v_1 = data,   v_l+1 ~ P(h_l | v_l)                          each machine learns what the one below hides    (1)
    h_L-1 ~ Gibbs sampling in the machine at the top            dreams begin there                              (2)
    v_l ~ P(v_l | v_l+1)                                        and go down, layer by layer                     (3)

The machines learn one after the other, each for its share of the steps, from what the ones below make of the data.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from engram.core import together
from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics
from engram.core.registry import FromData
from engram.core.tap import tap
from engram.layers.bernoulli import draw
from engram.models.rbm import RBM, Contrast, ContrastiveDivergence


class DBN(nn.Module):
    """Boltzmann machines on top of each other."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        visible: FromData[int] = 784
        """units that hold the data"""
        hidden: tuple[int, ...] = (500, 500)
        """hidden units of each machine, from the bottom to the top"""

        def __post_init__(self) -> None:
            if not self.hidden or min(self.hidden) < 1:
                raise EngramError(f"hidden must name machines of at least one unit, not {self.hidden}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        sizes = [config.visible, *config.hidden]
        self.machines = nn.ModuleList(
            RBM(RBM.Config(visible=a, hidden=b)) for a, b in zip(sizes, sizes[1:], strict=False)
        )

    def initialise(self, mean_V: Tensor) -> None:
        self.machines[0].initialise(mean_V)  # type: ignore[operator]

    def up(self, v_BV: Tensor, levels: int) -> Tensor:
        """What the first machines make of v: probabilities of their hidden units."""
        for i, machine in enumerate(self.machines[:levels]):
            v_BV = tap(f"hidden.{i}", machine.hidden(v_BV))  # type: ignore[operator]  # (1)
        return v_BV

    def down(self, h_BH: Tensor, levels: int) -> Tensor:
        """What the hidden units of the `levels`-th machine stand for."""
        for machine in reversed(list(self.machines[:levels])):
            h_BH = machine.visible(h_BH)  # type: ignore[operator]  # (3), without noise
        return h_BH

    def forward(self, v_BV: Tensor) -> Tensor:
        """v after it has been up to the top and down again."""
        levels = len(self.machines)
        return tap("reconstruction", self.down(self.up(v_BV, levels), levels))

    def sample(self, count: int, rounds: int, generator: torch.Generator) -> Tensor:
        """New pictures: the probabilities of the last step down."""
        top: Any = self.machines[-1]
        h_BH = top.sample(count, rounds, generator)  # (2)
        return self.down(draw(h_BH, generator), len(self.machines) - 1)


class Greedy:
    """The learner: the machines one after the other."""

    def __init__(self, model: DBN, contrast: Contrast, batch: int, steps: int, generator: torch.Generator) -> None:
        self.model, self.steps, self.done, self.generator = model, steps, 0, generator
        share = -(-steps // len(model.machines))
        self.share, self.learners = (
            share,
            [
                ContrastiveDivergence(machine, replace(contrast), batch, share, generator)  # type: ignore[arg-type]
                for machine in model.machines
            ],
        )

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        level = min(self.done // self.share, len(self.learners) - 1)
        with together.whole(self.model):
            below = self.model.up(batch["visible"], level)
        visible = draw(below, self.generator) if level else below  # (1)
        metrics = self.learners[level].step({"visible": visible})
        self.done += 1
        return metrics | {"machine": torch.tensor(float(level + 1))}

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "learners": [learner.state_dict() for learner in self.learners]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        for learner, saved in zip(self.learners, state["learners"], strict=True):
            learner.load_state_dict(saved)
