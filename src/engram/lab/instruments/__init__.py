"""Instruments that one touches: each a file here that answers, and a file of the same name in static/instruments."""

from typing import NamedTuple


class Instrument(NamedTuple):
    title: str
    said: str
    recipes: tuple[str, ...]
    """whose runs it opens, and on whose pages it is found"""
    opens: bool = True
    """whether it needs a run, or brings its own model"""


INSTRUMENTS: dict[str, Instrument] = {
    "autodiff": Instrument(
        "Expression graph", "Type an expression, see its graph, and step backward through its gradients.",
        ("autodiff", "backprop"), False,
    ),
    "neuron": Instrument(
        "Neuron bench", "Draw a current and watch a neuron answer; conductances on sliders, phase plane, f–I curve.",
        ("hodgkin-huxley", "lif"), False,
    ),
    "population": Instrument(
        "Population", "Tuning curves and what they hold; an integrator and an oscillator made of spiking neurons.",
        ("population", "transformation", "integrator", "oscillator"), False,
    ),
    "hopfield": Instrument(
        "Hopfield memory", "Store patterns, draw over one, and watch it come back while its energy falls.",
        ("hopfield", "modern-hopfield"), False,
    ),
    "rbm": Instrument(
        "Boltzmann machine", "Draw a picture, corrupt it, and let it dream: Gibbs steps and their energy.", ("rbm",),
    ),
    "codes": Instrument(
        "Latent plane", "Walk through the codes of an autoencoder or an adversarial network.",
        ("vae", "autoencoder", "gan"),
    ),
    "diffusion": Instrument(
        "Out of the noise", "Scrub the way from noise to a picture; the same noise, other guidance, other samplers.",
        ("diffusion",),
    ),
    "attack": Instrument(
        "Attack", "Slide ε and see how little it takes until a picture is taken for another; or draw your own.",
        ("cnn", "mlp", "resnet", "trades", "vit"),
    ),
    "words": Instrument(
        "Word map", "Search a map of words, see neighbours, complete analogies.", ("word2vec",),
    ),
    "attention": Instrument(
        "Attention", "Every head on your own sentence; switch heads off, edit weights, patch from another sentence.",
        ("gpt", "bert"),
    ),
    "generation": Instrument(
        "Writing", "Text as it is written, with the probabilities it is drawn from.",
        ("gpt", "mingru", "gru", "lstm", "rnn"),
    ),
    "clip": Instrument(
        "Pictures and words", "Type labels, drop a picture, and see how well each describes it.", ("clip",),
    ),
}  # fmt: skip
