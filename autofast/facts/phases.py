"""Loops that train in some of their runs and evaluate in others: ``if phase == "train":
loss.backward()``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.scopes import stored_in
from autofast.model.events import BranchFrame, Stack, below, inside
from autofast.model.script import Script, Step
from autofast.model.source import function_of, within

ASKED = (ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp)
PARTS = (*ASKED, ast.expr_context, ast.cmpop, ast.boolop, ast.unaryop)


def evaluating_turns(script: Script) -> Iterator[tuple[ast.expr, str]]:
    """Forward passes with gradients on in front of a condition that all backwards of their loop
    stand below, and the condition.

    The condition is one of the whole loop: nothing in the loop changes what it asks for.
    """
    for step in script.steps:
        gates = [_gates(script, step, o.stack) for b in step.backwards for o in b.site]
        common = [g for g in gates[0] if all(_is_in(g, other) for other in gates)] if gates else []
        for gate in common[:1]:
            test = ast.unparse(gate.node.test)  # type: ignore[attr-defined]
            for site in step.forwards:
                before = function_of(site.node) is function_of(gate.node)
                on = all(o.grad == "on" and o.data["outer"] for o in site)
                if before and on and not within(site.node, gate.node):
                    assert isinstance(site.node, ast.expr)
                    yield site.node, test if gate.arm else f"not ({test})"


def _gates(script: Script, step: Step, stack: Stack) -> list[BranchFrame]:
    if not inside(stack, step.loop):
        return []
    return [
        frame
        for frame in below(stack, step.loop)
        if isinstance(frame, BranchFrame) and _is_of_loop(script, frame, step.loop)
    ]


def _is_in(gate: BranchFrame, others: list[BranchFrame]) -> bool:
    return any(o.node is gate.node and o.arm is gate.arm for o in others)


def _is_of_loop(script: Script, gate: BranchFrame, loop: ast.AST) -> bool:
    """Whether the condition holds in all turns of the loop or in none, and in some runs of the loop
    does not.
    """
    if not isinstance(gate.node, ast.If) or not within(gate.node, loop):
        return False
    if gate.known and len(script.values(gate.node.test)) < 2:
        return False
    parts = list(ast.walk(gate.node.test))
    names = {n.id for n in parts if isinstance(n, ast.Name)}
    return all(isinstance(n, PARTS) for n in parts) and not names & stored_in(loop)
