"""Conditions inside a loop that hold now and then: every 100 steps, in the last step, when a counter is full."""

from __future__ import annotations

import ast

from autofast.model.source import ancestors

LOOPS = (ast.For, ast.While, ast.AsyncFor)


def rare(gate: ast.AST) -> bool:
    """Whether the body of an ``if`` runs in few turns of the loop around it.

    That is so for a remainder (``i % 100 == 0``), for an equation with something that the loop changes (``i == last``), and for a
    counter that the body sets back (``if waited >= n: ...; waited = 0``). A condition on the configuration or the rank is none.
    """
    if not isinstance(gate, ast.If):
        return False
    if any(
        isinstance(n, ast.BinOp)
        and isinstance(n.op, ast.Mod)
        and not isinstance(n.left, ast.Constant)
        for n in ast.walk(gate.test)
    ):
        return True
    changed = _changed_by_loop(gate)
    for part in ast.walk(gate.test):
        if isinstance(part, ast.Compare) and changed & _names(part):
            if any(isinstance(op, ast.Eq) for op in part.ops):
                return True
            if any(isinstance(op, (ast.Gt, ast.GtE)) for op in part.ops) and _names(
                part.left
            ) & _set_back(gate):
                return True
    return False


def _changed_by_loop(gate: ast.If) -> set[str]:
    loop = next((a for a in ancestors(gate) if isinstance(a, LOOPS)), None)
    return (
        {n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if loop is not None
        else set()
    )


def _set_back(gate: ast.If) -> set[str]:
    found = set()
    for statement in gate.body:
        for part in ast.walk(statement):
            if isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant):
                found |= {t.id for t in part.targets if isinstance(t, ast.Name)}
    return found


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
