"""Neurons that spike: Hodgkin–Huxley, integrate-and-fire, synapses, networks, populations and what they compute."""
