"""Tensors that are put together on the host out of nothing but made ones, and then copied:
``torch.cat([torch.arange(n), torch.arange(n)]).to(device)``.

All of them can be made there. What each device computes in its own way (``exp``, a division) may
differ in its last digit.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autofast.flow.loops import loops_around
from autofast.flow.program import Flow, definitions_of
from autofast.flow.scopes import stored_in
from autofast.model.calls import given_to, is_name, items_of, names_in
from autofast.model.names import SETTINGS_FILES
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import (
    block_of,
    nodes_in,
    source_of,
    statement_of,
    within,
    within_statement,
)
from autofast.model.syntax import COMPREHENSIONS, SEQUENCES, is_attribute, is_read
from autofast.model.tensors import is_dtype
from autofast.model.values import Arg, Const, Num, Ref, Unknown, library_names

Factory = Callable[[Script, ast.expr], "ast.Call | None"]

# of several tensors or of one, the same to the last bit on every device
JOINS = wordset("cat concat stack vstack hstack triu tril flip logical_not from_numpy", "torch.")
METHODS = wordset("""float double half bfloat16 long int bool view reshape unsqueeze squeeze expand repeat flatten permute transpose t
    contiguous clone triu tril flip unfold bitwise_not logical_not eq ne repeat_interleave""")
# of numbers and tensors; what is not in EXACT rounds on each device in its own way
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
EXACT = (ast.Add, ast.Sub, ast.Mult)
MATHS = wordset("exp sin cos tan sqrt rsqrt log pow div reciprocal tanh sigmoid")
WHOLE = wordset("long int bool eq ne bitwise_not logical_not")
OF_MATHS = frozenset(f"torch.{n}" for n in MATHS)
VARIABLE = "torch.autograd.Variable"


@dataclass(frozen=True)
class Parts:
    """The calls of factories in an expression, whether it also uses the variable that was asked
    for. ``rounds``: each device computes it in its own way; ``cuts``: a last digit would matter."""

    calls: tuple[ast.Call, ...] = ()
    open: bool = False
    rounds: bool = False
    cuts: bool = False

    def __add__(self, other: Parts) -> Parts:
        open, rounds = self.open or other.open, self.rounds or other.rounds
        return Parts(self.calls + other.calls, open, rounds, self.cuts or other.cuts)


def composed_parts(
    script: Script, expr: ast.expr, factory: Factory, name: str = "", inside: ast.expr | None = None
) -> Parts | None:
    """What an expression is made of; None where it holds anything but made tensors, numbers and the
    variable ``name``. Variables that are read nowhere but ``inside`` of it count with all that they
    may be given."""

    def all_of(several: Sequence[ast.expr]) -> Parts | None:
        found = Parts()
        for one in several:
            inner = composed_parts(script, one, factory, name, inside)
            if inner is None:
                return None
            found += inner
        return found

    if is_name(expr, name):
        return Parts(open=True)
    if isinstance(expr, ast.Call) and (made := factory(script, expr)) is not None:
        return Parts((made,))
    if _is_number(script, expr):
        return Parts()
    match expr:
        case ast.Name() if inside is not None:
            return _given_to(script, expr, factory, inside)
        case ast.List(elts=elts) | ast.Tuple(elts=elts):
            return all_of(elts)
        case ast.ListComp(elt=elt, generators=[ast.comprehension(iter=over, ifs=[])]):
            return (
                composed_parts(script, elt, factory, name, inside)
                if (script.called(over) == {Ref("builtins.range")})
                else None
            )
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, ARITHMETIC):
            return _rounded(all_of([left, right]), not isinstance(op, EXACT))
        case ast.Compare(left=left, ops=[_], comparators=[right]):
            return _exact(all_of([left, right]))
        case ast.Call(args=args, keywords=[]) if script.library_function(expr) in OF_MATHS:
            return _rounded(all_of(args))
        case (
            ast.UnaryOp(op=ast.USub() | ast.Invert(), operand=inner)
            | ast.Attribute(value=inner, attr="T" | "mT")
        ):
            return composed_parts(script, inner, factory, name, inside)
        case ast.Subscript(value=inner, slice=at):  # rows and columns by numbers
            cuts = [c for part in items_of(at) for c in _numbers_of(part)]
            fits = all(_is_number(script, c) for c in cuts)
            return composed_parts(script, inner, factory, name, inside) if fits else None
        case ast.Call():
            return _call(script, expr, factory, name, inside)
    return None


def _given_to(script: Script, use: ast.Name, factory: Factory, inside: ast.expr) -> Parts | None:
    """What a variable gets at each place that may have given it its value."""
    made, found = script.analysis(Flow).reaching(use), Parts()
    for definition in made:
        target, value = definition.node, definition.value
        if (
            value is None
            or not is_name(target, use.id)
            or use.id in source_of(use).rebound
            or [*loops_around(target)] != [*loops_around(inside)]
            or not all(within(n, inside) for n in definitions_of(script, target).uses_of(target))
        ):
            return None
        part = composed_parts(script, value, factory, inside=value)
        if part is None:
            return None
        found += part
    return replace(found, calls=tuple(dict.fromkeys(found.calls))) if made else None


def _numbers_of(index: ast.expr) -> list[ast.expr]:
    """``a`` and ``b`` of ``a:b``."""
    match index:
        case ast.Slice(lower=low, upper=high, step=step):
            return [p for p in (low, high, step) if p is not None]
    return [index]


def _call(
    script: Script, call: ast.Call, factory: Factory, name: str, inside: ast.expr | None
) -> Parts | None:
    found = script.called(call)
    names = library_names(found)
    of_torch = len(names) == len(found) == 1
    rest = [*call.args[1:], *(k.value for k in call.keywords)]
    if not all(_is_number(script, r) for r in rest):
        return None
    if of_torch and names <= JOINS | {VARIABLE} and call.args:
        return composed_parts(script, call.args[0], factory, name, inside)
    match call:
        case ast.Call(func=ast.Attribute(value=inner, attr="type" | "to"), args=[to], keywords=[]):
            kinds = script.values(to)
            old = any(name.endswith("Tensor") for name in library_names(kinds))  # of the host
            cast = bool(kinds) and all(map(is_dtype, kinds)) and not old
            return _exact(composed_parts(script, inner, factory, name, inside)) if cast else None
        case ast.Call(func=ast.Attribute(value=inner, attr="masked_fill"), args=[mask, _]):
            both = [composed_parts(script, part, factory, name, inside) for part in (inner, mask)]
            return both[0] + both[1] if both[0] is not None and both[1] is not None else None
    if is_attribute(call.func, *METHODS, *MATHS) and not of_torch:
        if all(_is_number(script, a) for a in call.args):
            found_there = composed_parts(script, call.func.value, factory, name, inside)
            if call.func.attr in WHOLE:
                return _exact(found_there)
            return _rounded(found_there, call.func.attr in MATHS)
    return None


def _rounded(made: Parts | None, rounds: bool = True) -> Parts | None:
    """What a function gives of tensors; numbers alone are computed by the host as before."""
    tensors = made is not None and (made.calls or made.open)
    return replace(made, rounds=True) if made is not None and rounds and tensors else made


def _exact(made: Parts | None) -> Parts | None:
    """Of what is compared, or cut off to integers, a last digit may change everything."""
    return None if made is None or made.rounds else replace(made, cuts=True)


def assignment_chain(
    script: Script, stmt: ast.stmt, name: str, needed: set[str], factory: Factory
) -> Parts:
    """What is behind a variable, over all assignments to it before ``stmt`` in its block, and what
    they alone use; no calls where something else is among them.

    Nothing else may use the variable, or bind what is ``needed``, in between.
    """
    block, whole = block_of(stmt), Parts()
    before = block[: block.index(stmt)]
    for earlier in reversed(before):
        if (value := given_to(earlier, name)) is not None:
            found = composed_parts(script, value, factory, name, inside=value)
            if found is None or (whole.cuts and found.rounds):
                return Parts()
            whole += found
            if not found.open:
                return whole if _is_steady(before, whole, needed) else Parts()
            continue
        for node in nodes_in(earlier, ast.Name):
            if node.id == name or (node.id in needed and not is_read(node)):
                return Parts()
    return Parts()


def _is_steady(before: list[ast.stmt], made: Parts, needed: set[str]) -> bool:
    """Whether all is made in these statements, and nothing binds what is ``needed`` from then."""
    places = [statement_of(call) for call in made.calls]
    if not all(place in before for place in places):
        return False
    first = min(map(before.index, places), default=len(before))
    return not any(needed & stored_in(s) for s in before[first:])


def hides(call: ast.Call, needed: set[str]) -> bool:
    """Whether a comprehension around the call has variables of these names."""
    for outer in within_statement(call):
        if isinstance(outer, COMPREHENSIONS) and any(
            names_in(g.target) & needed for g in outer.generators
        ):
            return True
    return False


def _is_number(script: Script, expr: ast.expr) -> bool:
    if isinstance(expr, SEQUENCES):
        return surely(_is_number(script, e) for e in expr.elts)
    if isinstance(expr, ast.Starred):
        return False
    return surely(
        isinstance(t, (Const, Num, Arg)) or (isinstance(t, Unknown) and t.name in SETTINGS_FILES)
        for t in script.values(expr)
    )
