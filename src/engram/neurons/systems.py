"""What populations can do, each in a few lines: pass on, add, multiply, integrate, oscillate, run Lorenz's equations.

    population       x' = x                                        a value held by spikes                        (1)
    transformation   y = f(a, b)                                   a, b held by one population, y by another     (2)
    integrator       dx/dt = u                                                                                   (3)
    controlled       dx/dt = (c - 1) x / tau + u                   c = 1 remembers, c < 1 forgets                (4)
    oscillator       dx/dt = 2 pi f (-x_2, x_1) + u                                                              (5)
    lorenz           dx/dt = (s (y - x), -x z' - y, x y - b (z' + r) - r)      z' = z - r, around zero           (6)

Those that have a derivative run it through their synapse: a population hears tau f(x) + x of itself and tau u.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics
from engram.core.tap import tap
from engram.neurons.dynamics import Assembly, Node, State
from engram.neurons.lif import Spikes
from engram.neurons.population import Population


@dataclass(frozen=True, kw_only=True)
class Held:
    """What all of them have."""

    neurons: int = 1000
    """neurons of each population"""
    tau_ms: float = 100.0
    """time constant of the synapse through which a population hears itself or another one, ms"""
    read_ms: float = 10.0
    """time constant with which the outside reads the spikes, ms"""
    spiking: bool = True
    """let neurons fire, instead of being their rates"""
    step_ms: float = 1.0
    """time step, ms"""
    draw: int = 0
    """number that the neurons are drawn from"""

    def __post_init__(self) -> None:
        for name in ("neurons", "tau_ms", "read_ms", "step_ms"):
            if not 0 < getattr(self, name) < math.inf:
                raise EngramError(f"{name} must be greater than 0, not {getattr(self, name)}.")


class System(Assembly):
    """An assembly with one input and one thing to look at, and what that should show; `v_N` are its voltages."""

    v_N: Tensor
    dimensions: ClassVar[int] = 1
    """of the input"""
    names: ClassVar[tuple[str, ...]] = ("x",)
    """of what is shown"""
    Config: ClassVar[type[Held]] = Held

    def __init__(self, config: Held | None = None) -> None:
        self_config = config or self.Config()
        super().__init__(self_config.step_ms, spiking=self_config.spiking)
        self.config = self_config
        self.u = self.input(self.dimensions)
        self.seen = self.build()
        self.register_buffer("v_N", torch.from_numpy(self.rest().v_N))

    def build(self) -> Node:
        """Populations and connections; what is to be looked at."""
        raise NotImplementedError

    def held(self, dimensions: int = 1, radius: float = 1.0, number: int = 0) -> Node:
        """A population of the configuration."""
        config = Population.Config(
            neurons=self.config.neurons, dimensions=dimensions, radius=radius, seed=self.config.draw + number
        )
        return self.population(config)

    def runs(self, x: Node, f: Callable[[Tensor], Tensor]) -> None:
        """Let a population follow dx/dt = f(x), time in seconds, and hear u."""
        tau_s = self.config.tau_ms / 1000
        self.connect(x, x, function=lambda value: value + tau_s * f(value), tau_ms=self.config.tau_ms)
        self.connect(self.u, x, transform=tau_s, tau_ms=self.config.tau_ms)

    @staticmethod
    def drive(t_s: Tensor) -> Tensor:
        """An input that shows what the system does, T×D."""
        raise NotImplementedError

    def ideal(self, u_TD: Tensor) -> Tensor:
        """What should be seen, T×K."""
        raise NotImplementedError

    def forward(self, u_TD: Tensor) -> Tensor:
        """What is seen while the input passes, from rest, T×K."""
        _, recording = self.step(self.rest(self.chance()), {self.u: u_TD})
        return tap("seen", recording.probed[self.seen])

    def chance(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.config.draw)


class Holding(System):
    """(1)"""

    def build(self) -> Node:
        x = self.held()
        self.connect(self.u, x, tau_ms=0)
        return self.probe(x, tau_ms=self.config.read_ms)

    @staticmethod
    def drive(t_s: Tensor) -> Tensor:
        return torch.sin(2 * math.pi * 0.5 * t_s)[:, None]

    def ideal(self, u_TD: Tensor) -> Tensor:
        return u_TD


class Transformation(System):
    """(2)"""

    dimensions: ClassVar[int] = 2
    names: ClassVar[tuple[str, ...]] = ("f(a, b)",)
    FUNCTIONS: ClassVar[dict[str, Callable[[Tensor], Tensor]]] = {
        "channel": lambda x: x[:, :1],
        "sum": lambda x: x[:, :1] + x[:, 1:],
        "product": lambda x: x[:, :1] * x[:, 1:],
        "square": lambda x: x[:, :1] ** 2,
    }

    @dataclass(frozen=True, kw_only=True)
    class Config(Held):
        function: Literal["channel", "sum", "product", "square"] = "product"
        """what the second population is told of the two values that the first one holds: a, a + b, a b or a²"""
        tau_ms: float = 5.0

    def build(self) -> Node:
        both, y = self.held(2, radius=math.sqrt(2)), self.held(radius=2.0, number=1)
        self.connect(self.u, both, tau_ms=0)
        self.connect(both, y, function=self.f, tau_ms=self.config.tau_ms)
        return self.probe(y, tau_ms=self.config.read_ms)

    @property
    def f(self) -> Callable[[Tensor], Tensor]:
        assert isinstance(self.config, self.Config)
        return self.FUNCTIONS[self.config.function]

    @staticmethod
    def drive(t_s: Tensor) -> Tensor:
        return torch.stack([torch.sin(2 * math.pi * 0.5 * t_s), torch.cos(2 * math.pi * 0.3 * t_s)], 1)

    def ideal(self, u_TD: Tensor) -> Tensor:
        return self.f(u_TD)


class Integrator(System):
    """(3)"""

    def build(self) -> Node:
        x = self.held()
        self.runs(x, torch.zeros_like)
        return self.probe(x, tau_ms=self.config.read_ms)

    @staticmethod
    def drive(t_s: Tensor) -> Tensor:
        """Up for half a second, down for one, up for half a second, with pauses to remember."""
        within = t_s % 4
        up = ((within > 0.2) & (within <= 0.7)) | ((within > 2.7) & (within <= 3.2))
        down = (within > 1.2) & (within <= 2.2)
        return (up.double() - down.double())[:, None]

    def ideal(self, u_TD: Tensor) -> Tensor:
        return u_TD.double().cumsum(0) * self.config.step_ms / 1000


class ControlledIntegrator(System):
    """(4): the second dimension of the input is c."""

    dimensions: ClassVar[int] = 2

    def build(self) -> Node:
        tau_s = self.config.tau_ms / 1000
        both = self.held(2, radius=1.5)
        self.connect(
            both, both, function=lambda x: x[:, :1] * x[:, 1:], transform=[[1.0], [0.0]], tau_ms=self.config.tau_ms
        )
        self.connect(self.u, both, transform=[[tau_s, 0.0], [0.0, 1.0]], tau_ms=self.config.tau_ms)
        return self.probe(both, lambda x: x[:, :1], tau_ms=self.config.read_ms)

    @staticmethod
    def drive(t_s: Tensor) -> Tensor:
        """A push, remembered, and forgotten from the third second on."""
        push = ((t_s > 0.5) & (t_s <= 1.0)).double() * 1.5
        return torch.stack([push, torch.where(t_s < 3, 1.0, 0.5)], 1)

    def ideal(self, u_TD: Tensor) -> Tensor:
        x, shown, step = 0.0, [], self.config.step_ms / 1000
        for u, c in u_TD.double().tolist():
            x += step * ((c - 1) * x / (self.config.tau_ms / 1000) + u)
            shown.append([x])
        return torch.tensor(shown, dtype=torch.float64)


class Oscillator(System):
    """(5)"""

    dimensions: ClassVar[int] = 2
    names: ClassVar[tuple[str, ...]] = ("x_1", "x_2")

    @dataclass(frozen=True, kw_only=True)
    class Config(Held):
        frequency_hz: float = 1.0
        """turns per second (f)"""

    def build(self) -> Node:
        x = self.held(2)
        self.runs(x, lambda value: self.turn * torch.stack([-value[:, 1], value[:, 0]], 1))
        return self.probe(x, tau_ms=self.config.read_ms)

    @property
    def turn(self) -> float:
        assert isinstance(self.config, self.Config)
        return 2 * math.pi * self.config.frequency_hz

    @staticmethod
    def drive(t_s: Tensor) -> Tensor:
        """A push at the beginning, that would carry x to 1."""
        return torch.stack([(t_s <= 0.1).double() * 10, torch.zeros_like(t_s)], 1)

    def ideal(self, u_TD: Tensor) -> Tensor:
        """The exact solution while the input is held during a step."""
        x, shown, angle = 0j, [], self.turn * self.config.step_ms / 1000
        grown = complex(math.cos(angle), math.sin(angle))
        pushed = (grown - 1) / (1j * self.turn) if angle else self.config.step_ms / 1000
        for u in u_TD.double().tolist():
            x = grown * x + complex(*u) * pushed
            shown.append([x.real, x.imag])
        return torch.tensor(shown, dtype=torch.float64)


class Lorenz(System):
    """(6)"""

    dimensions: ClassVar[int] = 3
    names: ClassVar[tuple[str, ...]] = ("x", "y", "z - r")

    @dataclass(frozen=True, kw_only=True)
    class Config(Held):
        sigma: float = 10.0
        """how quickly x follows y, Prandtl's number (s)"""
        beta: float = 8 / 3
        """how quickly z falls back, the shape of the cell of air (b)"""
        rho: float = 28.0
        """how strongly the air is heated, Rayleigh's number (r)"""

    def build(self) -> Node:
        x = self.held(3, radius=60.0)
        self.runs(x, self.slope)
        return self.probe(x, tau_ms=self.config.read_ms)

    def slope(self, value_SD: Tensor) -> Tensor:
        return torch.stack(self.equations(*value_SD.unbind(1)), 1)

    def equations(self, x: Any, y: Any, z: Any) -> tuple[Any, Any, Any]:
        """(6), of numbers or of columns of them."""
        config = self.config
        assert isinstance(config, self.Config)
        return config.sigma * (y - x), -x * z - y, x * y - config.beta * (z + config.rho) - config.rho

    @staticmethod
    def drive(t_s: Tensor) -> Tensor:
        """A push out of the middle, where nothing would ever happen."""
        return torch.stack([(t_s <= 0.1).double() * 100, torch.zeros_like(t_s), torch.zeros_like(t_s)], 1)

    def ideal(self, u_TD: Tensor) -> Tensor:
        """The equations by Runge and Kutta's method; two paths part after a while, whatever computes them."""
        shown, step = [], self.config.step_ms / 1000
        x: tuple[float, ...] = (0.0, 0.0, 0.0)

        def ahead(slope: Sequence[float], time: float) -> tuple[float, ...]:
            return tuple(value + time * change for value, change in zip(x, slope, strict=True))

        for u in u_TD.tolist():

            def at(place: Sequence[float], u: list[float] = u) -> list[float]:
                return [f + push for f, push in zip(self.equations(*place), u, strict=True)]

            a = at(x)
            b = at(ahead(a, step / 2))
            c = at(ahead(b, step / 2))
            d = at(ahead(c, step))
            x = ahead([(p + 2 * q + 2 * r + s) / 6 for p, q, r, s in zip(a, b, c, d, strict=True)], step)
            shown.append(x)
        return torch.tensor(shown, dtype=torch.float64)


