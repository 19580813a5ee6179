"""The device that a script copies its batches to, as an expression for another place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit
from autofast.flow.program import Flow
from autofast.flow.provenance import Trail, assigned
from autofast.flow.scopes import is_parameter, own_nodes
from autofast.model.events import CallFrame, Stack
from autofast.model.script import Loader, Script, Transfer
from autofast.model.source import function_of, parent_of, source_of
from autofast.model.values import Ext, Given, Ref, Thing, Values
from autofast.rule import Refusal, at
from autofast.write.spelling import is_device_object, torch_in

CUDA = '"cuda"'


def device_at(script: Script, loader: Loader) -> tuple[str, tuple[Edit, ...]]:
    """An expression that is, where the loader is made, the device to which its batches are moved; raises Refusal."""
    moves = [t for t in loader.moved if t.kinds and t.how in ("to", "cuda")]
    if not moves:
        raise Refusal("its batches are not moved to a device as they are")
    found = {_of(script, loader, move) for move in moves}
    if len(found) > 1:
        lines = " and ".join(sorted({str(m.node.lineno) for m in moves}))
        raise Refusal(f"its batches may go to several devices (lines {lines})")
    text, imports = found.pop()
    return text, imports


def _of(script: Script, loader: Loader, move: Transfer) -> tuple[str, tuple[Edit, ...]]:
    if move.how == "cuda" and not (move.node.args or move.node.keywords):
        return _plain_cuda(script, loader, move)
    target = move.target
    if target is None or target.expr is None or target.via or not move.to_device:
        raise Refusal(f"{at(move.node)} does not say to which device it copies")
    if isinstance(target.expr, ast.Constant):
        if str(target.expr.value).partition(":")[0] != "cuda":
            raise Refusal(f"{at(move.node)} copies to `{target.expr.value}`")
        return source_of(move.node).segment(target.expr), ()
    if isinstance(target.expr, ast.Attribute):
        return _attribute(script, loader, target, move), ()
    for name in _names(script, loader, target, move):
        return name, ()
    if text := _anywhere(script, loader, target, move):
        return text
    text = source_of(move.node).segment(target.expr)
    raise Refusal(f"`{text}` of {at(move.node)} is not known yet where the loader is made: put it above")


# ------------------------------------------------------------------------------------------------ .cuda()
def _plain_cuda(script: Script, loader: Loader, move: Transfer) -> tuple[str, tuple[Edit, ...]]:
    """``x.cuda()``, or ``if use_cuda: x = x.cuda()``."""
    tests = [test for test in _tests(move) if test is not None]
    if not tests:
        return CUDA, ()
    (first, *others) = tests
    if others or not isinstance(first, (ast.Name, ast.Attribute, ast.Call)):
        raise Refusal(f"{at(move.node)} copies to the device under a condition")
    if isinstance(first, ast.Call):
        if {t.name for t in script.values(first.func) if isinstance(t, Ref)} == {
            "torch.cuda.is_available"
        }:
            torch, imports = torch_in(source_of(loader.node))
            return f'{CUDA} if {torch}.cuda.is_available() else "cpu"', imports
        raise Refusal(f"{at(move.node)} copies to the device under a condition")
    given = Given(script.values(first), first)
    if isinstance(first, ast.Attribute):
        return f'{CUDA} if {_attribute(script, loader, given, move)} else "cpu"', ()
    for name in _names(script, loader, given, move):
        return f'{CUDA} if {name} else "cpu"', ()
    raise Refusal(f"`{first.id}` of {at(first)} is not known yet where the loader is made")


def _tests(move: Transfer) -> Iterator[ast.expr | None]:
    """The conditions around the copy, up to the loop."""
    loop = move.loops[-1].node if move.loops else None
    node: ast.AST | None = move.node
    while node is not None and node is not loop and not isinstance(node, ast.FunctionDef):
        above = parent_of(node)
        if isinstance(above, ast.If):
            yield above.test if any(node is s for s in above.body) else ast.Constant(None)
        elif isinstance(above, ast.IfExp) and node is not above.test:
            yield above.test if node is above.body else ast.Constant(None)
        node = above


# ------------------------------------------------------------------------------------------------ names
def _names(script: Script, loader: Loader, target: Given, move: Transfer) -> Iterator[str]:
    """Variables that hold the same at the place of the loader."""
    place = loader.node
    scope, module = function_of(place), source_of(place).tree
    definitions = script.analysis(Flow).definitions(place)
    origins = Trail(script).of(target, [o.stack for o in move.site])
    wanted = {id(o.expr) for o in origins} if isinstance(origins, list) else set()
    for where in dict.fromkeys((scope, module)):
        for name, values, exprs in _variables(script, where):
            if where is scope and not (
                is_parameter(scope, name) or definitions.is_bound_at(place, name)
            ):
                continue
            if where is not scope and (name in _locals(scope) or not _is_early(script, loader, exprs)):
                continue
            if values != target.values:
                continue
            same = is_device_object(values) and len(values) == 1
            if same or _same_origin(script, loader, exprs, wanted, name, where):
                yield name


def _variables(
    script: Script, scope: ast.AST
) -> Iterator[tuple[str, Values, list[ast.expr | ast.arg]]]:
    """The names of a scope that are set once, with what they hold and what sets them."""
    found: dict[str, list[ast.expr | ast.arg]] = {}
    for node in own_nodes(scope):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            value = assigned(node)
            found.setdefault(node.id, []).append(value if value is not None else node)
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        for arg in (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs):
            found.setdefault(arg.arg, []).append(arg)
    for name, exprs in found.items():
        if len(exprs) != 1:
            continue
        (expr,) = exprs
        if isinstance(expr, ast.arg):
            yield name, _of_parameter(script, scope, name), exprs
        else:
            yield name, script.values(expr), exprs


def _of_parameter(script: Script, scope: ast.AST, name: str) -> Values:
    loads = [
        n
        for n in own_nodes(scope)
        if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
    ]
    return frozenset[Thing]().union(*(script.values(n) for n in loads))


def _locals(scope: ast.AST) -> set[str]:
    stored = {
        n.id
        for n in own_nodes(scope)
        if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
    }
    arguments = scope.args if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
    return stored | {a.arg for a in ast.walk(arguments) if isinstance(a, ast.arg)} if arguments else stored


def _is_early(script: Script, loader: Loader, exprs: list[ast.expr | ast.arg]) -> bool:
    """A variable of the module that has its value before the function of the loader is called."""
    orders = [
        o.order
        for e in exprs
        for n in ast.walk(e)
        for site in (script.log.at("new", n),)
        if site is not None
        for o in site
    ]
    made = [o.order for s in script.log.of("new") if s.node is loader.node for o in s]
    return bool(orders) and bool(made) and max(orders) < min(made)


def _same_origin(
    script: Script,
    loader: Loader,
    exprs: list[ast.expr | ast.arg],
    wanted: set[int],
    name: str,
    scope: ast.AST,
) -> bool:
    """Whether a variable gets its value in the very place where the other one gets it."""
    if len(wanted) != 1:
        return False
    stacks: list[Stack] = [t.made for t in loader.things if isinstance(t, Ext)]
    (expr,) = exprs
    if isinstance(expr, ast.arg):
        given: list[Given] = []
        for stack in stacks:
            frames = [f for f in stack if isinstance(f, CallFrame) and f.func.node is scope]
            given += [f.given[name] for f in frames[-1:] if name in f.given]
        expressions = [g.expr for g in given if g.expr is not None and not g.via]
        if len(expressions) != len(stacks):
            return False
    else:
        expressions = [expr]
    for one in expressions:
        if id(one) in wanted:
            continue
        found = Trail(script).of(Given(script.values(one), one), stacks)
        if not isinstance(found, list) or {id(o.expr) for o in found} != wanted:
            return False
    return True


# ------------------------------------------------------------------------------------------------ others
def _attribute(script: Script, loader: Loader, target: Given, move: Transfer) -> str:
    """``args.device`` or ``self.device``: the same object at both places, and set before the loader is made."""
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
    if any(script.values(n) != script.values(root) for n in here if isinstance(n.ctx, ast.Load)):
        raise Refusal(why)
    if not is_parameter(scope, root.id) and not script.analysis(Flow).definitions(
        loader.node
    ).is_bound_at(loader.node, root.id) and root.id in _locals(scope):
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


def _anywhere(
    script: Script, loader: Loader, target: Given, move: Transfer
) -> tuple[str, tuple[Edit, ...]] | None:
    """``torch.device("cuda" if torch.cuda.is_available() else "cpu")``, which can be asked again at the place of the loader."""
    origins = Trail(script).of(target, [o.stack for o in move.site])
    if not isinstance(origins, list) or len(origins) != 1:
        return None
    expr = origins[0].expr
    torch, imports = torch_in(source_of(loader.node))
    test = f"'cuda' if {torch}.cuda.is_available() else 'cpu'"
    plain = {test, f"{torch}.device({test})"}
    return (f'{CUDA} if {torch}.cuda.is_available() else "cpu"', imports) if ast.unparse(expr) in plain else None
