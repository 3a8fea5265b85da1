from .dbn.model import DBN as DBN
from .hopfield.model import Hopfield as Hopfield
from .modern_hopfield.model import ModernHopfield as ModernHopfield
from .predictive_coding.model import PredictiveCoding as PredictiveCoding
from .rbm.model import RBM as RBM
