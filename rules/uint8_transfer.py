"""uint8-transfer: images cross to the device as the bytes that they are read as, and become floats there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import After, Edit, Wrap
from autofast.facts.cost import gains
from autofast.model.script import Script
from autofast.model.source import statement_of
from autofast.rule import Effect, Finding, Options, Refusal, rule
from autofast.techniques.loading.resident import left
from autofast.techniques.transfers.byte_batches import transfers_of
from autofast.techniques.transfers.byte_items import floats_of

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
    seen: dict[int, ast.FunctionDef] = {}
    for loader in left(script, options):
        for dataset in loader.datasets if loader.moved else ():
            if dataset.kind == "project" and isinstance(dataset.getitem, ast.FunctionDef):
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
            transfers = transfers_of(script, getitem, floats.key)
        except Refusal as why:
            yield Finding(floats.node, MESSAGE, refusal=str(why))
            continue
        if transfers:
            made = [_made(t.node, floats.template) for t in transfers]
            yield Finding(floats.node, MESSAGE, edits=(*floats.edits, *made))


def _made(copy: ast.Call, template: str) -> Edit:
    """The operations behind a copy: more than two in a statement of their own, where the copy is put into a variable."""
    statement = statement_of(copy)
    if template.startswith("(") and isinstance(statement, ast.Assign):
        (target, *others), value = statement.targets, statement.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=False))
        name = next((t.id for t, v in pairs if v is copy and isinstance(t, ast.Name)), "")
        if name and not others:
            return After(statement, f"{name} = {template.format(name)}")
    return Wrap(copy, template)
