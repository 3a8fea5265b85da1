r"""Weight quantization to 8 or 4 bits for fast generation, which is bound by memory bandwidth.

    s = \max |w| / 127,\quad q = \text{round}(w / s) + 128,\quad w \approx s (q - 128)                  8 bits    (1)
    m = \min w,\quad s = (\max w - m) / 15,\quad q = \text{round}((w - m) / s),\quad w \approx s q + m   4 bits    (2)
    t = \max |x| / 127,\quad p = \text{round}(x / t)                                         activations    (3)
    y = \sum_g s_g t_g (q_g - z) \cdot p_g + m_g t_g \sum p_g + b                             product        (4)

    Symbols:
        w, x       weights and inputs of a group of 32
        q, s, m    quantized weights of a group, their scale and minimum, both in 16 bits
        z          number that stands for a weight of 0 where there is no minimum: 128 in (1)
        p, t       quantized inputs of a group, and their scale
        y, b       outputs, biases
        N, O, I    rows, outputs, inputs
        G, S       groups of 32 inputs, strips of 16 outputs

These are the formats Q8_0 and Q4_1 of llama.cpp, and with z = 8 its Q4_0. Without gradients, inputs are
quantized too (3), and 8-bit products are added up (generation/quantized_product.py). With gradients, weights are
dequantized for each product, and again on the way back, so that the model stays as small as it is.
"""

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.learner import M
from engram.generation.quantized_product import GROUP, STRIP, dequantize_matrix, quantized_product

Bits = Literal[8, 4]
ZERO_8 = 128
"""number that stands for a weight of 0 in 8 bits"""


@dataclass(frozen=True)
class QuantizedWeight:
    """A quantized matrix: the number of each weight, and the scale and minimum of each group of 32 inputs."""

    bits: Bits
    q_OI: Tensor
    scale_OG: Tensor
    minimum_OG: Tensor | None = None
    zero: int = 0
    """number that stands for a weight of 0 where there are no minima"""

    @property
    def shape(self) -> torch.Size:
        return self.q_OI.shape

    def __len__(self) -> int:
        return len(self.q_OI)

    def __getitem__(self, rows: Any) -> "QuantizedWeight":
        minimum_OG = None if self.minimum_OG is None else self.minimum_OG[rows]
        return replace(self, q_OI=self.q_OI[rows], scale_OG=self.scale_OG[rows], minimum_OG=minimum_OG)

    def split(self, sizes: Sequence[int]) -> list["QuantizedWeight"]:
        """Split the rows."""
        ends = list(itertools.accumulate(sizes))
        return [self[end - size : end] for size, end in zip(sizes, ends, strict=True)]

    def dim(self) -> int:
        return self.q_OI.dim()

    def numel(self) -> int:
        return self.q_OI.numel()

    def element_size(self) -> int:
        return self.q_OI.element_size()


def quantize_weight(weight_OI: Tensor, bits: Bits) -> QuantizedWeight:
    """Quantize a matrix."""
    w_OGI = pad_to(weight_OI.detach().float(), 1, GROUP).unflatten(1, (-1, GROUP))
    if bits == 8:
        scale_OG1 = (w_OGI.abs().amax(2, keepdim=True) / 127).half()
        q_OGI = (w_OGI / nonzero(scale_OG1)).round().clamp(-127, 127) + ZERO_8  # (1)
        minimum_OG, zero = None, ZERO_8
    else:
        minimum_OG1 = w_OGI.amin(2, keepdim=True).half()
        scale_OG1 = ((w_OGI.amax(2, keepdim=True) - minimum_OG1.float()) / 15).half()
        q_OGI = ((w_OGI - minimum_OG1.float()) / nonzero(scale_OG1)).round().clamp(0, 15)  # (2)
        minimum_OG, zero = minimum_OG1[..., 0], 0
    if not (scale_OG1.isfinite().all() and (minimum_OG is None or minimum_OG.isfinite().all())):
        raise EngramError("The weights are too large, or no numbers: their scales of 16 bits cannot hold them.")
    q_OI = q_OGI.to(torch.uint8).flatten(1)[:, : weight_OI.shape[1]]
    return QuantizedWeight(bits, q_OI, scale_OG1[..., 0], minimum_OG, zero)


