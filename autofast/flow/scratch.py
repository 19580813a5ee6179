"""Attributes that are only written down on the way: ``self.n = x.size(1)`` that nothing reads, or
only what the same call has written.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from autofast.flow.cfg import graph_of
from autofast.flow.scopes import parameters
from autofast.model.calls import is_same_code
from autofast.model.several import first_such, surely
from autofast.model.source import Source, ancestors, function_of, parent_of, statement_of
from autofast.model.syntax import SEQUENCES, is_stored
from autofast.model.values import Cls, Ref, Values, Where, is_named

PLAIN = frozenset({  # classes of libraries that read no attribute which they do not know
    "builtins.object", "abc.ABC", "torch.nn.Module", "torch.utils.data.Dataset", "torch.utils.data.IterableDataset",
})  # fmt: skip


def is_scratch(
    store: ast.expr, sources: Iterable[Source], values: Callable[[ast.expr], Values]
) -> bool:
    """Whether nobody reads what ``self.n = ...`` leaves behind: each read comes after an assignment
    in the same call.

    Asked by name, of whatever object; a text of that name may be how ``getattr`` reads it, a
    function of that name its setter.
    """
    if (
        not isinstance(store, ast.Attribute)
        or not _is_assigned(store)
        or not _is_own(store, values)
    ):
        return False
    name = store.attr
    for source in sources:
        if any(c.value == name for c in source.each(ast.Constant)):
            return False
        if any(f.name == name for f in source.each(ast.FunctionDef)):
            return False
        found = [n for n in source.each(ast.Attribute) if n.attr == name]
        stores = [n for n in found if _is_assigned(n)]
        if not all(n in stores or any(hands_on(s, n) for s in stores) for n in found):
            return False
    return True


def _is_assigned(node: ast.Attribute) -> bool:
    """It gets a new value, whatever it had: not by ``+=``."""
    outer: Where = parent_of(node)
    while isinstance(outer, SEQUENCES):
        outer = parent_of(outer)
    return is_stored(node) and isinstance(outer, ast.Assign)


def _is_own(store: ast.Attribute, values: Callable[[ast.expr], Values]) -> bool:
    """An attribute of ``self``, whose class is the project's alone."""
    function = function_of(store)
    first = [p.arg for p in parameters(function)[:1]]
    owner = first_such(ancestors(function), ast.ClassDef)
    return (
        owner is not None
        and isinstance(store.value, ast.Name)
        and [store.value.id] == first
        and all(_is_plain(values(base)) for base in owner.bases)
    )


def _is_plain(bases: Values) -> bool:
    return surely(
        t.external <= PLAIN if isinstance(t, Cls) else is_named(t, Ref, PLAIN) for t in bases
    )


def hands_on(store: ast.Attribute, load: ast.Attribute) -> bool:
    """Whether ``load`` certainly reads what ``store`` has written in the same call."""
    function = function_of(load)
    return (
        function is function_of(store)
        and is_same_code(store.value, load.value)
        and statement_of(store) is not statement_of(load)
        and graph_of(function).dominates(store, load)
    )
