"""Endpoints of instruments, called as the inference worker calls them, without a browser."""

import pytest

from engram.lab import inference_worker


@pytest.fixture(scope="session", autouse=True)
def _imported():
    inference_worker.import_endpoints()


@pytest.fixture
def call_endpoint(tmp_path):
    """Call an endpoint; returns the list of parts and the last response. `root` is the folder of runs."""

    def call(name: str, root=tmp_path, **arguments):
        message = {"endpoint": name, "params": arguments}
        parts, responses = [], inference_worker.respond(message, inference_worker.Models(root))
        while True:
            try:
                parts.append(next(responses))
            except StopIteration as end:
                return parts, end.value

    return call
