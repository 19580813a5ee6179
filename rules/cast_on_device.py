"""cast-on-device: copy integers to the device before they are cast to floats."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.edit.edits import Edit, Rewrite, Wrap
from autofast.facts.copies import against_source, batch_dtypes
from autofast.facts.cost import gains
from autofast.model.calls import is_method
from autofast.model.script import Script
from autofast.model.tensors import dtype_of
from autofast.model.values import Const, Num, Ref, Thing
from autofast.ops.families import ARITHMETIC, REGROUPING, SIGNS
from autofast.rule import Effect, Finding, Options, rule

CASTS = ("float", "double", "half", "bfloat16")
OLD = {"torch.FloatTensor": "float", "torch.DoubleTensor": "double", "torch.HalfTensor": "half"}


@rule(
    "cast-on-device",
    Effect.EXACT,
    groups=("transfer",),
    relieves={"transfer": 4},
    asks=gains.copies,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Copy integers of a batch to the device as they are, and cast them to floats there."""
    for transfer in script.transfers if options.target != "cpu" else ():
        if not (
            transfer.how in ("to", "cuda")
            and transfer.loops
            and isinstance(transfer.node.func, ast.Attribute)
        ):
            continue
        moved = transfer.node.func.value
        made = _below_arithmetic(script, moved)
        cast = _below_views(made)
        batch, template, edits = _uncast(script, cast)
        if not template and made is not moved and batch_dtypes(script, made) == {"int"}:
            batch, template = made, "{}"  # dividing integers gives floats
            if not _is_divided(moved, made):
                continue
        if (
            template
            and transfer.kinds & {"cuda", "mps", "accel", "option", "xpu", "?"}
            and batch_dtypes(script, batch) & {"int", "?"}
        ):
            message = f"casts `{ast.unparse(batch)}` to floats on the host, and copies these to the device"
            holes = {"dtype": cast.args[0]} if isinstance(cast, ast.Call) and cast.args else {}
            effect = None
            if made is not moved:
                effect = Effect.ROUNDING  # a GPU divides by a number by way of its reciprocal
                template, numbers = _arithmetic(moved, made, template)
                holes |= numbers
                edits = (Rewrite(moved, "{made}", {"made": made}), *edits)
            edits = (*edits, Wrap(transfer.node, template, holes))
            why = against_source(script, transfer, batch)
            yield Finding(
                transfer.node, message, edits=() if why else edits, refusal=why, effect=effect
            )


def _uncast(script: Script, cast: ast.expr) -> tuple[ast.expr, str, tuple[Edit, ...]]:
    """What is cast, the cast as a template (empty: it is none to floats), and the edit that takes it away."""
    if not is_method(cast):
        return cast, "", ()
    batch = cast.func.value
    return (
        batch,
        _template(script, cast, cast.func.attr),
        (Rewrite(cast, "{batch}", {"batch": batch}),),
    )


def _below_arithmetic(script: Script, expr: ast.expr) -> ast.expr:
    """What is computed with, by numbers: ``x.float()`` in ``(x.float() / 255 - 0.5) / 0.5`` and in ``x.float().div(255)``."""
    while (parts := _parts(expr)) is not None:
        inner, number = parts
        if not _is_number(script, number):
            inner, number = number, inner
        if not _is_number(script, number) or (is_method(expr) and inner is not parts[0]):
            break
        expr = inner
    return expr


def _parts(expr: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Both sides of an operation."""
    match expr:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SIGNS:
            return left, right
        case ast.Call(func=ast.Attribute(value=left, attr=attr), args=[right], keywords=[]) if (
            attr in {*ARITHMETIC, "true_divide"}
        ):
            return left, right
    return None


def _steps(expr: ast.expr, made: ast.expr) -> list[ast.expr]:
    """The operations that make ``expr`` of ``made``, the last one first."""
    found: list[ast.expr] = []
    while expr is not made and (parts := _parts(expr)) is not None:
        found.append(expr)
        expr = parts[0] if any(n is made for n in ast.walk(parts[0])) else parts[1]
    return found


def _is_divided(expr: ast.expr, made: ast.expr) -> bool:
    match _steps(expr, made)[-1]:
        case ast.BinOp(op=ast.Div()) | ast.Call(func=ast.Attribute(attr="div" | "true_divide")):
            return True
    return False


def _arithmetic(expr: ast.expr, made: ast.expr, template: str) -> tuple[str, dict[str, ast.expr]]:
    """The same operations on a template in the place of ``made``, and the numbers in its holes."""
    numbers: dict[str, ast.expr] = {}
    inner: ast.expr = made
    for step in reversed(_steps(expr, made)):
        number = f"number{len(numbers)}"
        left, right = _parts(step) or (inner, inner)
        numbers[number] = right if left is inner else left
        match step, inner:
            case ast.Call(func=ast.Attribute(attr=attr)), ast.BinOp():
                template = f"({template}).{attr}({{{number}}})"
            case ast.Call(func=ast.Attribute(attr=attr)), _:
                template = f"{template}.{attr}({{{number}}})"
            case ast.BinOp(op=op), _:
                sign, ours = SIGNS[type(op)], left is inner
                low = isinstance(inner, ast.BinOp) and isinstance(inner.op, (ast.Add, ast.Sub))
                tight = sign in "*/"
                if isinstance(inner, ast.BinOp) and (low and tight if ours else low or tight):
                    template = f"({template})"
                sides = (template, f"{{{number}}}") if ours else (f"{{{number}}}", template)
                template = f"{sides[0]} {sign} {sides[1]}"
        inner = step
    return template, numbers


def _is_number(script: Script, expr: ast.expr) -> bool:
    found = script.values(expr)
    return bool(found) and all(
        isinstance(t, Num)
        or (isinstance(t, Const) and isinstance(t.value, (int, float)) and t.value is not True)
        for t in found
    )


def _below_views(expr: ast.expr) -> ast.expr:
    """What is moved, without views on the way: ``x.float().unsqueeze(0)`` is ``x.float()`` in another shape."""
    while is_method(expr) and expr.func.attr in REGROUPING:
        expr = expr.func.value
    return expr


def _template(script: Script, cast: ast.Call, name: str) -> str:
    """The cast around another expression; empty where it is none to floats."""
    if name in CASTS:
        return f"{{}}.{name}()" if not cast.args and not cast.keywords else ""
    if name not in ("to", "type") or len(cast.args) != 1 or cast.keywords:
        return ""
    found = script.values(cast.args[0])
    old = OLD.get(_name(found)) if name == "type" else None
    if old is not None:  # an old type names the host, too
        return f"{{}}.{old}()"
    plain = bool(found) and all(_is_dtype(t) for t in found)
    return f"{{}}.{name}({{dtype}})" if plain else ""


def _is_dtype(thing: Thing) -> bool:
    return dtype_of(thing) in ("f32", "f64", "half") and not _name({thing}).endswith("Tensor")


def _name(found: Iterable[Thing]) -> str:
    names = {
        t.name if isinstance(t, Ref) else t.value if isinstance(t, Const) else "" for t in found
    }
    return str(next(iter(names))) if len(names) == 1 else ""
