"""Processes that tests start, each with a mark in its environment by which it and all that it has started are ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PROC = Path("/proc")
SUITE = "ENGRAM_TEST_SUITE"
"""environment variable that every process of one run of the suite has"""
CHILD = "ENGRAM_TEST_CHILD"
"""environment variable that a `Process` and all of its descendants have"""


class Process(subprocess.Popen[Any]):
    """A child process in a session of its own. Leaving its `with` block kills it and every descendant of it.

    torchrun, a browser and the lab start processes in sessions of their own, which a process group does not reach.
    """

    def __init__(self, command: list[Any], env: dict[str, str] | None = None, **options: Any) -> None:
        self.mark = uuid.uuid4().hex
        environment = {**(os.environ if env is None else env), CHILD: self.mark}
        super().__init__([str(word) for word in command], env=environment, start_new_session=True, **options)

    def end(self) -> None:
        """Kill the process and its descendants, whatever they are doing."""
        if PROC.exists():
            kill_marked(CHILD, self.mark)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait(10)

    def __exit__(self, *error: Any) -> None:
        self.end()
        super().__exit__(*error)


def run(command: list[Any], timeout: float = 300, **options: Any) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with captured text, after which nothing of the command is left."""
    with Process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as child:
        out, err = child.communicate(timeout=timeout)
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def marked(variable: str, value: str) -> Iterator[int]:
    """The ids of the living processes that were started with this environment variable."""
    wanted = f"{variable}={value}".encode()
    for file in PROC.glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in file.read_bytes().split(b"\0"):
                yield int(file.parent.name)


def command_of(pid: int) -> str:
    """The command line of a process, or nothing if it has ended."""
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def kill_marked(variable: str, value: str, seconds: float = 10) -> None:
    """Kill marked processes until there are none: each may have started another one meanwhile."""
    deadline = time.monotonic() + seconds
    while left := list(marked(variable, value)):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert time.monotonic() < deadline, f"processes {left} cannot be killed"
        time.sleep(0.01)


class Forks(Process):
    """A process that has imported everything and done nothing else; it forks one for every piece of code it is given.

    A forked process begins in a tenth of a second instead of three.
    """

    CODE = """
import json, os, sys, traceback
import plotly.graph_objects, torch._dynamo, tyro
import engram.plots.report
from engram.core.registry import registry
registry()
for line in sys.stdin:
    code, words, pipes = json.loads(line)
    if not (child := os.fork()):
        for name, descriptor in zip(pipes, (1, 2)):
            os.dup2(os.open(name, os.O_WRONLY), descriptor)
        sys.argv, status = ["", *words], 0
        try:
            exec(code, {"__name__": "__main__"})
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

    def __init__(self, folder: Path) -> None:
        self.pipes = [folder / "stdout", folder / "stderr"]
        for pipe in self.pipes:
            os.mkfifo(pipe)
        super().__init__([sys.executable, "-c", self.CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, code: str, *words: object) -> subprocess.CompletedProcess[str]:
        """Run code in a process of its own; `words` are its sys.argv[1:]."""
        assert self.stdin is not None
        assert self.stdout is not None
        print(json.dumps([code, [*map(str, words)], [*map(str, self.pipes)]]), file=self.stdin, flush=True)
        with ThreadPoolExecutor(2) as threads:
            out, err = threads.map(Path.read_text, self.pipes)
        return subprocess.CompletedProcess(code, int(self.stdout.readline()), out, err)
