"""Figures of word vectors: word map, neighborhoods, analogies, similarities.   N words, E width"""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from engram.plots.embedding import embeddings, principal_components
from engram.plots.figure import COLORS, Figure, plot
from engram.plots.heatmap import DIVERGING, weight_heatmap
from engram.plots.tokens import escape_html, format_token, token_axis
from engram.sequences.word2vec.vectors import WordVectors

STOP_WORDS = 50
"""most frequent words, mostly function words, which are left out of the map"""


def word_map(vectors: WordVectors, count: int = 150) -> Figure:
    """Plot frequent words on their first two principal components."""
    first = STOP_WORDS if len(vectors) > STOP_WORDS + 20 else 0
    chosen = slice(first, first + count)
    figure = embeddings(vectors.unit_VE[chosen], vectors.words[chosen], count)
    _, variance = principal_components(vectors.unit_VE[chosen])
    caption = (
        f"Frequent words on the first two principal components ({variance:.0%} of the variance): words that occur in "
        "similar contexts lie close together."
    )
    return Figure("Word map", caption, figure.plot)


def neighborhoods(vectors: WordVectors, words: Sequence[str], neighbors: int = 8) -> Figure:
    """Plot words and the most similar words of each."""
    groups = {word: [word, *(name for name, _ in vectors.most_similar(word, neighbors))] for word in words}
    names = [name for group in groups.values() for name in group]
    xy_N2, variance = principal_components(vectors.unit_VE[[vectors.index(name) for name in names]])
    traces, start = [], 0
    for i, (word, group) in enumerate(groups.items()):
        points = xy_N2[start : start + len(group)]
        start += len(group)
        traces.append(
            go.Scatter(
                x=points[:, 0].tolist(), y=points[:, 1].tolist(), text=[format_token(name, 20) for name in group],
                mode="markers+text", textposition="top center", textfont={"size": 11}, name=escape_html(word),
                marker={"size": [11] + [6] * (len(group) - 1), "color": COLORS[i % len(COLORS)]},
                hovertemplate="%{text}<extra></extra>",
            )
        )  # fmt: skip
    caption = (
        f"Words and the {neighbors} most similar to each by cosine similarity, on the first two principal components "
        f"({variance:.0%} of the variance)."
    )
    return Figure("Neighborhoods", caption, plot(*traces, height=560))


def parallelograms(vectors: WordVectors, pairs: Sequence[tuple[str, str]]) -> Figure:
    """Plot pairs of words in the same relation as arrows.

    Parallel arrows mean that b - a + c is close to d.
    """
    names = [name for pair in pairs for name in pair]
    xy_N2, variance = principal_components(vectors.unit_VE[[vectors.index(name) for name in names]])
    figure = plot(height=520)
    for i, (a, b) in enumerate(pairs):
        (x0, y0), (x1, y1) = xy_N2[2 * i].tolist(), xy_N2[2 * i + 1].tolist()
        color = COLORS[i % len(COLORS)]
        figure.add_annotation(
            x=x1, y=y1, ax=x0, ay=y0, xref="x", yref="y", axref="x", ayref="y", showarrow=True, arrowhead=3,
            arrowwidth=1.5, arrowcolor=color,
        )  # fmt: skip
        figure.add_trace(
            go.Scatter(
                x=[x0, x1], y=[y0, y1], text=[format_token(a, 20), format_token(b, 20)], mode="markers+text",
                showlegend=False, textposition="top center", marker={"size": 6, "color": color},
                hovertemplate="%{text}<extra></extra>",
            )
        )  # fmt: skip
    caption = (
        f"Pairs of words in one relation, on the first two principal components ({variance:.0%} of the variance): the "
        'more parallel the arrows, the higher the accuracy on "a is to b as c is to …".'
    )
    return Figure("Analogies", caption, figure)


def similarities(vectors: WordVectors, words: Sequence[str]) -> Figure:
    """Plot the cosine similarity of every two of some words."""
    unit_NE = vectors.unit_VE[[vectors.index(word) for word in words]]
    axis = token_axis([format_token(word, 20) for word in words])
    cosine_NN = (unit_NE @ unit_NE.T).clamp(-1, 1)
    cells = weight_heatmap(cosine_NN, "%{z:.2f}", colorscale=DIVERGING, zmin=-1, zmax=1)
    figure = plot(cells, height=200 + 24 * len(words), xaxis=axis, yaxis={**axis, "autorange": "reversed"})
    return Figure("Similarities", "Cosine similarity of every two of these words.", figure)


def analogy_accuracy(results: Mapping[str, tuple[int, int]]) -> Figure:
    """Plot the accuracy on each category of analogies, given numbers of correct answers and questions."""
    known = {name: result for name, result in results.items() if result[1]}
    accuracy = [correct / count for correct, count in known.values()]
    bars = go.Bar(
        x=accuracy, y=list(known), orientation="h", marker={"color": COLORS[0]},
        text=[f"{correct} of {count}" for correct, count in known.values()],
        hovertemplate="%{y}: %{text}<extra></extra>",
    )  # fmt: skip
    figure = plot(bars, height=140 + 26 * len(known), yaxis_automargin=True)
    figure.update_xaxes(tickformat=".0%", range=[0, max(0.05, *accuracy) * 1.15])
    figure.update_yaxes(autorange="reversed")
    caption = "Accuracy on analogies by category, on the questions whose four words are in the vocabulary."
    return Figure("Analogy accuracy", caption, figure)


def known_pairs(rows: Sequence[Sequence[str]], vectors: WordVectors, count: int = 8) -> list[tuple[str, str]]:
    """Return the first distinct pairs (a, b) of analogies whose words are in the vocabulary."""
    known = ((a, b) for a, b, *_ in rows if a in vectors and b in vectors)
    return list(dict.fromkeys(known))[:count]
