"""The device that a script copies its batches to, as an expression for another place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Written
from autofast.flow.program import Flow
from autofast.flow.provenance import assigned_value
from autofast.flow.scopes import (
    Variable,
    Variables,
    is_parameter,
    own_nodes,
    parameters,
    variables_of,
)
from autofast.model.events import CallFrame, Stack, TryFrame, is_undecided
from autofast.model.roles import Loader, Transfer
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import at, function_of, parent_of, source_of
from autofast.model.syntax import is_read
from autofast.model.values import Ext, Given, Values
from autofast.rule import Refusal
from autofast.write.spelling import requires_cuda, torch_in

CUDA = '"cuda"'


def device_at(script: Script, loader: Loader) -> Written:
    """An expression that is, where the loader is made, the device to which its batches are moved;
    raises Refusal.
    """
    moves = [t for t in loader.moved if t.kinds and t.how in ("to", "cuda")]
    if not moves:
        raise Refusal("its batches are not moved to a device as they are")
    found = {_of(script, loader, move) for move in moves}
    if len(found) > 1:
        lines = " and ".join(sorted({at(m) for m in moves}))
        raise Refusal(f"its batches may go to several devices ({lines})")
    text, imports = found.pop()
    if _is_cuda_only(moves) and not requires_cuda(script) and not any(map(_is_certain, moves)):
        raise Refusal("copies to CUDA under a condition", moves[0])
    return text, imports


def _is_cuda_only(moves: list[Transfer]) -> bool:
    return all(move.kinds <= {"cuda"} for move in moves)


def _is_certain(move: Transfer) -> bool:
    """Some way leads there on which nothing is decided, but by the conditions that are written for
    the device.
    """
    own = set(_conditions(move))
    return any(
        not any(isinstance(f, TryFrame) or (is_undecided(f) and f.node not in own) for f in o.stack)
        for o in move.site
    )


def _of(script: Script, loader: Loader, move: Transfer) -> Written:
    if move.how == "cuda" and not (move.node.args or move.node.keywords):
        return _plain_cuda(script, loader, move)
    target = move.target
    if target is None or target.expr is None or target.via or not move.to_device:
        raise Refusal("does not say to which device it copies", move)
    if isinstance(target.expr, ast.Constant):
        text = source_of(move.node).segment(target.expr)
        if not str(target.expr.value).startswith("cuda"):
            raise Refusal(f"copies to {text}", move)
        return text, ()
    if isinstance(target.expr, ast.Attribute):
        return _attribute(script, loader, target, move), ()
    if name := next(_names(script, loader, target.expr, [o.stack for o in move.site]), ""):
        return name, ()
    text = source_of(move.node).segment(target.expr)
    raise Refusal(f"`{text}` of {at(move)} is not known yet where the loader is made: put it above")


# ------------------------------------------------------------------------------------------ .cuda()
def _plain_cuda(script: Script, loader: Loader, move: Transfer) -> Written:
    """``x.cuda()``, or ``if use_cuda: x = x.cuda()``."""
    conditions = list(_conditions(move))
    if not conditions:
        return CUDA, ()
    first = conditions[0].test
    if len(conditions) > 1 or not isinstance(first, (ast.Name, ast.Attribute, ast.Call)):
        raise Refusal("copies to the device under a condition", move)
    body = conditions[0].body
    inside = body if isinstance(body, list) else [body]
    if not any(move.node in ast.walk(part) for part in inside):
        raise Refusal("copies to the device under a condition", move)
    if isinstance(first, ast.Call):
        if script.library_functions(first) == {"torch.cuda.is_available"}:
            torch, imports = torch_in(source_of(loader.node))
            return f'{CUDA} if {torch}.cuda.is_available() else "cpu"', imports
        raise Refusal("copies to the device under a condition", move)
    given = Given(script.values(first), first)
    if isinstance(first, ast.Attribute):
        return f'{CUDA} if {_attribute(script, loader, given, move)} else "cpu"', ()
    if name := next(_names(script, loader, first, [o.stack for o in move.site]), ""):
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
def _names(
    script: Script, loader: Loader, target: ast.expr | None, stacks: list[Stack]
) -> Iterator[str]:
    """Variables that certainly hold, where the loader is made, what the target holds on these ways
    to where batches are moved.
    """
    if not isinstance(target, ast.Name):
        return
    wanted = {_origin(target, stack) for stack in stacks}
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
    calls = [f.node for f in of_kind(stack, CallFrame) if function_of(f.node) is scope]
    return calls[-1] if calls else None


# ------------------------------------------------------------------------------------------- others
def _attribute(script: Script, loader: Loader, target: Given, move: Transfer) -> str:
    """``args.device`` or ``self.device``: an object that has a name at both places, and the
    attribute before the loader is made; or a variable that the attribute was set to.
    """
    expr = target.expr
    assert isinstance(expr, ast.Attribute)
    owners = script.values(expr.value)
    sites = script.log.setting(owners, expr.attr)
    made = [o.order for s in script.log.of("new") if s.node is loader.node for o in s]
    late = not made or any(o.order > min(made) for s in sites for o in s if o.this in owners)
    if len(owners) == 1 and not late:
        for name in _held_by(script, loader, expr.value, owners):
            return f"{name}.{expr.attr}"
    if len(owners) == len(sites) == 1 and (value := assigned_value(sites[0].node)) is not None:
        stacks = [o.stack for o in sites[0] if o.this in owners]
        name = next(_names(script, loader, value, stacks), "")
        if name and script.values(value) == script.values(expr):
            return name
    text = source_of(expr).segment(expr)
    raise Refusal(
        f"`{text}` of {at(move)} may be another one, or not be set, where the loader is made"
    )


def _held_by(script: Script, loader: Loader, owner: ast.expr, owners: Values) -> Iterator[str]:
    """The variables that certainly hold one object where the loader is made, ``owner`` first."""
    scope = function_of(loader.node)
    read: dict[str, set[Values]] = {}
    for node in own_nodes(scope):
        if isinstance(node, ast.Name) and is_read(node):
            read.setdefault(node.id, set()).add(script.values(node))
    here, table = getattr(owner, "id", ""), variables_of(loader.node)
    for name in sorted(read, key=lambda n: n != here):
        variable = table.find(name, scope)
        if read[name] == {owners} and variable and _is_set(script, loader, variable):
            yield name
