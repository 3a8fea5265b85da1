"""Equations as the lab shows them: read from every docstring, set as mathematics, and tied to lines of code."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import engram
from engram.lab.equations import computing_lines, docstring, equation, equations, numbered, read, sources
from engram.lab.mathematics import latex, mathml
from tests.conftest import python

SOURCE = Path(engram.__file__).parent
MODULES = [
    ".".join(["engram", *file.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
    for file in sorted(SOURCE.rglob("*.py"))
]
NUMBERED = [module for module in MODULES if numbered(docstring(read(module)))]
# Kernels are the fast form of another module's equations, and end lines with that module's numbers.
KERNELS = [module for module in MODULES if module.endswith(("kernel", "kernels"))]

NOTATIONS = {
    "tau_m dv/dt = v_in - v": r"\tau_{m} \frac{d v}{d t} = v_{\text{in}} - v",
    "x_t-1 + h_{t-1} + q_(k-j)(D)": r"x_{t-1} + h_{t-1} + q_{k-j}\left(D\right)",
    "a_t-1^2 / s_t-1^2": r"\frac{a_{t-1}^{2}}{s_{t-1}^{2}}",
    "x_c,h+i,w+j k_ncij": r"x_{c,h+i,w+j} k_{n c i j}",
    "e^(-t / tau_m)": r"e^{{-t} / \tau_{m}}",
    "e^-F_k(v)": r"e^{-F_{k}\left(v\right)}",
    "e^(h W' + b)_i": r"e^{\left(h W^{\prime} + b\right)_{i}}",
    "(X X')^-1 X": r"\left(X X^{\prime}\right)^{-1} X",
    "(S C)^1/2": r"\left(S C\right)^{1/2}",
    "kappa m^ / (sqrt(u^) + eps)": r"\frac{\kappa \hat{m}}{\sqrt{\hat{u}} + \varepsilon}",
    "A^_l": r"\hat{A}_{l}",
    "prod_s<=t (1 - beta_s)": r"\prod\limits_{s \le t} \left(1 - \beta_{s}\right)",
    "1/2 sum_i nu_i |e_i|^2": r"\frac{1}{2} \sum\limits_{i} \nu_{i} \left|e_{i}\right|^{2}",
    "e^a_i / sum_j e^a_j": r"\frac{e^{a_{i}}}{\sum\limits_{j} e^{a_{j}}}",
    "X'X / M - I": r"\frac{X^{\prime} X}{M} - I",
    "-1/2 x W x'": r"{-\frac{1}{2}} x W x^{\prime}",
    "s_r / s_t x_t": r"\frac{s_{r}}{s_{t}} x_{t}",
    "(V - V_L) / (V_th - V_L)": r"\frac{V - V_{L}}{V_{\text{th}} - V_{L}}",
    "D / 2 tau_a": r"D / 2 \tau_{a}",
    "ln 2 / 2": r"\ln \,2 / 2",
    "(E(x + h) - E(x)) / 2h": r"\frac{E\left(x + h\right) - E\left(x\right)}{2 h}",
    "z <- mu + s * e": r"z \leftarrow \mu + s \odot e",
    "n(h * k)": r"n\left(h \ast k\right)",
    "e_i . x != 0": r"e_{i} \cdot x \ne 0",
    "p(x|z) >= P(h = 1 | v)": r"p\left(x \mid z\right) \ge P\left(h = 1 \mid v\right)",
    "|x' - x| <= eps": r"\left|x^{\prime} - x\right| \le \varepsilon",
    "w mean (|grad D(m)| - 1)^2": r"w \,\text{mean} \,\left(\left|\nabla D\left(m\right)\right| - 1\right)^{2}",
    "e ~ N(0, I)": r"e \;∼\; \mathcal{N}\left(0 , I\right)",
    "0 if z < 0 else 1": r"0 \text{ if } z < 0 \text{ else } 1",
    "m³h + k1 + ...": r"m^{3} h + k_{1} + \ldots",
    "h <- a,   b = c   d = 0": r"h \leftarrow a ,\quad b = c \qquad d = 0",
}


@pytest.mark.parametrize(("written", "expected"), NOTATIONS.items(), ids=list(NOTATIONS))
def test_notation(written, expected):
    assert latex(written) == expected


@pytest.mark.parametrize("text", ["(a", "a)", "[a)", "|a + b", "a^=", "x_a_b", "«a»", "a & b", "f(a", "a^(", "' a", ""])
def test_what_cannot_be_read_stays_text(text):
    assert mathml([text]) == ""


PARTS = r"a x W dE k1 tau sum max log sqrt the one_hot _ _t _{t-1} ^ ^2 ' | ( ) [ ] / * . ... , : < <- - ² ! % & \ # 2h"


@given(st.lists(st.sampled_from([*PARTS.split(), " ", "  ", "   "]), max_size=14).map("".join))
def test_any_text_is_well_formed_or_left_alone(text):
    shown = mathml([text])
    assert shown == "" or ElementTree.fromstring(shown).tag.endswith("math")


@pytest.mark.parametrize("module", NUMBERED)
def test_every_number_of_the_docstring_is_found_once(module):
    said = {int(number) for number in re.findall(r"\s\((\d+)\)$", docstring(read(module)), re.MULTILINE)}
    assert [found.number for found in equations(module)] == sorted(said)


@pytest.mark.parametrize("module", NUMBERED)
def test_no_word_of_an_equation_is_lost(module):
    """Label, equation and explanation together are the docstring's own lines, whatever column each went to."""
    for found, lines in zip(equations(module), numbered(docstring(read(module))), strict=True):
        kept = re.findall(r"\w+", f"{found.label} {found.text} {found.said}")
        assert sorted(kept) == sorted(re.findall(r"\w+", " ".join(lines))), found


