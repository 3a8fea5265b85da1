"""ASCII mathematics, as docstrings write it, made into LaTeX and MathML.

tau_ref    greek names, functions and `d` before a variable are known; other words are set upright
x_t-1^2    an index ends at a space or a power; a power is one thing, or what stands in its bracket
f(x)       a bracket that touches what stands before it belongs to it; `f (x)` is a product
a b / c    the whole product over one thing; in powers, and where it is doubtful what is meant, a slash stays
dv/dt      a slash that touches both sides is of these two alone
h * k      a convolution, where k is the kernel; other stars multiply element by element
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from latex2mathml.converter import convert

GREEK = {name: f"\\{name}" for name in (
    "alpha", "beta", "gamma", "delta", "zeta", "eta", "theta", "kappa", "lambda", "mu", "nu", "xi", "pi", "rho",
    "sigma", "tau", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Sigma", "Phi", "Psi", "Omega",
)} | {"eps": r"\varepsilon", "epsilon": r"\varepsilon", "inf": "∞"}  # fmt: skip
# An operator is of the whole product that follows it, a function of the next thing.
OPERATORS = {"sum": r"\sum", "prod": r"\prod"} | {
    name: rf"\text{{{name}}}" for name in ("min", "max", "argmin", "argmax", "mean")
}
FUNCTIONS = {name: f"\\{name}" for name in ("log", "ln", "exp", "sin", "cos", "tanh", "arctan")} | {
    name: rf"\text{{{name}}}"
    for name in ("softmax", "sigmoid", "logistic", "sign", "cov", "tr", "KL", "norm", "concat", "relu", "silu", "gelu")
} | {"grad": r"\nabla"}  # fmt: skip
SHORT_WORDS = (
    "al", "an", "as", "at", "be", "by", "do", "et", "ff", "he", "if", "in", "is", "it", "no", "of", "on", "or", "so",
    "to", "up", "we",
)  # fmt: skip
SIGNS = {
    "<-": r"\leftarrow", "->": r"\to", "<=": r"\le", ">=": r"\ge", "!=": r"\ne", ":=": r"\;\text{:=}\;",
    "+=": r"\;\text{+=}\;", "~": r"\;∼\;", "...": r"\ldots", "…": r"\ldots", "×": r"\times", ".": r"\cdot",
    "*'": r"\ast^{\prime}", "%": r"\%",
}  # fmt: skip
SUPERSCRIPTS = dict(zip("²³⁴", "234", strict=True))
INDICES = frozenset("ijklmnochuvw")  # letters that stand side by side as several indices, as in k_ncij

TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<number>\d+(?:\.\d+)?)
    | (?P<relation><-|->|<=|>=|!=|:=|\+=|[=~<>])
    | (?P<sub>_(?:\{[^{}]*\}|\([^()]*\)|\*|<?=?[^\W_]+(?:(?:<=|>=|[-+,<>])[^\W_]+)*))
    | (?P<hat>\^(?=[\s)_,]|$))
    | (?P<power>\^) | (?P<raised>[²³⁴]) | (?P<prime>'+)
    | (?P<name>[^\W\d_²³⁴]{2,}(?:-[^\W\d_²³⁴]+)+ | [^\W\d_²³⁴]+(?:'s\b|\d+)?)
    | (?P<sign>\.\.\.|…|\*'|[-+*×±%])
    | (?P<attribute>\.[a-z]\w*) | (?P<dot>\.) | (?P<mark>[,;:]) | (?P<factorial>!)
    | (?P<open>[(\[]) | (?P<close>[)\]]) | (?P<bar>\|) | (?P<slash>/)""",
    re.VERBOSE,
)
APPLIED = ("thing", "operator", "function")
WEIGHTY = ("number", "name", "relation", "sub", "sign", "dot", "slash", "power", "raised", "open", "bar")


class Token(NamedTuple):
    kind: str
    text: str
    gap: int
    """how many spaces stand before it"""


@dataclass
class Piece:
    """A part of a formula: a thing, an operator, a function, text, the dot of a product, or a sign."""

    latex: str
    kind: str
    inner: str = ""
    """what stands in the brackets, where the piece is a bracket"""
    wide: bool = False
    """whether it needs a thin space beside other things"""


def tokens(text: str) -> list[Token]:
    """The signs of `text`; `ValueError` if it has one that is not known."""
    found: list[Token] = []
    at = gap = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"no mathematics: {text[at:]}")
        kind = str(match.lastgroup)
        if kind == "space":
            gap = len(match[0])
        else:
            found.append(Token(kind, match[0], gap))
            gap = 0
        at = match.end()
    return found


