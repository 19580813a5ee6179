"""The device that a script copies its batches to, as an expression for another place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit
from autofast.flow.program import Flow
from autofast.flow.scopes import (
    Variable,
    Variables,
    is_parameter,
    own_nodes,
    parameters,
    stored_in,
    variables_of,
)
from autofast.model.events import BranchFrame, CallFrame, Stack, TryFrame
from autofast.model.script import Loader, Script, Transfer
from autofast.model.source import at, function_of, parent_of, source_of
from autofast.model.syntax import is_read
from autofast.model.values import Ext, Given
from autofast.rule import Refusal
from autofast.write.spelling import requires_cuda, torch_in

CUDA = '"cuda"'


def device_at(script: Script, loader: Loader) -> tuple[str, tuple[Edit, ...]]:
    """An expression that is, where the loader is made, the device to which its batches are moved;
    raises Refusal.
    """
    moves = [t for t in loader.moved if t.kinds and t.how in ("to", "cuda")]
    if not moves:
        raise Refusal("its batches are not moved to a device as they are")
    found = {_of(script, loader, move) for move in moves}
    if len(found) > 1:
        lines = " and ".join(sorted({at(m.node) for m in moves}))
        raise Refusal(f"its batches may go to several devices ({lines})")
    text, imports = found.pop()
    if _is_cuda_only(moves) and not requires_cuda(script) and not any(map(_is_certain, moves)):
        raise Refusal(f"{at(moves[0].node)} copies to CUDA under a condition")
    return text, imports


def _is_cuda_only(moves: list[Transfer]) -> bool:
    return all(move.kinds <= {"cuda"} for move in moves)


def _is_certain(move: Transfer) -> bool:
    """Some way leads there on which nothing is decided, but by the conditions that are written for
    the device.
    """
    own = set(_conditions(move))
    return any(
        not any(
            isinstance(f, TryFrame)
            or (isinstance(f, BranchFrame) and not f.known and f.node not in own)
            for f in o.stack
        )
        for o in move.site
    )


def _of(script: Script, loader: Loader, move: Transfer) -> tuple[str, tuple[Edit, ...]]:
    if move.how == "cuda" and not (move.node.args or move.node.keywords):
        return _plain_cuda(script, loader, move)
    target = move.target
    if target is None or target.expr is None or target.via or not move.to_device:
        raise Refusal(f"{at(move.node)} does not say to which device it copies")
    if isinstance(target.expr, ast.Constant):
        text = source_of(move.node).segment(target.expr)
        if not str(target.expr.value).startswith("cuda"):
            raise Refusal(f"{at(move.node)} copies to {text}")
        return text, ()
    if isinstance(target.expr, ast.Attribute):
        return _attribute(script, loader, target, move), ()
    if name := next(_names(script, loader, target, move), ""):
        return name, ()
    text = source_of(move.node).segment(target.expr)
    raise Refusal(
        f"`{text}` of {at(move.node)} is not known yet where the loader is made: put it above"
    )


# ------------------------------------------------------------------------------------------ .cuda()
def _plain_cuda(script: Script, loader: Loader, move: Transfer) -> tuple[str, tuple[Edit, ...]]:
    """``x.cuda()``, or ``if use_cuda: x = x.cuda()``."""
    conditions = list(_conditions(move))
    if not conditions:
        return CUDA, ()
    first = conditions[0].test
    if len(conditions) > 1 or not isinstance(first, (ast.Name, ast.Attribute, ast.Call)):
        raise Refusal(f"{at(move.node)} copies to the device under a condition")
    body = conditions[0].body
    inside = body if isinstance(body, list) else [body]
    if not any(move.node in ast.walk(part) for part in inside):
        raise Refusal(f"{at(move.node)} copies to the device under a condition")
    if isinstance(first, ast.Call):
        if script.library_functions(first) == {"torch.cuda.is_available"}:
            torch, imports = torch_in(source_of(loader.node))
            return f'{CUDA} if {torch}.cuda.is_available() else "cpu"', imports
        raise Refusal(f"{at(move.node)} copies to the device under a condition")
    given = Given(script.values(first), first)
    if isinstance(first, ast.Attribute):
        return f'{CUDA} if {_attribute(script, loader, given, move)} else "cpu"', ()
    if name := next(_names(script, loader, given, move), ""):
        return f'{CUDA} if {name} else "cpu"', ()
    raise Refusal(f"`{first.id}` of {at(first)} is not known yet where the loader is made")


def _conditions(move: Transfer) -> Iterator[ast.If | ast.IfExp]:
    """What decides, in the loop, whether the copy is made."""
    loop = move.loops[-1].node if move.loops else None
    node: ast.AST | None = move.node
    while node is not None and node is not loop and not isinstance(node, ast.FunctionDef):
        above = parent_of(node)
        if isinstance(above, ast.If) or isinstance(above, ast.IfExp) and node is not above.test:
            yield above
        node = above


# -------------------------------------------------------------------------------------------- names
def _names(script: Script, loader: Loader, target: Given, move: Transfer) -> Iterator[str]:
    """Variables that certainly hold, where the loader is made, what the target holds where batches
    are moved.
    """
    if not isinstance(target.expr, ast.Name):
        return
    wanted = {_origin(target.expr, o.stack) for o in move.site}
    place, table = loader.node, variables_of(loader.node)
    scope, module = function_of(place), source_of(place).tree
    for name in dict.fromkeys(
        n.id for s in (scope, module) for n in own_nodes(s) if isinstance(n, ast.Name)
    ) | dict.fromkeys(a.arg for a in parameters(scope)):
        variable = table.find(name, scope)
        if variable is None:
            continue
        found = {_origin_of(table, variable, stack) for stack in _made(loader)}
        if len(wanted) != 1 or found != wanted:
            continue
        ((origin, _),) = wanted
        if origin is not None and all(_is_set(script, loader, v) for v in {variable, origin}):
            yield name


def _made(loader: Loader) -> list[Stack]:
    return [t.made for t in loader.things if isinstance(t, Ext)]


Origin = tuple[Variable | None, int]


def _origin(name: ast.Name, stack: Stack) -> Origin:
    """The variable that a name's value comes from along the calls, in one activation of its
    scope.
    """
    table = variables_of(name)
    variable = table.of(name)
    return (None, id(name)) if variable is None else _origin_of(table, variable, stack)


def _origin_of(table: Variables, variable: Variable, stack: Stack) -> Origin:
    frames = [
        n for n, f in enumerate(stack) if isinstance(f, CallFrame) and f.func.node is variable.scope
    ]
    if not frames:
        return variable, 0
    frame = stack[frames[-1]]
    assert isinstance(frame, CallFrame)
    stores = [n for n in table.stores(variable) if not isinstance(n, ast.arg)]
    given = frame.given.get(variable.name)
    if is_parameter(frame.func.node, variable.name) and not stores and given is not None:
        if isinstance(given.expr, ast.Name) and not given.via:
            return _origin(given.expr, stack[: frames[-1]])
    return variable, id(frame.node)


def _is_set(script: Script, loader: Loader, variable: Variable) -> bool:
    """It has its value where the loader is made, or where the call stands that leads there, and
    gets no other one later.
    """
    flow, stores = script.analysis(Flow), variables_of(variable.scope).stores(variable)
    if any(_scope(n) is not variable.scope for n in stores):
        return False
    mine = [n for n in stores if not isinstance(n, ast.arg)]
    for way in [_way(variable.scope, loader, stack) for stack in _made(loader)]:
        if way is None or any(flow.graph(way).may_follow(n, way) for n in mine):
            return False
        given = is_parameter(variable.scope, variable.name) and not mine
        if not given and not flow.definitions(way).is_bound_at(way, variable.name):
            return False
    return True


def _scope(store: ast.AST) -> ast.AST:
    return (
        function_of(parent_of(store) or store) if isinstance(store, ast.arg) else function_of(store)
    )


def _way(scope: ast.AST, loader: Loader, stack: Stack) -> ast.AST | None:
    """Where a scope goes on to the place that makes the loader: this place, or the call that leads
    there.
    """
    if function_of(loader.node) is scope:
        return loader.node
    calls = [f.node for f in stack if isinstance(f, CallFrame) and function_of(f.node) is scope]
    return calls[-1] if calls else None


# ------------------------------------------------------------------------------------------- others
def _attribute(script: Script, loader: Loader, target: Given, move: Transfer) -> str:
    """``args.device`` or ``self.device``: the same object at both places, and set before the loader
    is made.
    """
    expr = target.expr
    assert isinstance(expr, ast.Attribute)
    text, root = source_of(expr).segment(expr), expr.value
    why = f"`{text}` of {at(move.node)} may be another one, or not be set, where the loader is made"
    scope = function_of(loader.node)
    here = [
        n
        for n in own_nodes(scope)
        if isinstance(n, ast.Name) and isinstance(root, ast.Name) and n.id == root.id
    ]
    if not isinstance(root, ast.Name) or not here:
        raise Refusal(why)
    if any(script.values(n) != script.values(root) for n in here if is_read(n)):
        raise Refusal(why)
    if (
        not is_parameter(scope, root.id)
        and not script.analysis(Flow).definitions(loader.node).is_bound_at(loader.node, root.id)
        and root.id in stored_in(scope)
    ):
        raise Refusal(why)
    owners = script.values(root)
    sites = [
        o.order
        for s in script.log.of("set_attribute")
        for o in s
        if o.data["name"] == expr.attr and o.this in owners
    ]
    made = [o.order for s in script.log.of("new") if s.node is loader.node for o in s]
    if len(owners) != 1 or not made or any(order > min(made) for order in sites):
        raise Refusal(why)
    return text
