"""engram: every neural network of a full course, to run, to read and to look inside.

The names below are imported when they are first used, so that `import engram` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Autoencoder": "engram.models.autoencoder",
    "BERT": "engram.models.bert",
    "CLIP": "engram.models.clip",
    "CNN": "engram.models.cnn",
    "Diffusion": "engram.models.diffusion",
    "EngramError": "engram.core.errors",
    "GAN": "engram.models.gan",
    "GPT": "engram.models.gpt",
    "HodgkinHuxley": "engram.neurons.hodgkin_huxley",
    "Hopfield": "engram.models.hopfield",
    "MLP": "engram.models.mlp",
    "RBM": "engram.models.rbm",
    "ResNet": "engram.models.resnet",
    "Tokeniser": "engram.data.tokeniser",
    "Transformer": "engram.models.transformer",
    "VAE": "engram.models.vae",
    "ViT": "engram.models.vit",
    "Word2Vec": "engram.models.word2vec",
    "WordVectors": "engram.models.word_vectors",
    "attention": "engram.layers.attention",
    "catalogue": "engram.core.registry",
    "load": "engram.recipes",
    "run": "engram.recipes",
    "tap": "engram.core.tap",
    "watch": "engram.core.tap",
}

__all__ = [
    "BERT",
    "CLIP",
    "CNN",
    "GAN",
    "GPT",
    "MLP",
    "RBM",
    "VAE",
    "Autoencoder",
    "Diffusion",
    "EngramError",
    "HodgkinHuxley",
    "Hopfield",
    "ResNet",
    "Tokeniser",
    "Transformer",
    "ViT",
    "Word2Vec",
    "WordVectors",
    "attention",
    "catalogue",
    "load",
    "run",
    "tap",
    "watch",
]

if TYPE_CHECKING:
    from engram.core.errors import EngramError
    from engram.core.registry import catalogue
    from engram.core.tap import tap, watch
    from engram.data.tokeniser import Tokeniser
    from engram.layers.attention import attention
    from engram.models.autoencoder import Autoencoder
    from engram.models.bert import BERT
    from engram.models.clip import CLIP
    from engram.models.cnn import CNN
    from engram.models.diffusion import Diffusion
    from engram.models.gan import GAN
    from engram.models.gpt import GPT
    from engram.models.hopfield import Hopfield
    from engram.models.mlp import MLP
    from engram.models.rbm import RBM
    from engram.models.resnet import ResNet
    from engram.models.transformer import Transformer
    from engram.models.vae import VAE
    from engram.models.vit import ViT
    from engram.models.word2vec import Word2Vec
    from engram.models.word_vectors import WordVectors
    from engram.neurons.hodgkin_huxley import HodgkinHuxley
    from engram.recipes import load, run


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'engram' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
