"""uint8-transfer: images cross to the device as the bytes that they are read as, and become floats there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, Refusal, rule
from autofast.techniques.loading.resident import left
from autofast.techniques.transfers.byte_batches import Items, copies_of
from autofast.techniques.transfers.byte_edits import on_device
from autofast.techniques.transfers.byte_items import floats_of
from autofast.techniques.transfers.byte_transforms import edits, pictures_of

MESSAGE = "images are read as bytes, made into floats one by one on the host, and copied as four times as many bytes"


@rule(
    "uint8-transfer",
    Effect.ROUNDING,
    groups=("transfer", "loader"),
    relieves={"transfer": 7, "data": 8},
    asks=gains.usual(0.05, "a quarter of the bytes to collate and to copy"),
    uses=("gpu-data", "gpu-augmentation", "ddp", "dataparallel-to-ddp"),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Copy images to the device as bytes, and make them floats there."""
    if options.target == "cpu":
        return
    loaders = [x for x in left(script, options) if x.moved]
    seen: dict[int, ast.FunctionDef] = {}
    for dataset in (d for x in loaders for d in x.datasets):
        if dataset.kind == "project" and dataset.getitem is not None:
            seen[id(dataset.getitem)] = dataset.getitem
    for getitem in seen.values():
        try:
            floats = floats_of(script, getitem)
        except Refusal as why:
            yield Finding(getitem.body[-1], MESSAGE, refusal=str(why))
            continue
        if floats is None:
            continue
        try:
            copies = copies_of(script, Items(floats.key, (getitem,)))
        except Refusal as why:
            yield Finding(floats.node, MESSAGE, refusal=str(why))
            continue
        if copies:
            made = on_device(copies, floats.template)
            yield Finding(floats.node, MESSAGE, edits=(*floats.edits, *made))
    for turn, (pictures, why_not) in enumerate(pictures_of(script, loaders)):
        try:
            if why_not:
                raise Refusal(why_not)
            copies = copies_of(script, pictures.items)
            if copies:
                made = on_device(copies, pictures.template, pictures.constants, turn)
                yield Finding(
                    pictures.node, MESSAGE, edits=(*edits(script, pictures), *made), torch=(1, 6)
                )
        except Refusal as why:
            yield Finding(pictures.node, MESSAGE, refusal=str(why))
