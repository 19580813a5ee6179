"""Averages of parameters that a program keeps beside them: ``shadow[name] = decay * shadow[name] +
(1 - decay) * p.data``.
"""

from __future__ import annotations

import ast

from autofast.flow.program import Flow
from autofast.model.calls import arguments_of, targets_of
from autofast.model.events import Site
from autofast.model.script import Script
from autofast.model.source import statement_of
from autofast.model.values import is_weight


def keeps_average(script: Script, site: Site) -> bool:
    """Whether what is set or changed there is made of parameters, and of what it was before."""
    node = site.node
    if isinstance(node, ast.Call):  # in place, so of what it was
        return _reads_parameters(script, arguments_of(node))
    return _is_average(script, statement_of(node), node)


def average_in_variable(script: Script, loop: ast.AST) -> ast.stmt | None:
    """A statement of the loop that keeps one in a variable."""
    for statement in ast.walk(loop):
        if isinstance(statement, (ast.Assign, ast.AugAssign)):
            for target in targets_of(statement):
                if isinstance(target, ast.Name) and _is_average(script, statement, target):
                    return statement
    return None


def _is_average(script: Script, statement: ast.stmt, target: ast.AST) -> bool:
    if not isinstance(statement, (ast.Assign, ast.AugAssign)):
        return False
    if target not in targets_of(statement):
        return False
    if isinstance(statement, ast.AugAssign):
        return _reads_parameters(script, [statement.value])
    kept = target.value if isinstance(target, ast.Subscript) else target
    before = ast.unparse(kept)
    carried = any(
        type(node) is type(kept) and ast.unparse(node) == before
        for node in script.analysis(Flow).made_of([statement.value])
    )
    return carried and _reads_parameters(script, [statement.value])


def _reads_parameters(script: Script, exprs: list[ast.expr]) -> bool:
    made = script.analysis(Flow).made_of(exprs)
    return any(is_weight(thing) for node in made for thing in script.values(node))
