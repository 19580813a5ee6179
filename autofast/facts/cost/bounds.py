"""How large a number is at the most, with options at their defaults: of sizes that are computed,
``width * 2 ** (layers - i)``.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable

from autofast.facts.arrays import held_under
from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow, definitions_at
from autofast.model.calls import is_method
from autofast.model.kinds import is_module
from autofast.model.script import Script
from autofast.model.several import all_known, of_kind
from autofast.model.source import parent_of
from autofast.model.values import Ref, Seq, Setting, Thing, Unknown, Values, one, said

DEEP = 8
TURNED = {Ref("builtins.reversed"), Ref("builtins.list")}  # what gives the same numbers
RANGE = Ref("builtins.range")
EXPONENT = 16  # beyond which a power is no size of a layer


def whole_number(values: Values) -> int | None:
    """A whole number; of an option, its default; of a setting, what the project's file says."""
    return _whole(one(values))


def _whole(thing: Thing | None) -> int | None:
    found = said(thing)
    return found if type(found) is int else None


def largest(values: Values) -> int | None:
    """Of all numbers that a value may be: a batch is made smaller to try a script out. What a file
    or a class says of a setting counts, whatever a command line may say.
    """
    return _most(_whole(t) for t in values if not isinstance(t, Unknown))


def largest_value(script: Script, expr: ast.expr | None, depth: int = 0) -> int | None:
    """The largest value of an expression of whole numbers; None where that is not known."""
    if expr is None or depth > DEEP:
        return None
    known = script.analysis(_Known).values
    if (expr, depth) not in known:
        known[expr, depth] = _largest_value(script, expr, depth)
    return known[expr, depth]


class _Known:
    """``script.analysis(_Known)``: by expression and depth, as many ways may lead to one."""

    def __init__(self, script: Script):
        self.values: dict[tuple[ast.expr, int], int | None] = {}


def _largest_value(script: Script, expr: ast.expr, depth: int) -> int | None:
    if (known := _most(map(_whole, values := script.values(expr)))) is not None:
        return known
    match expr:
        case ast.Subscript(value=whole, slice=key):
            number, tuples = script.constant(key), [*map(_parts, script.values(whole))]
            if isinstance(number, int) and tuples and all(len(t) > number >= 0 for t in tuples):
                return _most([largest_value(script, t[number], depth + 1) for t in tuples])
            set_by_name = isinstance(script.constant(key), str) or of_kind(values, Setting)
            return largest(values) if set_by_name else None
        case ast.Name():
            return _most([_of(script, d, depth) for d in definitions_at(script, expr)])
        case ast.Attribute(value=owner, attr=name):
            held = [e for thing in script.values(owner) for e in held_under(script, thing, name)]
            known = _most([largest_value(script, e, depth + 1) for e in held])
            built = any(map(is_module, script.values(owner)))
            return largest(values) if known is None and not built else known
        case ast.BinOp(left=left, op=op, right=right):
            sides = largest_value(script, left, depth + 1), largest_value(script, right, depth + 1)
            return _combined(op, *sides)
        case ast.Call(func=func, args=[only]) if script.values(func) == {Ref("builtins.int")}:
            return largest_value(script, only, depth + 1)
        case ast.Call(func=func, args=[only]) if script.values(func) == {Ref("builtins.len")}:
            rows = (getattr(t, "exact", None) for t in script.values(only))
            return _most(None if row is None else len(row) for row in rows)
        case ast.Call(args=[_, _, high]) if is_method(expr, "suggest_int"):
            return largest_value(script, high, depth + 1)  # of a study of optuna
    return None


