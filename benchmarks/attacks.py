"""PGD on a small network for MNIST digits: engram beside torchattacks and foolbox, the same steps from the same start.

The note is the robust accuracy; "early stop" stops for an image as soon as it is misclassified.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from engram import data
from engram.cli.bench import Contestant, Score
from engram.robustness.attacks import PGD, ThreatModel

EPS, ALPHA, STEPS, IMAGES = 0.1, 0.01, 40, 500
WORK = f"PGD with {STEPS} steps in a ball of {EPS} around {IMAGES} digits"
UNIT = "images/s"
ROUNDS = 3


def victim() -> tuple[nn.Module, Tensor, Tensor]:
    """A network of two convolutions after 300 steps, and images to attack."""
    torch.manual_seed(0)
    loaded = data.load("mnist")
    layers = nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU()
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(1568, 100), nn.ReLU(), nn.Linear(100, 10))
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    image, label = loaded.train["image"], loaded.train["label"]
    for _ in range(300):
        index = torch.randint(len(image), (128,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(image[index].float() / 255), label[index]).backward()
        optimizer.step()
    return net.eval(), loaded.test["image"][:IMAGES].float() / 255, loaded.test["label"][:IMAGES]


def contestants() -> dict[str, Contestant]:
    net, x, label = victim()

    def scored(attack: Callable[[], Tensor]) -> Callable[[], Score]:
        def work() -> Score:
            began = time.perf_counter()
            adversarial = attack()
            rate = IMAGES / (time.perf_counter() - began)
            with torch.no_grad():
                left = (net(adversarial).argmax(1) == label).float().mean()
            return Score(rate, f"robust accuracy {left:.1%}")

        return work

    def torchattacks() -> Callable[[], Score]:
        from torchattacks import PGD as Theirs

        attack = Theirs(net, eps=EPS, alpha=ALPHA, steps=STEPS, random_start=False)
        return scored(lambda: attack(x, label))

    def foolboxes() -> Callable[[], Score]:
        import foolbox

        fb: Any = foolbox
        model = fb.PyTorchModel(net, bounds=(0, 1), device="cpu")
        attack = fb.attacks.LinfPGD(abs_stepsize=ALPHA, steps=STEPS, random_start=False)
        return scored(lambda: attack(model, x, label, epsilons=EPS)[1])

    def engram(early_stop: bool) -> Callable[[], Score]:
        attack = PGD(
            threat=ThreatModel(eps=EPS), step_size=ALPHA, steps=STEPS, random_start=False, early_stop=early_stop
        )
        return scored(lambda: attack(net, x, label))

    return {
        "torchattacks": torchattacks,
        "foolbox": foolboxes,
        "engram": lambda: engram(False),
        "engram, early stop": lambda: engram(True),
    }
