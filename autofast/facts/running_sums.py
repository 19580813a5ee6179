"""Running sums and lists of tensors that hold the graphs of the steps that they come from, though
no backward goes through them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autofast.flow.callgraph import CallGraph
from autofast.flow.frequency import Frequency, frequency
from autofast.flow.loops import Loop
from autofast.flow.program import Flow
from autofast.flow.scopes import own_nodes, variables_of
from autofast.flow.slices import Slice, Slices
from autofast.model.calls import arguments_of, is_method, is_name, short_name
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import function_of, is_same_function, nodes_in, statement_of, within
from autofast.model.syntax import (
    ASSIGNMENTS,
    FUNCTIONS,
    IDENTITY,
    LOOPS,
    MEMBERSHIP,
    VARIABLES,
    is_stored,
)
from autofast.model.values import Const, Method, Num, Tensor, Unknown, any_of, are_numbers

BACKWARDS = wordset("backward manual_backward grad")
HARMLESS = wordset("""append extend add_scalar add_scalars set_postfix set_postfix_str set_description write log info debug warning print format
    update item detach cpu numpy tolist""")

OF_GRAPHS = wordset("requires_grad grad_fn is_leaf retain_grad register_hook")


@dataclass(frozen=True, eq=False)
class Kept:
    """``total += value``, ``total = total + value`` or ``total.append(value)``; ``unknown``: why
    the graph may be needed.
    """

    statement: ast.stmt
    target: ast.expr
    value: ast.expr
    unknown: str = ""


def kept_graphs(script: Script) -> Iterator[Kept]:
    """The places in training loops that add a tensor with a graph to what outlives the step and no
    backward ever reaches.
    """
    if not script.steps:
        return
    slices = script.analysis(Slices)
    through: Slice | None = None
    for loop in {s.loop: s.loop for s in script.steps}.values():
        if not isinstance(loop, LOOPS):
            continue
        functions = script.analysis(CallGraph).run_in(loop)
        for node in (n for code in (loop, *functions) for n in _statements(code)):
            kept = _added(node)
            if kept is None or not _has_graph(script, kept):
                continue
            if not _outlives(script, kept, loop, functions):
                continue
            if through is None:
                told = (e for e in _told_apart(script) if not are_numbers(script.values(e)))
                through = slices.of([*_gone_through(script), *told])
            if not slices.holds(through, kept.target):
                yield Kept(kept.statement, kept.target, kept.value, script.unread)


def keeps_graphs(script: Script, code: ast.AST) -> bool:
    """Whether code gathers tensors with graphs: in a loop, those of all its turns."""
    added = filter(None, map(_added, _statements(code)))
    return any(_has_graph(script, kept) for kept in added)


def _statements(code: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a loop, or of a function without those of functions in it."""
    nodes = own_nodes(code) if isinstance(code, FUNCTIONS) else ast.walk(code)
    yield from (n for n in nodes if isinstance(n, (*ASSIGNMENTS, ast.Expr)))


def _added(node: ast.stmt) -> Kept | None:
    match node:
        case ast.AugAssign(
            target=ast.Name() | ast.Attribute() as target, op=ast.Add(), value=value
        ):
            return Kept(node, target, value)
        case ast.Assign(
            targets=[ast.Name() | ast.Attribute() as target],
            value=ast.BinOp(op=ast.Add(), left=left, right=right),
        ):
            for same, value in ((left, right), (right, left)):
                if ast.unparse(same) == ast.unparse(target):
                    return Kept(node, target, value)
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=list_, attr="append"), args=[value], keywords=[]
            )
        ):
            held = list_.value if isinstance(list_, ast.Subscript) else list_
            if isinstance(held, VARIABLES):  # also `history["loss"].append(v)`
                return Kept(node, held, value)
    return None


def _has_graph(script: Script, kept: Kept) -> bool:
    """Certainly a tensor, with a graph in every way the script comes there."""
    found = script.values(kept.value)
    if _is_gone_through_before(script, kept):
        found = frozenset(t for t in found if not isinstance(t, (Const, Num)))
    return surely(isinstance(t, Tensor) and t.grad and t.passes for t in found)


def _is_gone_through_before(script: Script, kept: Kept) -> bool:
    """``loss = 0``, to which each output adds: where ``loss.backward()`` was called, it is no
    number any more.
    """
    if not isinstance(kept.value, ast.Name):
        return False
    flow, scope = script.analysis(Flow), function_of(kept.value)
    made = {d.node for d in flow.reaching(kept.value)}
    return any(
        is_method(n, "backward")
        and is_name(n.func.value, kept.value.id)
        and {d.node for d in flow.reaching(n.func.value)} == made
        and flow.graph(kept.value).dominates(n, kept.value)
        for n in own_nodes(scope)
    )


def _outlives(script: Script, kept: Kept, loop: Loop, functions: Sequence[ast.AST]) -> bool:
    """Whether what is added is still there in the next step: no step sets the sum anew."""
    if isinstance(kept.target, ast.Attribute):
        others = (
            n
            for code in (loop, *functions)
            for n in nodes_in(code, ast.Attribute)
            if n.attr == kept.target.attr and is_stored(n)
        )
        return all(statement_of(n) is kept.statement for n in others)
    if not within(kept.statement, loop) or not is_same_function(kept.statement, loop):
        return False
    flow = script.analysis(Flow)
    table = variables_of(kept.target)
    variable = table.of(kept.target)
    if variable is None:
        return False
    for store in table.stores(variable):
        statement = statement_of(store)
        adds = isinstance(statement, ASSIGNMENTS) and _added(statement) is not None
        if not adds and within(store, loop):
            if frequency(flow.graph(loop), store, loop) is Frequency.EVERY:
                return False
    return True


def _gone_through(script: Script) -> list[ast.expr]:
    """What backwards are called on, what is given to functions that differentiate, and to those of
    which nothing is known.
    """
    found: list[ast.expr] = []
    for node in script.each(ast.Call):
        if _may_go_back(script, node):
            found += [node.func.value] if isinstance(node.func, ast.Attribute) else []
            found += arguments_of(node)
    return found


def _told_apart(script: Script) -> Iterator[ast.expr]:
    """What tells a tensor from a detached one of the same numbers: ``x is best``, ``id(x)``, ``x in
    kept``, ``seen[x]``, ``x.grad_fn``.
    """
    for node in script.nodes:
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                for op, one, other in zip(ops, sides, sides[1:], strict=False):
                    if isinstance(op, MEMBERSHIP) or (
                        isinstance(op, IDENTITY) and not any_of((one, other), ast.Constant)
                    ):
                        yield from (one, other)
            case ast.Call(func=ast.Name(id="id" | "hash"), args=args):
                yield from args
            case ast.Call(
                func=ast.Attribute(value=held, attr="index" | "remove" | "count"), args=args
            ):
                yield from (held, *args)
            case ast.Subscript(slice=ast.Name() | ast.Attribute() as key):
                yield key
            case ast.Attribute(value=tensor, attr=name) if name in OF_GRAPHS:
                yield tensor


def _may_go_back(script: Script, call: ast.Call) -> bool:
    name = short_name(call.func)
    if name in BACKWARDS:
        return True
    known = script.called(call)
    return name not in HARMLESS and any(
        isinstance(t.this if isinstance(t, Method) else t, Unknown) for t in known
    )
