from .memory import HopfieldMemory as HopfieldMemory
from .supervised import MLPClassifier as MLPClassifier
from .supervised import MLPRegressor as MLPRegressor
from .supervised import PredictiveCodingClassifier as PredictiveCodingClassifier
from .unsupervised import RBM as RBM
from .unsupervised import VAE as VAE
from .unsupervised import Autoencoder as Autoencoder
from .words import WordVectors as WordVectors
