"""engram: every neural network of a full course, to run, to read and to look inside.

The names below are imported when they are first used, so that `import engram` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
PARTS = ("foundations", "neurons", "memory", "sequences", "generative", "robustness", "transformers")
"""the parts of the course, in its order: packages of systems"""

_HOME = {
    "Autoencoder": "engram.generative.autoencoder.model",
    "BERT": "engram.transformers.bert.model",
    "CLIP": "engram.transformers.clip.model",
    "CNN": "engram.foundations.cnn.model",
    "Diffusion": "engram.generative.diffusion.model",
    "EngramError": "engram.core.errors",
    "GAN": "engram.generative.gan.model",
    "GPT": "engram.transformers.gpt.model",
    "HodgkinHuxley": "engram.neurons.hodgkin_huxley.model",
    "Hopfield": "engram.memory.hopfield.model",
    "MLP": "engram.foundations.mlp.model",
    "RBM": "engram.memory.rbm.model",
    "ResNet": "engram.foundations.resnet.model",
    "Tokenizer": "engram.data.tokenizer",
    "Transformer": "engram.transformers.translate.model",
    "VAE": "engram.generative.vae.model",
    "ViT": "engram.transformers.vit.model",
    "Word2Vec": "engram.sequences.word2vec.model",
    "WordVectors": "engram.sequences.word2vec.vectors",
    "attention": "engram.nn.attention",
    "registry": "engram.core.registry",
    "load": "engram.hub.load",
    "run": "engram.api",
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
    "Tokenizer",
    "Transformer",
    "ViT",
    "Word2Vec",
    "WordVectors",
    "attention",
    "registry",
    "load",
    "run",
    "tap",
    "watch",
]

if TYPE_CHECKING:
    from engram.api import run
    from engram.core.errors import EngramError
    from engram.core.registry import registry
    from engram.core.tap import tap, watch
    from engram.data.tokenizer import Tokenizer
    from engram.foundations.cnn.model import CNN
    from engram.foundations.mlp.model import MLP
    from engram.foundations.resnet.model import ResNet
    from engram.generative.autoencoder.model import Autoencoder
    from engram.generative.diffusion.model import Diffusion
    from engram.generative.gan.model import GAN
    from engram.generative.vae.model import VAE
    from engram.hub.load import load
    from engram.memory.hopfield.model import Hopfield
    from engram.memory.rbm.model import RBM
    from engram.neurons.hodgkin_huxley.model import HodgkinHuxley
    from engram.nn.attention import attention
    from engram.sequences.word2vec.model import Word2Vec
    from engram.sequences.word2vec.vectors import WordVectors
    from engram.transformers.bert.model import BERT
    from engram.transformers.clip.model import CLIP
    from engram.transformers.gpt.model import GPT
    from engram.transformers.translate.model import Transformer
    from engram.transformers.vit.model import ViT


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'engram' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
