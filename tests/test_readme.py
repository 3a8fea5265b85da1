"""The README is true: its table is the catalogue's, its commands run, and the links of the house lead somewhere.

`python -m tests.test_readme` writes the table anew.
"""

import re
import shlex
from pathlib import Path

import pytest

from engram.core.registry import catalogue

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TABLE = re.compile(r"(?<=<!-- systems -->\n).*?(?=<!-- /systems -->)", re.DOTALL)


def table() -> str:
    """The catalogue as Markdown."""
    rows = ["| run it | system | part of the course | data by default | notes |", "|---|---|---|---|---|"]
    rows += [
        f"| `engram run {name}` | {cls.title} | {cls.kind} | `{cls().data}` | {cls.notes} |"
        for name, cls in catalogue().items()
    ]
    return "\n".join(rows) + "\n"


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("engram ")]


def test_table_is_the_catalogues():
    assert TABLE.search(README.read_text()).group() == table(), "run `make readme`"


@pytest.mark.download
def test_commands_run_one_after_the_other(engram, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(commands()) >= 6
    for command in commands():
        words = shlex.split(command)[1:]
        if words[0] == "run" and "--resume" not in words:
            words += ["--preset", "tiny"]
        if "--data" in words:  # the sets themselves are tested elsewhere; here the words
            words[words.index("--data") + 1] = "digits"
        if words[0] == "bench":
            words += ["--rounds", "1"]
        if "--resume" in words:
            words += ["--steps", "25"]
        answer = engram(*words)
        assert answer.code == 0, (command, answer.err)


@pytest.mark.download
def test_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert (ROOT / link).exists(), link


if __name__ == "__main__":
    README.write_text(TABLE.sub(lambda _: table(), README.read_text()))
