"""The process group of a run that torchrun starts, on one machine or on many.

    torchrun --nproc-per-node 2 -m engram run gpt                    two processes, each with the whole model (DDP)
    torchrun --nproc-per-node 2 -m engram run gpt --shard            the model sharded over them (FSDP2)

torchrun tells each process its rank and where the others are in environment variables. Tensors in memory go through
gloo, those on GPUs through NCCL, so that decisions do not wait for a GPU.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from engram.core.device import CPU, resolve_device
from engram.core.errors import EngramError
from engram.training import distributed

PATIENCE = timedelta(hours=6)
"""how long processes wait for the first one while it evaluates or writes; one that has died is noticed at once"""


_meeting = itertools.count()
"""torchrun's store outlives a restart of the processes: each new process group uses a unique store prefix"""
_left: list[Any] = []
"""groups that were left. Gloo's are kept to the end: to let go of one waits for its thread, which may wait for us"""
_devices = [CPU]
"""the last is the one in use"""


def current_device() -> torch.device:
    """The device that this process trains on."""
    return _devices[-1]


@contextlib.contextmanager
def train_on(place: torch.device) -> Iterator[None]:
    """Within, models train on this device."""
    _devices.append(place)
    try:
        yield
    finally:
        _devices.pop()


@contextlib.contextmanager
def join(shard: bool = False, device: str = "cpu") -> Iterator[None]:
    """Join the process group of torchrun, if it started this process, and train on a device by name."""
    if dist.is_available() and dist.is_initialized():  # whoever called us has joined already
        yield
        return
    torchrun = "WORLD_SIZE" in os.environ and "RANK" in os.environ
    place = resolve_device(device, int(os.environ.get("LOCAL_RANK", 0)))
    with train_on(place), (_process_group if torchrun else _single_process)(shard):
        yield


@contextlib.contextmanager
def _single_process(shard: bool) -> Iterator[None]:
    if shard:
        raise EngramError("--shard divides a model among processes: start them with torchrun (docs/scale.md).")
    yield


@contextlib.contextmanager
def _process_group(shard: bool) -> Iterator[None]:
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    gpu = current_device().type == "cuda"
    if gpu:
        torch.cuda.set_device(current_device())
    try:
        store, rank, world = next(rendezvous("env://"))
        meeting = f"{os.environ.get('TORCHELASTIC_RESTART_COUNT')} {next(_meeting)}"
        store = PrefixStore(meeting, store)
        backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:  # of which DistNetworkError, DistStoreError … are kinds
        reason = str(error).splitlines()[0]
        raise EngramError(f"The processes that torchrun started could not find each other: {reason}.") from None
    try:
        if shard and distributed.world_size() > 1:
            from torch.distributed.device_mesh import init_device_mesh

            distributed.set_mesh(init_device_mesh(current_device().type, (distributed.world_size(),)))
        with explain_lost_processes():
            yield
    finally:
        leave()


@contextlib.contextmanager
def explain_lost_processes() -> Iterator[None]:
    """Turn the error of a collective whose other process has ended into a sentence."""
    try:
        yield
    except RuntimeError as error:
        gone = ("gloo", "nccl", "Connection closed", "Connection reset", "Broken pipe", "Socket")
        if isinstance(error, dist.DistError) or any(word in str(error) for word in gone):
            raise EngramError(
                "Another process of this run has ended, so this one does too; with --out DIR --resume the same "
                "command goes on from the newest checkpoint."
            ) from None
        raise


def leave() -> None:
    """Leave the process group: from now on this process works alone."""
    _left.append((distributed.set_mesh(None), dist.group.WORLD if dist.is_available() else None))
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
