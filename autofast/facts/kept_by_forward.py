"""What a forward pass goes by besides its batch: attributes that it sets and goes on with, and what
the loop around it changes from one batch to the next.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.callgraph import CallGraph
from autofast.flow.loops import Loop
from autofast.flow.program import graph_of
from autofast.flow.scopes import Variable, parameters, variables_of
from autofast.flow.slices import Slices, put_into
from autofast.model.calls import is_augmented, is_name
from autofast.model.contents import members, with_contents
from autofast.model.script import Script
from autofast.model.several import any_in, surely
from autofast.model.source import nodes_in, parent_of, statement_of, walk
from autofast.model.syntax import Def, is_read, is_stored
from autofast.model.values import Func, Inst, Tensor, Thing
from autofast.ops import is_in_place


def changed_by_forward(module: Thing) -> Iterator[ast.Attribute]:
    """The attributes of a module, and of those inside of it, that forward sets and reads, or
    changes in place.
    """
    for function, this in _forwards(module):
        loaded = {n.attr for n in _of_this(function, this) if is_read(n)}
        for node in _of_this(function, this):
            stored = is_stored(node) and (node.attr in loaded or is_augmented(node))
            if stored or _in_place(node):
                yield node


def carried_by_forward(script: Script, module: Thing) -> Iterator[ast.Attribute]:
    """Those of them that forward reads before it sets them anew."""
    for function, this in _forwards(module):
        mine = list(_of_this(function, this))
        graph = graph_of(script, function)
        for node in mine:
            if _in_place(node) or (is_stored(node) and is_augmented(node)):
                yield node
            elif is_stored(node):
                stores = [n for n in mine if is_stored(n) and n.attr == node.attr]
                reads = (n for n in mine if is_read(n) and n.attr == node.attr)
                if not all(
                    any(
                        graph.dominates(s, r) and statement_of(s) is not statement_of(r)
                        for s in stores
                    )
                    for r in reads
                ):
                    yield node


def changed_around_forward(
    script: Script, module: Thing, loop: Loop, loaders: list[Thing]
) -> Iterator[ast.expr]:
    """What the loop over the batches of ``loaders`` changes itself, and forward goes by:
    ``model.tau *= 0.99``. Neither what it is given, nor what a batch brings along.
    """
    calls, slices = script.analysis(CallGraph), script.analysis(Slices)
    forwards = [function for function, _ in _forwards(module) if isinstance(function, Def)]
    given = [Variable(a.arg, f) for f in forwards for a in parameters(f)]
    found = slices.of((r for f in forwards for r in calls.results(f)), given)
    parts = [*with_contents([module], members)]
    inside = {n for f in forwards for part in (f, *calls.run_in(f)) for n in walk(part)}
    read = set(map(_variable, inside))
    code = (n for part in (loop, *calls.run_in(loop)) for n in walk(part))
    around = [n for n in code if n not in inside]
    own = {_variable(n) for n in around if is_stored(n)} - read
    for node in around:
        match node:
            case ast.Name():
                changes = _variable(node) not in own and slices.holds(found, node)
            case ast.Attribute():
                ours = is_stored(node) and any_in(script.values(node.value), parts)
                changes = node.attr not in ("data", "grad") and (ours or slices.holds(found, node))
            case _:
                continue
        values = put_into(node) if changes else []
        if values and (is_augmented(node) or not all(_is_of(script, v, loaders) for v in values)):
            yield node


def _is_of(script: Script, value: ast.expr, loaders: list[Thing]) -> bool:
    found = script.values(value)
    return surely(isinstance(t, Tensor) and not t.batch.isdisjoint(loaders) for t in found)


def _variable(node: ast.AST) -> Variable | None:
    return variables_of(node).of(node) if isinstance(node, ast.Name) else None


def _forwards(module: Thing) -> Iterator[tuple[ast.AST, str]]:
    for part in with_contents([module], members):
        if isinstance(part, Inst):
            for func in part.cls.find("forward") or ():
                spec = getattr(func.node, "args", None) if isinstance(func, Func) else None
                if isinstance(func, Func) and isinstance(spec, ast.arguments) and spec.args:
                    yield func.node, spec.args[0].arg


def _of_this(function: ast.AST, this: str) -> Iterator[ast.Attribute]:
    return (n for n in nodes_in(function, ast.Attribute) if is_name(n.value, this))


def _in_place(node: ast.Attribute) -> bool:
    """``self.seen.add_(...)``, ``self.seen[i] = ...``"""
    match parent_of(node):
        case ast.Attribute(attr=name) as method:
            return is_in_place(name, flags=True) and isinstance(parent_of(method), ast.Call)
        case ast.Subscript() as item:
            return is_stored(item)
    return False