def least_count(script: Script, expr: ast.expr | None, depth: int = 0) -> int | None:
    """Of what counts things that there are, a batch or the processes: how small it is at the least,
    with options at their defaults. No factor of it is smaller than one, whatever that is.
    """
    if expr is None or depth > DEEP:
        return None
    found: list[int | None] = [_whole(t) for t in script.values(expr)] or [None]
    if None in found:
        match expr:
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                sides = [least_count(script, e, depth + 1) for e in (left, right)]
                found = [math.prod(max(1, n or 1) for n in sides)] if any(sides) else [None]
            case ast.Call(func=func, args=[only]) if script.values(func) == {Ref("builtins.int")}:
                found = [least_count(script, only, depth + 1)]
            case ast.Name():  # `size *= count` makes it no smaller
                made = script.analysis(Flow).origins(expr)
                gives = script.analysis(CallGraph).gives
                given = [e for d in made if not _multiplies(d) for e in gives(d)]
                found = [least_count(script, e, depth + 1) for e in given]
            case ast.Attribute(value=owner, attr=name):
                held = [e for t in script.values(owner) for e in held_under(script, t, name)]
                found = [least_count(script, e, depth + 1) for e in held]
    return None if None in found else min(all_known(found), default=None)


def _multiplies(made: Definition) -> bool:
    statement = made.statement
    return isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Mult)


def _most(found: Iterable[int | None]) -> int | None:
    return max(all_known(found), default=None)


def _combined(op: ast.operator, left: int | None, right: int | None) -> int | None:
    if left is None:
        return None
    match op:
        case ast.Sub():
            return left
        case ast.FloorDiv() | ast.Div():
            return left // (right or 1)
    if right is None:
        return None
    match op:
        case ast.Add():
            return left + right
        case ast.Mult():
            return left * right
        case ast.Pow() if right <= EXPONENT:
            return int(left**right)
    return None


def _parts(thing: Thing) -> list[ast.expr]:
    """Of a tuple that is written out, what it is made of; nothing of others."""
    match thing:
        case Seq(node=ast.Tuple(elts=elts)) if not any(isinstance(e, ast.Starred) for e in elts):
            return elts
    return []


def _of(script: Script, made: Definition, depth: int) -> int | None:
    """Of what a definition gives: an argument at all calls, a number of a range, an expression."""
    parent = parent_of(made.node)
    if isinstance(parent, ast.For) and parent.target is made.node:
        over = parent.iter
        while isinstance(over, ast.Call) and over.args and script.called(over) & TURNED:
            over = over.args[0]
        if not isinstance(over, ast.Call) or script.called(over) != {RANGE}:
            return None
        last = largest_value(script, over.args[len(over.args) > 1], depth + 1)
        return None if last is None or len(over.args) > 2 else last - 1
    given = script.analysis(CallGraph).gives(made)
    return _most([largest_value(script, expr, depth + 1) for expr in given])


def range_turns(script: Script, loop: ast.AST) -> int | None:
    """How often a loop over ``range(...)`` turns; None where that is not known."""
    return script.of_node(_range_turns, loop)


def _range_turns(script: Script, loop: ast.AST) -> int | None:
    match loop:
        case (
            ast.For(iter=call)
            | ast.ListComp(generators=[ast.comprehension(iter=call, ifs=[])])
            | ast.GeneratorExp(generators=[ast.comprehension(iter=call, ifs=[])])
        ):
            while isinstance(call, ast.Call) and call.args and RANGE not in script.called(call):
                call = call.args[0]  # tqdm(range(...))
            return range_of(script, call)
    return None


def range_of(script: Script, call: ast.expr) -> int | None:
    """How many numbers ``range(...)`` gives; None for others, and where that is not known."""
    match call:
        case ast.Call(args=[*some, end], keywords=[]) if len(some) < 2 and RANGE in script.called(
            call
        ):
            return width(script, some[0] if some else None, end)
    return None


def width(script: Script, first: ast.expr | None, last: ast.expr) -> int | None:
    """How far it is from one number to another; what both add goes out: ``t - n`` to ``t``."""
    terms = [(ast.unparse(e), sign, e) for e, sign in (*_summands(last, 1), *_summands(first, -1))]
    both = {(text, -sign) for text, sign, _ in terms}
    known = [(s, largest_value(script, e)) for text, s, e in terms if (text, s) not in both]
    return max(0, sum(s * (n or 0) for s, n in known)) if all_known(n for _, n in known) else None


def _summands(expr: ast.expr | None, sign: int) -> list[tuple[ast.expr, int]]:
    match expr:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            other = sign if isinstance(op, ast.Add) else -sign
            return _summands(left, sign) + _summands(right, other)
    return [] if expr is None else [(expr, sign)]
