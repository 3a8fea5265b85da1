"""Attack and defence: pictures that are changed so that a classifier errs, and classifiers that do not."""

from engram.robustness.attacks import PGD, Attack, Guess, Step, Threat
from engram.robustness.minimal import deepfool, minimal

__all__ = ["PGD", "Attack", "Guess", "Step", "Threat", "deepfool", "minimal"]
