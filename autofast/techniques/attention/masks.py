"""What a mask of written-out attention becomes: ``is_causal=True``, or an ``attn_mask``.

Where ``attn_mask`` is bool, True takes part; a row in which nothing does is 0. Softmax of a row of
``-inf`` is NaN, so nothing that trains is changed by that; but of a row of ``-1e9`` it is the mean
of all, also of what is masked. So finite numbers are added, which gives the same mean; but scores
that were replaced get no gradient, and scores that are added to get one in such a row (measured).
Nothing shows that no row is masked as a whole.
"""

from __future__ import annotations

import ast
import math

from autofast.edit.edits import Holes
from autofast.facts.attribute_values import lasting_value
from autofast.facts.dimensions import least_dimensions
from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow, definitions_at
from autofast.flow.scopes import defaults
from autofast.model.calls import is_same_code, items_of, spread_out
from autofast.model.script import Script
from autofast.model.several import is_numeric, surely, wordset
from autofast.model.source import at, function_of, nodes_in
from autofast.model.syntax import SEQUENCES, is_attribute, is_constant
from autofast.model.values import Ext, Tensor, are_numbers, of_kind, surely_named
from autofast.rule import Refusal
from autofast.techniques.attention.written_out import SHAPES, Attention, Mask

HALVES = ("half", "float16", "bfloat16")
DEEP = 8
LARGE = -1e9  # added to any score, this leaves nothing of it in float32
CAUSAL = -1e4  # the diagonal is never masked, and exp(-1e4) is 0
INFINITE = wordset("math.inf numpy.inf torch.inf")
LAST = wordset("Linear LayerNorm Dropout Identity", "torch.nn.")


def is_causal(script: Script, found: Attention) -> bool:
    """Whether exactly what lies above the diagonal of a square is masked, and the scores are
    one.
    """
    mask = found.mask
    if mask is None or mask.unless_none is not None or mask.fill is not None:
        return False
    square = all(
        _have_length(script, side, end)
        for side in (found.query, found.key)
        for end in _ends(script, mask.expr)
    )
    if mask.value is None:
        return square and _is_added_triangle(script, mask.expr)
    if (number := _number(script, mask.value)) is None or number > CAUSAL:
        return False
    where, kept = _plain(script, mask.expr, mask.kept)
    return square and _is_triangle(script, where, lower=kept, depth=0)


def _is_added_triangle(script: Script, expr: ast.expr) -> bool:
    """``torch.full((n, n), float("-inf")).triu(1)``, for as many positions as there are scores:
    else it could not be added to them.
    """
    match expr:
        case ast.Name():
            made = script.analysis(Flow).value_of_its_own(expr)
            return made is not None and _is_added_triangle(script, made)
        case ast.Call(func=ast.Attribute(value=full, attr="triu"), args=[one], keywords=[]):
            pass
        case ast.Call(func=func, args=[full, one]) if script.library_name(func) == "torch.triu":
            pass
        case ast.Call(
            func=func, args=[full], keywords=[ast.keyword(arg="diagonal", value=one)]
        ) if script.library_name(func) == "torch.triu":
            pass
        case _:
            return False
    match full:
        case ast.Call(func=func, args=[ast.Tuple(elts=[a, b]), value, *_]) if (
            script.library_name(func) == "torch.full"
        ):
            number = _number(script, value)
            same = is_same_code(a, b) and script.constant(one) == 1
            return same and number is not None and math.isinf(number) and number < 0
    return False


def _ends(script: Script, where: ast.expr) -> list[ast.expr]:
    """Up to where a mask goes: ``T`` of ``[:, :, :T, :T]`` and of ``torch.ones(T, T)``, also of
    what a variable holds.
    """
    found: list[ast.expr] = []
    for node in ast.walk(where):
        match node:
            case ast.Slice(upper=ast.expr() as end):
                found.append(end)
            case ast.Name(ctx=ast.Load()):
                if (made := script.analysis(Flow).value(node)) is not None:
                    found += _sizes(script, made)
    return [*found, *_sizes(script, where)]


def _sizes(script: Script, expr: ast.expr) -> list[ast.expr]:
    """The last sizes of ``torch.ones(...)`` and ``torch.full(...)`` in an expression."""
    calls = [n for n in nodes_in(expr, ast.Call) if n.args]
    made = [c for c in calls if script.library_function(c) in ("torch.ones", "torch.full")]
    given = [c.args[0].elts if isinstance(c.args[0], SEQUENCES) else c.args for c in made]
    return [sizes[-1] for sizes in given if sizes]


