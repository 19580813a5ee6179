"""Functions that return numbers they have read: they return the tensors, and the callers read them
where they need them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.edit.edits import Edit, Rewrite, Wrap
from autofast.flow.filled_lists import is_only_filled
from autofast.flow.loops import loop_of
from autofast.flow.positions import statements_beside
from autofast.flow.program import Flow
from autofast.flow.scopes import mentions
from autofast.model.calls import items_of, short_name
from autofast.model.events import CallFrame, Occurrence
from autofast.model.kinds import grad_mode_of
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import (
    ByNode,
    at,
    function_of,
    nodes_in,
    parent_of,
    statement_of,
    within,
)
from autofast.model.syntax import VARIABLES, WITHS, is_operation, is_read
from autofast.model.values import Func, unbound
from autofast.rule import Refusal
from autofast.techniques.syncs.deferred import put_off
from autofast.techniques.syncs.delayed import keep_tensor, read_at_use, variable_of
from autofast.techniques.syncs.kept import without_graph
from autofast.techniques.syncs.liveness import needs_of
from autofast.techniques.syncs.reads import Read, read_template
from autofast.techniques.syncs.sinks import is_number, sink_of
from autofast.techniques.syncs.steps import is_step, runs_in_steps
from autofast.techniques.syncs.summable import EXACT, parts_of
from autofast.write.spelling import has_float64


@dataclass(frozen=True, eq=False)
class Result:
    """A number that a function reads and returns: the ``index``-th of its results; without one,
    each element of the list that it returns, to which ``inner`` is the read in what computes it.
    """

    index: int | None
    read: Read
    inner: Read | None = None


def results_of(
    script: Script, function: ast.FunctionDef, reads: list[Read]
) -> tuple[ast.Return, list[Result]] | None:
    """What ``function`` reads only to return it."""
    returns = [n for n in nodes_in(function, ast.Return) if function_of(n) is function]
    if len(returns) != 1 or returns[0].value is None or not _is_at_end(returns[0], function):
        return None
    value = returns[0].value
    if (element := _element(script, value)) is not None:
        result = _read_of(script, element, reads)
        return (returns[0], [result]) if result is not None else None
    numbers = {r.node: r for r in reads if loop_of(r.node) is None}
    found = []
    for n, part in enumerate(items_of(value)):
        if part in numbers:
            found.append(Result(n, numbers[part]))
        elif isinstance(part, ast.Name):
            made = script.analysis(Flow).value_of_its_own(part)
            if made is not None and made in numbers:
                if isinstance(statement_of(made), ast.Assign):
                    found.append(Result(n, numbers[made]))
    return (returns[0], found) if found else None


def _element(script: Script, value: ast.expr) -> ast.expr | None:
    """What each element is of a list that is made to be returned: by a comprehension, or by one
    statement of a loop.
    """
    match value:
        case ast.ListComp(elt=element):
            return element
        case ast.Name():
            uses = [n for n in mentions(function_of(value), value.id) if is_read(n)]
            held, loop = uses[0], loop_of(uses[0])
            match statement_of(held), loop:
                case ast.Expr(ast.Call(ast.Attribute(attr="append"), [element], [])), ast.For():
                    return element if len(uses) == 2 and is_only_filled(held, loop) else None
    return None


def _read_of(script: Script, element: ast.expr, reads: list[Read]) -> Result | None:
    """An element that is read, or computed with one number that is, as the device can do it but for
    a last bit.
    """
    mine = [r for r in reads if within(r.node, element)]
    if len(mine) != 1 or mine[0].how != "item":
        return None
    if mine[0].node is element:
        return Result(None, mine[0])
    parts = list(parts_of(element, {mine[0].node}, (*EXACT, ast.Div)))
    divided = (n.right for n in ast.walk(element) if is_operation(n, ast.Div))
    if (
        [p for p in parts if within(mine[0].node, p)] != [mine[0].node]
        or any(within(mine[0].node, d) for d in divided)
        or not all(p is mine[0].node or is_number(script, p) for p in parts)
        or not has_float64(script)
    ):
        return None
    return Result(None, Read(element, element, "item"), mine[0])


def _is_at_end(result: ast.Return, function: ast.FunctionDef) -> bool:
    """Whether a function ends by a ``return`` whenever it ends: it never gives None instead."""
    here: ast.stmt = result
    while statements_beside(here)[-1] is here:
        outer = parent_of(here)
        if outer is function:
            return True
        if not isinstance(outer, WITHS):
            return False
        here = outer
    return False


def hand_on(
    script: Script, function: ast.FunctionDef, statement: ast.Return, results: list[Result]
) -> list[Edit]:
    """The edits by which a function returns tensors, and its callers read them; raises
    :class:`Refusal`.
    """
    occurrences = script.log.ways("return", statement)
    if not runs_in_steps(script, occurrences):
        raise Refusal("")
    edits = [_kept(script, r) for r in results]
    gains = False
    for call in _calls(script, function, occurrences):
        callees = [unbound(t) for t in script.called(call)]
        if not all(isinstance(t, Func) and t.node is function for t in callees):
            raise Refusal(
                f"another function may be called instead of {function.name}() ({at(call)})"
            )
        more, gained = _at_caller(script, call, statement, results)
        edits += more
        gains |= gained
    if not gains:
        raise Refusal(f"the callers of {function.name}() use it in every step")
    return edits


def _kept(script: Script, result: Result) -> Edit:
    """The edit by which a result is a tensor."""
    if (inner := result.inner) is None:
        return keep_tensor(script, result.read)
    template = f"{without_graph(script, inner.core)}.double()"
    return Rewrite(inner.node, template, holes={"core": inner.core})


def _calls(
    script: Script, function: ast.FunctionDef, occurrences: list[Occurrence]
) -> list[ast.Call]:
    """All calls of the function; raises :class:`Refusal` where there may be others."""
    calls: ByNode[ast.Call] = {}
    for occurrence in occurrences:
        frame = next(
            (f for f in of_kind(reversed(occurrence.stack), CallFrame) if f.func.node is function),
            None,
        )
        if frame is None or not isinstance(frame.node, ast.Call):
            raise Refusal(f"{function.name}() is not called in this project alone")
        if not all(grad_mode_of(d) is not None for d in frame.func.decorators):
            raise Refusal(f"{function.name}() is decorated")
        calls[frame.node] = frame.node
    for node in script.nodes:
        if isinstance(node, VARIABLES) and is_read(node) and _may_be(script, node, function):
            parent = parent_of(node)
            if not isinstance(parent, ast.Call) or parent.func is not node or parent not in calls:
                raise Refusal(f"{function.name}() is also used in another way ({at(node)})")
    return list(calls.values())


def _may_be(script: Script, node: ast.Name | ast.Attribute, function: ast.FunctionDef) -> bool:
    things = [unbound(t) for t in script.values(node)]
    return any(t.node is function for t in of_kind(things, Func)) or (
        not things and short_name(node) == function.name
    )


def _at_caller(
    script: Script, call: ast.Call, statement: ast.Return, results: list[Result]
) -> tuple[list[Edit], bool]:
    parent = parent_of(call)
    if isinstance(parent, ast.Expr):
        return [], False
    several = isinstance(statement.value, ast.Tuple)
    if results[0].index is None:
        return _elements(script, call, parent, results[0].read)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        target = parent.targets[0]
        names = target.elts if isinstance(target, ast.Tuple) and several else [target]
        if several and len(names) != len(statement.value.elts):  # type: ignore[union-attr]
            raise Refusal(f"the results are unpacked in a way that is not understood ({at(call)})")
        return _variables(
            script, parent, [(names[r.index], r.read) for r in results if r.index is not None]
        )
    read = results[0].read
    match parent:
        case ast.Starred() if several:  # `meter.update(*step(x))`
            mine = Read(parent, call, _taken_apart(script, statement, results), read.tensors)
        case _ if several:  # `np.array(step(x))`
            together = f"({_taken_apart(script, statement, results)})"
            mine = Read(call, call, together, read.tensors)
        case _:
            mine = Read(call, call, read.how, read.tensors)
    try:
        return _put_off(script, mine), True
    except Refusal:
        if several:
            raise
    return [Wrap(call, read_template(read.how))], False


def _taken_apart(script: Script, statement: ast.Return, results: list[Result]) -> str:
    """The template of all that is returned, read where it is a tensor: ``{}[0].item(), {}[1]``."""
    how = {r.index: read_template(r.read.how) for r in results}
    parts: list[ast.expr] = statement.value.elts  # type: ignore[union-attr]
    if not all(n in how or is_number(script, part) for n, part in enumerate(parts)):
        raise Refusal("what else is returned may change until it is used")
    return ", ".join(how.get(n, "{}").replace("{}", f"{{}}[{n}]") for n in range(len(parts)))


def _put_off(script: Script, read: Read) -> list[Edit]:
    """The edits by which a statement that only puts away what a call returns does so later."""
    loop = loop_of(read.core)
    if loop is None or not is_step(script, loop):
        raise Refusal(f"the results are not taken apart where they are returned ({at(read.core)})")
    sink = sink_of(script, read.statement, [read], loop)
    return put_off(script, [sink], loop, needs_of(script, sink, loop))


def _elements(
    script: Script, call: ast.Call, parent: ast.AST | None, read: Read
) -> tuple[list[Edit], bool]:
    """The same of a list: ``top1, top5 = accuracy(...)``, ``top1 = accuracy(...)[0]``."""
    match parent, statement_of(call):
        case ast.Assign(targets=[ast.Tuple(elts=names)]), ast.Assign() as statement:
            return _variables(script, statement, [(name, read) for name in names])
        case ast.Subscript(slice=ast.Constant(int())), ast.Assign(targets=[name]) as statement if (
            statement.value is parent
        ):
            return _variables(script, statement, [(name, read)])
    raise Refusal(f"the results are not taken apart where they are returned ({at(call)})")


def _variables(
    script: Script, statement: ast.Assign, targets: list[tuple[ast.expr, Read]]
) -> tuple[list[Edit], bool]:
    edits: list[Edit] = []
    gains = False
    for target, read in targets:
        if not isinstance(target, ast.Name):
            raise Refusal(f"a result is not put into a variable ({at(statement)})")
        variable = variable_of(script, target, statement, loop_of(statement), [read])
        more, gained = read_at_use(script, variable)
        edits += more
        gains |= gained
    return edits, gains
