"""The edits of one block under autocast, and of the outputs that leave it."""

from __future__ import annotations

import ast

from autofast.edit.edits import After, Around, Before, Edit, Rewrite, Wrap
from autofast.edit.order import Rank
from autofast.facts.forwards import Region
from autofast.facts.precision.half_values import Half
from autofast.model.script import Script
from autofast.model.source import parent_of, source_of
from autofast.model.values import Seq, Tensor, Thing, Values
from autofast.rule import Options
from autofast.techniques.precision.forms import Precision

PART = "part"  # of a tuple that a model returns


def block_edits(
    script: Script, options: Options, region: Region, precision: Precision, inside: set[int]
) -> tuple[Edit, ...] | str:
    """The edits that put a region under autocast; why there can be none. ``inside`` are the nodes of all such regions."""
    header, needed = precision.header(script, region.first)
    half = Half(script, inside, options.target)
    casts: dict[int, tuple[ast.Call, str]] = {}
    named: list[Edit] = []
    for call in region.outputs:
        if why := half.misuse(call):
            if cast := _cast(script, call):
                casts[id(call)] = call, cast
            elif parts := _parts(script, half, call):
                named += parts
            else:
                return f"{why}, and the model's output is no plain tensor that .float() could be called on"
    taken = {id(e) for e in region.hoisted}
    wraps = [Wrap(call, cast) for call, cast in casts.values() if id(call) not in taken]
    return (
        *_around(region, header, {n: c for n, (_, c) in casts.items()}),
        *needed,
        *wraps,
        *named,
    )


def _around(region: Region, header: str, casts: dict[int, str]) -> tuple[Edit, ...]:
    if not region.hoisted:
        return (Around(region.first, region.last, header, rank=Rank.AUTOCAST),)
    fresh = source_of(region.first).fresh
    name = fresh("output", "model_output") if region.is_forward_only else fresh("loss", "step_loss")
    several = len(region.hoisted) > 1
    holes = {fresh(f"{name}_{n}") if several else name: e for n, e in enumerate(region.hoisted, 1)}
    lines = [
        f"    {name} = " + casts.get(id(e), "{}").format(f"{{{name}}}") for name, e in holes.items()
    ]
    return (
        Before(region.first, "\n".join([header, *lines]), holes, rank=Rank.AUTOCAST),
        *(Rewrite(expr, name) for name, expr in holes.items()),
    )


def _cast(script: Script, call: ast.Call) -> str:
    """How the fp32 form of a model's output is written; empty where it is not known to be a tensor, or a tuple of them."""
    found = script.values(call)
    if found and all(_is_floats(t) for t in found):
        return "{}.float()"
    parts = [t.exact for t in found if isinstance(t, Seq) and t.kind == "tuple"]
    if (
        found
        and len(parts) == len(found)
        and all(
            p is not None and all(e and all(_is_floats(t) for t in e) for e in p) for p in parts
        )
    ):
        return f"tuple({PART}.float() for {PART} in {{}})"
    return ""


def _parts(script: Script, half: Half, call: ast.Call) -> list[Edit]:
    """``a = a.float()`` below ``a, b = model(x)`` for each part that is a tensor and must not be 16-bit; empty where one is not known."""
    stmt = parent_of(call)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return []
    target, found = stmt.targets[0], script.values(call)
    tuples = [t.exact for t in found if isinstance(t, Seq) and t.exact is not None]
    if not isinstance(target, ast.Tuple) or not found or len(tuples) != len(found):
        return []
    edits: list[Edit] = []
    for n, name in enumerate(target.elts):
        if not isinstance(name, ast.Name):
            return []
        if half.misuse_of(name):
            if not all(len(t) == len(target.elts) and _all_floats(t[n]) for t in tuples):
                return []
            edits.append(After(stmt, f"{name.id} = {name.id}.float()", rank=Rank.AUTOCAST))
    return edits


def _all_floats(found: Values) -> bool:
    return bool(found) and all(_is_floats(t) for t in found)


NO_CAST = frozenset({"int", "f64", "complex"})  # to fp32: it would lose what they have


def _is_floats(thing: Thing) -> bool:
    return isinstance(thing, Tensor) and thing.rank != "?" and thing.dtype not in NO_CAST
