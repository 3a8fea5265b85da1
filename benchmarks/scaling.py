"""Training speed of a GPT against its size: tokens per second by width, depth and context, and a fitted cost model.

N weights apart from the token embedding, L layers, T context, E width, V vocabulary

    products   = 6 (N + V E) + 6 L T E        multiplications and additions of one token, forward and backward  (1)
    seconds    = products / a + b E L + c     of one token: arithmetic, memory traffic, the rest                (2)

(1) is Kaplan et al. (2020) §2.1, with half of attention's T^2 masked away. The last contestant fits (2) to the others
by least squares of the relative error and reports its largest error.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from engram.cli.bench import Contestant, Score
from engram.training.learner import GradientLearner
from engram.transformers.gpt.model import GPT
from engram.transformers.gpt.recipe import GPTRecipe

WORK = "GPT: a step on 2048 tokens of a vocabulary of 4096, forward, backward and AdamW"
UNIT = "tokens/s"
ROUNDS = 3
TOKENS, VOCABULARY = 2048, 4096
SIZES = [
    (64, 4, 128), (128, 4, 128), (256, 4, 128), (512, 4, 128), (768, 4, 128),
    (256, 1, 128), (256, 2, 128), (256, 8, 128), (256, 16, 128),
    (256, 4, 32), (256, 4, 512), (256, 4, 1024), (256, 4, 2048),
]  # fmt: skip
"""width, layers, context"""


def contestants() -> dict[str, Contestant]:
    rates: dict[tuple[int, int, int], float] = {}

    def ready(size: tuple[int, int, int]) -> Contestant:
        return lambda: lambda: scored(size, rates)

    found = {f"width {E}, layers {L}, context {T}": ready((E, L, T)) for E, L, T in SIZES}
    return found | {"cost model, largest error": lambda: lambda: fit_cost_model(rates)}


def learner(E: int, L: int, T: int) -> GradientLearner[GPT]:
    recipe = GPTRecipe()
    config = GPT.Config(width=E, layers=L, heads=max(1, E // 64), context=T, vocabulary=VOCABULARY)
    optimization = type(recipe.optimization)(optimizer="adamw")
    return GradientLearner(GPT(config), recipe.loss, optimization, 1000)


def scored(size: tuple[int, int, int], rates: dict[tuple[int, int, int], float]) -> Score:
    rates[size] = max(rates.get(size, 0.0), rate(*size))
    return Score(rates[size], f"{rates[size] * products(*size) / 1e9:.0f} GFLOP/s")


def rate(E: int, L: int, T: int) -> float:
    """Return the tokens per second, after one step to warm up."""
    torch.manual_seed(0)
    trainer = learner(E, L, T)
    x_BT = torch.randint(VOCABULARY, (TOKENS // T, T))
    step: Callable[[], object] = lambda: trainer.step({"x": x_BT, "y": x_BT})  # noqa: E731
    step()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < 1.5 or steps < 2:
        step()
        steps += 1
    return steps * TOKENS / (time.perf_counter() - began)


def products(E: int, L: int, T: int) -> float:
    return 6 * (12 * L * E * E + VOCABULARY * E) + 6 * L * T * E  # (1)


def fit_cost_model(rates: dict[tuple[int, int, int], float]) -> Score:
    """Fit (2) to the measured rates; the score is its largest relative error in percent."""
    seconds = np.array([1 / rates[size] for size in SIZES])
    terms = np.array([[products(E, L, T), E * L, 1.0] for E, L, T in SIZES])
    fitted = np.linalg.lstsq(terms / seconds[:, None], np.ones(len(SIZES)), rcond=None)[0]
    off = np.abs(terms @ fitted / seconds - 1).max()
    a, b, c = 1 / fitted[0], fitted[1], fitted[2]
    return Score(100 * off, f"% off; a = {a:.3g} FLOP/s, b = {b:.3g} s, c = {c:.3g} s")