@pytest.mark.parametrize("module", NUMBERED)
def test_mathematics_is_well_formed(module):
    for found in equations(module):
        if found.mathml:
            root = ElementTree.fromstring(found.mathml)
            assert root.tag == "{http://www.w3.org/1998/Math/MathML}math"
            assert len(list(root.iter())) > 2, found


@pytest.mark.parametrize("module", [module for module in MODULES if module not in KERNELS])
def test_numbers_in_the_code_are_those_of_the_docstring(module):
    known = {found.number for found in equations(module)}
    assert set(computing_lines(read(module))) <= known


@pytest.mark.parametrize("module", ["engram.models.vae", "engram.neurons.lif", "engram.models.hopfield"])
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


def test_columns():
    storkey = equations("engram.models.hopfield")[6]
    assert storkey.text == "W <- W + (x'x - x'h - h'x) / N\nh_ij = (W x')_i - W_ij x_j"
    assert storkey.said == "«storkey»: Hebb, less what is known already\nwhat i hears, j left out"
    several = equations("engram.layers.attention")[2]
    assert several.text == "Q = x W_q + b_q,   K = z W_k + b_k,   V = z W_v + b_v"
    assert several.said == "x asks, z answers; in self-attention z = x"
    ancestral = equations("engram.models.samplers")[2]
    assert (ancestral.label, ancestral.text.splitlines()[1]) == ("ancestral", "q^2 = beta s_r^2 / s_t^2")
    momentum = equations("engram.models.race")[2]
    assert momentum[1:4] == ("v <- beta v + g,   x <- x - kappa v", "momentum", "")


def test_words_below_an_explanation_go_on_with_it():
    annealed = equations("engram.models.rbm_likelihood")[2]
    assert annealed.said == "between 0, where units are independent, and 1, the machine"
    assert "\n" not in annealed.text


def test_a_line_indented_below_another_goes_with_it():
    doc = "t\n\n    one    a = b             (1)\n    two    c = d\n           e = f             (2)\n    g = h\n"
    first, second = numbered(doc)
    assert [line.split() for line in first] == [["one", "a", "=", "b"]]
    assert len(second) == 3


def test_a_sentence_has_no_mathematics():
    spike = equations("engram.neurons.lif")[1]
    assert spike.text == "v reaches 1: a spike; v is 0 for the time tau_ref, and starts again"
    assert spike.mathml == ""


def test_rows_stand_below_each_other():
    found = equation(1, ["a = b     first", "+ c       second"], [])
    root = ElementTree.fromstring(found.mathml)
    assert len(list(root.iter("{http://www.w3.org/1998/Math/MathML}mtr"))) == 2
    assert (found.text, found.said) == ("a = b\n+ c", "first\nsecond")


def test_sources_are_the_module_and_what_it_is_made_of():
    assert sources("engram.models.gpt")[:2] == ["engram.models.gpt", "engram.layers.attention"]
    assert "engram.layers.block" in sources("engram.models.gpt")
    assert sources("engram.core.errors") == []
    assert sources("no.such.module") == []


def test_equations_are_read_without_importing_models():
    code = "from engram.lab.equations import equations, sources\nfor m in sources('engram.models.gpt'): equations(m)\n"
    checked = python(code + "import sys\nprint('torch' in sys.modules, 'engram.models' in sys.modules)")
    assert checked.stdout.splitlines()[-1] == "False False", checked.stderr
