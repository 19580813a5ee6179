"""Items that come out the same in every epoch, whole: ``__getitem__`` remembers what it made."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Decorator, Import
from autofast.facts.item_constants import Items, OfItems
from autofast.facts.item_sizes import are_small
from autofast.facts.loaders import has_no_workers, is_iterated_again, loader_argument, values_given
from autofast.flow.callgraph import CallGraph
from autofast.flow.scopes import mentions, own_nodes
from autofast.model.several import of_kind, surely
from autofast.model.source import contains_kind, parent_of, source_of
from autofast.model.syntax import is_read
from autofast.techniques.transfers.constants import WORK, class_of
from autofast.techniques.transfers.kept import Prepared
from autofast.techniques.transfers.per_item import Element

ORDERS = ("sampler", "batch_sampler")
ADVICE = (
    "make them once, in a list that the constructor fills, where they fit into memory: what an item "
    "is made of stays the same, and nothing is drawn"
)


def whole_items(items: Items) -> Iterator[Prepared]:
    """``@functools.lru_cache(maxsize=None)`` for ``__getitem__``, where items are small and one
    process makes them."""
    script, calls = items.script, items.script.analysis(CallGraph)
    run = [items.getitem, *calls.runs(items.getitem)]
    loops = [n for f in run for n in own_nodes(f) if isinstance(n, WORK)]
    if (
        loops
        and _has_rows(items)
        and Element(items).is_data(items.getitem)
        and OfItems(items).is_pure(items.getitem, items.init)
    ):
        made = (
            Decorator(items.getitem, "functools.lru_cache(maxsize=None)"),
            Import(source_of(items.getitem), "import functools"),
        )
        known = _are_remembered(items) and are_small(script, dict.fromkeys(run))
        first = next(
            (s for s in items.getitem.body if contains_kind(s, *WORK)), items.getitem.body[-1]
        )
        advice = "" if known else ADVICE
        yield Prepared(first, "", made if known else (), advice=advice, whole=True)


def _has_rows(items: Items) -> bool:
    """Whether the index only says which element of a list an item is made of, and each has one."""
    uses = [parent_of(n) for n in mentions(items.getitem, items.index) if is_read(n)]
    names = {items.name_of(n.value) for n in of_kind(uses, ast.Subscript)}
    return surely(n is not None and items.is_row(n) for n in uses) and any(map(items.counts, names))


def _are_remembered(items: Items) -> bool:
    """Whether the process that trains makes all items, and nobody has what it keeps of them."""
    script, cls = items.script, class_of(items.script, items.getitem)
    return (
        cls is not None
        and not any(cls.find(name) for name in ("__eq__", "__hash__", "__getitems__"))
        and not any(n.attr == "__getitem__" for n in script.each(ast.Attribute))
        and items.batches_are_copies
        and all(
            items.things.issuperset(values_given(x, "dataset"))
            and not any(loader_argument(x, name) for name in ORDERS)
            and (has_no_workers(x) or not is_iterated_again(script, x))
            for x in items.loaders
        )
    )
