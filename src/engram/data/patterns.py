"""Letters and icons as grids of +1 and -1, for networks that remember pictures (Hopfield).

Letters are drawn on 5 × 5 and doubled, icons on 10 × 10, so that both fit one network of 100 units.
"""

import torch
from torch import Tensor

from engram.core.errors import unknown
from engram.data.catalogue import generated
from engram.data.dataset import Parts, Split

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


def grid(drawing: str) -> Tensor:
    """+1 where a drawing has ink, -1 where it has none, as int8 H × W."""
    return torch.tensor([[1 if ink == "#" else -1 for ink in row] for row in drawing.split()], dtype=torch.int8)


def letters() -> dict[str, Tensor]:
    return {name: grid(drawing).repeat_interleave(2, 0).repeat_interleave(2, 1) for name, drawing in LETTERS.items()}


def icons() -> dict[str, Tensor]:
    return {name: grid(drawing) for name, drawing in ICONS.items()}


KINDS = {"all": lambda: {**icons(), **letters()}, "icons": icons, "letters": letters}


@generated(
    "patterns",
    title="10 icons and 26 letters as grids of +1 and -1",
    kind="patterns",
    columns={"pattern": "int8 10×10", "label": "int64"},
    sizes={"train": 36},
)
def patterns(*, which: str = "all") -> Parts:
    """`which` is icons, letters or all."""
    if which not in KINDS:
        raise unknown("kind of patterns", which, KINDS)
    drawn = KINDS[which]()
    split = Split({"pattern": torch.stack(list(drawn.values())), "label": torch.arange(len(drawn))})
    return Parts({"train": split}, tuple(drawn))
