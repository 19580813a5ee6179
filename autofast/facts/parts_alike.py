"""Parts of one class that all get the same input, one after the other: the heads of attention, each
a module of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.switches import frequent_nodes
from autofast.model.calls import is_method, names_in
from autofast.model.kinds import is_module
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.values import Ext, Inst, Thing


def parts_alike(script: Script) -> Iterator[ast.expr]:
    """``[head(x) for head in self.heads]``, in what runs in every step."""
    for _, node in frequent_nodes(script, (ast.ListComp, ast.GeneratorExp)):
        match node:
            case (
                ast.ListComp(elt=elt, generators=[over])
                | ast.GeneratorExp(elt=elt, generators=[over])
            ) if not over.ifs and (call := _call(elt, over.target)) is not None:
                found = script.values(call.func)
                kinds = {_kind(t) for t in found}
                if surely(map(is_module, found)) and len(kinds) == 1:
                    yield node


def _call(elt: ast.expr, target: ast.expr) -> ast.Call | None:
    """The call of the part, whose arguments have nothing of it, also with methods behind it."""
    while is_method(elt):
        elt = elt.func.value
    match elt, target:
        case ast.Call(func=ast.Name(id=called), args=args, keywords=[]), ast.Name(id=name):
            alone = called == name and not any(name in names_in(a) for a in args)
            return elt if alone else None
    return None


def _kind(thing: Thing) -> object:
    return thing.cls if isinstance(thing, Inst) else thing.name if isinstance(thing, Ext) else thing
