"""Emoji in seven styles with their names: images and captions for CLIP.

A concept is one emoji without skin tones, as emojibase lists them; a style is one designer's set. Four of the sets map
characters to drawings, three have names only and are matched by name. One style is held out as the test set, for
zero-shot recognition of an unseen style.
"""

import io
import json
import re
import unicodedata
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from engram.core.errors import EngramError, unknown
from engram.data.columns import Strings
from engram.data.dataset import Parts, Split
from engram.data.registry import register_downloaded
from engram.data.sources import Archive, DataSource, Files
from engram.data.splits import random_split

SIDE = 32
STYLES = {
    "noto": ("1.2.9", "3e918d88fc945c0bb3d468dbace6f88caef67f01c9f0e7bcae0915a042e8f1ad"),
    "noto-v1": ("1.2.5", "2bf62c26c2c2884aa99e90aec942cdaee17a5921f05690694f4978ad4b017c37"),
    "fluent-emoji-flat": ("1.2.6", "7d064769dee690815f823bc5bcc511d957198caf9f5edd8dd9c1aa48a6aeb175"),
    "fxemoji": ("1.2.2", "f3e72b3c59d05e1db03b7e308d55c0d05bd7ba3f625a90da1b79313c12858eef"),
    "twemoji": ("1.2.5", "19046dff7d8707ce96212ec86468b36ac5f8e60409629dd13f809265c6d0ebb7"),
    "emojione": ("1.2.3", "26a14f44284407e8bcde91799388dca2bfd91dbcd55a97f425524a1c5b73610e"),
    "openmoji": ("1.2.29", "03181e2c156cab35cf4a62f1f7886bd971d59212e75ac3f189d5a4cae3930fc5"),
}
"""version and sha256 of the package of each style"""


def read_emoji(names: Files, *styles: Files) -> Parts:
    """Render every drawing of every concept, style after style."""
    renderer = _import_renderer()
    listed = json.loads(names["package/en/data.json"])
    concepts = {concept["hexcode"]: concept for concept in listed if "group" in concept}  # others are parts of emoji
    sets = [{file.rsplit("/", 1)[-1]: json.loads(content) for file, content in one.items()} for one in styles]
    known = _index_names(concepts, sets)
    image, rows = [], []
    for style, one in enumerate(sets):
        for code, drawing in _match_drawings(one, concepts, known):
            image.append(_render(renderer, _compose_svg(one["icons.json"], drawing)))
            rows.append((style, code))
    drawn = {code: concepts[code]["label"] for code in dict.fromkeys(code for _, code in rows)}
    number = {code: i for i, code in enumerate(drawn)}
    split = Split({
        "image": torch.stack(image),
        "caption": Strings.from_texts(drawn[code] for _, code in rows),
        "keywords": Strings.from_texts(" ".join(concepts[code].get("tags", ())) for _, code in rows),
        "style": torch.tensor([style for style, _ in rows]),
        "concept": torch.tensor([number[code] for _, code in rows]),
    })  # fmt: skip
    return Parts({"all": split}, tuple(drawn.values()))


def hold_out_style(parts: Parts, *, held_out: str = "twemoji") -> Parts:
    """Return the style `held_out` as test split; of the others 5 % for validation."""
    if held_out not in STYLES:
        raise unknown("style of emoji", held_out, STYLES)
    split = parts.splits["all"]
    test = split["style"] == [*STYLES].index(held_out)
    rest = split.select((~test).nonzero()[:, 0])
    valid = len(rest) // 20
    splits = {**random_split(rest, train=len(rest) - valid, valid=valid), "test": split.select(test.nonzero()[:, 0])}
    return Parts(splits, parts.classes)


def _import_renderer() -> ModuleType:
    try:
        import resvg_py
    except ImportError:
        raise EngramError("To draw emoji, the package resvg_py is needed: `pip install engram[emoji]`.") from None
    return resvg_py


def _strip_selector(code: str) -> str:
    """Return a character code without the variation selector FE0F."""
    return "-".join(part for part in code.upper().split("-") if part != "FE0F")


def _normalize_name(name: str) -> str:
    """Return a name in lowercase ASCII letters and digits, in which names of different sets agree."""
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]", "", ascii_only.lower())


def _find_by_code(one: dict[str, Any], concepts: dict[str, Any]) -> dict[str, str]:
    """Return the drawing of each concept in a set with character codes; of several the first."""
    by_bare = {_strip_selector(code): code for code in concepts}
    found: dict[str, str] = {}
    for code, drawing in one["chars.json"].items():
        if _strip_selector(code) in by_bare:
            found.setdefault(by_bare[_strip_selector(code)], drawing)
    return found


def _index_names(concepts: dict[str, Any], sets: list[dict[str, Any]]) -> dict[str, str]:
    """Return the concept of each normalized name.

    The names of emojibase go first, then those of sets with character codes.
    """
    known: dict[str, str] = {}
    for code, concept in concepts.items():
        known.setdefault(_normalize_name(concept["label"]), code)
    for one in sets:
        for code, drawing in _find_by_code(one, concepts).items():
            known.setdefault(_normalize_name(drawing), code)
        for alias, to in one["icons.json"].get("aliases", {}).items():
            if (parent := _normalize_name(to["parent"])) in known:
                known.setdefault(_normalize_name(alias), known[parent])
    return known


def _match_drawings(one: dict[str, Any], concepts: dict[str, Any], known: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Return (concept, drawing) of one set, in the order of the concepts."""
    found = _find_by_code(one, concepts)
    if not found:
        for drawing in [*one["icons.json"]["icons"], *one["icons.json"].get("aliases", {})]:
            if (name := _normalize_name(drawing)) in known:
                found.setdefault(known[name], drawing)
    return ((code, found[code]) for code in concepts if code in found)


def _compose_svg(icons: dict[str, Any], name: str) -> str:
    """Return an Iconify drawing as an SVG document; an alias is resolved."""
    while name in icons.get("aliases", {}):
        name = icons["aliases"][name]["parent"]
    common = {side: icons.get(side, 16) for side in ("width", "height")}
    icon = {"left": 0, "top": 0, **common, **icons["icons"][name]}
    box = f"{icon['left']} {icon['top']} {icon['width']} {icon['height']}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box}" '
        f'width="{SIDE}" height="{SIDE}">{icon["body"]}</svg>'
    )


def _render(renderer: ModuleType, svg: str) -> Tensor:
    """Render an SVG on white as uint8 3 × 32 × 32."""
    png = renderer.svg_to_bytes(svg_string=svg, width=SIDE, height=SIDE, background="white", skip_system_fonts=True)
    with Image.open(io.BytesIO(bytes(png))) as image:
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).contiguous()


register_downloaded(
    "emoji",
    DataSource(
        read_emoji,
        Archive(
            "npm",
            "emojibase-data@17.0.0",
            ("package/en/data.json",),
            sha256="d01d0e2ca4e22cb402679532155342c71e2e871f25c32223c013b8b166ebdf5a",
        ),
        *(
            Archive("npm", f"@iconify-json/{style}@{version}", ("package/icons.json", "package/chars.json"), sha256)
            for style, (version, sha256) in STYLES.items()
        ),
    ),
    arrange=hold_out_style,
    title="emoji in seven styles with their names, one style held out",
    kind="captions",
    license="Apache-2.0, MIT, CC BY 4.0 and CC BY-SA 4.0, by style",
    columns={"image": "uint8 3×32×32", "caption": "str", "keywords": "str", "style": "int64", "concept": "int64"},
    sizes={"train": 7694, "valid": 404, "test": 1914},
)
