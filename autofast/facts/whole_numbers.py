"""What lists, tuples and arrays hold that index tensors: whole numbers of 64 bits, other numbers,
which torch cuts off to whole ones, or perhaps truths, which are a mask."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autofast.facts.arrays import array_of, made_of
from autofast.flow.effects import Effects
from autofast.flow.program import definitions_at
from autofast.model.calls import items_of, keyword_of
from autofast.model.script import Script
from autofast.model.several import any_in, of_kind, surely, wordset
from autofast.model.source import parent_of
from autofast.model.syntax import VARIABLES, has_star, is_number
from autofast.model.values import Const, Seq, Tensor

LONG, NUMBERS, OTHER = "long", "numbers", ""
KEEP = wordset("list tuple sorted reversed", "builtins.")
COPIES = wordset("numpy.array numpy.copy numpy.ascontiguousarray")
VIEWS = wordset("numpy.asarray numpy.reshape numpy.ravel numpy.transpose numpy.squeeze")
TURNED = wordset("numpy.flip numpy.flipud numpy.fliplr numpy.rot90")
CHOSEN = wordset("numpy.roll numpy.delete numpy.repeat numpy.tile numpy.sort numpy.unique")
PLACES = wordset("numpy.argsort numpy.flatnonzero numpy.lexsort")
JOINED = wordset("numpy.concatenate numpy.hstack numpy.append numpy.stack")
PERMUTED, GRID = "numpy.random.permutation", "numpy.r_"
SAME = wordset("reshape ravel flatten copy squeeze transpose")
KEPT = KEEP | COPIES | VIEWS | TURNED | CHOSEN
COUNTED = wordset("builtins.len builtins.int")
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
DEEPEST = 8


def numbers_of(script: Script, expr: ast.expr, depth: int = 0) -> str:
    """``LONG`` or ``NUMBERS``, where a list, a tuple, a range or an array certainly holds such."""
    if depth > DEEPEST:
        return OTHER
    deeper = depth + 1
    match expr:
        case ast.Name() | ast.Attribute():
            if _grows(script, expr):
                return OTHER
            made = made_of(script, expr)
            return _worst(numbers_of(script, m, deeper) if m is not None else OTHER for m in made)
        case ast.List(elts=elts) | ast.Tuple(elts=elts):
            fits = not has_star(elts) and surely(is_whole(script, e, deeper) for e in elts)
            return LONG if fits else OTHER
        case ast.ListComp(elt=elt):
            return LONG if is_whole(script, elt, deeper) else OTHER
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            sides = (numbers_of(script, side, deeper) for side in (left, right))
            return _of_array(script, expr) or _worst(sides)
        case ast.BinOp(left=ast.List() as left, op=ast.Mult()):
            return numbers_of(script, left, deeper)
        case ast.Subscript(value=inner, slice=at) if script.library_name(inner) == GRID:
            parts = [p for i in items_of(at) for p in (i, *ast.iter_child_nodes(i))]
            bounds = [p for p in parts if isinstance(p, ast.expr) and not isinstance(p, ast.Slice)]
            return LONG if all(is_whole(script, p) for p in bounds) else OTHER
        case ast.Subscript(value=inner, slice=ast.Slice()):
            return numbers_of(script, inner, deeper)
        case ast.Call():
            return _of_call(script, expr, deeper)
    return _of_array(script, expr)


def _worst(kinds: Iterable[str]) -> str:
    found = {*kinds}
    return found.pop() if len(found) == 1 else NUMBERS if found == {LONG, NUMBERS} else OTHER


def _of_call(script: Script, call: ast.Call, depth: int) -> str:
    name, dtype = script.library_function(call), keyword_of(call, "dtype")
    if name == "builtins.range":
        return LONG
    if (known := _of_array(script, call)) or dtype is not None:
        return known
    if name in PLACES and not script.may_be(call, Tensor):
        return LONG
    if name == "numpy.arange":
        return LONG if all(is_whole(script, a) for a in call.args) else NUMBERS
    match call:
        case ast.Call(args=[data]) if name == PERMUTED and is_whole(script, data):
            return LONG
        case ast.Call(args=[ast.List() | ast.Tuple() as several, *_]) if name in JOINED:
            return _worst(numbers_of(script, part, depth) for part in several.elts)
        case ast.Call(args=[data, *_]) if name in (*KEPT, PERMUTED):
            return numbers_of(script, data, depth)
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in SAME:
            return numbers_of(script, inner, depth)
    return OTHER


def _of_array(script: Script, expr: ast.expr) -> str:
    made = array_of(script, expr)
    if made is None or made.tensor:
        return OTHER
    if made.dtype == "int64":
        return LONG
    return NUMBERS if made.dtype.startswith(("int", "float")) and not made.is_list else OTHER


def is_whole(script: Script, expr: ast.expr, depth: int = 0) -> bool:
    """A whole number of Python, and no truth."""
    match expr:
        case ast.Call(args=[_]) if script.is_call(expr, *COUNTED):
            return True
        case ast.Constant(value=value):
            return type(value) is int
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return is_whole(script, inner, depth)
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, OPERATORS):
            return is_whole(script, left, depth) and is_whole(script, right, depth)
    if surely(isinstance(t, Const) and type(t.value) is int for t in script.values(expr)):
        return True
    if depth > DEEPEST or not isinstance(expr, VARIABLES):
        return False
    if isinstance(expr, ast.Name) and surely(
        isinstance(above := parent_of(d.node), ast.comprehension)
        and above.target is d.node
        and script.is_call(above.iter, "builtins.range")
        for d in definitions_at(script, expr)
    ):
        return True
    return surely(m is not None and is_whole(script, m, depth + 1) for m in made_of(script, expr))


def _grows(script: Script, expr: ast.expr) -> bool:
    """Whether somebody writes to a list, so that what made it does not say all."""
    lists = of_kind(script.values(expr), Seq)
    return bool(lists) and any(
        w.base is not None and any_in(lists, script.values(w.base))
        for w in script.analysis(Effects).writes
    )


def goes_back(script: Script, expr: ast.expr, depth: int = 0) -> bool:
    """Whether an array may have steps in memory that are negative, which torch does not take:
    ``a[::-1]``, also behind what gives no copy."""
    deeper = depth + 1
    match expr:
        case ast.Name() | ast.Attribute() if depth < DEEPEST:
            return any(m is None or goes_back(script, m, deeper) for m in made_of(script, expr))
        case ast.Subscript(value=inner, slice=index):
            steps = [p.step for p in items_of(index) if isinstance(p, ast.Slice)]
            if script.library_name(inner) == GRID or script.must_be(inner, Seq):
                return False
            back = any(s is not None and not is_number(s) for s in steps)
            turns = [s for s in steps if s is not None]
            return (
                back
                or any(ast.unparse(s).startswith("-") for s in turns)
                or goes_back(script, inner, deeper)
            )
        case ast.Call(args=[data, *_]) if script.is_call(expr, *VIEWS):
            return goes_back(script, data, deeper)
        case ast.Call() if script.is_call(expr, *TURNED):
            return True
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in SAME - {"copy"}:
            return not script.library_function(expr) and goes_back(script, inner, deeper)
    return False
