"""Independent LIF neurons: Brian2, interpreted and compiled, against engram, with the same spikes."""

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engram.cli.bench import Contestant, Score
from engram.core.errors import EngramError
from engram.neurons.lif.model import LIF
from engram.neurons.spikes import Spikes

EXTRA = "brian"
STEPS, STEP_MS, TAU_MS, WAIT_MS = 10_000, 0.1, 20.0, 2.0
WORK = "1000 independent LIF neurons, each with its own constant input, 1 s at 0.1 ms"
UNIT = "simulated s/s"


def contestants(neurons: int = 1000) -> dict[str, Contestant]:
    u_N = np.linspace(0.5, 2.5, neurons)

    def theirs(b: Any) -> tuple[Any, Any]:
        group = b.NeuronGroup(
            neurons,
            "dv/dt = (u - v) / tau : 1 (unless refractory)\nu : 1 (constant)",
            threshold="v >= 1",
            reset="v = 0",
            refractory=WAIT_MS * b.ms,
            method="exact",
            namespace={"tau": TAU_MS * b.ms},
        )
        group.u = u_N
        monitor = b.SpikeMonitor(group)
        return b.Network(group, monitor), monitor

    peers, spikes = brian(theirs)
    # A neuron of Brian2 fires at the beginning of a step, and waits a step less.
    by_steps = LIF(
        LIF.Config(neurons=neurons, tau_m_ms=TAU_MS, tau_ref_ms=WAIT_MS - STEP_MS, step_ms=STEP_MS, exact=False)
    )
    input_TN = torch.from_numpy(u_N).expand(STEPS, -1)
    agree(by_steps.step(by_steps.init_state(), input_TN, record=False)[2], spikes)
    closed = LIF(LIF.Config(neurons=neurons, tau_m_ms=TAU_MS, tau_ref_ms=WAIT_MS))
    counts = (
        np.bincount(one.neuron, minlength=neurons)
        for one in (spikes, closed.simulate_constant_input(u_N, STEPS * STEP_MS))
    )
    apart = np.abs(np.subtract(*counts)).max()
    if apart > 2:
        raise EngramError(f"A neuron fires {apart} times more or less in the closed form.")

    def stepping() -> Callable[[], float]:
        def work() -> float:
            by_steps.step(by_steps.init_state(), input_TN, record=False)
            return 1.0

        return work

    def jumping() -> Callable[[], float]:
        def work() -> float:
            closed.simulate_constant_input(u_N, STEPS * STEP_MS)
            return 1.0

        return work

    return {**peers, "engram, step by step": stepping, "engram, spike to spike": jumping}


def brian(
    make: Callable[[Any], tuple[Any, Any]], seconds: float = 1.0, step_ms: float = STEP_MS
) -> tuple[dict[str, Contestant], Spikes]:
    """Return Brian2's contestants, by cython and as a compiled program, without compile time, and its spikes.

    Each run() call has about 0.2 s of setup; reported with and without it.
    """
    import brian2 as b

    b.BrianLogger.suppress_hierarchy("brian2")
    b.prefs.codegen.target = "cython"
    b.defaultclock.dt = step_ms * b.ms
    net, monitor = make(b)
    net.store()
    net.run(seconds * b.second)
    spikes = Spikes.from_unsorted(np.array(monitor.t / b.ms) + step_ms, np.array(monitor.i, np.int64))
    program = compiled(b, make, seconds, step_ms)

    def interpreted(*, whole: bool) -> Contestant:
        def work() -> Score:
            net.restore()
            times = [time.perf_counter()]
            for duration in (0.0, seconds):
                net.run(duration * b.second)
                times.append(time.perf_counter())
            ready, all_of_it = np.diff(times)
            return Score(seconds / (all_of_it if whole else all_of_it - ready))

        return lambda: work

    def standalone() -> Callable[[], Score]:
        def work() -> Score:
            subprocess.run(["./main"], cwd=program, check=True, stdout=subprocess.DEVNULL)
            took = float((program / "results" / "last_run_info.txt").read_text().split()[0])
            return Score(seconds / took)

        return work

    peers = {
        "Brian2, cython: run()": interpreted(whole=True),
        "Brian2, cython: without setup": interpreted(whole=False),
        "Brian2, C++ standalone": standalone,
    }
    return peers, spikes


def compiled(b: Any, make: Callable[[Any], tuple[Any, Any]], seconds: float, step_ms: float) -> Path:
    """Compile a network to a program with Brian2; return its folder."""
    place = Path(tempfile.mkdtemp(prefix="engram-brian-"))
    b.set_device("cpp_standalone", directory=str(place), build_on_run=False)
    b.defaultclock.dt = step_ms * b.ms
    net, _ = make(b)
    net.run(seconds * b.second)
    b.device.build(directory=str(place), run=False, with_output=False)
    b.device.reinit()
    b.set_device("runtime")
    return place


def agree(mine: Spikes, theirs: Spikes) -> None:
    """Raise an error unless every neuron spikes in the same steps."""
    same = len(mine.time_ms) == len(theirs.time_ms) and np.array_equal(mine.neuron, theirs.neuron)
    if not same or not np.allclose(mine.time_ms, theirs.time_ms, rtol=0, atol=1e-6):
        raise EngramError(f"Spikes must be identical: there are {len(mine.time_ms)} and {len(theirs.time_ms)}.")
