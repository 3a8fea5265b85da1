r"""Training of a GAN: alternating updates of discriminator and generator, and an EMA of the generator.

    L_D = -\log \sigma(D(x)) - \log \sigma(-D(x'))                       non-saturating: target 1 if real, else 0  (1)
    L_G = -\log \sigma(D(x'))                                            its generator: target 1                   (2)
    L_D = \max(0, 1 - D(x)) + \max(0, 1 + D(x'))                         hinge                                     (3)
    L_D = D(x') - D(x) + \lambda (||\nabla D(m)|| - 1)^2                 wgan-gp: Wasserstein, gradient penalty    (4)
    L_G = -D(x')                                                         generator of hinge and wgan-gp            (5)

    Symbols:
        x, x'       real and generated sample
        m           random point on the line between them
        \sigma      logistic function
        \lambda     weight of the gradient penalty, 10
        L_D, L_G    losses, averaged over the batch

The gradient of (2) does not vanish where the discriminator is sure (Goodfellow et al. 2014); (3): Lim & Ye 2017; (4):
Gulrajani et al. 2017. The discriminator's weights are fixed while the generator is updated through it.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.global_batch import is_split
from engram.core.learner import Batch, Metrics
from engram.generative.gan.model import GAN
from engram.training.ema import EMA
from engram.training.optimizer import load_optimizer_state, optimizer_state
from engram.training.rule_learner import Updates, find_gradients, find_updates, load_whole, set_grads, shard_models

PENALTY_WEIGHT = 10.0
OPPONENT = {"generator": "discriminator", "discriminator": "generator"}


@dataclass(frozen=True, kw_only=True)
class GANTrainingConfig(Settings):
    """Losses, optimizers and EMA of a GAN."""

    loss: Literal["non-saturating", "hinge", "wgan-gp"] = "non-saturating"
    """adversarial loss: cross-entropy (non-saturating), hinge, or Wasserstein with gradient penalty"""
    lr: Annotated[float, Ge(0)] = 2e-4
    """learning rate of the generator"""
    discriminator_lr: Annotated[float, Ge(0)] = 2e-4
    """learning rate of the discriminator"""
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.5
    """beta1 of Adam: decay of the running mean of gradients"""
    discriminator_steps: Annotated[int, Ge(1)] = 1
    """updates of the discriminator for each of the generator"""
    lr_decay: bool = True
    """decay both learning rates linearly to zero"""
    ema_decay: Annotated[float, Ge(0), Lt(1)] = 0.999
    """decay of the exponential moving average (EMA) of the generator's weights; 0 keeps the newest weights"""


class GANLearner:
    """Updates discriminator and generator in turn.

    The model's own generator is the EMA of the trained one.
    """

    def __init__(self, model: GAN, config: GANTrainingConfig, steps: int) -> None:
        self.model, self.config, self.steps, self.done = model, config, steps, 0
        self.generator = copy.deepcopy(model.generator)
        self.average = EMA(model.generator, self.generator, config.ema_decay)
        normed = any(isinstance(module, nn.BatchNorm2d) for module in model.discriminator.modules())
        if is_split() and config.loss == "wgan-gp" and normed:
            raise EngramError(
                "The gradient penalty differentiates twice, and batch normalization in several processes only once: "
                "add --no-discriminator-norm."
            )
        shard_models(model.discriminator, model.generator, self.generator)
        self.networks = {"generator": self.generator, "discriminator": model.discriminator}
        self.lrs, betas = {"generator": config.lr, "discriminator": config.discriminator_lr}, (config.beta1, 0.99)
        self.optimizers = {
            name: torch.optim.Adam(network.parameters(), self.lrs[name], betas, fused=True)
            for name, network in self.networks.items()
        }

    def step(self, batch: Batch) -> Metrics:
        """Update both networks on "x" and "latents".

        Latents are B × (discriminator steps + 1) × Z: one set for each update.
        """
        factor = 1 - self.done / self.steps if self.config.lr_decay else 1.0
        for name, optimizer in self.optimizers.items():
            optimizer.param_groups[0]["lr"] = self.lrs[name] * factor
        for network in self.networks.values():
            network.train()
        latents: tuple[Tensor, ...] = batch["latents"].unbind(1)
        for x, z_BZ in zip(batch["x"].chunk(self.config.discriminator_steps), latents, strict=False):
            metrics = self._update("discriminator", {"x": x, "z": z_BZ[: len(x)]}, self._discriminator_loss)
        metrics |= self._update("generator", {"z": latents[-1]}, self._generator_loss)
        self.average.update()
        self.done += 1
        return metrics

    def _update(self, name: str, batch: Batch, loss_of: Callable[..., tuple[Tensor, Metrics]]) -> Metrics:
        """Take one optimizer step of one network; the other one stays as it is."""
        network, other = self.networks[name], self.networks[OPPONENT[name]]

        def rule(rows: Batch) -> tuple[Updates, Metrics]:
            loss, metrics = loss_of(**rows)
            return find_gradients(loss, network), metrics

        gradients, metrics = find_updates(rule, batch, network, other)
        set_grads(gradients, network)
        self.optimizers[name].step()
        return metrics

    def _discriminator_loss(self, x: Tensor, z: Tensor) -> tuple[Tensor, Metrics]:
        D, real = self.model.discriminator, self.model.config.normalize(x)
        with torch.no_grad():
            fake = self.model.generate(z, self.generator)
        real_B, fake_B = D(real)[:, 0], D(fake)[:, 0]  # two batches: batch normalization must not mix them
        if self.config.loss == "non-saturating":
            loss = F.softplus(-real_B).mean() + F.softplus(fake_B).mean()  # (1)
        elif self.config.loss == "hinge":
            loss = F.relu(1 - real_B).mean() + F.relu(1 + fake_B).mean()  # (3)
        else:
            loss = fake_B.mean() - real_B.mean() + PENALTY_WEIGHT * gradient_penalty(D, real, fake)  # (4)
        accuracy = ((real_B > 0).float().mean() + (fake_B <= 0).float().mean()) / 2
        return loss, {
            "discriminator_loss": loss.detach(),
            "discriminator_accuracy": accuracy,
            "real_logit": real_B.detach().mean(),
            "fake_logit": fake_B.detach().mean(),
        }

    def _generator_loss(self, z: Tensor) -> tuple[Tensor, Metrics]:
        fake_B = self.model.discriminator(self.model.generate(z, self.generator))[:, 0]
        loss = F.softplus(-fake_B).mean() if self.config.loss == "non-saturating" else -fake_B.mean()  # (2), (5)
        return loss, {"generator_loss": loss.detach()}

    def to(self, place: torch.device) -> None:
        self.model.to(place)
        self.generator.to(place)

    def state_dict(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "generator": self.generator.state_dict(),
            "averaged": self.average.done,
            "optimizers": dict(zip(self.optimizers, optimizer_state(list(self.optimizers.values())), strict=True)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done, self.average.done = state["done"], state["averaged"]
        load_whole(self.generator, state["generator"])
        for name, optimizer in self.optimizers.items():
            load_optimizer_state(optimizer, state["optimizers"][name])


def gradient_penalty(D: nn.Module, real: Tensor, fake: Tensor) -> Tensor:
    """Mean squared deviation of D's gradient norm from 1, at points between real and generated samples."""
    weight = torch.rand(len(real), *[1] * (real.ndim - 1), device=real.device)
    mixed = torch.lerp(real, fake, weight).requires_grad_()
    (grad,) = torch.autograd.grad(D(mixed).sum(), mixed, create_graph=True)
    return (grad.flatten(1).norm(dim=1) - 1).square().mean()
