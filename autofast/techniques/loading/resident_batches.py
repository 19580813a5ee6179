"""Data in memory whose items the project's own code makes: the method of the dataset that makes
whole batches.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.edit.edits import After, Edits, plain_code
from autofast.facts.arrays import arrays_change
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import source_of
from autofast.model.values import Ext, Inst, is_named
from autofast.rule import Refusal
from autofast.techniques.loading.item_code import Form, form_of
from autofast.techniques.loading.resident_items import SUBSETS, rows_change
from autofast.write.imports import module_in
from autofast.write.spelling import torch_in

# Classes that a dataset may derive from, which make no batches.
PLAIN = ("torch.utils.data.", "builtins.object", "abc.", "typing.")
METHOD = "batch"


@dataclass(frozen=True, eq=False)
class Batches:
    """How whole batches are made: by which ``form`` of ``getitem``; ``part``: the loader's dataset
    is a part of the one that has it.
    """

    getitem: ast.FunctionDef
    form: Form
    part: bool


def batches_of(script: Script, loader: Loader) -> Batches:
    """How batches of a loader are made at once; raises Refusal."""
    getitem = loader.datasets[0].getitem
    for dataset in loader.datasets:
        if (
            dataset.kind != "project"
            or dataset.getitem is None
            or not isinstance(dataset.thing, Inst)
        ):
            raise Refusal(f"items of {dataset.name} are made in a way that is not known")
        if dataset.getitem is not getitem:
            raise Refusal("its dataset may be one of several classes")
        if dataset.thing.cls.find("__getitems__") is not None:
            raise Refusal(f"{dataset.name}: it has a __getitems__ of its own")
        others = sorted(n for n in dataset.thing.cls.external if not n.startswith(PLAIN))
        if others:
            raise Refusal(
                f"{dataset.name} derives from {others[0]}, which may have a method of its own for batches"
            )
        if dataset.thing.cls.find(METHOD) or METHOD in dataset.thing.attrs:
            raise Refusal(f"{dataset.name}: it has a `{METHOD}` of its own")
    assert getitem is not None
    given = loader.args.get(0, "dataset")
    parts = {is_named(t, Ext, SUBSETS) for t in given}
    whole = [
        x for t in given for x in (t.args.get(0, "dataset") if is_named(t, Ext, SUBSETS) else {t})
    ]
    if not surely(any(x is d.thing for d in loader.datasets) for x in whole):
        raise Refusal("the dataset is wrapped in something that is not known")
    if len(parts) > 1:
        raise Refusal("its dataset may be the whole or a part")
    form = form_of(script, getitem, torch_in(source_of(getitem))[0], METHOD)
    tensors = {s.attr for s in form.stored if s.array.tensor}
    for dataset in loader.datasets:
        arrays = {s.attr for s in form.stored} - tensors
        if why := rows_change(script, dataset, tensors) or arrays_change(script, dataset, arrays):
            raise Refusal(why)
    return Batches(getitem, form, True in parts)


def stored_batches(
    loader: Loader, batches: Batches, data: str, longer: bool
) -> tuple[list[str], str, str, Edits]:
    """What is stored of the dataset ``data``, as tensors: one expression for each, or one of ``t``
    for all that are given then; the method; and the imports that this needs. ``longer``: they may
    have more rows than it has items.
    """
    source = source_of(loader.node)
    torch, imports = torch_in(source)
    arrays = batches.form.stored
    numpy = ""
    if not all(s.array.tensor for s in arrays):
        numpy, more = module_in(source, "numpy")
        imports = (*imports, *more)
    cut = f"[: len({data})]" if longer else ""
    rows = f"[{data}.indices]" if batches.part else cut
    kept = [
        "{}" + rows
        if s.array.tensor
        else f"{torch}.as_tensor({numpy}.ascontiguousarray({{}}){rows})"
        for s in arrays
    ]
    whole = f"{data}.dataset" if batches.part else data
    of, collate = [f"{whole}.{s.attr}" for s in arrays], f"{whole}.{METHOD}"
    if len(arrays) > 1 and len(set(kept)) == 1:
        return [kept[0].format("t")], f"({', '.join(of)})", collate, imports
    return [code.format(x) for code, x in zip(kept, of, strict=True)], "", collate, imports


def batch_method(batches: Batches) -> Edits:
    """The method beside ``__getitem__``."""
    source, form = source_of(batches.getitem), batches.form
    _, imports = torch_in(source)
    return (*imports, After(batches.getitem, plain_code(form.code)))
