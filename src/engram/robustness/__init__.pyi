from .attacks.evaluation import robust_accuracy as robust_accuracy
from .attacks.methods import FGSM as FGSM
from .attacks.methods import PGD as PGD
from .attacks.methods import RandomNoise as RandomNoise
from .attacks.methods import ThreatModel as ThreatModel
from .attacks.minimal_norm import minimal_norm_attack as minimal_norm_attack
from .trades.model import PlainCNN as PlainCNN
