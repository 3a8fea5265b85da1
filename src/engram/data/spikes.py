"""Recordings of real neurons: sound played to a grasshopper and spikes of its auditory receptor.

Recorded by Rokem et al. (2006, Journal of Neurophysiology 95); nitime carries it as an example.
"""

import io

import numpy as np
import torch

from engram.data.dataset import Parts, Split
from engram.data.registry import register_downloaded
from engram.data.sources import Archive, DataSource, Files

STEP_US = 50
"""time step in microseconds"""


def read_grasshopper(files: Files) -> Parts:
    """Read two recordings of 10 s: amplitude of the sound and number of spikes in each time step."""
    stimulus, spike = [], []
    for number in (1, 2):
        sound = np.loadtxt(io.BytesIO(files[f"nitime/data/grasshopper_stimulus{number}.txt"]))
        times_us = np.loadtxt(io.BytesIO(files[f"nitime/data/grasshopper_spike_times{number}.txt"]))
        stimulus.append(sound[:, 1].astype(np.float32))
        spike.append(np.bincount((times_us / STEP_US).astype(np.int64), minlength=len(sound)).astype(np.uint8))
    columns = {"stimulus": np.stack(stimulus), "spike": np.stack(spike), "cutoff_hz": np.array([200, 800])}
    return Parts({"train": Split({name: torch.from_numpy(column) for name, column in columns.items()})})


register_downloaded(
    "grasshopper",
    DataSource(
        read_grasshopper,
        Archive(
            "pip",
            "nitime==0.12.1",
            (
                "nitime/data/grasshopper_stimulus1.txt",
                "nitime/data/grasshopper_stimulus2.txt",
                "nitime/data/grasshopper_spike_times1.txt",
                "nitime/data/grasshopper_spike_times2.txt",
            ),
            contents=(
                "4b47a4cbca8c5f694f87dd510db608a868dffbaba96845199c8afa545a4c37fa",
                "69f257a8e7a5019897111b07f9cd317b136357d256e99682d40c09d5add18e6a",
                "840014ad9a8f591d02ab108bcbd46715badb3459e0ef7eac95fdd661ff134e3d",
                "389e5dccb709fbe0552589ff2e0b64e15d46665e4d2d4172071f2175c8641541",
            ),
        ),
    ),
    title="the sound played to a grasshopper's auditory receptor and its spikes, twice 10 s in steps of 50 µs",
    kind="spikes",
    license="BSD-3-Clause",
    columns={"stimulus": "float32 200000", "spike": "uint8 200000", "cutoff_hz": "int64"},
    sizes={"train": 2},
)