class QuantizedLinear(nn.Module):
    """Linear layer with weights of 8 or 4 bits, in strips of 16 outputs whose numbers lie side by side."""

    packed: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, weight: QuantizedWeight, bias: Tensor | None = None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bits, self.zero, self.has_minimum = weight.bits, weight.zero, weight.minimum_OG is not None
        scales = [one for one in (weight.scale_OG, weight.minimum_OG) if one is not None]
        self.register_buffer("packed", pack(weight.q_OI, weight.bits))
        self.register_buffer("scale", torch.stack([strips_of(one.half()) for one in scales], 2).view(torch.int16))
        self.register_buffer("bias", None if bias is None else bias.detach())

    @property
    def weight(self) -> Tensor:
        """The dequantized weights, O × I, made anew at each access."""
        return self.dequantize()

    @property
    def matrix(self) -> npt.NDArray[np.int64]:
        """What the kernels know of the matrix."""
        bias = 0 if self.bias is None else self.bias.data_ptr()
        parts, size = (2 if self.has_minimum else 1), (self.out_features, self.in_features)
        return np.array([self.packed.data_ptr(), self.scale.data_ptr(), bias, self.bits, self.zero, parts, *size])

    def dequantize(self) -> Tensor:
        """Return the weights as numbers of 32 bits, O × I."""
        W_OI = torch.empty(-(-self.out_features // STRIP) * STRIP, -(-self.in_features // GROUP) * GROUP)
        dequantize_matrix(self.matrix, W_OI.numpy())
        return W_OI[: self.out_features, : self.in_features]

    def rows(self, index: Tensor) -> Tensor:
        """Return some rows of the dequantized matrix, … × I, such as the embeddings of tokens."""
        strip, lane = index // STRIP, index % STRIP
        packed = self.packed.unflatten(2, (-1, STRIP, 4))[strip, :, :, lane]  # … × G × J × 4
        q = packed if self.bits == 8 else torch.stack([packed & 15, packed >> 4], -2)
        scale = self.scale.view(torch.float16)[strip, :, :, lane].float()  # … × G × (1 or 2)
        w = (q.flatten(index.ndim + 1).float() - self.zero) * scale[..., :1]
        w = w + scale[..., 1:] if self.has_minimum else w
        return w.flatten(index.ndim)[..., : self.in_features]

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return DequantizedProduct.apply(x, self)  # type: ignore[no-any-return]
        x_NI = x.reshape(-1, self.in_features).float().contiguous()
        y_NO = torch.empty(len(x_NI), len(self.packed) * STRIP)
        quantized_product(self.matrix, x_NI.numpy(), y_NO.numpy())  # (3), (4)
        y = y_NO[:, : self.out_features].view(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias


class QuantizedEmbedding(nn.Module):
    """Token embedding whose matrix is that of a quantized output layer."""

    def __init__(self, head: QuantizedLinear) -> None:
        super().__init__()
        self.head = head

    @property
    def weight(self) -> Tensor:
        """The dequantized embedding, V × E."""
        return self.head.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head.rows(x)


class DequantizedProduct(torch.autograd.Function):
    """Product with dequantized weights, of which none are kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: QuantizedLinear) -> Tensor:  # type: ignore[override]
        ctx.layer = layer
        return F.linear(x, layer.dequantize(), layer.bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad @ ctx.layer.dequantize(), None


def quantize(model: M, bits: Bits = 8) -> M:
    """Return a copy of a model with quantized linear layers, and a quantized embedding tied to one."""
    quantized = copy.deepcopy(model).eval()
    for module in list(quantized.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, QuantizedLinear(quantize_weight(child.weight, bits), child.bias))
    head, embedding = getattr(quantized, "head", None), getattr(quantized, "embedding", None)
    if isinstance(head, QuantizedLinear) and isinstance(embedding, nn.Embedding):
        original: Any = model
        if original.head.weight is original.embedding.weight:
            quantized.embedding = QuantizedEmbedding(head)
    return quantized.requires_grad_(False)


def insert_quantized(model: nn.Module, weights: Mapping[str, QuantizedWeight]) -> None:
    """Replace layers by the names of their weights; an embedding shares the matrix of an equal output."""
    made: dict[int, QuantizedLinear] = {}
    for name, weight in sorted(weights.items(), key=lambda item: not item[0].startswith("head")):
        place, _, last = name.removesuffix(".weight").rpartition(".")
        parent, layer = model.get_submodule(place), model.get_submodule(name.removesuffix(".weight"))
        quantized = made.setdefault(id(weight), QuantizedLinear(weight, getattr(layer, "bias", None)))
        setattr(parent, last, QuantizedEmbedding(quantized) if isinstance(layer, nn.Embedding) else quantized)
    if made:
        model.requires_grad_(False)


def pack(q_OI: Tensor, bits: Bits) -> Tensor:
    """Pack quantized weights, S × G × bytes: four inputs of each of 16 outputs; 4 bits by twos."""
    q_SRGJ4 = pad_to(pad_to(q_OI, 0, STRIP), 1, GROUP).unflatten(1, (-1, GROUP // 4, 4)).unflatten(0, (-1, STRIP))
    q_SGJR4 = q_SRGJ4.permute(0, 2, 3, 1, 4)
    if bits == 4:
        q_SGJR4 = q_SGJR4[:, :, 0::2] | (q_SGJR4[:, :, 1::2] << 4)
    return q_SGJR4.contiguous().flatten(2)


def pad_to(x: Tensor, dim: int, multiple: int) -> Tensor:
    """Append zeros, up to a multiple of a size."""
    missing = -x.shape[dim] % multiple
    return x if not missing else torch.cat([x, x.new_zeros(*x.shape[:dim], missing, *x.shape[dim + 1 :])], dim)


def strips_of(x_OG: Tensor) -> Tensor:
    """Return numbers of each output and group as S × G × 16."""
    return pad_to(x_OG, 0, STRIP).unflatten(0, (-1, STRIP)).transpose(1, 2).contiguous()


def nonzero(scale: Tensor) -> Tensor:
    """Return scales by which one can divide."""
    scale = scale.float()
    return torch.where(scale == 0, torch.ones_like(scale), scale)
