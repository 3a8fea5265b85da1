"""The house: which room may import from which, and how quickly the door opens."""

import ast
from pathlib import Path

import pytest

import engram
from tests.conftest import python

SOURCE = Path(engram.__file__).parent
ROOMS = [
    "core", "autodiff", "layers", "neurons", "models", "robustness", "data", "training", "figures", "interop",
    "recipes", "lab", "bench", "cli",
]  # fmt: skip
TOP = "__version__"  # the one name that a room may take from the top


def imports(file: Path):
    """Every module of engram that a file imports, wherever in the file, as (line, dotted name)."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.startswith("engram"))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are absolute here"
            if node.module == "engram":
                yield from ((node.lineno, f"engram.{alias.name}") for alias in node.names if alias.name != TOP)
            elif (node.module or "").startswith("engram."):
                yield node.lineno, node.module


FILES = [file for file in sorted(SOURCE.rglob("*.py")) if file.parent != SOURCE or not file.name.startswith("__")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_room_imports_only_from_rooms_above_it(file):
    room = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    for line, name in imports(file):
        other = name.split(".")[1]
        if room == "autodiff":
            assert other == "autodiff", f"{file}:{line}: autodiff imports nothing else of engram"
        assert ROOMS.index(other) <= ROOMS.index(room), f"{file}:{line}: {room} must not import from {other}"


def test_every_room_is_in_the_plan():
    rooms = {path.stem for path in SOURCE.iterdir() if path.suffix in ("", ".py") and not path.name.startswith("_")}
    assert rooms <= set(ROOMS)


@pytest.mark.parametrize("code", ["import engram", "from engram import cli; cli.answer(['--help'])"])
def test_the_door_opens_without_the_heavy_libraries(code):
    checked = python(
        f"{code}\nimport sys\nprint([m for m in ('torch', 'numba', 'numpy', 'plotly', 'tyro') if m in sys.modules])"
    )
    assert checked.stdout.splitlines()[-1] == "[]", checked.stderr


def test_everything_at_the_top_is_there():
    for name in engram.__all__:
        assert getattr(engram, name) is not None
    assert set(engram.__all__) == set(engram._HOME)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        engram.nothing_like_it  # noqa: B018
