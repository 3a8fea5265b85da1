from .api import run as run
from .core.errors import EngramError as EngramError
from .core.registry import registry as registry
from .core.tap import tap as tap
from .core.tap import watch as watch
from .data.tokenizer import Tokenizer as Tokenizer
from .foundations.cnn.model import CNN as CNN
from .foundations.mlp.model import MLP as MLP
from .foundations.resnet.model import ResNet as ResNet
from .generative.autoencoder.model import Autoencoder as Autoencoder
from .generative.diffusion.model import Diffusion as Diffusion
from .generative.gan.model import GAN as GAN
from .generative.vae.model import VAE as VAE
from .hub.load import load as load
from .memory.hopfield.model import Hopfield as Hopfield
from .memory.rbm.model import RBM as RBM
from .neurons.hodgkin_huxley.model import HodgkinHuxley as HodgkinHuxley
from .nn.attention import attention as attention
from .sequences.word2vec.model import Word2Vec as Word2Vec
from .sequences.word2vec.vectors import WordVectors as WordVectors
from .transformers.bert.model import BERT as BERT
from .transformers.clip.model import CLIP as CLIP
from .transformers.gpt.model import GPT as GPT
from .transformers.translate.model import Transformer as Transformer
from .transformers.vit.model import ViT as ViT

__version__: str
PARTS: tuple[str, ...]
