"""A cache of the test session's own, and the means to pretend that there is no network."""

import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from engram.data import sources


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory):
    """One cache for all tests that use real packages, so that each is downloaded once: the suite's, if it has one."""
    return Path(os.environ["ENGRAM_DATA"]) if "ENGRAM_DATA" in os.environ else tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _real_cache(session_cache, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(session_cache))


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch) -> Path:
    """An empty cache, in a folder that does not exist yet."""
    path = tmp_path / "cache"
    monkeypatch.setenv("ENGRAM_DATA", str(path))
    return path


@pytest.fixture
def offline(monkeypatch):
    """No client is installed but pip, pip fails, and the web does not answer."""

    def fails(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "WARNING: retrying\nERROR: No matching distribution\n")

    def unreachable(*_, **__):
        raise urllib.error.URLError("the name cannot be resolved")

    monkeypatch.setattr(sources.shutil, "which", lambda name: name if name == sources.sys.executable else None)
    monkeypatch.setattr(sources.subprocess, "run", fails)
    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
