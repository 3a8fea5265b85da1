"""Letters and icons as patterns of +1 and -1, for associative memories (Hopfield networks).

Letters are drawn on 5 × 5 and doubled, icons on 10 × 10, so that both fit one network of 100 units.
"""

import torch
from torch import Tensor

from engram.core.errors import unknown
from engram.data.dataset import Parts, Split
from engram.data.registry import register_generated

LETTERS = {
    "A": ".###. #...# ##### #...# #...#", "B": "####. #...# ####. #...# ####.", "C": ".#### #.... #.... #.... .####",
    "D": "####. #...# #...# #...# ####.", "E": "##### #.... ####. #.... #####", "F": "##### #.... ####. #.... #....",
    "G": ".#### #.... #..## #...# .####", "H": "#...# #...# ##### #...# #...#", "I": "##### ..#.. ..#.. ..#.. #####",
    "J": "..### ...#. ...#. #..#. .##..", "K": "#..#. #.#.. ##... #.#.. #..#.", "L": "#.... #.... #.... #.... #####",
    "M": "#...# ##.## #.#.# #...# #...#", "N": "#...# ##..# #.#.# #..## #...#", "O": ".###. #...# #...# #...# .###.",
    "P": "####. #...# ####. #.... #....", "Q": ".###. #...# #.#.# #..#. .##.#", "R": "####. #...# ####. #..#. #...#",
    "S": ".#### #.... .###. ....# ####.", "T": "##### ..#.. ..#.. ..#.. ..#..", "U": "#...# #...# #...# #...# .###.",
    "V": "#...# #...# #...# .#.#. ..#..", "W": "#...# #...# #.#.# ##.## #...#", "X": "#...# .#.#. ..#.. .#.#. #...#",
    "Y": "#...# .#.#. ..#.. ..#.. ..#..", "Z": "##### ...#. ..#.. .#... #####",
}  # fmt: skip

ICONS = {
    "heart": (
        ".##....##. ####..#### ########## ########## ########## .########. ..######.. ...####... ....##.... .........."
    ),
    "house": (
        "....##.... ...####... ..######.. .########. ########## .########. .##.##.##. .##.##.##. .#####..#. .#####..#."
    ),
    "smile": (
        "..######.. .#......#. #........# #..#..#..# #..#..#..# #........# #.#....#.# #..####..# .#......#. ..######.."
    ),
    "tree": (
        "....##.... ...####... ..######.. ...####... ..######.. .########. ..######.. ########## ....##.... ....##...."
    ),
    "arrow": (
        ".....#.... .....##... .....###.. #########. ########## ########## #########. .....###.. .....##... .....#...."
    ),
    "moon": (
        "...####... ..###..... .###...... ###....... ###....... ###....... ###.....#. .###...##. ..#######. ...####..."
    ),
    "star": (
        "....##.... ....##.... ...####... ########## .########. ..######.. ..######.. .###..###. .#......#. .........."
    ),
    "cup": (
        "########.. ########## ########.# ########.# ########## ########.. .######... ..####.... .......... #########."
    ),
    "key": (
        "..####.... .##..##... .#....#... .##..##... ..####.... ....#..... ....###... ....#..... ....###... ....#....."
    ),
    "flag": (
        "##........ ########.. #########. ########## #########. ########.. ##........ ##........ ##........ ##........"
    ),
}


def parse_grid(drawing: str) -> Tensor:
    """Return a drawing as int8 H × W: +1 for #, -1 for a dot."""
    return torch.tensor([[1 if ink == "#" else -1 for ink in row] for row in drawing.split()], dtype=torch.int8)


def letters() -> dict[str, Tensor]:
    """Return the 26 letters, 10 × 10."""
    return {
        name: parse_grid(drawing).repeat_interleave(2, 0).repeat_interleave(2, 1) for name, drawing in LETTERS.items()
    }


def icons() -> dict[str, Tensor]:
    """Return the ten icons, 10 × 10."""
    return {name: parse_grid(drawing) for name, drawing in ICONS.items()}


KINDS = {"all": lambda: {**icons(), **letters()}, "icons": icons, "letters": letters}


@register_generated(
    "patterns",
    title="10 icons and 26 letters as grids of +1 and -1",
    kind="patterns",
    columns={"pattern": "int8 10×10", "label": "int64"},
    sizes={"train": 36},
)
def patterns(*, which: str = "all") -> Parts:
    """Return the patterns `which`: icons, letters or all."""
    if which not in KINDS:
        raise unknown("kind of patterns", which, KINDS)
    chosen = KINDS[which]()
    split = Split({"pattern": torch.stack(list(chosen.values())), "label": torch.arange(len(chosen))})
    return Parts({"train": split}, tuple(chosen))
