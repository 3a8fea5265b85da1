r"""Text classifier: BERT, one vector of the text, and a linear layer (Devlin et al. 2019, section 4).

    h_t = \text{BERT}(x)_t                                  vectors of the tokens, after the last layer            (1)
    c = f(h_0 W_p + b_p)                                    pooler: [CLS] through tanh, in DistilBERT ReLU         (2)
    c = \frac{1}{T} \sum_t h_t                              mean pooling, as of sentence embeddings                (3)
    p(k | x) = \text{softmax}(c W + b)_k                    probability of class k                                 (4)
    L = -\log p(y | x)                                      cross-entropy                                          (5)

    Symbols:
        x, y       tokens of a text, its class
        h, c       vectors of the tokens and of the text
        W_p, W     matrices of the pooler and of the classifier
        B, T, E    batch, tokens, model width
        K          classes

The equations of BERT are in transformers/bert/model.py; a classifier has no masked language model head.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.config import FromData
from engram.core.tap import tap
from engram.transformers.bert.model import BERT

POOLERS = {"tanh": torch.tanh, "relu": torch.relu}


class TextClassifier(BERT):
    """BERT with a linear layer that tells classes apart."""

    classifies_texts = True
    """whether its logits are of the classes of a text (hub/text_classes.py)"""

    @dataclass(frozen=True, kw_only=True)
    class Config(BERT.Config):
        classes: FromData[Annotated[int, Ge(1)]] = 2
        """number of classes (K)"""
        pooled: FromData[bool] = False
        """whether the vector of a text is that of the pooler (2), or the mean (3)"""
        pooler: FromData[Literal["tanh", "relu"]] = "tanh"
        """activation function of the pooler"""
        masked: FromData[bool] = False

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.head = nn.Linear(config.width, config.classes)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, x_BT: Tensor, valid_BT: Tensor | None = None, type_BT: Tensor | None = None) -> Tensor:
        """Logits of the classes, B × K."""
        return self.classify(self.encode(x_BT, valid_BT, type_BT), valid_BT)  # (1)

    def classify(self, h_BTE: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """Logits of the classes for encoded tokens, which are zeros where there is padding."""
        if self.config.pooled:
            c_BE = POOLERS[self.config.pooler](self.pool(h_BTE[:, 0]))  # (2)
        else:
            lengths = h_BTE.shape[1] if valid_BT is None else valid_BT.sum(1, keepdim=True).clamp(min=1)
            c_BE = h_BTE.sum(1) / lengths  # (3)
        c_BE = F.dropout(tap("pooled", c_BE), self.config.dropout, self.training)
        return tap("logits", self.head(c_BE))  # (4)

    def loss(self, x_BT: Tensor, y_B: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """Cross-entropy (5) of a batch of texts with their classes."""
        return F.cross_entropy(self(x_BT, valid_BT), y_B)  # (5)


def from_bert(bert: BERT, classes: int, pooled: bool) -> TextClassifier:
    """Return a classifier with the encoder and pooler of a pretrained BERT, and a new linear layer."""
    settings = {name: value for name, value in vars(bert.config).items() if name not in ("masked", "pooled", "classes")}
    model = TextClassifier(TextClassifier.Config(**settings, classes=classes, pooled=pooled))
    own = model.state_dict()
    kept = {name: value for name, value in bert.state_dict().items() if name in own and name.split(".")[0] != "head"}
    model.load_state_dict({**own, **kept})
    return model