def _have_length(script: Script, tensor: ast.expr, length: ast.expr) -> bool:
    """Whether the tensor was brought into shape with ``length`` as one of its sizes: ``q.view(B, T,
    heads, -1).transpose(1, 2)``.

    A mask of one position fits any scores, so it must be certain that there are as many queries and
    keys as the mask is cut to.
    """
    flow = script.analysis(Flow)
    expr, moved = tensor, False
    while True:
        match expr:
            case ast.Name() if not moved and _is_unpacked(flow, length, expr):
                return True
            case ast.Name():
                made = flow.value(expr)
                if made is None:
                    return False
                expr = made
            case ast.Call(func=ast.Attribute(value=inner, attr="transpose" | "contiguous")):
                expr, moved = inner, True
            case ast.Call(func=func, args=[inner], keywords=[]) if _changes_last(script, func):
                expr = inner
            case ast.BinOp(left=inner, op=ast.Mult() | ast.Div()):
                expr = inner
            case ast.Call(func=ast.Attribute(attr="view" | "reshape"), args=sizes):
                return any(flow.is_same(s, length) for s in sizes)
            case _:
                return False


def _changes_last(script: Script, function: ast.expr) -> bool:
    """Whether it is a layer that changes nothing but the last dimension."""
    layers = script.values(function)
    return surely_named(layers, Ext, LAST)


def _is_unpacked(flow: Flow, length: ast.expr, tensor: ast.Name) -> bool:
    """``T`` of ``B, T, C = x.shape``: the last size but one of ``tensor``, as it is."""
    match length:
        case ast.Name():
            made = flow.definition(length)
        case _:
            return False
    match made and made.statement:
        case ast.Assign(
            targets=[ast.Tuple(elts=[*_, ast.Name() as last_but_one, ast.Name()] as names)],
            value=ast.Attribute(value=ast.Name() as shaped, attr="shape")
            | ast.Call(func=ast.Attribute(value=ast.Name() as shaped, attr="size"), args=[]),
        ):
            alone = made == Definition(last_but_one.id, last_but_one)
            whole = {type(n) for n in names} == {ast.Name}
            return alone and whole and flow.reaching(shaped) == flow.reaching(tensor)
    return False


def _plain(script: Script, where: ast.expr, kept: bool) -> tuple[ast.expr, bool]:
    """A condition without ``== 0``, ``~`` and the like around it, and whether what is kept holds
    there.
    """
    match where:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as op], comparators=[number]):
            value = script.constant(number)
            if value in (0, 1) and value is not None:
                turned = isinstance(op, ast.Eq) == (value == 0)
                return _plain(script, left, kept != turned)
        case ast.UnaryOp(op=ast.Invert() | ast.Not(), operand=inner):
            return _plain(script, inner, not kept)
        case ast.Call(func=ast.Attribute(value=inner, attr="logical_not"), args=[]):
            return _plain(script, inner, not kept)
        case ast.Call(func=ast.Attribute(value=inner, attr="bool"), args=[]):
            return _plain(script, inner, kept)
    return where, kept


def _is_triangle(script: Script, expr: ast.expr, lower: bool, depth: int) -> bool:
    """Whether it is ``tril(ones(n, n))`` (else ``triu(ones(n, n), 1)``), or a square from its
    corner.
    """
    if depth > 8:
        return False
    match expr:
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in SHAPES and not (
            script.library_function(expr)
        ):
            return _is_triangle(script, inner, lower, depth + 1)
        case ast.Subscript(value=inner, slice=cut):
            return _is_square(cut) and _is_triangle(script, inner, lower, depth + 1)
        case ast.Call(func=func, args=[ones, *more]) if (
            script.library_name(func) == f"torch.{'tril' if lower else 'triu'}"
        ):
            given = [*more, *(k.value for k in expr.keywords if k.arg == "diagonal")]
            diagonal = script.constant(given[0]) if len(given) == 1 else None
            right = diagonal in (None, 0) if lower else diagonal == 1
            return right and (not lower or not given or diagonal == 0) and _is_ones(script, ones)
        case ast.Attribute(value=ast.Name()):
            made = lasting_value(script, expr)
            return made is not None and _is_triangle(script, made, lower, depth + 1)
        case ast.Name():
            # where it is used again, something may be written to it
            value = script.analysis(Flow).value_of_its_own(expr)
            return value is not None and _is_triangle(script, value, lower, depth + 1)
    return False


def _is_ones(script: Script, expr: ast.expr) -> bool:
    """Whether it is ``torch.ones(n, n)``."""
    if not script.is_call(expr, "torch.ones"):
        return False
    sizes = spread_out(expr.args)
    leading, last = sizes[:-2], [ast.dump(s) for s in sizes[-2:]]
    ones = all(script.constant(s) == 1 for s in leading)
    return len(last) == 2 and last[0] == last[1] and ones


def _is_square(cut: ast.expr) -> bool:
    """``[:, :, :n, :n]``, ``[:n, :n]``, ``[None, None]``: the last two dimensions from their
    beginning, to one end.
    """
    parts = items_of(cut)
    new = [p for p in parts if is_constant(p, None)]
    rest = [p for p in parts if p not in new]
    if any(not isinstance(p, ast.Slice) or p.step is not None for p in rest):
        return False
    cuts = of_kind(rest, ast.Slice)
    if any(not (p.lower is None or is_constant(p.lower, 0)) for p in cuts):
        return False
    ends = [p.upper for p in cuts]
    bounded = [n for n, end in enumerate(ends) if end is not None]
    if not bounded:
        return True
    texts = {ast.dump(end) for end in ends if end is not None}
    return bounded == [len(ends) - 2, len(ends) - 1] and len(texts) == 1


