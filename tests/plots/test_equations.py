"""Equations as the lab shows them: read from every docstring, typeset as MathML, and tied to lines of code."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import engram
from engram.plots.equations import computing_lines, docstring, equations, mathml, numbered_rows, read, sources, symbols
from tests.conftest import python

SOURCE = Path(engram.__file__).parent
MODULES = [
    ".".join(["engram", *file.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
    for file in sorted(SOURCE.rglob("*.py"))
]
NUMBERED = [module for module in MODULES if numbered_rows(docstring(read(module)))]
# Kernels are the fast form of another module's equations, and end lines with that module's numbers.
KERNELS = [module for module in MODULES if module.endswith(("kernel", "kernels"))]
MATH = "{http://www.w3.org/1998/Math/MathML}math"


@pytest.mark.parametrize("module", NUMBERED)
def test_equations_are_numbered_in_order(module):
    assert [found.number for found in equations(module)] == list(range(1, len(equations(module)) + 1))


@pytest.mark.parametrize("module", NUMBERED)
def test_every_number_at_a_line_end_is_an_equation(module):
    lines = re.findall(r"^ {4}\S.*\s\((\d+)\)$", docstring(read(module)), re.MULTILINE)
    assert len(equations(module)) == len(lines)


@pytest.mark.parametrize("module", NUMBERED)
def test_latex_is_converted_whole(module):
    """No command that the converter does not know, no unbalanced brace, no word mistaken for a product of letters."""
    for found in [*equations(module), *symbols(module)]:
        root = ElementTree.fromstring(found.mathml)
        assert root.tag == MATH
        assert "\\" not in "".join(root.itertext()), found.text
        assert found.text.count("{") == found.text.count("}"), found.text
        bare = re.sub(r"\\(text|operatorname|mathrm|mathcal|mathbf|begin|end)\{[^}]*\}|\\[A-Za-z]+", " ", found.text)
        assert not re.search(r"(?<![A-Za-z_])[a-z]{4,}(?![A-Za-z])", bare), f"a word outside of \\text: {found.text}"


@pytest.mark.parametrize("module", [module for module in NUMBERED if module.endswith(".model")])
def test_a_model_explains_its_symbols(module):
    assert symbols(module), 'no legend: a block "Symbols:" below the equations'


@pytest.mark.parametrize("module", [module for module in MODULES if module not in KERNELS])
def test_numbers_in_the_code_are_those_of_the_docstring(module):
    known = {found.number for found in equations(module)}
    assert set(computing_lines(read(module))) <= known


@pytest.mark.parametrize(
    "module", ["engram.generative.vae.model", "engram.neurons.lif.model", "engram.memory.hopfield.model"]
)
def test_lines_end_with_their_numbers(module):
    code = read(module).splitlines()
    listed = {(found.number, line) for found in equations(module) for line in found.lines}
    ends = r"# ((?:\(\d+\)(?:, )?)+)$"
    expected = {
        (int(number), at)
        for at, line in enumerate(code, start=1)
        if (match := re.search(ends, line))
        for number in re.findall(r"\d+", match[1])
    }
    assert listed == expected
    assert listed


def test_lines_of_a_list_of_numbers_and_none_of_strings():
    source = '"""a = b   (1)"""\nx = 1  # (1), (2)\ny = "# (1)"\nz = 2  # (1), at rest\nw = 3  # as (1) says\n'
    assert computing_lines(source) == {1: [2, 4], 2: [2]}


def test_columns_and_rows():
    doc = "t\n\n    a_t = b^2   words, and more   (1)\n    c = d           (2)\n    e = f   below\n\n    not   one\n"
    assert numbered_rows(doc) == [(1, [("a_t = b^2", "words, and more")]), (2, [("c = d", ""), ("e = f", "below")])]


def test_rows_stand_below_each_other():
    root = ElementTree.fromstring(mathml(["a = b", "c = d"]))
    assert len(list(root.iter("{http://www.w3.org/1998/Math/MathML}mtr"))) == 2


def test_the_legend_of_a_module():
    found = {symbol.text: symbol.meaning for symbol in symbols("engram.plots.equations")}
    assert found == {"h_t": "state at time t"}


def test_a_module_without_docstring_has_no_equations():
    assert (equations("engram.no_such_module"), symbols("no_such_package")) == ([], [])


def test_sources_are_the_model_its_learner_and_the_layers_it_builds_on():
    found = sources("engram.memory.rbm.model")
    assert found[:2] == ["engram.memory.rbm.model", "engram.memory.rbm.learner"]
    assert "engram.nn.attention" in sources("engram.transformers.gpt.model")


def test_equations_are_read_without_importing_models():
    code = (
        "from engram.plots.equations import equations, sources\n"
        "for m in sources('engram.transformers.gpt.model'): equations(m)\n"
    )
    checked = python(code + "import sys\nprint('torch' in sys.modules, 'engram.transformers' in sys.modules)")
    assert checked.stdout.splitlines()[-1] == "False False", checked.stderr
