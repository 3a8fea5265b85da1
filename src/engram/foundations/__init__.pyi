from .autodiff import Var as Var
from .cnn.model import CNN as CNN
from .mlp.model import MLP as MLP
from .resnet.model import ResNet as ResNet
from .universal_approximation.model import Approximation as Approximation
