"""Tensors that somebody still holds in the next turn of a loop: outputs in a list."""

from __future__ import annotations

import ast

from autofast.flow.holders import Holder, Holders, How
from autofast.flow.program import Flow
from autofast.flow.scopes import declared, scope_of, variables_of
from autofast.model.script import Script
from autofast.model.source import function_of, parent_of, within
from autofast.model.syntax import LOOPS


def is_kept(script: Script, node: ast.expr, loop: ast.AST) -> bool:
    """Whether the tensor itself, not something computed from it, is put where it is still there in
    the next turn of the loop.
    """
    return any(_outlives(script, h, loop) for h in script.analysis(Holders).ever(node))


def _outlives(script: Script, holder: Holder, loop: ast.AST) -> bool:
    match holder.how, holder.node:
        case How.VARIABLE, ast.arg() as parameter:
            return isinstance(loop, LOOPS) and scope_of(parameter) is function_of(loop)
        case How.VARIABLE, ast.Name() as name:
            in_turns = isinstance(parent_of(name), ast.comprehension)
            return not in_turns and not _is_set_in_every_turn(script, name, loop)
        case How.CONTAINER, ast.Name() as name:
            return not script.analysis(Flow).reaching(name)  # else its definitions say it
    return True


def _is_set_in_every_turn(script: Script, target: ast.Name, loop: ast.AST) -> bool:
    """A local variable of a function that the loop calls, or one that each turn of the loop sets
    before it is used.
    """
    function = function_of(target)
    if isinstance(function, ast.Module) or (
        isinstance(loop, LOOPS) and function is function_of(loop)
    ):
        if not isinstance(loop, LOOPS) or not within(target, loop):
            return False
        return _is_set_before_each_use(script, target)
    return target.id not in declared(function)


def _is_set_before_each_use(script: Script, target: ast.Name) -> bool:
    graph, table = script.analysis(Flow).graph(target), variables_of(target)
    variable = table.of(target)
    return variable is not None and all(
        function_of(load) is function_of(target) and graph.dominates(target, load)
        for load in table.loads(variable)
    )
