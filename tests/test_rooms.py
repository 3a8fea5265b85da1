"""The house: which room may import from which, and how quickly the door opens."""

import ast
import importlib
from pathlib import Path

import pytest

import engram
from engram import PARTS
from engram.core.registry import get_recipe, registry
from tests.conftest import python

SOURCE = Path(engram.__file__).parent
FRAME = ("core", "nn", "generation", "data", "training", "metrics", "plots", "hub")
ROOMS = (*FRAME, *PARTS, "api", "estimators", "export", "lab", "bench", "cli")
"""each imports from those before it, and parts of the course only from the frame and from themselves"""
NEIGHBORS = {
    "generative": {"foundations"},  # generated images are scored by a classifier
    "memory": {"foundations"},  # predictive coding learns from labeled images
    "neurons": {"foundations"},  # the spiking classifier is one of images
    "robustness": {"foundations"},  # attacks are on classifiers
    "sequences": {"transformers"},  # recurrent networks write text as a GPT does
    "transformers": {"foundations"},  # ViT is a classifier of images
}
"""which part may import from which other"""
BY_NAME = {"core/registry.py"}
"""imports modules whose names it has found: recipes and what else is looked for in the folders of systems"""
COLLECTIVES = ("engram.training.distributed", "torch.distributed")
"""which processes talk through: no system does, but for what training/ does for it"""
TOP = ("__version__", "PARTS")  # what a room may take from the top


def imports(file: Path):
    """Every module of engram that a file imports, wherever in the file and also by a string, as (line, name)."""
    for line, name in all_imports(file):
        if name.startswith("engram.") and name.removeprefix("engram.") not in TOP:
            yield line, name


def all_imports(file: Path):
    """Every name that a file imports, with its module, wherever in the file and also by a string, as (line, name)."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are absolute here"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield node.lineno, constant_prefix(node.args[0])


def constant_prefix(text: ast.expr) -> str:
    """The beginning of a text that stands in the code: all of "engram.lab", `engram.cli.` of f"engram.cli.{verb}"."""
    match text:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=[ast.Constant(value=str(value)), *_]):
            return value
        case ast.BinOp(left=left, op=ast.Add()):
            return constant_prefix(left)
    return ""


FILES = [file for file in sorted(SOURCE.rglob("*.py")) if file.parent != SOURCE or not file.name.startswith("__")]


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_room_imports_only_from_rooms_before_it(file):
    room = room_of(file)
    for line, name in imports(file):
        other = name.split(".")[1]
        where = f"{file}:{line}: {room} must not import from {other}"
        if room in PARTS and other in PARTS:
            assert other == room or other in NEIGHBORS.get(room, ()), where
        else:
            assert ROOMS.index(other) <= ROOMS.index(room), where


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_what_is_imported_by_a_string_stands_in_the_code(file):
    """So that these tests see it: the name of a module begins with a constant that has its room."""
    if str(file.relative_to(SOURCE)) not in BY_NAME:
        for line, name in all_imports(file):
            assert name.partition(".")[0], f"{file}:{line}: imports a module whose name is a variable"


@pytest.mark.parametrize(
    "file", [file for file in FILES if room_of(file) in PARTS], ids=lambda file: str(file.relative_to(SOURCE))
)
def test_no_system_talks_to_other_processes(file):
    """A learner says which changes it found, and training/rule_learner.py averages them over the processes."""
    for line, name in all_imports(file):
        assert not name.startswith(COLLECTIVES), f"{file}:{line}: {name}"
    for node in ast.walk(ast.parse(file.read_text())):
        assert not (isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.distributed"), f"{file}: {node}"


@pytest.mark.parametrize("text", ['"engram.lab.api"', 'f"engram.lab.{x}"', '"engram.lab." + x'])
def test_an_import_by_a_string_is_seen(text, tmp_path):
    (tmp_path / "file.py").write_text(f"import importlib\n\nx = importlib.import_module({text})\n")
    assert [name.split(".")[1] for _, name in imports(tmp_path / "file.py")] == ["lab"]


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.name == "model.py"], ids=lambda file: str(file.relative_to(SOURCE))
)
def test_a_model_is_mathematics_alone(file):
    """It imports core, nn, generation (a language model generates) and its own part."""
    for line, name in imports(file):
        assert name.split(".")[1] in ("core", "nn", "generation", room_of(file)), f"{file}:{line}: {name}"


@pytest.mark.parametrize("file", sorted((SOURCE / "foundations" / "autodiff").glob("*.py")), ids=lambda file: file.name)
def test_autodiff_itself_needs_nothing_else_of_engram(file):
    if file.name in ("recipe.py", "plots.py", "instrument.py"):
        return
    for line, name in imports(file):
        assert name.startswith("engram.foundations.autodiff"), f"{file}:{line}: {name}"


def test_every_room_is_in_the_plan():
    rooms = {path.stem for path in SOURCE.iterdir() if path.suffix in ("", ".py") and not path.name.startswith("_")}
    assert rooms <= set(ROOMS)


@pytest.mark.parametrize("name", registry())
def test_a_recipe_is_where_its_name_says(name):
    """In recipe.py of a folder of its name, within the part of the course that it belongs to."""
    _, part, *_, folder, file = get_recipe(name).__module__.split(".")
    assert (folder, file) == (name.replace("-", "_"), "recipe")
    assert part in PARTS


@pytest.mark.parametrize("code", ["import engram", "from engram import cli; cli.dispatch(['--help'])"])
def test_the_door_opens_without_the_heavy_libraries(code):
    checked = python(
        f"{code}\nimport sys\nprint([m for m in ('torch', 'numba', 'numpy', 'plotly', 'tyro') if m in sys.modules])"
    )
    assert checked.stdout.splitlines()[-1] == "[]", checked.stderr


@pytest.mark.parametrize("package", ["engram", *(f"engram.{part}" for part in PARTS)])
def test_everything_at_the_top_is_there(package):
    top = importlib.import_module(package)
    assert top.__all__
    for name in top.__all__:
        assert getattr(top, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_it"):
        top.nothing_like_it  # noqa: B018
