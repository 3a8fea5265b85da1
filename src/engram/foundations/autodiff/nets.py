r"""Networks of Vars and their optimizers, for training loops as in torch.

Forward, loss, zero_grad, backward, step.

y = \sigma(x W + b)                                               dense layer                                 (1)
h_t = \tanh(x_t U + h_{t-1} W + b)                                recurrent layer                             (2)
h' = h + \text{attention}(n(h)), \quad h'' = h' + FF(n(h'))       Transformer block                           (3)
a = \text{softmax}(q k^T / \sqrt{D}) v                            causal attention                            (4)

Symbols:
    n, FF         layer normalization, feed-forward network
    B, T, E, D    batch, sequence length, width, width of a head
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from engram.foundations.autodiff import functions as f
from engram.foundations.autodiff.var import Array, Var

Activation = Callable[[Var], Var]


class Module:
    """Base of layers and networks."""

    def parameters(self) -> Iterator[Var]:
        """Yield the Vars of this module and of its submodules."""
        for part in vars(self).values():
            for one in part if isinstance(part, list) else [part]:
                if isinstance(one, Var):
                    yield one
                elif isinstance(one, Module):
                    yield from one.parameters()

    def zero_grad(self) -> None:
        for parameter in self.parameters():
            parameter.grad = None


class Dense(Module):
    """Dense layer (1) without activation."""

    def __init__(self, inputs: int, outputs: int, random: np.random.Generator, dtype: Any = np.float64) -> None:
        self.W = Var((random.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)).astype(dtype), "W")
        self.b = Var(np.zeros(outputs, dtype), "b")

    def __call__(self, x: Any) -> Var:
        return x @ self.W + self.b


class MLP(Module):
    """Dense layers (1); the last has no activation."""

    def __init__(
        self,
        sizes: Sequence[int],
        random: np.random.Generator,
        activation: Activation = f.relu,
        dtype: Any = np.float64,
    ) -> None:
        self.layers = [Dense(a, b, random, dtype) for a, b in zip(sizes, sizes[1:], strict=False)]
        self.activation = activation

    def __call__(self, x: Any) -> Var:
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


class CNN(Module):
    """Convolutions of stride 2 with ReLU, then a dense layer."""

    def __init__(
        self, shape: tuple[int, int, int], channels: Sequence[int], outputs: int, random: np.random.Generator
    ) -> None:
        widths, (_, height, width) = [shape[0], *channels], shape
        self.kernels = [
            Var(random.standard_normal((b, a, 3, 3)) * np.sqrt(2 / (9 * a)), "k")
            for a, b in zip(widths, widths[1:], strict=False)
        ]
        for _ in channels:
            height, width = (height + 1) // 2, (width + 1) // 2
        self.out = Dense(widths[-1] * height * width, outputs, random)

    def __call__(self, x: Any) -> Var:
        for kernel in self.kernels:
            x = f.relu(f.convolve(x, kernel, stride=2, padding=1))
        return self.out(x.reshape(len(x), -1))


class RNN(Module):
    """Recurrent network (2) over x, B × T × inputs, with an output at every step."""

    def __init__(self, inputs: int, hidden: int, outputs: int, random: np.random.Generator) -> None:
        self.into = Dense(inputs, hidden, random)
        self.W = Var(np.linalg.qr(random.standard_normal((hidden, hidden)))[0], "W")
        self.out = Dense(hidden, outputs, random)

    def __call__(self, x: Any) -> Var:
        projected, states = self.into(x), []
        h: Any = np.zeros((x.shape[0], self.W.shape[0]))
        for t in range(x.shape[1]):
            h = f.tanh(projected[:, t] + h @ self.W)  # (2)
            states.append(h.reshape(len(h), 1, -1))
        return self.out(f.concatenate(states, 1))


class Norm(Module):
    """Layer normalization with a gain."""

    def __init__(self, width: int) -> None:
        self.gain = Var(np.ones(width), "g")

    def __call__(self, x: Var) -> Var:
        x = x - x.mean(-1, keepdims=True)
        return x / ((x * x).mean(-1, keepdims=True) + 1e-5) ** 0.5 * self.gain


class Block(Module):
    """Transformer block (3)."""

    def __init__(self, width: int, heads: int, random: np.random.Generator) -> None:
        self.heads = heads
        self.norms = [Norm(width), Norm(width)]
        self.qkv, self.o = Dense(width, 3 * width, random), Dense(width, width, random)
        self.up, self.down = Dense(width, 4 * width, random), Dense(4 * width, width, random)

    def attend(self, x: Var) -> Var:
        B, T, E = x.shape
        qkv = self.qkv(x).reshape(B, T, 3, self.heads, E // self.heads).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(E // self.heads) + np.triu(np.full((T, T), -1e9), 1)
        return self.o((f.softmax(scores) @ v).swapaxes(1, 2).reshape(B, T, E))  # (4)

    def __call__(self, h: Var) -> Var:
        h = h + self.attend(self.norms[0](h))
        return h + self.down(f.relu(self.up(self.norms[1](h))))  # (3)


class Transformer(Module):
    """Language model of one block: token ids, B × T, to logits of the next token."""

    def __init__(self, vocab_size: int, context: int, width: int, heads: int, random: np.random.Generator) -> None:
        self.token = Var(0.1 * random.standard_normal((vocab_size, width)), "token")
        self.position = Var(0.1 * random.standard_normal((context, width)), "position")
        self.block, self.norm = Block(width, heads, random), Norm(width)
        self.out = Dense(width, vocab_size, random)

    def __call__(self, token: Array) -> Var:
        return self.out(self.norm(self.block(self.token[token] + self.position[: token.shape[1]])))


# ---------------------------------------------------------------------- optimizers


class SGD:
    """Stochastic gradient descent with momentum."""

    def __init__(self, parameters: Iterator[Var], lr: float, momentum: float = 0.0) -> None:
        self.parameters, self.lr, self.momentum = list(parameters), lr, momentum
        self.v = [np.zeros_like(p.val) for p in self.parameters] if momentum else []

    def step(self) -> None:
        for i, p in enumerate(self.parameters):
            update = p.grad
            if self.momentum:
                self.v[i] *= self.momentum
                self.v[i] += p.grad
                update = self.v[i]
            p.val -= self.lr * update


class Adam:
    """Adam (Kingma & Ba 2015)."""

    def __init__(self, parameters: Iterator[Var], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        self.parameters, self.lr, self.betas, self.steps = list(parameters), lr, betas, 0
        self.m = [np.zeros_like(p.val) for p in self.parameters]
        self.u = [np.zeros_like(p.val) for p in self.parameters]

    def step(self) -> None:
        self.steps += 1
        first, second = self.betas
        rate = self.lr / (1 - first**self.steps)
        for p, m, u in zip(self.parameters, self.m, self.u, strict=True):
            m += (1 - first) * (p.grad - m)
            u += (1 - second) * (p.grad * p.grad - u)
            p.val -= rate * m / (np.sqrt(u / (1 - second**self.steps)) + 1e-8)
