"""A few of each fault; `make faults` tries them all, three hundred kills among them."""

import pytest

from tests.faults import clock, contest, disk, signals
from tests.faults.driver import Absent, starter
from tests.faults.kills import torment

pytestmark = pytest.mark.xdist_group("faults")


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with starter(tmp_path_factory.mktemp("faults"), quick=True) as made:
        yield made


def test_killed_at_random_moments_it_comes_to_the_same_end(started, tmp_path):
    assert torment(disk.WORK, 3, 1, tmp_path, started).kills == 3


@pytest.mark.parametrize(
    ("fault", "tries"),
    [
        (disk.full, 2), (disk.read_only, 1), (disk.output, 1), (clock.jumps_in_python, 3), (signals.terminated, 4),
        (contest.contestants, 1),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_nothing_is_lost(fault, tries, started, tmp_path):
    try:
        assert fault(tries, 1, tmp_path, started).tries == tries
    except Absent as error:
        pytest.skip(str(error))
