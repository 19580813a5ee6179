"""Items in memory: why they may be others in another epoch, and how all are made at once."""

from __future__ import annotations

import ast
from collections.abc import Collection

from autofast.facts.aliases import why_trainable, written_after
from autofast.facts.augmentations import Augmentation, augmentation
from autofast.facts.datasets import (
    COLOUR,
    GREY,
    SPLIT,
    sets_method,
    stored_tensors,
    to_tensor,
    why_not_rows,
)
from autofast.facts.extents import measured_by, row_count
from autofast.facts.loaders import is_iterated_again
from autofast.facts.workers.shared_state import changed_ever, changed_since_made
from autofast.model.calls import is_name, names_in
from autofast.model.names import last_part
from autofast.model.roles import Dataset, Loader
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import at, first_line, function_of, nodes_in
from autofast.model.values import Ext, Func, Inst, const
from autofast.rule import Refusal
from autofast.techniques.loading.batched import is_dataset_or_part
from autofast.techniques.loading.image_batches import as_tensors

SUBSETS = (SPLIT, "torch.utils.data.Subset")

# All items, of a dataset that is called {data}.
ROWS = "{data}[:]"
ITEMS = "{collate}([{data}[i] for i in range(len({data}))])"


def may_vary(script: Script, loader: Loader, drawn: bool) -> str:
    """Why items may be others in another epoch; ``drawn``: but for random numbers that images are
    made with, as those may be drawn for batches.
    """
    if why := next((w for d in loader.datasets if (w := _of_dataset(script, d, drawn))), ""):
        return why
    # What a library's images are made of has to be what the library read.
    changed = changed_ever if _images(loader) else changed_since_made
    if why := changed(script, loader):
        return f"{why}, of which items are made"
    return ""


def _of_dataset(script: Script, dataset: Dataset, drawn: bool) -> str:
    if dataset.unknown:
        return f"{dataset.name} is not known: {dataset.unknown}"
    if dataset.random and dataset.kind != "project" and not (drawn and dataset.kind == "library"):
        return f"{dataset.name} draws random numbers for each item: a batch would need its own for each sample"
    if dataset.writes:
        return f"fetching an item changes {dataset.writes[0]}"
    if dataset.kind == "library":
        return ""
    if why := dataset.random or why_not_rows(dataset, singly=True):
        # The code of the project: whether it has a form for batches is asked beside it
        # (resident_batches).
        return "" if dataset.kind == "project" else f"{dataset.name}: {why}"
    return rows_change(script, dataset)


def is_longer(script: Script, dataset: Dataset) -> bool:
    """Whether arrays of a data set of the project may have more rows than it has items; raises
    Refusal where it may have another number of items by and by.
    """
    thing, getitem = dataset.thing, dataset.getitem
    if not isinstance(thing, Inst) or getitem is None:
        return False
    if (node := sets_method(script, thing, "__getitem__", "__getitems__", "__len__")) is not None:
        raise Refusal(f"{at(node)} may give {dataset.name} another method or attribute")
    this = getitem.args.args[0].arg
    parts = (n.value for n in nodes_in(getitem, ast.Subscript))
    rows = [e for e in of_kind(parts, ast.Attribute) if is_name(e.value, this)]
    counts = {row_count(script, r) or ast.unparse(r) for r in rows}
    for length in thing.cls.find("__len__") or ():
        body = length.node.body if isinstance(length, Func) else None
        last = body[-1] if isinstance(body, list) and len(body) < 3 else None
        counted = last.value if isinstance(last, ast.Return) else None
        if counted is None or not _stays(counted, thing):
            raise Refusal(f"{dataset.name} may have another number of items later (`__len__`)")
        measured = measured_by(counted)
        counts.add(measured and (row_count(script, measured) or ast.unparse(measured)))
    return len(counts) > 1


def _stays(count: ast.expr, thing: Inst) -> bool:
    """Made of attributes of the data set, which nothing sets later, and their lengths alone."""
    this = function_of(count).args.args[0].arg  # type: ignore[union-attr]
    names = names_in(count) - {this, "len", "int", "min", "max"}
    attributes = {n.attr for n in nodes_in(count, ast.Attribute)} - {"shape", "size"}
    return not names and attributes <= thing.attrs.keys()


def rows_change(script: Script, dataset: Dataset, under: Collection[str] | None = None) -> str:
    """Why the tensors that items are rows of may change after a copy."""
    for expr, made in stored_tensors(script, dataset, under):
        if expr is None:
            return f"where the tensors of {dataset.name} come from is not known"
        if why := why_trainable(script, expr):
            return f"`{first_line(expr)}` {why}"
        if why := written_after(script, expr, made):
            return why
    return ""


def all_items(script: Script, loader: Loader) -> str:
    """An expression for all items, or the function that makes images; raises Refusal."""
    given = loader.args.get(0, "dataset")
    direct = all(any(t is d.thing for d in loader.datasets) for t in given)
    if not direct and not all(is_dataset_or_part(t, loader.datasets, SUBSETS) for t in given):
        raise Refusal("the dataset is wrapped in something that is not known")
    if not _images(loader) and not any(why_not_rows(d) for d in loader.datasets):
        return ROWS
    if _images(loader):
        forms = {_images_of(d) for d in loader.datasets}
        if direct and len(forms) == 1:
            return forms.pop()
    if loader.trains and not is_iterated_again(script, loader):
        raise Refusal("it is gone through once, and making all items first would take as long")
    return ITEMS


def _images(loader: Loader) -> bool:
    return any(d.kind == "library" for d in loader.datasets)


def augmented_images(loader: Loader) -> tuple[str, Augmentation]:
    """How images of a loader are made before they are cropped and flipped, and how that is done."""
    found = set()
    for dataset in loader.datasets:
        side = 28 if last_part(getattr(dataset.thing, "name", "")) in GREY else 32
        made = augmentation(dataset, side)
        if isinstance(made, str):
            raise Refusal(made)
        found.add((_images_of(dataset, made), made))
    given = loader.args.get(0, "dataset")
    if len(found) > 1 or not all(any(t is d.thing for d in loader.datasets) for t in given):
        raise Refusal("its dataset may be one of several, or is a part of one")
    return found.pop()


def _images_of(dataset: Dataset, made: Augmentation | None = None) -> str:
    """The function that makes all images of a set of torchvision's."""
    thing = dataset.thing
    short = last_part(thing.name) if isinstance(thing, Ext) else ""
    if not isinstance(thing, Ext) or short not in (*GREY, *COLOUR, "SVHN"):
        raise Refusal(f"items of {dataset.name} are made in a way that is not known")
    if thing.args.open or any(
        const(thing.args.get(n, name)) is not None
        for n, name in ((3, "target_transform"), (-1, "transforms"))
        if thing.args.get(n, name)
    ):
        raise Refusal(f"{dataset.name} has more than one transform")
    if short == "SVHN" and const(thing.args.get(1, "split")) not in ("train", "test", ...):
        raise Refusal(f"the extra images of {dataset.name} are too many")
    normalized = to_tensor(thing) if made is None else made.normalized
    if normalized is None:
        raise Refusal(f"the transforms of {dataset.name} are not just ToTensor and Normalize")
    return as_tensors(short, normalized, 0 if made is None else made.padding)
