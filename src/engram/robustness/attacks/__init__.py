"""Adversarial attacks on image classifiers.

FGSM, PGD, random noise, DeepFool and minimal-norm attacks.
"""

from engram.robustness.attacks.methods import FGSM, PGD, Attack, RandomNoise, ThreatModel
from engram.robustness.attacks.minimal_norm import deepfool, minimal_norm_attack

__all__ = ["FGSM", "PGD", "Attack", "RandomNoise", "ThreatModel", "deepfool", "minimal_norm_attack"]
