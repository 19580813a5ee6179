"""Arrays of NumPy that index tensors on the device: each use copies the indices there, and the host
waits.

Where ``batch = order[i : i + n]`` of a shuffled ``order`` indexes tensors in every step, the whole
order is copied once, and cut there. Of what is drawn in each step there is one copy for all uses.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Before, Edits, Rewrite, Wrap
from autofast.facts.copies import several_gpus
from autofast.flow.callgraph import CallGraph
from autofast.flow.loops import loops_around
from autofast.flow.program import Flow, definitions_of, graph_of, holder_of
from autofast.flow.scopes import mentions
from autofast.model.calls import (
    items_of,
    keyword_of,
    put_into,
    root_of,
    short_name,
    stands_alone,
    taker_of,
)
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import (
    any_within,
    function_of,
    is_same_function,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
    within,
)
from autofast.model.syntax import is_attribute, is_read, is_stored
from autofast.model.values import Const, Ext, Method, is_named, is_on_device
from autofast.write.spelling import torch_in

ORDERS = wordset("permutation arange")
SIZES = {"choice": 1, "randint": 2, "integers": 2}  # where these are told how many they draw
OWN = wordset("default_rng RandomState Generator", "numpy.random.")

PARTS = (ast.Slice, ast.Constant)

Uses = list[ast.expr]


def index_arrays(script: Script, hot: frozenset[ast.AST]) -> Iterator[tuple[ast.expr, Edits]]:
    """One for each array that indexes tensors in every step: a place there, and what copies it
    once; nothing where that is not certain."""
    flow, seen = script.analysis(Flow), set[ast.AST]()
    for subscript in script.each(ast.Subscript):
        made = flow.value(subscript.slice) or subscript.slice
        alone = not flow.is_exported(function_of(subscript))
        if made in seen or not (alone and _is_there(script, subscript)):
            continue
        match made:
            case ast.Subscript(value=ast.Name() as order, slice=ast.Slice()):
                if _is_made(script, order) and any(n in hot for n in loops_around(made)):
                    changes, cuts = _parts(script, order)
                    seen.update(cuts)
                    yield made, _copied_once(script, order, changes, cuts)
            case ast.Call() if _name(script, made) in SIZES and _is_sized(script, made):
                seen.add(made)
                uses = _uses(script, made)
                if len(uses) != 1 and _runs_often(script, made, hot):
                    yield made, _copied(script, made, uses)


def _copied(script: Script, made: ast.expr, uses: Uses) -> Edits:
    """One copy, where an array is made, of which all uses are known."""
    torch, imports = torch_in(source_of(made))
    if where := _place(script, uses, statement_of(made)):
        return Wrap(made, f"{torch}.from_numpy({{}}).to({where})"), *imports
    return ()


def _copied_once(script: Script, order: ast.Name, changes: Uses, cuts: Uses) -> Edits:
    """A copy before the loop in which an order is cut, and does not change."""
    loop, uses = None, [use for cut in cuts for use in _uses(script, cut)]
    for around in loops_around(cuts[0]) if cuts else ():
        if any_within(changes, around):
            break
        loop = around
    if loop is None or not all(within(n, loop) for n in (*cuts, *uses)):
        return ()
    if len(changes) == 1 and (drawn := script.analysis(Flow).value(order)) is not None:
        return _copied(script, drawn, uses)
    source = source_of(order)
    name, (torch, imports) = source.fresh("indices", f"{order.id}_tensor"), torch_in(source)
    if not (where := _place(script, uses, loop)):
        return ()
    copy = Before(loop, f"{name} = {torch}.from_numpy({order.id}).to({where})")
    return copy, *imports, *(Rewrite(cut.value, name) for cut in cuts)  # type: ignore[attr-defined]


# -------------------------------------------------------------------------------- what is done with
def _parts(script: Script, order: ast.Name) -> tuple[Uses, Uses]:
    """The places that give an order its numbers, and those that cut it; nothing where there are
    others."""
    changes, cuts = list[ast.expr](), list[ast.expr]()
    for n in mentions(holder_of(order), order.id):
        taker = taker_of(n)
        if not is_same_function(n, order):
            return [], []
        if not is_read(n) or (taker and _name(script, taker) == "shuffle" and stands_alone(taker)):
            changes.append(n)
        elif (cut := _cut(script, n)) is not None:
            cuts.append(cut)
        elif not script.is_call(taker, "builtins.len"):
            return [], []
    return changes, cuts


def _cut(script: Script, order: ast.Name) -> ast.Subscript | None:
    """``order[i : i + n]``, with which nothing else is done than to index tensors."""
    match parent_of(order):
        case ast.Subscript(slice=ast.Slice(step=None), ctx=ast.Load()) as cut:
            return cut if _uses(script, cut) else None
    return None


def _uses(script: Script, made: ast.expr) -> Uses:
    """The places that index tensors on the device with an array, in the turn that makes it; nothing
    where more is done with it."""
    uses: Uses = [made]
    match put_into(made):
        case ast.Name() as target:
            flow, every = definitions_of(script, target), mentions(holder_of(target), target.id)
            value = script.analysis(Flow).value
            uses = [*flow.uses_of(target)]
            if any(is_read(n) and n not in uses for n in every) or not all(
                flow.graph.dominates(made, n) and value(n) is made for n in uses
            ):
                return []
    uses = [n for n in uses if not script.is_call(taker_of(n), "builtins.len")]
    found = [n for n in map(_indexed, uses) if n is not None and _is_there(script, n)]
    return uses if len(found) == len(uses) else []


def _indexed(index: ast.expr) -> ast.Subscript | None:
    """``x[index]``, or ``x[index, :2]``."""
    for by in (index, parent_of(index)):
        match parent_of(by):  # type: ignore[arg-type]
            case ast.Subscript(slice=inside) as found if inside is by:
                rest = [p for p in items_of(by) if p is not index]
                return found if all(isinstance(p, PARTS) for p in rest) else None
    return None


def _is_there(script: Script, indexed: ast.Subscript) -> bool:
    return surely(map(is_on_device, script.values(indexed.value)))


def _place(script: Script, uses: Uses, before: ast.stmt) -> str:
    """``x.device`` of a tensor that is indexed, and has its value when a statement begins; empty
    where there is none."""
    flow, graph = script.analysis(Flow), graph_of(script, before)
    for use in () if several_gpus(script) else uses:
        indexed = _indexed(use)
        assert indexed is not None
        tensor = indexed.value
        made = flow.definition(root_of(tensor, ast.Attribute))
        if made is not None and (
            made.is_parameter
            or (made.statement is not before and graph.dominates(made.node, before))
        ):
            parts = (n for n in nodes_in(function_of(before), ast.Attribute) if is_stored(n))
            if not any(is_attribute(tensor, n.attr) for n in parts):
                return f"{ast.unparse(tensor)}.device"
    return ""


# ------------------------------------------------------------------------------- what it is made by
def _name(script: Script, call: ast.expr | None) -> str:
    """``permutation`` of ``np.random.permutation(n)``, or of ``rng.permutation(n)``."""
    name, found = script.library_function(call), script.called(call)
    if surely(isinstance(t, Method) and is_named(t.this, Ext, OWN) for t in found):
        return short_name(call.func)  # type: ignore[union-attr]
    return last_part(name) if name.startswith(("numpy.", "random.")) else ""


def _is_made(script: Script, order: ast.Name) -> bool:
    """Whether it certainly is an array of the numbers of rows, in an order."""
    return surely(
        d.value is not None and _name(script, d.value) in ORDERS
        for d in script.analysis(Flow).reaching(order)
    )


def _is_sized(script: Script, draw: ast.Call) -> bool:
    """Whether it draws an array, and no single number."""
    place, given = SIZES[_name(script, draw)], keyword_of(draw, "size")
    size = draw.args[place] if given is None and place < len(draw.args) else given
    return size is not None and Const(None) not in script.values(size)


def _runs_often(script: Script, made: ast.AST, hot: frozenset[ast.AST]) -> bool:
    run_in, function = script.analysis(CallGraph).run_in, function_of(made)
    return any(n in hot for n in loops_around(made)) or any(
        function in run_in(loop, often=True)  # type: ignore[arg-type]
        for loop in hot
    )
