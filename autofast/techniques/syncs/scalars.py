"""Whether a tensor is certainly one number: without dimensions, or with one of length 1."""

from __future__ import annotations

import ast

from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow
from autofast.model.kinds import is_loss
from autofast.model.script import Script
from autofast.model.syntax import has_star, is_attribute
from autofast.model.values import Ext, Ref, Tensor, const

WHOLE = ("mean", "sum", "max", "min")  # without arguments: of all elements
# Keep the shape.
SAME = ("detach", "clone", "float", "double", "cpu", "to", "abs", "sqrt", "exp", "log")


def is_scalar(script: Script, expr: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is certainly such a tensor: a loss, a mean, arithmetic with such."""
    found = script.values(expr)
    if found and all(isinstance(t, Tensor) and t.rank == "0d" for t in found) and not script.unread:
        return True
    match expr:
        case ast.BinOp(left=left, right=right):
            return all(
                is_scalar(script, p, depth) for p in (left, right) if _may_be_tensor(script, p)
            )
        case ast.UnaryOp(operand=operand):
            return is_scalar(script, operand, depth)
        case ast.Call():
            return _calls_scalar(script, expr, depth)
        case ast.Name() if depth < 5:
            made = script.analysis(Flow).definitions(expr).origins(expr)
            return bool(made) and all(_makes_scalar(script, d, depth + 1) for d in made)
    return False


def _may_be_tensor(script: Script, expr: ast.expr) -> bool:
    return any(isinstance(t, Tensor) for t in script.values(expr))


def _makes_scalar(script: Script, made: Definition, depth: int) -> bool:
    statement = made.statement
    value = statement.value if isinstance(statement, ast.AugAssign) else made.value
    if value is None:
        return False
    return (
        not script.reached(value)
        or not _may_be_tensor(script, value)
        or is_scalar(script, value, depth)
    )


def _calls_scalar(script: Script, call: ast.Call, depth: int) -> bool:
    func = call.func
    plain = not call.keywords and not has_star(call.args)
    if is_attribute(func) and _may_be_tensor(script, func.value):
        return (func.attr in WHOLE and plain and not call.args) or (
            func.attr in SAME and is_scalar(script, func.value, depth)
        )
    for thing in script.values(func):
        if is_loss(thing) or (isinstance(thing, Ref) and script.log.at("loss", call) is not None):
            if not all(t.loss for t in script.values(call) if isinstance(t, Tensor)):
                return False
            if _may_keep_elements(script, call):
                return False
        elif isinstance(thing, Ref) and thing.name in [f"torch.{n}" for n in WHOLE]:
            if not plain or len(call.args) != 1:
                return False
        else:
            functions = [c.function for c in code_of(thing)]
            results = [script.analysis(CallGraph).results(f) for f in functions]
            if (
                depth >= 4
                or not all(results)
                or not all(is_scalar(script, e, depth + 1) for found in results for e in found)
            ):
                return False
            if not functions:
                return False
    return bool(script.values(func))


def _may_keep_elements(script: Script, call: ast.Call) -> bool:
    """Whether a loss may be one of each element: ``reduction="mean" if average else "none"``."""
    site = script.log.at("loss", call)
    for occurrence in site or ():
        own = occurrence.this.args if isinstance(occurrence.this, Ext) else occurrence.args
        for name, whole in (("reduction", ("mean", "sum", "batchmean")), ("reduce", (True, None))):
            given = own.named.get(name) if own is not None else None
            if given is not None and const(given.values) not in whole:
                return True
    return False
