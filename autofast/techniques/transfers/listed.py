"""``torch.LongTensor(range(n))``, ``torch.tensor([2] * n)``: numbers that a list says, and a
factory could make.
"""

from __future__ import annotations

import ast

from autofast.edit.edits import Rewrite
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow
from autofast.model.script import Script
from autofast.model.source import parent_of, source_of
from autofast.model.values import Ref, Tensor, certainly

WHOLE = frozenset({"torch.LongTensor", "torch.tensor"})  # what makes int64 of whole numbers


def listed(script: Script, call: ast.Call, where: str) -> Rewrite | None:
    """``torch.arange(n, device=...)`` or ``torch.full((n,), 2, device=...)`` in the place of the
    call; None where it is neither.
    """
    name = script.library_function(call)
    if name not in WHOLE or call.keywords or len(call.args) != 1 or "{" in where:
        return None
    if not isinstance(call.func, ast.Attribute):
        return None
    torch = source_of(call).segment(call.func.value)
    match call.args[0]:
        case ast.Call(func=made, args=[count], keywords=[]):
            if script.values(made) == {Ref("builtins.range")} and _counts(script, count):
                return Rewrite(call, f"{torch}.arange({{n}}, device={where})", {"n": count})
        case ast.BinOp(left=ast.List(elts=[number]), op=ast.Mult(), right=count):
            if _is_number(script, number, name) and _counts(script, count):
                made_of = {"n": count, "number": number}
                return Rewrite(call, f"{torch}.full(({{n}},), {{number}}, device={where})", made_of)
    return None


def _counts(script: Script, expr: ast.expr) -> bool:
    """Whether an expression is certainly a whole number that is not negative: an empty list would
    be an error there.
    """
    match expr:
        case ast.Constant(value=value):
            return type(value) is int and value >= 0
        case ast.Call(func=ast.Name(id="len"), args=[_]):
            return script.is_call(expr, "builtins.len")
        case (
            ast.Call(func=ast.Attribute(value=of, attr="size"), args=[_])
            | ast.Subscript(value=ast.Attribute(value=of, attr="shape"), slice=ast.Constant())
        ):
            found = script.values(of)
            return certainly(found, Tensor)
        case ast.Name():
            made = [d.value for d in script.analysis(Flow).reaching(expr)]
            plain = [v for v in made if v is not None and not isinstance(v, ast.Name)]
            return bool(made) and len(plain) == len(made) and all(_counts(script, v) for v in plain)
    return False


def _is_number(script: Script, expr: ast.expr, name: str) -> bool:
    """A number of Python, of which both make the same: written out, or counted by ``range`` or
    ``enumerate``.
    """
    if isinstance(expr, ast.Constant):
        wanted = (int,) if name == "torch.LongTensor" else (int, float, bool)
        return type(expr.value) in wanted
    if not isinstance(expr, ast.Name):
        return False
    made = script.analysis(Flow).reaching(expr)
    return bool(made) and all(_is_counter(script, d) for d in made)


def _is_counter(script: Script, made: Definition) -> bool:
    target, place = made.node, parent_of(made.node)
    first = isinstance(place, ast.Tuple) and place.elts[0] is target
    loop = parent_of(place) if first and place is not None else place
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return False
    counts = "builtins.enumerate" if first else "builtins.range"
    return script.library_function(loop.iter) == counts
