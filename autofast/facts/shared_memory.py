"""Reshaped tensors that share memory with what they were made of, and are written to: in another layout they are copies, or the reverse."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.model.script import Script
from autofast.model.source import ancestors, function_of, parent_of, statement_of
from autofast.model.values import Bound, Ext, Func, Inst, Ref, const
from autofast.ops import is_in_place, is_view

METHODS = frozenset({"view", "view_as", "reshape", "reshape_as", "flatten", "ravel", "contiguous"})
FUNCTIONS = frozenset({"torch.flatten", "torch.reshape", "torch.ravel"})
LOOPS = (ast.For, ast.While, ast.AsyncFor)


def is_reshaping(script: Script, node: ast.AST) -> ast.expr | None:
    """What is given another shape by this call, perhaps without a copy."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        if not any(isinstance(t, Ref) for t in script.values(node.func.value)):
            return node.func.value
    if isinstance(node, ast.Call) and node.args:
        callee = script.values(node.func)
        if any((isinstance(t, Ref) and t.name in FUNCTIONS) or (isinstance(t, Ext) and t.name == "torch.nn.Flatten") for t in callee):
            return node.args[0]
    return None


def written_through(script: Script, call: ast.Call, base: ast.expr) -> int:
    """The line of a write to ``base`` or to its reshaped form ``call`` that the other one may see; 0 where there is none."""
    whole = _chain(call)
    parent = parent_of(whole)
    if line := _direct(script, whole, parent):
        return line if _lives(script, base, call, frozenset()) else 0
    scope = function_of(call)
    names = _bound(parent)
    if isinstance(parent, ast.Assign) and (line := _in_attribute(script, [t.attr for t in parent.targets if isinstance(t, ast.Attribute)])):
        return line
    mine = frozenset(names)
    root = _root(base)
    for node, name in _writes(script, scope):
        if not _may_follow(node, call):
            continue
        if name in mine and _lives(script, base, call, mine):
            return getattr(node, "lineno", 0)
        kept = bool(mine) or not isinstance(parent, (ast.Call, ast.Attribute, ast.BinOp, ast.keyword, ast.Compare, ast.Subscript))
        if root is not None and name == root.id and root.id not in mine and kept and not isinstance(parent, ast.Return):
            return getattr(node, "lineno", 0)
    return 0


def _chain(node: ast.expr) -> ast.expr:
    """``h.view(-1)[2:].t()`` around ``h.view(-1)``: all that shares its memory."""
    while True:
        parent = parent_of(node)
        if isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.ctx, ast.Load):
            node = parent
        elif isinstance(parent, ast.Attribute) and is_view(parent.attr):
            outer = parent_of(parent)
            node = outer if isinstance(outer, ast.Call) and outer.func is parent else parent
        else:
            return node


def _direct(script: Script, node: ast.expr, parent: ast.AST | None) -> int:
    """The line where the reshaped value is written to at once."""
    line = node.lineno
    match parent:
        case ast.Attribute(attr=attr) if is_in_place(attr):
            return line
        case ast.Subscript(value=value, ctx=ast.Store()) if value is node:
            return line
        case ast.AugAssign(target=target) if target is node:
            return line
        case ast.Call() if parent.func is not node and _writes_arguments(script, parent):
            return line
        case ast.keyword(arg="out"):
            return line
    return 0


def _bound(parent: ast.AST | None) -> list[str]:
    """The variables that get it."""
    while isinstance(parent, (ast.Tuple, ast.List, ast.IfExp, ast.Starred)):
        parent = parent_of(parent)
    if isinstance(parent, ast.NamedExpr):
        return [parent.target.id]
    targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target] if isinstance(parent, (ast.AnnAssign, ast.For)) else []
    return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _in_attribute(script: Script, kept: list[str]) -> int:
    """The line of a write to what is kept under one of these attributes."""
    for node in (n for source in script.sources for n in ast.walk(source.tree) if kept):
        if isinstance(node, ast.Attribute) and node.attr in kept and isinstance(node.ctx, ast.Load):
            parent = parent_of(_chain(node))
            if isinstance(parent, ast.AugAssign) or _direct(script, _chain(node), parent):
                return node.lineno
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute) and node.target.attr in kept:
            return node.lineno
    return 0


