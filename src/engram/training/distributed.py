"""One run in several processes, as torchrun starts them, on one machine or on many.

    torchrun --nproc-per-node 2 -m engram run gpt                    two processes, each with the whole model
    torchrun --nproc-per-node 2 -m engram run gpt --shard            the model divided between them (FSDP2)

torchrun says by the environment who one is and where the others are. Tensors in memory go by gloo, those on GPUs by
NCCL; so what the processes agree on does not wait for a GPU.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from engram.core import together
from engram.core.device import CPU, chosen
from engram.core.errors import EngramError

PATIENCE = timedelta(hours=6)
"""how long processes wait for the first one while it evaluates or writes; one that has died is noticed at once"""


_meeting = itertools.count()
"""torchrun's store remembers where processes were before they were started again: every meeting has another name"""
_left: list[Any] = []
"""groups that were left. Gloo's are kept to the end: to let go of one waits for its thread, which may wait for us"""
_devices = [CPU]
"""the last is the one in use"""


def device() -> torch.device:
    """Where this process learns."""
    return _devices[-1]


@contextlib.contextmanager
def learning_on(place: torch.device) -> Iterator[None]:
    """Within, what learns is on this device."""
    _devices.append(place)
    try:
        yield
    finally:
        _devices.pop()


@contextlib.contextmanager
def joined(shard: bool = False, where: str = "cpu") -> Iterator[None]:
    """Within, this process is one of those that torchrun has started, if it has, and learns on the device `where`."""
    if distributed.is_available() and distributed.is_initialized():  # whoever called us has joined already
        yield
        return
    company = "WORLD_SIZE" in os.environ and "RANK" in os.environ
    with learning_on(chosen(where, int(os.environ.get("LOCAL_RANK", 0)))), (_company if company else _solitude)(shard):
        yield


@contextlib.contextmanager
def _solitude(shard: bool) -> Iterator[None]:
    if shard:
        raise EngramError("--shard divides a model among processes: start them with torchrun (docs/scale.md).")
    yield


@contextlib.contextmanager
def _company(shard: bool) -> Iterator[None]:
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    gpu = device().type == "cuda"
    if gpu:
        torch.cuda.set_device(device())
    try:
        store, rank, world = next(rendezvous("env://"))
        meeting = f"{os.environ.get('TORCHELASTIC_RESTART_COUNT')} {next(_meeting)}"
        store = PrefixStore(meeting, store)
        backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
        distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:  # of which DistNetworkError, DistStoreError … are kinds
        reason = str(error).splitlines()[0]
        raise EngramError(f"The processes that torchrun started could not find each other: {reason}.") from None
    try:
        if shard and together.world() > 1:
            from torch.distributed.device_mesh import init_device_mesh

            together.divide(init_device_mesh(device().type, (together.world(),)))
        with reporting():
            yield
    finally:
        leave()


@contextlib.contextmanager
def reporting() -> Iterator[None]:
    """Turn what torch says when another process is gone into a sentence."""
    try:
        yield
    except RuntimeError as error:
        gone = ("gloo", "nccl", "Connection closed", "Connection reset", "Broken pipe", "Socket")
        if isinstance(error, distributed.DistError) or any(word in str(error) for word in gone):
            raise EngramError(
                "Another process of this run has ended, so this one does too; with --out DIR --resume the same "
                "command goes on from the newest checkpoint."
            ) from None
        raise


def leave() -> None:
    """From now on this process is alone."""
    _left.append((together.divide(None), distributed.group.WORLD if distributed.is_available() else None))
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