def is_word(name: str) -> bool:
    """Whether letters are a word of a language, not a name that mathematics has."""
    if len(name) == 1 or name[1].isdigit() or name in GREEK or name in OPERATORS or name in FUNCTIONS:
        return False
    return not is_differential(name) and not is_product(name)


def is_differential(name: str) -> bool:
    return name[0] == "d" and name != "do" and (len(name) == 2 or name[1:] in GREEK)


def is_product(name: str) -> bool:
    """Whether two letters are two variables, as in VW."""
    return len(name) == 2 and name.isalpha() and name not in SHORT_WORDS


def weigh(text: str) -> tuple[int, int]:
    """How many words a text has, and how many mathematical signs."""
    try:
        parser = Parser(tokens(text))
    except ValueError:
        return 1, 0
    found = range(len(parser.tokens))
    words = sum(parser.is_text(i) for i in found)
    return words, sum(parser.tokens[i].kind in WEIGHTY and not parser.is_text(i) for i in found)


def latex(text: str) -> str:
    """LaTeX of ASCII mathematics, in which there may be words; `ValueError` if it cannot be read."""
    parser = Parser(tokens(text))
    formula = parser.formula()
    if parser.at < len(parser.tokens):
        raise ValueError(f"a bracket too many: {text}")
    return formula


def mathml(rows: list[str]) -> str:
    """`<math>` of one or more rows of ASCII mathematics, or nothing if they cannot be read."""
    try:
        formulas = [(r"\quad " if row.startswith(("+", "-")) and i else "") + latex(row) for i, row in enumerate(rows)]
    except ValueError:
        return ""
    if not any(formulas):
        return ""
    bodies = [re.sub(r"</?math[^>]*>", "", convert(formula, display="block")) for formula in formulas]
    if len(bodies) > 1:
        cells = "".join(f'<mtr><mtd style="text-align:left">{body}</mtd></mtr>' for body in bodies)
        bodies = [f'<mtable displaystyle="true">{cells}</mtable>']
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML" displaystyle="true">{bodies[0]}</math>'