class Passing:
    """The learner of a system: a batch is a stretch of input, a step lets it pass."""

    def __init__(self, model: System, random: torch.Generator | None = None) -> None:
        self.model = model
        self.state = model.rest(random or model.chance())
        K, D = len(model.names), model.dimensions
        self.seen_TK, self.u_TD = torch.zeros(0, K, dtype=torch.float64), torch.zeros(0, D, dtype=torch.float64)
        self.spikes = Spikes(torch.zeros(0).double().numpy(), torch.zeros(0).long().numpy())

    def step(self, batch: Batch) -> Metrics:
        u_TD = batch["current"].double()
        before_ms = self.state.passed * self.model.step_ms
        self.state, recording = self.model.step(self.state, {self.model.u: u_TD})
        self.model.v_N.copy_(torch.from_numpy(self.state.v_N))
        self.seen_TK = torch.cat([self.seen_TK, recording.probed[self.model.seen]])
        self.u_TD = torch.cat([self.u_TD, u_TD])
        self.spikes = Spikes(recording.spikes.time_ms + before_ms, recording.spikes.neuron)
        neurons, seconds = len(self.state.v_N), len(u_TD) * self.model.step_ms / 1000
        return {"rate_hz": torch.tensor(len(recording.spikes.neuron) / neurons / seconds)}

    @property
    def time_s(self) -> Tensor:
        return torch.arange(1, len(self.seen_TK) + 1) * self.model.step_ms / 1000

    def error(self) -> float:
        """Root of the mean square of what is seen less what should be."""
        return (self.seen_TK - self.model.ideal(self.u_TD)).square().mean().sqrt().item()

    def state_dict(self) -> dict[str, Any]:
        state = {name: torch.from_numpy(getattr(self.state, name)) for name in ("v_N", "wait_N", "y")}
        last = {"spike_ms": torch.from_numpy(self.spikes.time_ms), "spike_of": torch.from_numpy(self.spikes.neuron)}
        return {"passed": self.state.passed, "seen": self.seen_TK, "u": self.u_TD, **state, **last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        v_N, wait_N, y = (state[name].numpy().copy() for name in ("v_N", "wait_N", "y"))
        self.state = State(v_N, wait_N, y, state["passed"])
        self.seen_TK, self.u_TD = state["seen"], state["u"]
        self.spikes = Spikes(state["spike_ms"].numpy(), state["spike_of"].numpy())
