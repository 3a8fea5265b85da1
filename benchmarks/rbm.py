"""The restricted Boltzmann machine against scikit-learn's."""

from collections.abc import Callable

import numpy as np
import torch

from engram import data
from engram.cli.bench import Contestant
from engram.core.seeding import generator
from engram.memory.rbm.learner import ContrastiveDivergence, ContrastiveDivergenceConfig
from engram.memory.rbm.model import RBM

WORK = "restricted Boltzmann machine 784–500 on binarized mnist, batch 100, one round of Gibbs sampling, 10 000 images"
UNIT = "images/s"
IMAGES, BATCH = 10_000, 100


def contestants() -> dict[str, Contestant]:
    from sklearn.neural_network import BernoulliRBM

    V = (data.load("mnist").train["image"][:IMAGES].flatten(1) > 127).float()

    def sklearn(dtype: type) -> Callable[[], float]:
        X = V.numpy().astype(dtype)
        rbm = BernoulliRBM(500, learning_rate=0.05, batch_size=BATCH, n_iter=1, random_state=0)

        def work() -> float:
            rbm.fit(X)
            return IMAGES

        return work

    def engram(contrast: ContrastiveDivergenceConfig) -> Callable[[], float]:
        torch.manual_seed(0)
        learner = ContrastiveDivergence(RBM(RBM.Config()), contrast, BATCH, IMAGES // BATCH, generator(0))

        def work() -> float:
            for batch in V.split(BATCH):
                learner.step({"visible": batch})
            return IMAGES

        return work

    return {
        "scikit-learn BernoulliRBM, float64 (its default)": lambda: sklearn(np.float64),
        "scikit-learn BernoulliRBM, float32": lambda: sklearn(np.float32),
        "engram CD-1": lambda: engram(ContrastiveDivergenceConfig(persistent=False, centered=False)),
        "engram PCD-1, centered": lambda: engram(ContrastiveDivergenceConfig()),
    }