class Parser:
    """Reads tokens from left to right, each function one part of a formula."""

    def __init__(self, tokens: list[Token]):
        self.tokens = tokens
        self.at = 0
        self.norms = 0
        self.compact = False  # within powers, where fractions stay on the line

    def peek(self, ahead: int = 0) -> Token:
        at = self.at + ahead
        return self.tokens[at] if 0 <= at < len(self.tokens) else Token("end", "", 1)

    def take(self) -> Token:
        token = self.peek()
        if token.kind == "end":
            raise ValueError("a formula ends too early")
        self.at += 1
        return token

    def touches(self, *kinds: str) -> bool:
        """Whether the next token is one of these and stands close to the last."""
        return self.peek().kind in kinds and self.peek().gap == 0

    def formula(self) -> str:
        """All up to a bracket that closes what was opened before."""
        pieces: list[Piece] = []
        while self.peek().kind not in ("end", "close") and not self.closes_norm():
            if pieces and pieces[-1].kind in ("thing", "text") and self.peek().gap > 2:
                pieces.append(Piece(r"\qquad", "sign"))
            if self.peek().kind == "slash":
                self.fraction(pieces)
            else:
                pieces.append(self.piece())
        return join(pieces)

    def closes_norm(self) -> bool:
        return self.norms > 0 and self.peek().kind == "bar" and self.peek().gap == 0

    def piece(self) -> Piece:
        token = self.peek()
        if token.kind == "name" and self.is_text():
            return self.words()
        if token.kind in ("number", "name", "open") or self.opens_norm():
            return self.thing()
        self.at += 1
        if token.kind == "bar":
            return Piece(r"\mid", "sign")
        if token.kind == "mark":
            space = r"\;" if token.text != "," and self.peek().gap else ""
            return Piece(token.text + (r"\quad" if self.peek().gap > 1 else space), "sign")
        if token.text == "*":
            beside = [self.peek(i) for i in (0, -2, -3) if self.peek(i).kind == "name"]
            return Piece(r"\ast" if "k" in [name.text for name in beside] else r"\odot", "sign")
        if token.kind in ("relation", "sign", "dot"):
            return Piece(SIGNS.get(token.text, token.text), "dot" if token.kind == "dot" else "sign")
        raise ValueError(f"{token.text} does not belong here")

    def opens_norm(self) -> bool:
        token, following = self.peek(), self.peek(1)
        before = self.peek(-1).kind
        begins = token.gap > 0 or before in ("end", "open", "bar", "sign", "slash", "power")
        return token.kind == "bar" and following.gap == 0 and following.kind != "end" and begins

    def is_text(self, ahead: int = 0) -> bool:
        """Whether a word of a sentence comes next, rather than a name that has an index or arguments."""
        token, following = self.peek(ahead), self.peek(ahead + 1)
        if token.kind != "name":
            return False
        if token.text == "a":
            return self.peek(ahead - 1).kind in ("end", "mark", "name") and self.is_text(ahead + 1)
        if following.gap == 0 and following.kind in ("sub", "open", "power", "prime", "raised", "hat", "attribute"):
            return False
        return is_word(token.text) and not self.is_quantity(ahead)

    def is_quantity(self, ahead: int) -> bool:
        """Whether a word is divided or divides, and stands alone there."""
        before, token, following = (self.peek(ahead + i) for i in (-1, 0, 1))
        if following.kind == "slash" and following.gap > 0:
            return before.kind in ("end", "open", "sign", "relation", "mark", "bar")
        ends = following.kind in ("end", "close", "sign", "relation", "mark")
        return before.kind == "slash" and token.gap > 0 and ends

    def words(self) -> Piece:
        words = [self.take().text]
        while self.is_text():
            words.append(self.take().text)
        return Piece(" ".join(words), "text")

    def fraction(self, pieces: list[Piece]) -> None:
        """Put a slash and what follows it behind `pieces`, as a fraction where that is safe."""
        slash = self.take()
        first = len(pieces)
        while first > 0 and pieces[first - 1].kind in ("thing", "dot") and (slash.gap > 0 or first == len(pieces)):
            first -= 1
        above = pieces[first:]
        of_function = slash.gap > 0 and first > 0 and pieces[first - 1].kind == "function"  # log a / b
        if self.compact or not above or of_function or self.doubtful():
            pieces.append(Piece("/", "sign"))
            return
        below = self.divisor()
        top = above[0].inner or above[0].latex if len(above) == 1 else join(above)
        pieces[first:] = [Piece(rf"\frac{{{top}}}{{{below}}}", "thing")]

    def doubtful(self) -> bool:
        """Whether it is unclear where the divisor ends, as in D / 2 tau, or there is none that could stand below."""
        token, following = self.peek(), self.peek(1)
        if token.kind == "number" and token.gap > 0:
            return following.gap > 0 and following.kind in ("name", "open", "number") and not self.is_text(1)
        return not (token.kind in ("number", "name", "open") or self.opens_norm()) or self.is_text()

    def divisor(self) -> str:
        """One thing; a function with what it is of; a sum with all that is summed."""
        pieces = [self.thing()]
        if pieces[0].kind == "thing":
            if self.tokens[self.at - 1].kind == "number" and self.touches("name"):
                pieces.append(self.thing())
            return pieces[0].inner or join(pieces)
        while self.peek().kind in ("name", "number", "open") and self.peek().gap < 2 and not self.is_text():
            pieces.append(self.thing())
            if pieces[0].kind == "function":
                break
        return join(pieces)

    def thing(self) -> Piece:
        """A name, a number or a bracket, with its indices, powers and arguments."""
        token = self.take()
        if token.kind == "open":
            return self.scripts(self.bracket(token))
        if token.kind == "bar":
            return self.scripts(self.norm())
        if token.kind == "number":
            return self.scripts(Piece(token.text, "thing"))
        if token.kind != "name":
            raise ValueError(f"{token.text} does not belong here")
        if token.text == "sqrt" and self.touches("open"):
            return self.scripts(Piece(rf"\sqrt{{{self.bracket(self.take()).inner}}}", "thing"))
        if token.text[-1].isdigit() and token.text[1].isdigit():
            return self.scripts(Piece(token.text[0], "thing"), index=token.text[1:])
        if is_word(token.text) and self.touches("sub") and re.fullmatch(r"_[a-z]{2,}", self.peek().text):  # one_hot
            return self.scripts(self.name(token.text + self.take().text))
        return self.scripts(self.name(token.text))

    def name(self, name: str) -> Piece:
        if name in OPERATORS:
            return Piece(OPERATORS[name], "operator", wide=OPERATORS[name].startswith(r"\text"))
        if name in FUNCTIONS:
            return Piece(FUNCTIONS[name], "function", wide=name != "grad")
        if name in ("N", "U") and self.touches("open"):
            return Piece(rf"\mathcal{{{name}}}", "thing")
        if is_word(name):
            return Piece(rf"\text{{{name}}}", "thing", wide=True)
        return Piece(symbol(name), "thing")

    def bracket(self, opening: Token) -> Piece:
        norms, self.norms = self.norms, 0
        inner = self.formula()
        closing = self.take()
        self.norms = norms
        if closing.text != {"(": ")", "[": "]"}[opening.text]:
            raise ValueError(f"{opening.text} is closed by {closing.text}")
        whole = rf"\left{opening.text}{inner}\right{closing.text}"
        return Piece(whole, "thing", inner=inner if opening.text == "(" else "")

    def norm(self) -> Piece:
        self.norms += 1
        inner = self.formula()
        self.norms -= 1
        if self.take().kind != "bar":
            raise ValueError("a norm is not closed")
        return Piece(rf"\left|{inner}\right|", "thing")

    def scripts(self, piece: Piece, index: str = "") -> Piece:
        """The piece with all that touches it: indices, powers, primes, hats and arguments."""
        base, upper, kind = piece.latex, "", piece.kind
        start = self.at
        while self.touches("sub", "power", "prime", "hat", "raised", "factorial", "attribute", "open"):
            token = self.peek()
            if token.kind == "sub" and not index:
                index = self.index(piece)
            elif token.kind == "hat":
                base = rf"\hat{{{base}}}"
                self.at += 1
            elif token.kind in ("power", "prime", "raised"):
                upper += self.power()
            elif piece.latex[0].isdigit() and token.kind == "open":
                break
            else:
                base, index, upper, kind = scripted(base, index, upper) + self.argument(), "", "", "thing"
        inner = piece.inner if self.at == start else ""
        return Piece(scripted(base, index, upper), kind, inner, piece.wide)

    def index(self, piece: Piece) -> str:
        content = self.take().text[1:].strip("{}()")
        if piece.kind == "operator" and self.touches("prime"):
            content += self.take().text
        return re.sub(r"[^\W\d_]+|<=|>=", lambda match: index_name(match[0]), content).strip()

    def power(self) -> str:
        token = self.take()
        if token.kind == "prime":
            return r"\prime" * len(token.text)
        if token.kind == "raised":
            return SUPERSCRIPTS[token.text]
        outer, self.compact = self.compact, True
        sign = self.take().text if self.touches("sign") and self.peek().text in "+-" else ""
        exponent = self.thing()
        power = sign + (exponent.inner or exponent.latex)
        if exponent.latex == "1" and self.touches("slash"):
            power += self.take().text + self.thing().latex
        self.compact = outer
        return power

    def argument(self) -> str:
        """A bracket, an exclamation mark, or what follows a dot, as in E.backward."""
        token = self.take()
        if token.kind == "open":
            return self.bracket(token).latex
        if token.kind == "sub":
            raise ValueError("two indices")
        return token.text if token.kind == "factorial" else rf"\text{{{token.text}}}"


