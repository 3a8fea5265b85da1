"""Neurons that spike, and the currents injected into them: Hodgkin–Huxley's model and its stimuli."""
