"""`engram lab`: its flags, and what it prints before it serves."""

import socket

import pytest

from engram.lab.server import bind


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--port", "99999"], "port must be from 1 to 65535, not 99999"),
        (["--port", "-3"], "port must be from 1 to 65535, not -3"),
        (["--max-jobs", "-2"], "max_jobs must be at least 1"),
        (["--memory-gb", "0"], "memory_gb must be above 0"),
        (["--runs", "/dev/null/runs"], "cannot be written"),
    ],
)
def test_what_cannot_be_is_refused(refused, words, part):
    assert part in refused("lab", "--no-browser", *words)


def test_a_port_that_is_taken_is_refused_if_it_was_asked_for(refused):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert f"Port {port} is in use" in refused("lab", "--no-browser", "--port", port)


def test_without_a_port_there_is_always_one():
    with bind(0) as first, bind(0) as second:
        assert first.getsockname()[1] != second.getsockname()[1]
        assert first.getsockname()[0] == second.getsockname()[0] == "127.0.0.1"
