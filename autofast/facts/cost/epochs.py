"""How long one pass over the training data takes at the least: of public sets of photos, by how
many there are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autofast.facts.by_default import not_by_default
from autofast.facts.cost import machine
from autofast.facts.cost.inputs import library_name_of
from autofast.facts.cost.step import Cost
from autofast.flow.program import Flow
from autofast.model.calls import keyword_of
from autofast.model.script import Dataset, Script
from autofast.model.source import nodes_in
from autofast.model.values import Arg, Ext, Inst, const

# Photos in the training sets of torchvision that are a folder of files.
PHOTOS = {"ImageNet": 1_281_167, "Places365": 1_803_460, "INaturalist": 2_686_843}
# A folder of them is known by where it lies: its path, the default or the help of an option.
IN_FOLDER = re.compile(r"image-?net(?!te)|ilsvrc|imnet", re.I)
PARTS = re.compile(r"tiny|mini|small|sub|dogs|woof|imagenet-?_?(?:10|32|64|100|200|[acorv])(?!\d)", re.I)  # fmt: skip
DEEP = 4


def least_seconds(script: Script) -> tuple[float, str]:
    """Seconds of one pass over the training data, at the least, and what it goes over; 0 where that
    is not known.
    """
    cost = script.analysis(Cost)
    trained = [x for x in script.loaders if any(map(cost.trains_with, x.uses))]
    data = [d for x in trained for d in x.datasets]
    usual = [d for d in data if not not_by_default(script, [getattr(d.thing, "made", ())])]
    sizes = [photos(script, d) for d in usual or data]
    least = min(sizes, default=0)
    return least / machine.PHOTOS, f"{least:,} images"


def photos(script: Script, dataset: Dataset) -> int:
    """How many files a set of photos has that is known by its name; 0 of others."""
    thing, name = dataset.thing, library_name_of(dataset.thing)
    if name != "ImageFolder" or not isinstance(thing, (Ext, Inst)) or thing.args is None:
        return PHOTOS.get(name, 0)
    root = thing.args.given(0, "root")
    words = list(_words(script, root.expr)) if root is not None and root.expr is not None else []
    known = any(map(IN_FOLDER.search, words)) and not any(map(PARTS.search, words))
    return PHOTOS["ImageNet"] if known else 0


def _words(script: Script, expr: ast.expr, depth: int = 0) -> Iterator[str]:
    """The texts that a path is put together from, with those that describe its options."""
    for node in nodes_in(expr, ast.expr) if depth < DEEP else ():
        for thing in script.values(node):
            told = keyword_of(thing.node, "help") if isinstance(thing, Arg) else None
            said = const(script.values(told)) if told is not None else None
            default = const(thing.default) if isinstance(thing, Arg) else const(frozenset({thing}))
            yield from (text for text in (said, default) if isinstance(text, str))
        for value in script.analysis(Flow).values(node):
            yield from _words(script, value, depth + 1)
