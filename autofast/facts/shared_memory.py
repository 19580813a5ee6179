"""Reshaped tensors that share memory with what they were made of, and are written to: in another
layout they are copies, or the reverse.
"""

from __future__ import annotations

import ast

from autofast.flow.holders import Holders
from autofast.flow.memory import Memory, base_of, views_around
from autofast.flow.program import Flow
from autofast.flow.scopes import own_nodes
from autofast.model.calls import is_method
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import at, function_of, parent_of, statement_of
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
    memory, flow = script.analysis(Memory), script.analysis(Flow)
    whole = views_around(call)
    parent = parent_of(whole)
    if _is_written(memory, whole, parent):
        return at(whole)
    if isinstance(parent, ast.Assign) and (
        line := _in_attribute(
            script, [t.attr for t in parent.targets if isinstance(t, ast.Attribute)]
        )
    ):
        return line
    mine = frozenset(_bound(script, whole))
    kept = bool(mine) or not isinstance(
        parent,
        (ast.Call, ast.Attribute, ast.BinOp, ast.keyword, ast.Compare, ast.Subscript, ast.Return),
    )
    graph, under = flow.graph(call), base_of(base)
    for node in own_nodes(function_of(call)):
        targets = memory.written(node)
        if (
            not targets
            or statement_of(node) is statement_of(call)
            or not graph.may_follow(node, call)
        ):
            continue
        for sources in map(memory.sources, targets):
            if call in sources and mine:
                return at(node)
            if (
                call not in sources
                and kept
                and isinstance(under, ast.Name)
                and under.id not in mine
            ):
                if not sources.isdisjoint(memory.sources(under)):
                    return at(node)
    return ""


def _is_written(memory: Memory, node: ast.expr, parent: ast.AST | None) -> bool:
    """Whether the value of ``node`` is written to at once."""
    outer = parent_of(parent) if isinstance(parent, ast.keyword) else parent
    return outer is not None and node in memory.written(outer)


def _bound(script: Script, value: ast.expr) -> set[str]:
    """The variables that get it."""
    holders = script.analysis(Holders).after(value)
    return {h.node.id for h in holders if isinstance(h.node, ast.Name)}


def _in_attribute(script: Script, kept: list[str]) -> str:
    """The line of a write to what is kept under one of these attributes."""
    memory = script.analysis(Memory)
    for node in (n for n in script.nodes if kept):
        if isinstance(node, ast.Attribute) and node.attr in kept:
            whole = views_around(node)
            if _is_written(memory, whole, parent_of(whole)):
                return at(node)
    return ""