def _writes(script: Script, scope: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """The writes to tensors in a function, with the variable at the bottom of each."""
    for node in ast.walk(scope):
        match node:
            case ast.AugAssign(target=target):
                found: list[ast.expr] = [target]
            case ast.Subscript(ctx=ast.Store(), value=value):
                found = [value]
            case ast.Attribute(value=value, attr=attr) if is_in_place(attr):
                found = [value]
            case ast.Call(args=args) if _writes_arguments(script, node):
                found = [*args, *(k.value for k in node.keywords)]
            case ast.Call(keywords=keywords):
                found = [k.value for k in keywords if k.arg == "out"]
            case _:
                continue
        for written in found:
            if (root := _root(written)) is not None:
                yield node, root.id


def _writes_arguments(script: Script, call: ast.Call) -> bool:
    """``F.relu(x, inplace=True)``, a layer of that kind, ``torch.relu_(x)``, or a function of the project that writes to tensors."""
    if any(k.arg == "inplace" and not (isinstance(k.value, ast.Constant) and k.value.value is False) for k in call.keywords):
        return True
    for thing in script.values(call.func):
        if isinstance(thing, Ref) and (is_in_place(thing.name) or (thing.name.endswith("functional.relu") and len(call.args) > 1)):
            return True
        if isinstance(thing, Ext) and _is_in_place_layer(thing):
            return True
        if isinstance(thing, (Func, Bound)):
            func = thing.func if isinstance(thing, Bound) else thing
            if any(True for _ in _own_writes(func.node)):
                return True
        if isinstance(thing, Inst) and any(
            True for f in thing.cls.find("forward") or () if isinstance(f, Func) for _ in _own_writes(f.node)
        ):
            return True
    return False


def _own_writes(func: ast.AST) -> Iterator[ast.AST]:
    """Writes to the parameters of a function, under their names."""
    spec = getattr(func, "args", None)
    params = {a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)} - {"self"} if isinstance(spec, ast.arguments) else set()
    for node in ast.walk(func):
        target: ast.AST | None = None
        if isinstance(node, ast.AugAssign):
            target = node.target
        elif (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)) or (
            isinstance(node, ast.Attribute) and is_in_place(node.attr)
        ):
            target = node.value
        root = _root(target) if isinstance(target, ast.expr) else None
        if root is not None and root.id in params:
            yield node


def _is_in_place_layer(thing: Ext) -> bool:
    """The first layer of it writes into its input."""
    if thing.name == "torch.nn.Sequential" and thing.args.positional:
        return any(isinstance(t, Ext) and _is_in_place_layer(t) for t in thing.args.positional[0].values)
    position = {
        "torch.nn.ReLU": 0,
        "torch.nn.ReLU6": 0,
        "torch.nn.SiLU": 0,
        "torch.nn.Dropout": 1,
        "torch.nn.LeakyReLU": 1,
        "torch.nn.ELU": 1,
    }
    flag = thing.args.get(position.get(thing.name, 9), "inplace")
    return bool(flag) and const(flag) is not False


# ------------------------------------------------------------------------------------------------ who else sees it
def _lives(script: Script, base: ast.expr, call: ast.Call, names: frozenset[str]) -> bool:
    """Whether what was reshaped may be looked at later."""
    root = _root(base)
    if root is None:
        return _writes_arguments(script, base) if isinstance(base, ast.Call) else not isinstance(base, ast.BinOp)
    if not isinstance(base, ast.Name):
        return True
    if base.id not in names:  # under its own name
        scope = function_of(call)
        return any(
            isinstance(n, ast.Name) and n.id == base.id and isinstance(n.ctx, ast.Load) and _may_follow(n, call) for n in ast.walk(scope)
        ) or (_is_parameter(scope, base.id))
    return _held(script, base, call)


def _held(script: Script, base: ast.Name, call: ast.Call) -> bool:
    """``x = x.view(...)``: whether the old ``x`` has another name."""
    scope, statement = function_of(call), statement_of(call)
    stores = [
        n for n in ast.walk(scope)
        if isinstance(n, ast.Name) and n.id == base.id and isinstance(n.ctx, ast.Store) and statement_of(n) is not statement
        and not isinstance(parent_of(n), ast.AugAssign)
    ]  # fmt: skip
    if _is_parameter(scope, base.id) and not any(_is_top(n, scope) and n.lineno <= statement.lineno for n in stores):
        return True
    for store in stores:
        value = getattr(statement_of(store), "value", None)
        if not isinstance(value, (ast.Call, ast.BinOp)):
            return True
        if isinstance(value, ast.Call) and isinstance(_root(value), ast.Name) and _root(value).id != base.id and _shares(script, value):  # type: ignore[union-attr]
            return True
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and node.id == base.id and isinstance(node.ctx, ast.Load) and statement_of(node) is not statement:
            whole = _chain(node)
            parent = parent_of(whole)
            if isinstance(parent, ast.Assign) and any(n != base.id for n in _bound(parent) or [""]):
                return True
            if isinstance(parent, (ast.List, ast.Tuple, ast.Dict, ast.NamedExpr)):
                return True
            if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr in ("append", "add", "insert"):
                return True
    return False


def _shares(script: Script, value: ast.Call) -> bool:
    """The result is, or shares memory with, an argument."""
    attr = value.func.attr if isinstance(value.func, ast.Attribute) else ""
    return is_view(attr) or _writes_arguments(script, value)


def _is_top(node: ast.AST, scope: ast.AST) -> bool:
    return parent_of(statement_of(node)) is scope


def _may_follow(node: ast.AST, call: ast.Call) -> bool:
    """``node`` may run after ``call``: it stands below, or a loop holds both."""
    first, second = statement_of(call), statement_of(node)
    if first is second:
        return isinstance(first, LOOPS)
    around = {id(a) for a in ancestors(call) if isinstance(a, LOOPS)}
    return (second.lineno, second.col_offset) > (first.lineno, first.col_offset) or any(id(a) in around for a in ancestors(node))


def _root(node: ast.expr) -> ast.Name | None:
    """The variable that a chain of parts and views starts from."""
    while True:
        if isinstance(node, (ast.Subscript, ast.Starred)):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_view(node.func.attr):
            node = node.func.value
        elif isinstance(node, ast.Attribute) and is_view(node.attr):
            node = node.value
        else:
            return node if isinstance(node, ast.Name) else None


def _is_parameter(scope: ast.AST, name: str) -> bool:
    spec = getattr(scope, "args", None)
    return isinstance(spec, ast.arguments) and name in {a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
