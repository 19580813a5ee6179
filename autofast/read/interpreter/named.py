"""Things that a script finds by a name that it computes: ``eval("models." + name)``,
``globals()[name]``.
"""

from __future__ import annotations

import ast
import re

from autofast.model.calls import is_name
from autofast.model.several import wordset
from autofast.model.values import (
    NOTHING,
    NUMBER,
    Arg,
    Const,
    Env,
    Module,
    Num,
    Ref,
    Setting,
    Thing,
    Unknown,
    Values,
    is_const,
    one,
    ordered,
    things as values,
)
from autofast.read.library import chosen
from autofast.read.library.module_parts import by_prefix
from autofast.read.state.core import Core

NAMESPACES = wordset("globals locals vars")
COMPUTED = Unknown("its name is computed")
PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
Part = str | frozenset[Thing]  # what is written, or what is put in


def is_namespace(node: ast.expr) -> bool:
    """``globals()``, ``locals()``, ``vars()``."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in NAMESPACES
        and not node.args
        and not node.keywords
    )


def by_key(interp: Core, index: Values, env: Env, node: ast.expr) -> Values:
    """``globals()[name]``: what the name may be."""
    of = node.value if isinstance(node, ast.Subscript) else None
    if isinstance(of, ast.Call) and is_name(of.func, "globals"):
        env = env.module
    return NOTHING.union(*(_named(interp, key, env, node) for key in ordered(index))) or values(
        COMPUTED
    )


def evaluated(interp: Core, source: ast.expr, env: Env, node: ast.expr) -> Values | None:
    """``eval(source)`` where that is a dotted name, of which one part may be computed; None for any
    other code.
    """
    parts = _parts(interp, source)
    if parts is None:
        return None
    texts = [part if isinstance(part, str) else "x" for part in parts]
    holes = [part for part in parts if not isinstance(part, str)]
    if len(holes) > 1 or not PATH.fullmatch("".join(texts)):
        return None
    found: Values | None = None
    path = "".join(p if isinstance(p, str) else "\0" for p in parts).split(".")
    for name, after in zip(path, [*path[1:], ""], strict=True):
        if name.strip("\0") and "\0" in name:  # a part of a name
            if found is None:
                return None  # `"Net" + kind`
            asked = values(Num(pattern=name.replace("\0", "*")))
            found = NOTHING.union(*(by_prefix(t, asked) or {COMPUTED} for t in found))
        elif "\0" not in name:
            if found is None:
                found = _lookup(interp, name, env)
            else:
                found = _attributes(interp, found, name, node)
        elif found is None:  # any code
            found = by_key(interp, holes[0], env, node) | {COMPUTED}
        else:
            found = NOTHING.union(
                *(
                    _member(interp, t, key, node, after)
                    for t in ordered(found)
                    for key in ordered(holes[0])
                )
            )
    return found


def _parts(interp: Core, source: ast.expr) -> list[Part] | None:
    """The text of an expression: what is written, and the values of what is put in."""
    match source:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _parts(interp, left), _parts(interp, right)
            return None if first is None or second is None else [*first, *second]
        case ast.JoinedStr(values=several):
            out: list[Part] = []
            for part in several:
                inner = part.value if isinstance(part, ast.FormattedValue) else part
                more = _parts(interp, inner)
                if more is None:
                    return None
                out += more
            return out
        case ast.Name() | ast.Attribute() | ast.Subscript():
            found = interp.at.get(source, NOTHING)
            plain = [t.value for t in found if isinstance(t, Const)]
            if len(found) == 1 and plain and isinstance(plain[0], str):
                return [plain[0]]
            return [found]
        case ast.Call() | ast.BinOp():  # `"self.conv%d" % i`
            made = one(interp.at.get(source, NOTHING))
            pattern = made.pattern if isinstance(made, Num) else ""
            before, hole, after = pattern.partition("*")
            return [before, NUMBER, after] if hole else None
    return None


def _named(interp: Core, key: Thing, env: Env, node: ast.expr) -> Values:
    module = interp.modules.get(env.module.source) if env.module.source is not None else None
    if is_const(key, str):
        return _lookup(interp, key.value, env)
    if isinstance(key, (Arg, Setting)) and module is not None:
        return chosen.member(interp, module, key, node)
    return values(COMPUTED)


def _lookup(interp: Core, name: str, env: Env) -> Values:
    found: Values = interp.lookup(name, env)  # type: ignore[attr-defined]
    return found


def _attributes(interp: Core, found: Values, name: str, node: ast.expr) -> Values:
    return NOTHING.union(*(interp.attribute(t, name, node) for t in ordered(found)))


def _member(interp: Core, thing: Thing, key: Thing, node: ast.expr, after: str) -> Values:
    if is_const(key, str):
        return interp.attribute(thing, key.value, node)
    if isinstance(thing, Module) and isinstance(key, (Arg, Setting)):
        return chosen.member(interp, thing, key, node)
    if after and isinstance(thing, Module) and not isinstance(key, (Arg, Setting)):
        return chosen.modules_with(interp, thing, after) or values(COMPUTED)
    if offered := chosen.any_member(thing, key):
        return offered
    return values(Ref(f"{thing.name}.*") if isinstance(thing, Ref) else COMPUTED)
