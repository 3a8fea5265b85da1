"""Generative adversarial network (Goodfellow et al. 2014; note 003 §30).   B batch, Z size of the code

    x' = G(z),  z ~ N(0, I)                                   one player makes things                                (1)
    D(x)                                                      the other says how real they look, as a logit          (2)
    E_D = mean -log sigma(D(x)) + mean -log sigma(-D(x'))     «notes»: target 1 for the real, 0 for the made         (3)
    E_G = mean -log sigma(D(x'))                              target 1: its gradient does not vanish when D is sure  (4)
    E_D = mean max(0, 1 - D(x)) + mean max(0, 1 + D(x')),   E_G = -mean D(x')             «hinge»                    (5)
    E_D = mean D(x') - mean D(x) + w mean (|grad D(m)| - 1)^2,   E_G = -mean D(x')        «penalty»                  (6)

In (6) (Gulrajani et al. 2017) m lies anywhere between a real thing and one that was made, and w is 10. G learns through
D, whose weights stay as they are while it does.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core import together
from engram.core.average import Average
from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics, cut, restore, saved
from engram.core.tap import tap
from engram.layers.coders import LEAK, Coding, Dense, Down, Up

PENALTY = 10.0


class GAN(nn.Module):
    """Both players."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Coding):
        code: int = 64
        hidden: tuple[int, ...] = (256, 256)
        norm: bool = True
        """normalise batches in the generator, if it is convolutional (DCGAN)"""
        judge_norm: bool = True
        """and in the discriminator, but for its first stage; not under --rules penalty, which looks at single things"""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.generator: nn.Module
        self.discriminator: nn.Module
        if config.convolutional:
            self.generator = Up(config, config.code, "relu", config.norm)
            self.discriminator = Down(config, 1, "leaky", config.judge_norm)
            self.discriminator.norms[0] = nn.Identity()
        else:
            self.generator = Dense([config.code, *config.hidden, config.numbers], "leaky", config.shape)
            self.discriminator = Dense([config.numbers, *config.hidden[::-1], 1], "leaky")
        self.initialise()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def initialise(self) -> None:
        """Small weights, as in DCGAN, where batches are normalised; elsewhere a variance that neither grows nor shrinks
        with depth, behind units that leak."""
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
                if self.config.convolutional:
                    nn.init.normal_(module.weight, std=0.02)
                else:
                    nn.init.kaiming_normal_(module.weight, LEAK)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def make(self, z_BZ: Tensor, generator: nn.Module | None = None) -> Tensor:
        """(1), in the numbers that both players compute with."""
        u = (generator or self.generator)(z_BZ)
        return torch.tanh(u) if self.config.pictures else u

    def judge(self, x: Tensor) -> Tensor:
        """(2) for things as they are."""
        return tap("judgement", self.discriminator(self.config.inside(x))[:, 0])

    def forward(self, x: Tensor) -> Tensor:
        return self.judge(x)

    def decode(self, z_BZ: Tensor) -> Tensor:
        """What codes stand for."""
        return tap("made", self.config.outside(self.make(z_BZ)))

    def codes(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.randn(count, self.config.code, generator=generator)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        return self.decode(self.codes(count, generator))


@dataclass(frozen=True, kw_only=True)
class Contest:
    """How the players learn from each other."""

    rules: Literal["notes", "hinge", "penalty"] = "notes"
    """what they play for: cross-entropy as in the notes, the hinge, or Wasserstein's distance with gradient penalty"""
    lr: float = 2e-4
    """learning rate of the generator"""
    judge_lr: float = 2e-4
    """learning rate of the discriminator"""
    beta1: float = 0.5
    """how much Adam keeps of the direction before"""
    rounds: int = 1
    """steps of the discriminator for each of the generator"""
    decay: bool = True
    """let the learning rates fall linearly to zero"""
    memory: float = 0.999
    """how slowly the generator that is kept follows the one that learns"""

    def __post_init__(self) -> None:
        for name in ("lr", "judge_lr"):
            if not getattr(self, name) >= 0:
                raise EngramError(f"{name} must not be negative or NaN, and is {getattr(self, name)}.")
        for name in ("beta1", "memory"):
            if not 0 <= getattr(self, name) < 1:
                raise EngramError(f"{name} is a part, at least 0 and below 1, not {getattr(self, name)}.")
        if self.rounds < 1:
            raise EngramError(f"rounds must be at least 1, not {self.rounds}.")


class Adversarial:
    """The learner of a GAN: two players in turns. The model's generator is the average of the one that plays."""

    def __init__(self, model: GAN, contest: Contest, steps: int) -> None:
        self.model, self.contest, self.steps, self.done = model, contest, steps, 0
        self.player = copy.deepcopy(model.generator)
        self.average = Average(model.generator, self.player, contest.memory)
        normed = any(isinstance(module, nn.BatchNorm2d) for module in model.discriminator.modules())
        if together.world() > 1 and contest.rules == "penalty" and normed:
            raise EngramError(
                "The gradient penalty differentiates twice, and batch normalisation in several processes only once: "
                "add --no-judge-norm."
            )
        for part in (model.discriminator, model.generator, self.player):
            together.shard(part)
        self.players = {"generator": self.player, "discriminator": model.discriminator}
        self.rates, betas = {"generator": contest.lr, "discriminator": contest.judge_lr}, (contest.beta1, 0.99)
        self.optimizers = {
            name: torch.optim.Adam(player.parameters(), self.rates[name], betas, fused=True)
            for name, player in self.players.items()
        }

    def step(self, batch: Batch) -> Metrics:
        """Codes come with the batch: one set for each turn of the discriminator, and one for the generator."""
        left = 1 - self.done / self.steps if self.contest.decay else 1.0
        for name, optimizer in self.optimizers.items():
            optimizer.param_groups[0]["lr"] = self.rates[name] * left
        for player in self.players.values():
            player.train()
        codes: tuple[Tensor, ...] = batch["codes"].unbind(1)
        for x, z_BZ in zip(batch["x"].chunk(self.contest.rounds), codes, strict=False):
            metrics = self._turn("discriminator", {"x": x, "z": z_BZ[: len(x)]}, self._judge)
        metrics |= self._turn("generator", {"z": codes[-1]}, self._deceive)
        self.average.follow()
        self.done += 1
        return metrics

    def _turn(self, name: str, batch: Batch, play: Callable[..., tuple[Tensor, Metrics]]) -> Metrics:
        """One player learns from the loss of what is played, and from nothing else."""
        ((part, share),) = cut(batch, 1)
        player = self.players[name]
        with together.whole(self.model.discriminator), together.whole(self.player):
            loss, metrics = play(**part)
            found = together.gradients(share * loss, player)
        together.give(found, player)
        self.optimizers[name].step()
        return {key: share * value for key, value in metrics.items()}

    def _judge(self, x: Tensor, z: Tensor) -> tuple[Tensor, Metrics]:
        D, real = self.model.discriminator, self.model.config.inside(x)
        with torch.no_grad():
            made = self.model.make(z, self.player)
        real_B, made_B = D(real)[:, 0], D(made)[:, 0]  # apart: a batch of both would be normalised as one
        if self.contest.rules == "notes":
            loss = F.softplus(-real_B).mean() + F.softplus(made_B).mean()  # (3)
        elif self.contest.rules == "hinge":
            loss = F.relu(1 - real_B).mean() + F.relu(1 + made_B).mean()  # (5)
        else:
            loss = made_B.mean() - real_B.mean() + PENALTY * penalty(D, real, made)  # (6)
        right = ((real_B > 0).float().mean() + (made_B <= 0).float().mean()) / 2
        return loss, {
            "judge_loss": loss.detach(),
            "judge_accuracy": right,
            "real_score": real_B.detach().mean(),
            "made_score": made_B.detach().mean(),
        }

    def _deceive(self, z: Tensor) -> tuple[Tensor, Metrics]:
        made_B = self.model.discriminator(self.model.make(z, self.player))[:, 0]
        loss = F.softplus(-made_B).mean() if self.contest.rules == "notes" else -made_B.mean()  # (4), (5), (6)
        return loss, {"generator_loss": loss.detach()}

    def to(self, place: torch.device) -> None:
        self.model.to(place)
        self.player.to(place)

    def state_dict(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "player": together.full(self.player.state_dict(), everywhere=False),
            "averaged": self.average.done,
            "optimizers": dict(zip(self.optimizers, saved(list(self.optimizers.values())), strict=True)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done, self.average.done = state["done"], state["averaged"]
        together.take(self.player, state["player"])
        for name, optimizer in self.optimizers.items():
            restore(optimizer, state["optimizers"][name])


def penalty(D: nn.Module, real: Tensor, made: Tensor) -> Tensor:
    """How far the slope of D is from 1 between real things and made ones."""
    share = torch.rand(len(real), *[1] * (real.ndim - 1), device=real.device)
    between = torch.lerp(real, made, share).requires_grad_()
    (slope,) = torch.autograd.grad(D(between).sum(), between, create_graph=True)
    return (slope.flatten(1).norm(dim=1) - 1).square().mean()
