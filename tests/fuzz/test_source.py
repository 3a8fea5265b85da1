"""What the sources may not do: run what a file says. They are read, not run."""

import ast
from pathlib import Path

import pytest

import engram

SOURCE = Path(engram.__file__).parent
MODULES = {"marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "code", "codeop"}
"""which make anything out of bytes, or run it"""
BUILT_IN = {"eval", "exec", "compile", "__import__", "breakpoint"}
"""called by their own name: `re.compile` and a model's `.eval()` are others'"""
PICKLES = {
    "data/text.py": {"Unpickler"},  # subclassed so that no name in a pickle is looked up
    "hub/weights.py": {"UnpicklingError"},  # what torch says of a pickle that would run code
}
"""the files that know the word, and all that they may take from it"""
FILES = sorted(SOURCE.rglob("*.py"))


def offences(tree: ast.AST, pickles: set[str] = frozenset()):
    """Line and description of everything that is forbidden."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                taken = {alias.name.partition(".")[0] for alias in names}
                yield from ((node.lineno, f"imports {name}") for name in taken & MODULES)
                if "pickle" in taken and not pickles:
                    yield node.lineno, "imports pickle"
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in MODULES | {"pickle"}:
                yield node.lineno, f"imports from {module}"
            case ast.Attribute(value=ast.Name(id="pickle"), attr=name) if name not in pickles:
                yield node.lineno, f"pickle.{name}"
            case ast.Call(func=ast.Name(id=name)) if name in BUILT_IN:
                yield node.lineno, f"{name}(…)"
            case ast.Attribute(value=ast.Name(id="builtins"), attr=name) if name in BUILT_IN:
                yield node.lineno, f"builtins.{name}"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="load")) if not says(
                node, "weights_only", True
            ):
                yield node.lineno, "torch.load without weights_only=True"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="load")) if not says(
                node, "allow_pickle", False
            ):
                yield node.lineno, "np.load without allow_pickle=False"
            case ast.keyword(arg="trust_remote_code" | "shell"):
                yield node.value.lineno, f"{node.arg}="
            case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
                yield node.value.lineno, "allow_pickle=True"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr="system" | "popen")):
                yield node.lineno, "os.system(…)"


def says(call: ast.Call, name: str, value: bool) -> bool:
    return any(word.arg == name and getattr(word.value, "value", None) is value for word in call.keywords)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_nothing_runs_what_a_file_says(file):
    found = offences(ast.parse(file.read_text("utf-8")), PICKLES.get(file.relative_to(SOURCE).as_posix(), set()))
    assert [f"{file}:{line}: {what}" for line, what in found] == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle", "from pickle import loads", "import marshal", "import shelve", "import yaml", "eval('1')",
        "exec(text)", "compile(text, '', 'exec')", "builtins.eval(text)", "torch.load(path)", "np.load(path)",
        "torch.load(path, weights_only=False)", "np.load(path, allow_pickle=True)", "numpy.load(path)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)", "__import__(name)", "os.system(text)",
        "subprocess.run(text, shell=True)", "from yaml import load",
    ],
)  # fmt: skip
def test_what_is_forbidden_is_found(line):
    assert list(offences(ast.parse(line)))


@pytest.mark.parametrize("line", ["re.compile(text)", "model.eval()", "torch.compile(model)", "connection.exec(text)"])
def test_what_is_only_called_alike_is_not(line):
    assert not list(offences(ast.parse(line)))


def test_the_exceptions_are_needed():
    for name, taken in PICKLES.items():
        assert all(f"pickle.{one}" in (SOURCE / name).read_text("utf-8") for one in taken)
