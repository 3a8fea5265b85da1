"""Words as points: neighbourhoods, analogies as parallelograms, answers to examinations.   N words, E width"""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from engram.figures.embedding import embeddings, principal
from engram.figures.figure import COLOURS, Figure, plot
from engram.figures.heat import DIVERGING, heat
from engram.figures.tokens import plain, shown, ticks
from engram.models.word_vectors import WordVectors

COMMON = 50
"""the most frequent words, which are hardly about anything, are not put on the map"""


def word_map(vectors: WordVectors, most: int = 150) -> Figure:
    """Where frequent words lie."""
    first = COMMON if len(vectors) > COMMON + 20 else 0
    chosen = slice(first, first + most)
    figure = embeddings(vectors.unit_VE[chosen], vectors.words[chosen], most)
    caption = figure.caption.replace("Embeddings of tokens", "Frequent words")
    return Figure("Map of words", caption, figure.plot)


def neighbourhoods(vectors: WordVectors, words: Sequence[str], near: int = 8) -> Figure:
    """Each word with the words nearest to it."""
    groups = {word: [word, *(name for name, _ in vectors.most_similar(word, near))] for word in words}
    names = [name for group in groups.values() for name in group]
    xy_N2, share = principal(vectors.unit_VE[[vectors.index(name) for name in names]])
    traces, start = [], 0
    for i, (word, group) in enumerate(groups.items()):
        points = xy_N2[start : start + len(group)]
        start += len(group)
        traces.append(
            go.Scatter(
                x=points[:, 0].tolist(), y=points[:, 1].tolist(), text=[shown(name, 20) for name in group],
                mode="markers+text", textposition="top center", textfont={"size": 11}, name=plain(word),
                marker={"size": [11] + [6] * (len(group) - 1), "color": COLOURS[i % len(COLOURS)]},
                hovertemplate="%{text}<extra></extra>",
            )
        )  # fmt: skip
    caption = (
        f"Words and the {near} nearest to each by the cosine of the angle, along the two directions in which all of "
        f"these differ most ({share:.0%} of the variance)."
    )
    return Figure("Neighbourhoods", caption, plot(*traces, height=560))


def parallelograms(vectors: WordVectors, pairs: Sequence[tuple[str, str]]) -> Figure:
    """Pairs in the same relation, as arrows: where they are parallel, b - a + c leads to d."""
    names = [name for pair in pairs for name in pair]
    xy_N2, share = principal(vectors.unit_VE[[vectors.index(name) for name in names]])
    figure = plot(height=520)
    for i, (a, b) in enumerate(pairs):
        (x0, y0), (x1, y1) = xy_N2[2 * i].tolist(), xy_N2[2 * i + 1].tolist()
        colour = COLOURS[i % len(COLOURS)]
        figure.add_annotation(
            x=x1, y=y1, ax=x0, ay=y0, xref="x", yref="y", axref="x", ayref="y", showarrow=True, arrowhead=3,
            arrowwidth=1.5, arrowcolor=colour,
        )  # fmt: skip
        figure.add_trace(
            go.Scatter(
                x=[x0, x1], y=[y0, y1], text=[shown(a, 20), shown(b, 20)], mode="markers+text", showlegend=False,
                textposition="top center", marker={"size": 6, "color": colour}, hovertemplate="%{text}<extra></extra>",
            )
        )  # fmt: skip
    caption = (
        f"Pairs of words in one relation ({share:.0%} of the variance is seen): the more parallel the arrows, the more "
        "often «a is to b as c is to …» is answered right."
    )
    return Figure("Analogies", caption, figure)


def similarities(vectors: WordVectors, words: Sequence[str]) -> Figure:
    """The cosine of the angle between any two of some words."""
    unit_NE = vectors.unit_VE[[vectors.index(word) for word in words]]
    axis = ticks([shown(word, 20) for word in words])
    cosine_NN = (unit_NE @ unit_NE.T).clamp(-1, 1)
    cells = heat(cosine_NN, "%{z:.2f}", colorscale=DIVERGING, zmin=-1, zmax=1)
    figure = plot(cells, height=200 + 24 * len(words), xaxis=axis, yaxis={**axis, "autorange": "reversed"})
    return Figure("Similarities", "Cosine of the angle between any two of these words.", figure)


def answers(found: Mapping[str, tuple[int, int]]) -> Figure:
    """How many analogies of each kind are answered right."""
    asked = {kind: pair for kind, pair in found.items() if pair[1]}
    part = [right / count for right, count in asked.values()]
    bars = go.Bar(
        x=part, y=list(asked), orientation="h", marker={"color": COLOURS[0]},
        text=[f"{right} of {count}" for right, count in asked.values()],
        hovertemplate="%{y}: %{text}<extra></extra>",
    )  # fmt: skip
    figure = plot(bars, height=140 + 26 * len(asked), yaxis_automargin=True)
    figure.update_xaxes(tickformat=".0%", range=[0, max(0.05, *part) * 1.15])
    figure.update_yaxes(autorange="reversed")
    caption = "Analogies answered right, by their kind, of those whose four words are known."
    return Figure("Examination", caption, figure)


def pairs_of(rows: Sequence[Sequence[str]], vectors: WordVectors, most: int = 8) -> list[tuple[str, str]]:
    """The first different pairs (a, b) of questions «a is to b as c is to d» whose words are known."""
    known = ((a, b) for a, b, *_ in rows if a in vectors and b in vectors)
    return list(dict.fromkeys(known))[:most]
