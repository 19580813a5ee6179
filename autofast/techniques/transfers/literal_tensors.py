"""``torch.LongTensor(range(n))``, ``torch.tensor([2] * n)``: numbers that a list says, and a
factory could make."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Rewrite
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow, definitions_at
from autofast.model.calls import arguments_of
from autofast.model.events import Site
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import parent_of, source_of
from autofast.model.values import Ref, Tensor, certainly, const, names_of

# The dtype to say for numbers of a constructor; none where that follows from whole numbers.
DTYPES = {"torch.LongTensor": "", "torch.tensor": "", "torch.FloatTensor": "float32"}


def listed(script: Script, call: ast.Call, where: str) -> Rewrite | None:
    """``torch.arange(n, device=...)`` or ``torch.full((n,), 2, device=...)`` in the place of the
    call; None where it is neither."""
    name = script.library_function(call)
    if name not in DTYPES or call.keywords or len(call.args) != 1 or "{" in where:
        return None
    if not isinstance(call.func, ast.Attribute):
        return None
    torch = source_of(call).segment(call.func.value)
    end = f"dtype={torch}.{DTYPES[name]}, device={where}" if DTYPES[name] else f"device={where}"
    data, lists = call.args[0], 0
    while isinstance(data, ast.List) and len(data.elts) == 1:
        data, lists = data.elts[0], lists + 1
    if script.is_call(data, "builtins.list") and len(arguments_of(data)) == 1:
        data = arguments_of(data)[0]
    shaped = ("", ".unsqueeze(0)")[lists] if lists < 2 else f".view({'1, ' * lists}-1)"
    match data:
        case ast.Call(func=made, args=[_] | [_, _] as ends, keywords=[]):
            if script.values(made) == {Ref("builtins.range")} and goes_up(script, ends):
                holes = {f"n{i}": n for i, n in enumerate(ends)}
                given = "".join(f"{{{hole}}}, " for hole in holes)
                return Rewrite(call, f"{torch}.arange({given}{end}){shaped}", holes)
        case ast.BinOp(left=ast.List(elts=[number]), op=ast.Mult(), right=count) if not lists:
            if _is_number(script, number, name) and counts(script, count):
                made_of = {"n": count, "number": number}
                return Rewrite(call, f"{torch}.full(({{n}},), {{number}}, {end})", made_of)
    return None


def goes_up(script: Script, ends: list[ast.expr]) -> bool:
    """Whether a range is certainly none that goes down, which is empty: an error of ``arange``."""
    if len(ends) == 1:
        return counts(script, ends[0])
    low, high = (_whole(script, end) for end in ends)
    return bool(low) and bool(high) and max(low) <= min(high)


def _whole(script: Script, expr: ast.expr) -> list[int]:
    """All that a whole number may be; empty where that is not known."""
    found = [const(frozenset({t})) for t in script.values(expr)]
    known = [n for n in found if type(n) is int]
    return known if len(known) == len(found) else []


def counts(script: Script, expr: ast.expr) -> bool:
    """Whether an expression is certainly a whole number that is not negative: an empty list would
    be an error there."""
    match expr:
        case ast.Constant(value=value):
            return type(value) is int and value >= 0
        case ast.Call(func=ast.Name(id="len"), args=[_]):
            return script.is_call(expr, "builtins.len")
        case (
            ast.Call(func=ast.Attribute(value=of, attr="size"), args=[_])
            | ast.Subscript(value=ast.Attribute(value=of, attr="shape"), slice=ast.Constant())
        ):
            return certainly(script.values(of), Tensor)
        case ast.Name():
            made = script.analysis(Flow).values(expr)
            return surely(not isinstance(v, ast.Name) and counts(script, v) for v in made)
        case ast.Attribute() | ast.BinOp():
            return min(_whole(script, expr), default=-1) >= 0
    return False


def _is_number(script: Script, expr: ast.expr, name: str) -> bool:
    """A number of Python, of which both make the same: written out, or counted by ``range`` or
    ``enumerate``."""
    match expr:
        case ast.Constant(value=value):
            return type(value) in ((int,) if name == "torch.LongTensor" else (int, float, bool))
        case ast.Attribute():
            return bool(_whole(script, expr))
        case ast.Name():
            return surely(_is_counter(script, d) for d in definitions_at(script, expr))
    return False


def _is_counter(script: Script, made: Definition) -> bool:
    target, place = made.node, parent_of(made.node)
    first = isinstance(place, ast.Tuple) and place.elts[0] is target
    loop = parent_of(place) if first and place is not None else place
    counts = "builtins.enumerate" if first else "builtins.range"
    return isinstance(loop, ast.For) and script.is_call(loop.iter, counts)


def made_by_default(script: Script) -> Iterator[tuple[Site, Rewrite]]:
    """``torch.full((1,), 1e10)`` for ``torch.Tensor([1e10])``, where tensors are made on the GPU by
    default: the one fills memory there, the other copies from the host, and waits.
    """
    kinds = [o.args.get(0, "t") for s in script.calls("torch.set_default_tensor_type") for o in s]
    named = ([str(const(kind)), *names_of(kind)] for kind in kinds)
    if not surely(any(n.startswith("torch.cuda.") for n in names) for names in named):
        return
    for site in script.calls("torch.Tensor", "torch.tensor"):
        match site.node:
            case (
                ast.Call(
                    func=ast.Attribute(value=module),
                    args=[ast.List(elts=[ast.Constant(value=float()) as number])],
                    keywords=[],
                ) as call
            ):
                torch = source_of(call).segment(module)
                yield site, Rewrite(call, f"{torch}.full((1,), {{number}})", {"number": number})
