"""What is done with the value of an expression, at the place where it stands; who holds it from
there on: ``holders.py``.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum

from autofast.model.calls import call_of
from autofast.model.source import parent_of
from autofast.model.syntax import COMPREHENSIONS, IDENTITY, PAUSES, TAKERS, is_docstring


class Act(Enum):
    """What the code around an expression does with its value; ``Usage.node`` is that code."""

    ASKED = "an attribute of it is asked for, or a method called: x.name, x.name(...)"
    TAKEN = "something is taken out of it: x[i]"
    FILLED = "something is put into it, or taken away: x[i] = y, del x[i]"
    INDEXES = "it says which: other[x]"
    CALLED = "it is called: x(...)"
    GIVEN = "it is an argument: f(x), f(name=x)"
    BOUND = "it gets a name, or a place in something: y = x, (y := x), box[i] = x"
    ADDED = "it is added to something: y += x"
    LOOPED = "its elements get a name: for y in x"
    HELD = "it is put into a tuple, list, dict: [x], *x, [x for ...]"
    CHOSEN = "it, or something else: x if a else b, x or y; +x gives x itself"
    COMPUTED = "something is computed with it: x + y, -x"
    COMPARED = "it is compared: x > y"
    TESTED = "it decides: if x, assert x"
    SHOWN = "it stands in a text: f'{x}'"
    RETURNED = "it is the result of the function: return x"
    YIELDED = "it is handed out, or waited for: yield x, await x"
    DROPPED = "nothing: x, del x"
    TARGET = "it is itself what gets a value"
    OTHER = "anything else"


ACTS: dict[type[ast.AST], Act] = {
    **dict.fromkeys((ast.Assign, ast.AnnAssign, ast.NamedExpr), Act.BOUND),
    ast.AugAssign: Act.ADDED,
    **dict.fromkeys(TAKERS, Act.LOOPED),
    ast.Attribute: Act.ASKED,
    ast.Call: Act.GIVEN,
    ast.Subscript: Act.INDEXES,
    ast.Slice: Act.INDEXES,
    **dict.fromkeys((ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred), Act.HELD),
    **dict.fromkeys(COMPREHENSIONS, Act.HELD),
    **dict.fromkeys((ast.BinOp, ast.UnaryOp), Act.COMPUTED),
    **dict.fromkeys((ast.BoolOp, ast.IfExp), Act.CHOSEN),
    ast.Compare: Act.COMPARED,
    **dict.fromkeys((ast.If, ast.While, ast.Assert), Act.TESTED),
    ast.FormattedValue: Act.SHOWN,
    ast.Return: Act.RETURNED,
    **dict.fromkeys(PAUSES, Act.YIELDED),
    **dict.fromkeys((ast.Expr, ast.Delete), Act.DROPPED),
}


@dataclass(frozen=True)
class Usage:
    """One use of ``expr`` by ``node``, the code around it."""

    expr: ast.expr
    act: Act
    node: ast.AST

    @property
    def is_added_to(self) -> bool:
        """``y`` in ``y += x``, whose value goes on in what ``y`` is then."""
        return self.act is Act.TARGET and isinstance(self.node, ast.AugAssign)

    @property
    def targets(self) -> list[ast.expr]:
        """What gets the value, or its elements; of ``y`` in ``y += x``, that again."""
        if self.act not in (Act.BOUND, Act.ADDED, Act.LOOPED) and not self.is_added_to:
            return []
        targets: list[ast.expr] = getattr(self.node, "targets", [])
        return targets or [self.node.target]  # type: ignore[attr-defined]

    @property
    def result(self) -> ast.expr | None:
        """The expression around it: for a method, the call."""
        if self.act is Act.ASKED:
            return call_of(self.node) or self.node  # type: ignore[return-value]
        return self.node if isinstance(self.node, ast.expr) else None


def usage_of(expr: ast.expr) -> Usage:
    """What is done with the value of an expression where it stands."""
    parent = parent_of(expr)
    if isinstance(parent, ast.keyword):
        parent = parent_of(parent)
    assert parent is not None
    return Usage(expr, _act(expr, parent), parent)


def _act(expr: ast.expr, parent: ast.AST) -> Act:
    if isinstance(getattr(expr, "ctx", None), (ast.Store, ast.Del)):
        return Act.TARGET
    match parent:
        case ast.Subscript(value=value, ctx=ctx) if value is expr:
            return Act.TAKEN if isinstance(ctx, ast.Load) else Act.FILLED
        case ast.Call(func=func) if func is expr:
            return Act.CALLED
        case ast.comprehension(iter=over) if over is not expr:
            return Act.TESTED
        case ast.UnaryOp(op=ast.UAdd()):
            return Act.CHOSEN
        case ast.IfExp(test=test) if test is expr:
            return Act.TESTED
        case ast.AnnAssign(annotation=annotation) if annotation is expr:
            return Act.OTHER
    if isinstance(parent, ast.Tuple) and _is_index(parent):
        return Act.INDEXES
    return ACTS.get(type(parent), Act.OTHER)


def _is_index(several: ast.Tuple) -> bool:
    """``a, b`` of ``x[a, b]``"""
    whole = parent_of(several)
    return isinstance(whole, ast.Subscript) and whole.slice is several


def is_identity(node: ast.AST) -> bool:
    """``x is None``, which reads nothing of ``x``."""
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], IDENTITY)


def given_back(body: list[ast.stmt], name: str) -> list[ast.expr]:
    """What a function returns and gives to the variable ``name``, where these statements, below
    conditions or not, do nothing else; nothing otherwise."""
    found: list[ast.expr] = []
    for stmt in body:
        match stmt:
            case ast.If(body=inner, orelse=orelse):
                below = [given_back(part, name) for part in (inner, orelse) if part]
                if not all(below):
                    return []
                found += [expr for part in below for expr in part]
            case ast.Assign(targets=[ast.Name(id=there)], value=value) if there == name:
                found.append(value)
            case ast.Return(value=ast.expr() as value):
                found.append(value)
            case _ if not is_docstring(stmt):
                return []
    return found
