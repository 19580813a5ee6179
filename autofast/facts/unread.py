"""Whether what is computed of an expression certainly reaches nothing."""

from __future__ import annotations

import ast
from itertools import takewhile

from autofast.facts.invariants import Invariants
from autofast.flow.reflection import namespace_calls
from autofast.flow.scopes import declared, mentions
from autofast.model.calls import is_method, only_target
from autofast.model.script import Script
from autofast.model.source import ancestors, function_of, source_of, statement_of
from autofast.model.syntax import is_operation, is_read

UNREAD = "nobody reads `{}`, which is computed of it: leave it out"
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
