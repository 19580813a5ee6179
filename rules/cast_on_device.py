"""cast-on-device: copy integers to the device before they are cast to floats."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.edit.edits import Edits, Rewrite, Wrap
from autofast.facts.copies import against_source, batch_dtypes
from autofast.facts.cost import gains
from autofast.model.calls import is_method
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.tensors import dtype_of
from autofast.model.values import Const, Ref, Thing
from autofast.ops.families import REGROUPING
from autofast.rule import Effect, Finding, Options, rule

CASTS = ("float", "double", "half", "bfloat16")
DOUBLE = ("torch.DoubleTensor",)
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
        moved = transfer.operand
        if moved is None or transfer.how not in ("to", "cuda") or not transfer.loops:
            continue
        cast = _below_views(moved)
        batch, template, edits = _uncast(script, cast)
        if (
            template
            and transfer.kinds & wordset("cuda mps accel option xpu ?")
            and batch_dtypes(script, batch) & ({"int", "?"} | _narrower(script, cast))
        ):
            message = f"casts `{ast.unparse(batch)}` to floats on the host, and copies these to the device"
            holes = {"dtype": cast.args[0]} if isinstance(cast, ast.Call) and cast.args else {}
            edits = (*edits, Wrap(transfer.node, template, holes))
            why = against_source(script, transfer, batch, {"int"} | _narrower(script, cast))
            yield Finding(transfer.node, message, edits=() if why else edits, refusal=why)


def _uncast(script: Script, cast: ast.expr) -> tuple[ast.expr, str, Edits]:
    """What is cast, the cast as a template (empty: it is none to floats), and the edit that takes
    it away.
    """
    if not is_method(cast):
        return cast, "", ()
    batch = cast.func.value
    return (
        batch,
        _template(script, cast, cast.func.attr),
        (Rewrite(cast, "{batch}", {"batch": batch}),),
    )


def _narrower(script: Script, cast: ast.expr) -> set[str]:
    """The floats, and what is not known, that are smaller than what a cast makes of them, or as
    large.
    """
    match cast:
        case ast.Call(func=ast.Attribute(attr="double")):
            return {"f32", "half", "?"}
        case ast.Call(args=[dtype]):
            found = script.values(dtype)
            double = surely(dtype_of(t) == "f64" for t in found) or _name(found) in DOUBLE
            return {"f32", "half", "?"} if double else set()
    return set()


def _below_views(expr: ast.expr) -> ast.expr:
    """What is moved, without views on the way: ``x.float().unsqueeze(0)`` is ``x.float()`` in
    another shape.
    """
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
    plain = surely(_is_dtype(t) for t in found)
    return f"{{}}.{name}({{dtype}})" if plain else ""


def _is_dtype(thing: Thing) -> bool:
    return dtype_of(thing) in ("f32", "f64", "half") and not _name({thing}).endswith("Tensor")


def _name(found: Iterable[Thing]) -> str:
    names = {
        t.name if isinstance(t, Ref) else t.value if isinstance(t, Const) else "" for t in found
    }
    return str(next(iter(names))) if len(names) == 1 else ""