def scripted(base: str, index: str, upper: str) -> str:
    if index and base in (r"\sum", r"\prod"):
        base += r"\limits"
    return base + (f"_{{{index}}}" if index else "") + (f"^{{{upper}}}" if upper else "")


def index_name(name: str) -> str:
    """Letters of an index: a word, a greek letter, or several indices side by side."""
    if name in SIGNS or name in GREEK:
        return f" {(SIGNS | GREEK)[name]} "
    if len(name) > 1 and (name in ("in", "low") or not INDICES.issuperset(name)):
        return rf"\text{{{name}}}"
    return " ".join(name)


def symbol(name: str) -> str:
    """A variable, a differential, or a product of two variables."""
    if name in GREEK:
        return GREEK[name]
    return "d " + symbol(name[1:]) if is_differential(name) else " ".join(name)


def join(pieces: list[Piece]) -> str:
    """The pieces side by side, with as much space as mathematics leaves between them."""
    parts: list[str] = []
    for i, piece in enumerate(pieces):
        before = pieces[i - 1].kind if i else ""
        after = pieces[i + 1].kind if i + 1 < len(pieces) else ""
        if piece.kind == "text":
            left, right = (" " if kind in (*APPLIED, "text") else "" for kind in (before, after))
            parts.append(rf"\text{{{left}{piece.latex}{right}}}")
            continue
        beside = before in APPLIED and piece.kind in APPLIED
        parts.append((r"\," if beside and (piece.wide or pieces[i - 1].wide) else "") + piece.latex)
    return " ".join(unary(parts, pieces))


def unary(parts: list[str], pieces: list[Piece]) -> list[str]:
    """The same parts; a minus that nothing is subtracted from is bound to what follows it."""
    bound: list[str] = []
    for i, part in enumerate(parts):
        alone = i < 2 or pieces[i - 2].kind not in ("thing", "text")
        if i and alone and pieces[i - 1].latex in ("-", "+", "±") and pieces[i].kind in APPLIED:
            space = r"\," if i > 1 and pieces[i - 2].wide else ""
            bound[-1] = f"{space}{{{bound[-1]}{part}}}"
        else:
            bound.append(part)
    return bound
