"""Whether what is computed of an expression certainly reaches nothing, and can go with it."""

from __future__ import annotations

import ast
from itertools import takewhile

from autofast.facts.computes import Computes
from autofast.facts.invariants import Invariants
from autofast.flow.reflection import namespace_calls
from autofast.flow.scopes import declared, mentions
from autofast.model.calls import is_method, only_target
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.source import ancestors, function_of, nodes_in, source_of, statement_of
from autofast.model.syntax import is_operation, is_read
from autofast.model.values import Method, Ref, Tensor, Thing, begins
from autofast.ops import draws

UNREAD = "nobody reads `{}`, which is computed of it: leave it out"
GONE = "computes `{}`, which nobody reads, at each call"
QUIET = (ast.Compare, ast.UnaryOp, ast.keyword, ast.Attribute)  # beside calls that only compute


def unread(script: Script, expr: ast.expr, around: frozenset[ast.stmt] = frozenset()) -> str:
    """The variable that gets what is computed of it, where nobody reads that; empty else."""
    stmt, function = statement_of(expr), function_of(expr)
    name, known = only_target(stmt), script.analysis(Invariants)
    if not isinstance(name, ast.Name) or not isinstance(function, ast.FunctionDef):
        return ""
    for outer in takewhile(lambda n: n is not stmt, ancestors(expr)):
        moves = is_method(outer, "to", "cuda")
        computes = moves or (isinstance(outer, ast.Call) and known.computes(outer, None))
        if not (computes or isinstance(outer, QUIET) or is_operation(outer)):
            return ""
    if name.id in declared(function) | source_of(stmt).rebound or namespace_calls(function):
        return ""
    uses = [n for n in mentions(function, name.id) if is_read(n)]
    around |= {stmt}
    dead = all(statement_of(n) in around or unread(script, n, around) for n in uses)
    return name.id if dead else ""


def idle(script: Script, expr: ast.expr) -> ast.stmt | None:
    """The statement around it, where nobody reads the variable that it binds, and it does nothing
    else: it writes nothing, and draws no random numbers.
    """
    stmt = statement_of(expr)
    match stmt:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            alone = not any(is_read(n) for n in mentions(function_of(stmt), name))
            if alone and unread(script, expr) and script.analysis(Computes).only(value):
                parts = nodes_in(value, ast.expr)
                return stmt if all(_leaves_nothing(script, part) for part in parts) else None
    return None


def _leaves_nothing(script: Script, part: ast.expr) -> bool:
    """Neither a variable nor random numbers, nor a layer that ran."""
    if isinstance(part, ast.Call):
        name, _ = script.operation(part)
        found = script.called(part)
        of_torch = all(begins(t, Ref, "torch.") or _is_of_tensor(t) for t in found)
        return bool(name) and of_torch and not draws(last_part(name))
    return not isinstance(part, ast.NamedExpr)


def _is_of_tensor(thing: Thing) -> bool:
    return isinstance(thing, Method) and isinstance(thing.this, Tensor)
