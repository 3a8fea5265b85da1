"""Sweeps: hyper-parameter search over the settings of a recipe, chosen by validation."""
