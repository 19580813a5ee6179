"""cast-on-device: copy integers to the device before they are cast to floats."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.edit.edits import Rewrite, Wrap
from autofast.facts.copies import against_source, batch_dtypes
from autofast.model.script import Script
from autofast.model.tensors import dtype_of
from autofast.model.values import Const, Ref, Thing
from autofast.rule import Effect, Finding, Options, rule

CASTS = ("float", "double", "half", "bfloat16")
OLD = {"torch.FloatTensor": "float", "torch.DoubleTensor": "double", "torch.HalfTensor": "half"}
VIEWS = frozenset("unsqueeze squeeze view reshape permute transpose flatten contiguous".split())


@rule("cast-on-device", Effect.EXACT, groups=("transfer",), relieves={"transfer": 4})
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Copy integers of a batch to the device as they are, and cast them to floats there."""
    for transfer in script.transfers if options.target != "cpu" else ():
        cast = _below_views(transfer.node.func)
        if not (
            transfer.how in ("to", "cuda")
            and transfer.loops
            and isinstance(cast, ast.Call)
            and isinstance(cast.func, ast.Attribute)
        ):
            continue
        batch, template = cast.func.value, _template(script, cast, cast.func.attr)
        if (
            template
            and transfer.kinds & {"cuda", "mps", "accel", "option", "xpu", "?"}
            and batch_dtypes(script, batch) & {"int", "?"}
        ):
            message = f"casts `{ast.unparse(batch)}` to floats on the host, and copies these to the device"
            holes = {"dtype": cast.args[0]} if cast.args else {}
            edits = (
                Rewrite(cast, "{batch}", {"batch": batch}),
                Wrap(transfer.node, template, holes),
            )
            why = against_source(script, transfer, batch)
            yield Finding(transfer.node, message, edits=() if why else edits, refusal=why)


def _below_views(func: ast.expr) -> ast.expr | None:
    """What is moved, without views on the way: ``x.float().unsqueeze(0)`` is ``x.float()`` in another shape."""
    expr = func.value if isinstance(func, ast.Attribute) else None
    while (
        isinstance(expr, ast.Call)
        and isinstance(expr.func, ast.Attribute)
        and expr.func.attr in VIEWS
    ):
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
