"""Reshaped tensors that share memory with what they were made of, and are written to: in another
layout they are copies, or the reverse.
"""

from __future__ import annotations

import ast

from autofast.flow.holders import Holders, How
from autofast.flow.memory import base_of
from autofast.flow.program import Flow
from autofast.model.calls import is_method
from autofast.model.kinds import is_module
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import at, is_same_function, parent_of, statement_of
from autofast.model.values import Ext, Ref, is_named

METHODS = wordset("view view_as reshape reshape_as flatten ravel contiguous")
FUNCTIONS = wordset("torch.flatten torch.reshape torch.ravel")


def is_reshaping(script: Script, node: ast.AST) -> ast.expr | None:
    """What is given another shape by this call, perhaps without a copy."""
    if is_method(node) and node.func.attr in METHODS:
        if not script.may_be(node.func.value, Ref):
            return node.func.value
    if isinstance(node, ast.Call) and node.args:
        callee = script.called(node)
        if any(is_named(t, Ref, FUNCTIONS) or is_named(t, Ext, "torch.nn.Flatten") for t in callee):
            return node.args[0]
    return None


def written_through(script: Script, call: ast.Call, base: ast.expr) -> str:
    """The line of a write to ``base`` or to its reshaped form ``call`` that the other one may see;
    empty where there is none.
    """
    flow, holders = script.analysis(Flow), script.analysis(Holders)
    mine = [*holders.mentions(call)]
    for write in holders.writes(mine):
        return at(write)
    for holder in holders.ever(call):  # whatever hooks of layers do
        if holder.how is How.UNKNOWN and not any(map(is_module, script.called(holder.node))):
            return at(holder.node)
    if not holders.at(call) and not isinstance(parent_of(holders.whole(call)), ast.Return):
        return ""  # nothing has it when its statement is done
    others = [m for made in _makers(script, base) for m in holders.mentions(made)]
    for write in holders.writes(n for n in others if n not in mine):
        if statement_of(write) is not statement_of(call):
            if not is_same_function(write, call) or flow.graph(call).may_follow(write, call):
                return at(write)
    return ""


def _makers(script: Script, base: ast.expr) -> list[ast.expr]:
    """What gave a variable the tensor that is reshaped; the places that read a parameter."""
    under = base_of(base)
    if not isinstance(under, ast.Name):
        return [under]
    return [
        expr
        for made in script.analysis(Flow).origins(under)
        for expr in ([made.value] if made.value else script.analysis(Holders).reads(made.node))
    ]
