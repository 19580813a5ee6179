"""How many rows and how many numbers tensors and arrays have, and whether they lie in memory row by
row, as far as the expressions tell that make them.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection

from autofast.facts.arrays import REDUCED, array_of, held_under, values_of
from autofast.flow.memory import FACTORIES
from autofast.flow.program import Flow
from autofast.flow.scopes import Expressions
from autofast.model.calls import (
    arguments_of,
    first_argument,
    is_method,
    short_name as called_as,
)
from autofast.model.names import LEGACY_TENSORS, last_part
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import ancestors, statement_of
from autofast.model.syntax import LOOPS, SEQUENCES, is_stored
from autofast.model.values import (
    Func,
    Seq,
    Values,
    any_of,
    are_numbers,
    certainly,
    is_const,
    is_weight,
    one,
)
from autofast.ops import is_pointwise, reshapes

# Of these, and of what is pointwise, the result has from the tensor or array ...
KEEP = wordset(
    "float double long int half bool byte clone contiguous abs neg to astype copy cpu numpy"
)
WRAP = wordset("tensor array asarray from_numpy as_tensor") | LEGACY_TENSORS
KEEP_ROWS = KEEP | WRAP  # ... as many rows,
KEEP_ORDER = KEEP | wordset(  # the order of its strides,
    "detach sum mean argmax view reshape flatten unsqueeze squeeze repeat"
)
# at the most as many numbers,
KEEP_SIZE = KEEP_ORDER - {"repeat"} | WRAP
KEEP_SIZE |= wordset("permute transpose t cuda requires_grad_ Parameter")
# and its rows, where it works along other dimensions.
ALONG = REDUCED | wordset("argmax unsqueeze squeeze flatten")

# The arguments of these say how large a tensor or array is, by a tuple or one by one.
BY_SIDES = wordset("zeros ones empty rand randn random randperm")
PRODUCTS = wordset("torch.addmm torch.mm torch.matmul")  # rows as of the matrix before the last
MADE = BY_SIDES | wordset("arange full randint integers normal uniform standard_normal")
LOGARITHMS = wordset("numpy.log math.log")
JOINS = wordset("torch.stack torch.cat")
TURNED = wordset("T mT H mH")
MANY = 10**12  # numbers: as many as there may be


def in_order(script: Script, expr: ast.expr | None, depth: int = 0) -> bool:
    """A tensor that certainly has its strides in the order of its dimensions, so that rows of it
    make a contiguous batch.

    ``stack`` of single rows always gives a contiguous batch; indexing a permuted tensor gives a
    permuted one, on which ``view`` fails.
    """
    parts = _combined(script, expr, KEEP_ORDER)
    match expr:
        case ast.Call(keywords=keywords) if any(
            k.arg in (None, "memory_format", "out") for k in keywords
        ):
            return False
        case ast.Call():
            name, first = script.library_function(expr), first_argument(expr)
            if name in FACTORIES:
                return True
            if name == "torch.tensor" and isinstance(first, (ast.List, ast.ListComp)):
                return True  # made from numbers
            if last_part(name) in LEGACY_TENSORS:
                return first is not None and certainly(script.values(first), Seq)
            if name == "torch.nn.Parameter" and first is not None:
                parts = [first]
            if name in JOINS and isinstance(first, SEQUENCES):
                parts = [*first.elts]
        case ast.Subscript(value=inner):
            parts = [inner]
        case ast.Name() | ast.Attribute() if getattr(expr, "attr", "") not in TURNED:
            if depth < 16 and not _is_laid_out_anew(script):
                parts = _given_to(script, expr)
    return surely(part is not None and in_order(script, part, depth + 1) for part in parts)


def most_numbers(script: Script, expr: ast.expr | None, depth: int = 0) -> int:
    """How many numbers a tensor or array holds at the most, as far as the script says how large it
    is made; else :data:`MANY`.
    """
    if expr is None or depth == 16:
        return MANY
    parts = _operands(script, expr, KEEP_SIZE)
    match expr:
        case ast.Constant() | ast.Slice():
            return 1
        case ast.Call(args=args):
            if sides := sides_of(script, expr):
                return math.prod(_most(script.values(side)) for side in sides)
            if script.library_function(expr) in JOINS and args and isinstance(args[0], SEQUENCES):
                return sum(most_numbers(script, part, depth + 1) for part in args[0].elts)
            if script.library_function(expr) in LOGARITHMS and args:
                parts = [args[0]]
        case ast.List(elts=elts):
            return sum(most_numbers(script, part, depth + 1) for part in elts)
        case ast.Name() | ast.Attribute():
            values = _given_to(script, expr)
            if None in (values or [None]):  # the reader takes arrays of NumPy for numbers, too
                return 1 if are_numbers(script.values(expr)) else MANY
            return max(most_numbers(script, v, depth + 1) for v in values)
        case ast.Subscript(value=inner, slice=index):
            parts = [inner, index]
        case ast.Tuple(elts=elts):
            parts = [*elts]
    return math.prod(most_numbers(script, p, depth + 1) for p in parts) if parts else MANY


def row_count(script: Script, expr: ast.expr | None, depth: int = 0) -> object:
    """What tells how many rows an array, a tensor or a list has: equal for two of one object that
    have as many; None where nothing does.
    """
    parts = _combined(script, expr, KEEP_ROWS)
    match expr:
        case ast.Attribute():
            parts = _given_to(script, expr)
        case ast.Name() if made := script.analysis(Flow).definition(expr):
            parts = values_of(script, made) if made.is_parameter else [made.value]
        case ast.Subscript(value=inner, slice=ast.Tuple(elts=[ast.Slice(None, None, None), *_])):
            parts = [inner]
        case ast.Subscript(slice=index) if array_of(script, index) and (
            taken := same_number(script, index)
        ):
            return taken, statement_of(expr)
        case ast.BinOp(op=ast.MatMult()):
            parts = []
        case ast.Call(func=func) if not any_of(script.called(expr), Func):
            if sides := sides_of(script, expr):
                if (measured := measured_by(sides[0])) is None:
                    return same_number(script, sides[0])
                parts = [measured]
            elif script.is_call(expr, *PRODUCTS) and len(expr.args) > 1:
                parts = [expr.args[-2]]
            elif is_method(expr, "expand") and len(expr.args) > 1:
                if (side := same_number(script, expr.args[0])) != -1:
                    return side
                parts = [expr.func.value]
            elif is_method(expr, "t") and is_method(expr.func.value, "expand"):
                sides = expr.func.value.args
                return same_number(script, sides[1]) if len(sides) == 2 else None
            elif isinstance(func, ast.Attribute) and func.attr in ALONG:
                axes = map(script.constant, arguments_of(expr))
                if surely(type(axis) is int and axis > 0 for axis in axes):
                    parts = [func.value]
    found = one({depth < 9 and row_count(script, part, depth + 1) or None for part in parts})
    if isinstance(expr, ast.Name) and not script.may_be(expr, Seq):
        return found or same_number(script, expr)
    return found


def _operands(script: Script, expr: ast.expr | None, keeping: Collection[str]) -> Expressions:
    """The tensors and arrays that the result of a pointwise operation, or of one of these functions
    and methods, has its shape from; none of anything else.
    """
    parts: Expressions = []
    match expr:
        case ast.Call(func=func, args=args) if not any_of(script.called(expr), Func):
            function = script.library_name(func)
            name = function or f".{called_as(func)}"
            if is_pointwise(name):
                parts = [*args]
            elif function and last_part(name) in keeping:
                parts = [*args[:1]]
            if isinstance(func, ast.Attribute) and not function:
                is_kept = is_pointwise(name) or func.attr in keeping
                parts = [func.value, *parts] if is_kept else []
        case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]):
            parts = [left, right]
        case ast.UnaryOp(operand=operand):
            parts = [operand]
    return parts


def _combined(script: Script, expr: ast.expr | None, keeping: Collection[str]) -> Expressions:
    """These operands, of several those that are no numbers."""
    parts = _operands(script, expr, keeping)
    several = [p for p in parts if p is None or not are_numbers(script.values(p))]
    return several if len(parts) > 1 else parts


def _given_to(script: Script, expr: ast.Name | ast.Attribute) -> Expressions:
    """What a variable, or an attribute of the project's objects, was set to; empty where that is
    not known.
    """
    if isinstance(expr, ast.Name):
        # `x += 1` leaves the strides of x, and its size, as they are
        made = script.analysis(Flow).origins(expr)
        return [v for d in made if not d.is_augmented for v in values_of(script, d)]
    return [e for t in script.values(expr.value) for e in held_under(script, t, expr.attr)]


def same_number(script: Script, size: ast.expr) -> object:
    """What tells the value of a number, an index or an array: the number, or the only definition of
    a variable; of one that is made in a loop, in a single statement.
    """
    known = script.constant(size)
    made = script.analysis(Flow).definition(size) if isinstance(size, ast.Name) else None
    if known is not ... or made is None:
        return None if known is ... else known
    return made, statement_of(size) if any_of(ancestors(made.node), LOOPS) else None


def measured_by(expr: ast.expr | None) -> ast.expr | None:
    """The array of ``len(x)``, ``x.shape[0]`` and ``x.size(0)``."""
    match expr:
        case (
            ast.Call(func=ast.Name(id="len"), args=[measured])
            | ast.Subscript(
                value=ast.Attribute(value=measured, attr="shape"), slice=ast.Constant(value=0)
            )
            | ast.Call(
                func=ast.Attribute(value=measured, attr="size"), args=[ast.Constant(value=0)]
            )
        ):
            return measured
    return None


def _most(values: Values) -> int:
    """The largest of these numbers; options may be given any."""
    return max((t.value if is_const(t, int) else MANY for t in values), default=MANY)


def sides_of(script: Script, call: ast.Call) -> list[ast.expr]:
    """The lengths of the sides of a tensor or array that a call makes, as far as it shows them."""
    short = called_as(call.func)
    if short not in MADE or any_of(script.called(call), Func):
        return []
    named = [k.value for k in call.keywords if k.arg in ("size", "shape")]
    tuples = [a for a in (*named, *call.args) if isinstance(a, SEQUENCES)]
    plain = short in BY_SIDES or len(call.args) == 1
    last = [] if short == "arange" else call.args[2:]  # ``integers(0, 2, n)``
    return tuples[0].elts if tuples else named or (call.args if plain else last)


def _is_laid_out_anew(script: Script) -> bool:
    """Somewhere the strides of a tensor that exists are changed. ``memory_format=`` and ``p.data =
    ...`` of a parameter do that to the parameters of a module alone, which no data set may hold; of
    a tensor ``memory_format=`` makes another one."""

    def is_set(node: ast.Attribute) -> bool:
        of_module = surely(is_weight(t) for t in script.values(node.value))
        return node.attr == "data" and is_stored(node) and not of_module

    return any(
        script.reached(n) and (reshapes(n.attr) or is_set(n)) for n in script.each(ast.Attribute)
    )
