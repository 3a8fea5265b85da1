"""requirements.lock: every dependency of a release in one version, within its range, with the hashes of its files."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "requirements.lock").read_text()
ENTRIES = re.sub(r"#.*|\\\n", "", TEXT).splitlines()
LOCKED = {line: Requirement(line.partition("--hash")[0]) for line in ENTRIES if line.strip()}
WANTED = [Requirement(one) for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]]


@pytest.mark.parametrize("wanted", WANTED, ids=lambda wanted: wanted.name)
def test_a_dependency_is_locked_within_its_range(wanted):
    found = [one for one in LOCKED.values() if canonicalize_name(one.name) == canonicalize_name(wanted.name)]
    assert found, f"{wanted.name} is not locked: run `make lock`"
    for one in found:
        (version,) = one.specifier
        assert version.operator == "=="
        assert wanted.specifier.contains(version.version), f"{one} is not within {wanted}: run `make lock`"


@pytest.mark.parametrize("line", LOCKED, ids=lambda line: LOCKED[line].name)
def test_every_package_has_one_version_and_hashes(line):
    assert [part.operator for part in LOCKED[line].specifier] == ["=="]
    hashes = line.split("--hash=")[1:]
    assert hashes
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one.strip()) for one in hashes)


def test_the_lock_names_no_place():
    """Neither an index nor a folder: whoever installs says where packages come from."""
    assert not re.search(r"://|^-|^ *--(?!hash)|@", TEXT, re.MULTILINE)
