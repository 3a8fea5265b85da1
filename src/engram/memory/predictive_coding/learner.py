r"""Learning of a predictive coding network: inference and local updates, or backpropagation.

    \Delta M_i \propto \sigma(x_{i+1})^\top \epsilon_i, \Delta \beta_i \propto \epsilon_i     prediction weights     (1)
    \Delta W_i \propto \epsilon_i^\top \sigma(x_{i+1})                                        feedback weights       (2)

    Symbols:
        x_i             values of layer i after inference
        \epsilon_i      prediction errors of layer i
        M_i, \beta_i    prediction weights and biases
        W_i             feedback weights, if they are not tied
        B, D            batch, units

An update uses only what the two ends of a connection know. With a large variance of the bottom layer the updates
approach the gradients of backpropagation (Whittington & Bogacz 2017).
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from engram.core.config import Settings
from engram.core.learner import Batch, Metrics
from engram.memory.predictive_coding.model import PredictiveCoding
from engram.training.optimizer import (
    OptimizerConfig,
    build_optimizers,
    load_optimizer_state,
    optimizer_state,
    optimizer_step,
)
from engram.training.rule_learner import RuleLearner, Updates, find_gradients, set_grads, shard_models


@dataclass(frozen=True, kw_only=True)
class InferenceConfig(Settings):
    """Inference of the hidden layers, and the learning rule."""

    learning: Literal["predictive-coding", "backprop"] = "predictive-coding"
    """learning rule: local updates at equilibrium, or backpropagation through the same network"""
    inference_steps: Annotated[int, Ge(1)] = 20
    """maximum inference steps per training step"""


class PredictiveCodingLearner(RuleLearner[PredictiveCoding]):
    """Predictive coding learner: clamp both ends, infer the hidden layers, apply the local updates."""

    def __init__(
        self, model: PredictiveCoding, inference: InferenceConfig, optimization: OptimizerConfig, steps: int
    ) -> None:
        super().__init__(model, steps)
        self.inference, self.optimization = inference, optimization
        for weight in model.parameters():
            weight.requires_grad_(True)  # for the optimizer, which takes (1) and (2) as gradients
        shard_models(model)
        self.optimizers = list(build_optimizers(model, optimization))

    def find_update(self, rows: Batch) -> tuple[Updates, Metrics]:
        learn = self._backprop if self.inference.learning == "backprop" else self._local_updates
        return learn(rows["bottom"], rows["top"])

    def apply_update(self, update: Updates) -> None:
        set_grads(update, self.model)
        optimizer_step(self.optimizers, self.optimization.lr_factor((self.done + 1) / self.steps))

    def _local_updates(self, bottom: Tensor, top: Tensor) -> tuple[Updates, Metrics]:
        state, before = self.model.infer_hidden(bottom, top, self.inference.inference_steps)
        found: Updates = {}
        for i, e in enumerate(state.e):
            found |= self._local_gradient(i, state.x[i + 1], e)
        return found, {"loss": before.mean(), "energy": state.F_B.mean()}

    def _local_gradient(self, i: int, above_BD: Tensor, e_BD: Tensor) -> Updates:
        """The negative updates, as gradients for the optimizer."""
        each, rate_BD = -1 / len(e_BD), self.model.sigma(above_BD)
        found = {f"M.{i}": each * rate_BD.T @ e_BD, f"beta.{i}": each * e_BD.sum(0)}  # (1)
        return found if self.model.config.tied else found | {f"W.{i}": each * e_BD.T @ rate_BD}  # (2)

    @torch.enable_grad()
    def _backprop(self, bottom: Tensor, top: Tensor) -> tuple[Updates, Metrics]:
        away = bottom - self.model(top)
        loss = 0.5 * away.square().sum(1).mean() / self.model.config.bottom_variance
        return find_gradients(loss, self.model), {"loss": loss.detach()}

    def to(self, device: torch.device) -> None:
        self.model.to(device)

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "optimizers": optimizer_state(self.optimizers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        for optimizer, before in zip(self.optimizers, state["optimizers"], strict=True):
            load_optimizer_state(optimizer, before)