def _number(script: Script, value: ast.expr) -> float | None:
    """The number that scores are replaced by, as far as it is known."""
    match value:
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            found = _number(script, inner)
            return -found if found is not None else None
        case ast.Call(func=func, args=[text], keywords=[]) if (
            script.library_name(func) == "builtins.float"
        ):
            said = script.constant(text)
            try:
                return float(said) if isinstance(said, (str, int, float)) else None
            except ValueError:
                return None
        case ast.Attribute() if script.library_name(value) in INFINITE:
            return math.inf
        case ast.Attribute(value=ast.Call(func=func), attr=attr) if script.library_name(
            func
        ) == "torch.finfo" and attr in ("min", "max"):
            return -3e38 if attr == "min" else 3e38
    said = script.constant(value)
    return float(said) if is_numeric(said) else None


def may_differ(script: Script, mask: Mask) -> bool:
    """Whether a row that is masked as a whole would get other gradients (see above)."""
    return mask.value is not None and not is_infinite(script, mask)


def is_infinite(script: Script, mask: Mask) -> bool:
    """Whether masked scores are set to ``-inf``, whatever positive number scales them then."""
    return mask.value is not None and math.isinf(_number(script, mask.value) or 0.0)


def mask_text(script: Script, mask: Mask) -> tuple[str, Holes]:
    """The value of ``attn_mask``, and the expressions that it quotes.

    Raises :class:`Refusal` where there is none that gives the same.
    """
    text, holes = _given(script, mask)
    if least_dimensions(script, mask.expr) < 2:
        raise Refusal(f"nothing shows that the mask of {at(mask.expr)} has two dimensions or more")
    if mask.unless_none is not None and not (
        text == "{mask}" and is_same_code(mask.expr, mask.unless_none)
    ):
        text, holes = (
            f"None if {{tested}} is None else {text}",
            {"tested": mask.unless_none, **holes},
        )
    return text, holes


def _are_floats(script: Script, expr: ast.expr, beside: bool = False, depth: int = 0) -> bool:
    """Whether it is a tensor of 32-bit floats, or of the model's where nothing makes halves:
    ``(1.0 - mask.to(x.dtype)) * -1e4``, also where callers give it.

    ``beside``: a float stands beside it, with which integers are floats.
    """
    found = script.values(expr)
    kinds = {t.dtype if isinstance(t, Tensor) else "" for t in found}
    if found and kinds <= ({"f32", "int"} if beside else {"f32"}):
        return True
    if depth > DEEP or any(is_attribute(n, *HALVES) for n in script.each(ast.Attribute)):
        return False
    match expr:
        case ast.Name():
            graph, reaching = script.analysis(CallGraph), definitions_at(script, expr)
            # None, the default, is not added to anything
            spec = defaults(function_of(expr))
            none = is_constant(spec.get(expr.id), None)
            made = [g for d in reaching for g in graph.gives(d, none) if not is_constant(g, None)]
            return surely(m is not None and _are_floats(script, m, beside, depth + 1) for m in made)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
            for number, other in ((left, right), (right, left)):
                if are_numbers(script.values(number)):
                    floats = isinstance(script.constant(number), float)
                    return _are_floats(script, other, beside or floats, depth + 1)
        case ast.Call(func=ast.Attribute(attr="type_as"), args=[_]):
            return beside
        case ast.Call(func=ast.Attribute(attr="to"), args=args, keywords=keywords):
            given = [*args, *(k.value for k in keywords if k.arg == "dtype")]
            return beside and len(given) == 1 and is_attribute(given[0], "dtype")
    return False


def _given(script: Script, mask: Mask) -> tuple[str, Holes]:
    if mask.value is None:
        if not _are_floats(script, mask.expr):
            raise Refusal(f"nothing shows that what is added on {at(mask.expr)} are floats")
        return "{mask}", {"mask": mask.expr}
    number = _number(script, mask.value)
    if number is None or number > LARGE:
        raise Refusal(
            f"nothing shows that masked scores are set to -inf, or to -1e9 and less ({at(mask.value)})"
        )
    if not math.isinf(number):
        match mask.value:
            case ast.Attribute(value=ast.Call()):
                raise Refusal(
                    f"a row may be masked as a whole, and {ast.unparse(mask.value)} ({at(mask.value)}) is too large to be added to scores"
                )
        both = ("0.0", "{value}") if mask.kept else ("{value}", "0.0")
        return f"TORCH.where({{mask}}, {', '.join(both)})", {"mask": mask.expr, "value": mask.value}
    if mask.kept:
        return "{mask}", {"mask": mask.expr}
    match mask.expr:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return "{left} != {right}", {"left": left, "right": right}
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]):
            return "{left} == {right}", {"left": left, "right": right}
        case ast.UnaryOp(op=ast.Invert(), operand=inner):
            return "{inner}", {"inner": inner}
    return "{mask}.logical_not()", {"mask": mask.expr}
