"""Recipe of TRADES: adversarial training and the robust accuracy that it reaches."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, Metrics
from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.dataset import Data
from engram.foundations.base import TINY, ImageClassifier
from engram.hub.classify import class_scores
from engram.plots.figure import Figure
from engram.robustness import plots as views
from engram.robustness.attacks.evaluation import RobustnessCurve, robust_accuracy, robustness_curve
from engram.robustness.attacks.methods import PGD, ThreatModel
from engram.robustness.trades.learner import AdversarialTraining, loss
from engram.robustness.trades.model import PlainCNN
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig

STRONG_ATTACK = {"steps": 100, "restarts": 5}
STRONG_ATTACK_IMAGES = 1000
"""images of the strong attack"""
FIGURE_IMAGES = 500
"""images attacked for the figures"""


class AdversarialLearner(GradientLearner[PlainCNN]):
    """`GradientLearner` on the adversarial loss, with an eps that grows during warmup."""

    def __init__(
        self,
        model: PlainCNN,
        threat: ThreatModel,
        config: AdversarialTraining,
        optimization: OptimizerConfig,
        steps: int,
    ) -> None:
        self.threat, self.config = threat, config
        super().__init__(model, self.adversarial_loss, optimization, steps)

    def adversarial_loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        """Loss of a batch at the eps of this training step."""
        warmup = self.config.eps_warmup * self.steps
        fraction = min(1.0, (self.done + 1) / warmup) if warmup else 1.0
        return loss(model, batch, replace(self.threat, eps=fraction * self.threat.eps), self.config)


@register
@dataclass(frozen=True, kw_only=True)
class TradesRecipe(ImageClassifier[PlainCNN]):
    """Adversarial training of a classifier whose prediction stays the same around each image.

    Attacked by PGD.
    """

    name: ClassVar[str] = "trades"
    title: ClassVar[str] = "TRADES: adversarial training"
    Model: ClassVar[type[nn.Module]] = PlainCNN
    best: ClassVar[tuple[str, str]] = ("valid_robust_accuracy", "max")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY | {
            "channels": (4, 8), "hidden": 16, "inner_steps": 2, "batch": 32, "eval_samples": 50, "eps": 0.1,
        },
        "full": {"steps": 9000, "eval_every": 900},
    }  # fmt: skip

    steps: int = 2000
    eval_every: int = 500
    model: PlainCNN.Config = field(default_factory=PlainCNN.Config)
    threat: ThreatModel = field(default_factory=ThreatModel)
    """threat model: perturbations that the attacker is allowed"""
    training: AdversarialTraining = field(default_factory=AdversarialTraining)
    """objective of robust training"""
    optimization: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(
            lr=1e-3, weight_decay=0.0, schedule="linear", warmup=0.02, stable_fraction=0.4
        )
    )
    """optimizer and learning-rate schedule"""
    attack_steps: Annotated[int, Ge(1)] = 40
    """PGD steps in the evaluation"""
    attack_step_size: float = 0.0
    """step size of PGD in the evaluation; 0 is 2.5 eps / attack_steps"""
    eval_samples: Annotated[int, Ge(1)] = 10_000
    """test images attacked in the final evaluation; a twentieth of them for each evaluation during training"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.outputs == 1 and self.training.objective == "none":
            raise EngramError("A single output is for --objective trades or adversarial.")

    def load(self) -> Data:
        loaded = super().load()
        if self.model.outputs == 1 and len(loaded.classes) != 2:
            raise EngramError(f"A single output tells two classes apart, and {self.data} has {len(loaded.classes)}.")
        return loaded

    def learner(self, data: Data) -> AdversarialLearner:
        return AdversarialLearner(self.init_model(data), self.threat, self.training, self.optimization, self.steps)

    def random_inputs(self, image: Tensor, generator: torch.Generator) -> dict[str, Any]:
        return {"start": 2 * torch.rand(image.shape, generator=generator) - 1}

    def attack(self, **changes: Any) -> PGD:
        """PGD with the settings of the evaluation."""
        settings: dict[str, Any] = {"steps": self.attack_steps, "step_size": self.attack_step_size, **changes}
        return PGD(threat=self.threat, generator=generator(self.seed, "attack"), **settings)

    def evaluate(self, learner: Learner[PlainCNN], data: Data, split: str) -> dict[str, float]:
        """Clean accuracy and robust accuracy; at the end of training also under a stronger attack."""
        count = self.eval_samples if split == "test" else max(1, self.eval_samples // 20)
        image, label = data[split]["image"][-count:].float() / 255, data[split]["label"][-count:]
        model = class_scores(learner.model)
        clean = super().evaluate(learner, data, split) if self.model.outputs == 0 else {
            "accuracy": robust_accuracy(model, image, label, None)
        }  # fmt: skip
        robust = {"robust_accuracy": robust_accuracy(model, image, label, self.attack())}
        if split != "test":
            return clean | robust
        some = image[-STRONG_ATTACK_IMAGES:], label[-STRONG_ATTACK_IMAGES:]
        usual = robust_accuracy(model, *some, self.attack())
        strong = robust_accuracy(model, *some, self.attack(**STRONG_ATTACK, step_size=0.0))
        return clean | robust | {"strong_robust_accuracy": strong, "masking_margin": usual - strong}

    def figures(self, learner: Learner[PlainCNN], data: Data) -> Iterator[Figure]:
        curve = self.curve(class_scores(learner.model), data)
        yield views.robustness_curves({self.training.objective: curve}, self.threat)
        yield views.gallery(curve, data.classes)
        yield views.class_accuracy(curve, data.classes)
        if self.model.outputs == 0:
            yield from super().figures(learner, data)

    def curve(self, model: Any, data: Data) -> RobustnessCurve:
        """Robust accuracy on the first test images over eps."""
        count = min(FIGURE_IMAGES, self.eval_samples)
        image, label = data.test["image"][:count].float() / 255, data.test["label"][:count]
        return robustness_curve(model, image, label, self.attack())
