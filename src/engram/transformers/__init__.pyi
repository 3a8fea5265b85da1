from .bert.model import BERT as BERT
from .clip.model import CLIP as CLIP
from .gpt.model import GPT as GPT
from .text_classifier.model import TextClassifier as TextClassifier
from .translate.model import Transformer as Transformer
from .vit.model import ViT as ViT
