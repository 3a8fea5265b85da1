"""Instruments are asked as the desk asks them, without a browser."""

import pytest

from engram.lab import desk


@pytest.fixture(scope="session", autouse=True)
def _imported():
    desk.import_instruments()


@pytest.fixture
def asked(tmp_path):
    """Ask an instrument; gives the list of its parts and its last answer. `root` is the folder of runs."""

    def call(name: str, root=tmp_path, **arguments):
        message = {"ask": name, "with": arguments}
        parts, answers = [], desk.answers(message, desk.Models(root))
        while True:
            try:
                parts.append(next(answers))
            except StopIteration as end:
                return parts, end.value

    return call
