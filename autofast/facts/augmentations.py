"""Random transforms of images that have a form for whole batches with the same distribution: crops
with black borders, and flips.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from autofast.facts.transforms import pipeline, short_name
from autofast.model.roles import Dataset
from autofast.model.several import is_numeric
from autofast.model.values import Ext, Seq, Thing, const, one

FLIPS = {"RandomHorizontalFlip": "columns", "RandomVerticalFlip": "rows"}
# Position, name and default of what a transform must leave as it is.
PLAIN = {
    "RandomCrop": ((2, "pad_if_needed", False), (3, "fill", 0), (4, "padding_mode", "constant")),
    "Pad": ((1, "fill", 0), (2, "padding_mode", "constant")),
}


@dataclass(frozen=True)
class Augmentation:
    """What is done to square images before ``ToTensor``, and how many ``Normalize`` follow it.

    Attributes:
        node: the transform of the dataset.
        side: rows, and columns, of an image without borders.
        padding: black pixels on each side.
        size: of the crop; 0: none.
        flips: ``rows`` or ``columns``, with their probability.
    """

    node: ast.AST
    side: int
    padding: int
    size: int
    flips: tuple[tuple[str, float], ...]
    normalized: int

    @property
    def draws(self) -> bool:
        """Whether anything is random about it."""
        return bool(self.size or self.flips)


def augmentation(dataset: Dataset, side: int) -> Augmentation | str:
    """The random transforms of an image set whose images have ``side`` rows and columns; or why
    they have no form for batches.
    """
    thing = dataset.thing
    composed = one(thing.args.get(2, "transform")) if isinstance(thing, Ext) else None
    parts = _parts(composed)
    names = [_name(part) for part in parts]
    if not isinstance(composed, Ext) or composed.node is None or "ToTensor" not in names:
        return f"the transforms of {dataset.name} are not known"
    border = names.index("ToTensor")
    if other := next((n for n in names[border + 1 :] if n != "Normalize"), None):
        return f"{other or 'one of its transforms'} comes after ToTensor"
    padding, size, flips = 0, 0, dict.fromkeys(FLIPS.values(), 0.0)
    for name, part in zip(names[:border], parts[:border], strict=True):
        assert name == "" or isinstance(part, Ext)
        if name in FLIPS and not flips[FLIPS[name]]:
            flips[FLIPS[name]] = _number(part, 0, "p", 0.5)
        elif name == "Pad" and _is_plain(part, name) and not size:
            padding += _number(part, 0, "padding", 0)
        elif name == "RandomCrop" and _is_plain(part, name) and not size:
            padding += _number(part, 1, "padding", 0)
            size = _number(part, 0, "size", 0)
        else:
            return f"{name or 'one of its transforms'} has no form for batches that draws for each image"
    if min(padding, size, *flips.values()) < 0 or (padding and not size):
        return f"what the transforms of {dataset.name} are given is not known"
    if size > side + 2 * padding:
        return f"RandomCrop({size}) is larger than the images"
    drawn = tuple((axis, p) for axis, p in flips.items() if p)
    return Augmentation(composed.node, side, padding, size, drawn, len(names) - border - 1)


def _parts(composed: Thing | None) -> list[Thing | None]:
    if _name(composed) == "ToTensor":
        return [composed]
    return pipeline(composed) if _name(composed) == "Compose" else []


def _name(part: Thing | None) -> str:
    return short_name(part, v2=False) if (isinstance(part, Ext) and not part.args.open) else ""


def _number(part: Thing | None, index: int, name: str, default: float) -> Any:
    """An argument that is a number, or two equal ones; -1 where it is not known."""
    assert isinstance(part, Ext)
    found = part.args.get(index, name)
    if not found:
        return default
    single = one(found)
    if isinstance(single, Seq) and single.items and not single.elem:
        sides = [const(item) for item in single.items]
        return sides[0] if len(set(map(repr, sides))) == 1 and isinstance(sides[0], int) else -1
    value = const(found)
    if isinstance(value, tuple) and len(set(value)) == 1:
        value = value[0]
    if value is None:
        return default
    return value if is_numeric(value) else -1


def _is_plain(part: Thing | None, name: str) -> bool:
    assert isinstance(part, Ext)
    return all(
        not (found := part.args.get(index, key)) or const(found) == default
        for index, key, default in PLAIN[name]
    )
