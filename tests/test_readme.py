"""The README is true: its table is the registry's, its commands run and its links exist.

`python -m tests.test_readme` rewrites the table.
"""

import re
import shlex
import sys
import types
from pathlib import Path

import pytest

from engram import PARTS, api
from engram.core import registry as registry_module
from engram.core.registry import registry

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TABLE = re.compile(r"(?<=<!-- systems -->\n).*?(?=<!-- /systems -->)", re.DOTALL)


def table() -> str:
    """Return the table of systems as Markdown."""
    rows = ["| command | system | part of the course | default data |", "|---|---|---|---|"]
    rows += [
        f"| `engram run {name}` | {cls.title} | {cls.part()} | `{cls().data}` |"
        for name, cls in sorted(registry().items(), key=lambda item: (PARTS.index(item[1].part()), item[0]))
    ]
    return "\n".join(rows) + "\n"


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("engram ")]


def test_table_is_the_registrys():
    assert TABLE.search(README.read_text()).group() == table(), "run `make readme`"


@pytest.mark.download
def test_commands_run_one_after_the_other(engram, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(commands()) >= 6
    for command in commands():
        words = shlex.split(command)[1:]
        if words[0] == "run" and "--resume" not in words:
            words += ["--preset", "tiny"]
        if "--data" in words:  # data sets have tests of their own
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


def test_the_example_of_contributing_is_a_complete_system(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    monkeypatch.setattr(registry_module, "_recipes", dict(registry()))
    for name, code in zip(("model", "recipe"), blocks, strict=True):
        module = types.ModuleType(f"engram.foundations.linear_regression.{name}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(code, name, "exec"), module.__dict__)
    run = api.run("linear-regression", preset="tiny", steps=200, lr=0.1, out=tmp_path / "run")
    losses = [row["valid_loss"] for row in run.history if "valid_loss" in row]
    assert losses[-1] < losses[0] / 4
    assert "Predictions" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda page: page.name)
def test_links_exist(page):
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


if __name__ == "__main__":
    README.write_text(TABLE.sub(lambda _: table(), README.read_text()))
