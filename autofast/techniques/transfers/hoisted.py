"""Copies to the device, in the loops that train, of what is the same in every turn: they go above
the loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from autofast.edit.edits import Before, Remove
from autofast.edit.order import Rank
from autofast.facts.aliases import may_be, writes_to, written_after
from autofast.facts.arrays import array_origins
from autofast.facts.invariants import Invariants
from autofast.facts.read_only import ReadOnly
from autofast.flow.callgraph import CallGraph
from autofast.flow.loops import Loop, loops_around
from autofast.flow.memory import Memory
from autofast.flow.program import Flow, holder_of
from autofast.flow.scopes import mentions
from autofast.model.roles import GPUS
from autofast.model.script import Script
from autofast.model.source import (
    ancestors,
    any_within,
    contains_kind,
    function_of,
    nodes_in,
    statement_of,
)
from autofast.model.syntax import is_attribute, is_read, is_stored
from autofast.model.tensors import device_kinds
from autofast.model.values import Arg, Const, Method, Ref, certainly
from autofast.rule import Effect
from autofast.techniques.transfers.factories import KEEPS, Creation
from autofast.techniques.transfers.made_each_step import DATA, is_fixed
from autofast.techniques.transfers.told import told

JUMPS = (ast.Break, ast.Continue, ast.Return)


def hoisted_copies(script: Script, hot: frozenset[ast.AST]) -> Iterator[Creation]:
    """One for each statement that gives such a copy to a variable of its own."""
    copies = {t.node: t.site for t in script.transfers if t.to_device} | dict(told(script))
    for value, site in copies.items():
        statement = statement_of(value)
        match statement:
            case ast.Assign(targets=[ast.Name() as target]) if (
                statement.value is value
                and _is_plain(script, value)
                and _is_kept(script, target, value)
            ):
                above: ast.stmt = statement
                for loop in loops_around(statement):
                    if (
                        loop in hot
                        and above in loop.body
                        and not any(
                            contains_kind(s, *JUMPS) for s in loop.body[: loop.body.index(above)]
                        )
                        and _is_same(script, value, loop, copies.keys())
                    ):
                        above = loop
                if above is not statement:
                    code = f"{target.id} = {{value}}"
                    before = Before(above, code, holes={"value": value}, rank=Rank.MOVED)
                    yield Creation(value, site, (Remove(statement), before), Effect.EXACT)


def _is_plain(script: Script, value: ast.expr) -> bool:
    """A tensor of what is there, with casts and views, which needs no gradient."""
    return not any(k.arg == "requires_grad" for k in nodes_in(value, ast.keyword)) and all(
        script.library_function(call) in DATA
        or is_attribute(call.func, "to", "cuda", *KEEPS)
        or is_fixed(script, call)
        for call in nodes_in(value, ast.Call)
    )


def _is_kept(script: Script, target: ast.Name, value: ast.expr) -> bool:
    """Whether the variable has nothing else, and nobody changes what it has."""
    uses = mentions(function_of(target), target.id)
    calls = [call for call in nodes_in(value, ast.Call) if script.library_function(call) in DATA]
    copied = bool(calls) and all(script.is_call(call, "torch.tensor") for call in calls)
    if copied and not ReadOnly(script).follow(value, None):
        return [n for n in uses if not is_read(n)] == [target]
    asks = (n for n in script.each(ast.Attribute) if n.attr in ("requires_grad", "requires_grad_"))
    return (
        [n for n in uses if not is_read(n)] == [target]
        and not written_after(script, value, ())
        and not any(may_be(script, script.values(n.value), value) for n in asks)
    )


def _is_same(script: Script, value: ast.expr, loop: Loop, copies: Set[ast.AST]) -> bool:
    """Whether each turn of a loop copies the same numbers: nothing there sets what they are made
    of, or does more with it than to copy it."""
    flow = script.analysis(Flow)
    code = script.analysis(CallGraph).code_in(loop)
    written = script.analysis(Memory).written_in(code)
    if any(node in code for node, *_ in writes_to(script, array_origins(script, value))):
        return False
    for part in nodes_in(value, ast.Attribute):
        if not _is_fixed(script, part) or any(
            is_attribute(n, part.attr) and is_stored(n) for n in code
        ):
            return False
    for name in nodes_in(value, ast.Name):
        made = {d.node for d in flow.reaching(name)}
        of_module = bool(made) and script.analysis(Invariants).is_bound_once(name)
        bound = of_module or flow.definitions(loop).is_bound_at(loop, name.id)
        if not bound or any_within(made, loop):
            return False
        uses = (n for n in mentions(holder_of(name), name.id) if n in code)
        changed = written & made or any(copies.isdisjoint(ancestors(n)) for n in uses)
        if changed and not _is_fixed(script, name):
            return False
    return True


def _is_fixed(script: Script, expr: ast.expr) -> bool:
    """A function, a module, a number or a device, which nobody can change."""
    found = script.values(expr)
    return certainly(found, Ref, Const, Arg, Method) or bool(device_kinds(found) & GPUS)
