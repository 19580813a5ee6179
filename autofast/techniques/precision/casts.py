"""How the fp32 form of what a model returns is written: of a tensor, of what holds tensors, or of
one part of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import After, Edit
from autofast.edit.order import Rank
from autofast.facts.model_mode import outputs
from autofast.facts.precision.half_values import Half
from autofast.flow.callgraph import CallGraph, code_of
from autofast.model.calls import put_into
from autofast.model.contents import unwrapped
from autofast.model.script import Script
from autofast.model.source import statement_of
from autofast.model.syntax import has_star
from autofast.model.tensors import tensors_in
from autofast.model.values import Const, Dict, Seq, Tensor, Thing, Values


def may_be_integers(script: Script, call: ast.Call, part: int | None = None) -> bool:
    """Whether the output of a model, or its element ``part``, may be a tensor of a batch, or one
    made for it, that no layer has changed, of any type.

    Such a tensor must not be cast to fp32: a loss that takes class indices does not take floats.
    """
    return any(
        t.dtype == "?" and (t.batch or t.made is not None) and not t.models and not t.grad
        for expr in _returned(script, call, part)
        for t in tensors_in(script.values(expr))
    )


def _returned(script: Script, call: ast.Call, part: int | None) -> Iterator[ast.expr]:
    calls = script.analysis(CallGraph)
    for thing in script.values(call.func):
        for inner in unwrapped(thing):
            for code in code_of(inner):
                for result in calls.results(code.function):
                    parts = result.elts if isinstance(result, ast.Tuple) else []
                    if part is None or not parts or has_star(parts):
                        yield result
                    elif part < len(parts):
                        yield parts[part]


PART = "part"  # of what a model returns
NONE = Const(None)
NO_CAST = frozenset({"int", "f64", "complex"})  # to fp32: it would lose what they have


def cast_of(script: Script, call: ast.Call, maybe: bool = False) -> str:
    """A template for the output: a tensor, or a tuple, list or dict of them; empty where it is not
    known to be one.

    With ``maybe``, parts may be None.
    """
    found = outputs(script, call)
    if may_be_integers(script, call):
        return ""
    if not maybe and any(NONE in p for t in found for p in _parts(t) or ()):
        return ""
    return _form(found, "{}")


def casts_below(script: Script, half: Half, call: ast.Call) -> list[Edit]:
    """``a = a.float()`` below ``a, b = model(x)`` for each part that must not be 16-bit; empty
    where one is not known to hold tensors.

    Or below ``a = model(x)``, where the model gives a tensor or something else.
    """
    stmt, target, found = statement_of(call), put_into(call), outputs(script, call)
    if isinstance(target, ast.Name):
        if may_be_integers(script, call):
            return []
        cast = "" if _form(found, "{}") else _statement(target.id, found)
        return [After(stmt, cast, rank=Rank.AUTOCAST)] if cast else []
    tuples = [t.exact for t in found if isinstance(t, Seq) and t.exact is not None]
    if not isinstance(target, ast.Tuple) or not found or len(tuples) != len(found):
        return []
    if any(len(t) != len(target.elts) for t in tuples):
        return []
    edits: list[Edit] = []
    for n, name in enumerate(target.elts):
        if not isinstance(name, ast.Name):
            return []
        if half.misuse_of_part(call, n, name):
            cast = _statement(name.id, frozenset().union(*(t[n] for t in tuples)))
            if not cast or may_be_integers(script, call, n):
                return []
            edits.append(After(stmt, cast, rank=Rank.AUTOCAST))
    return edits


def _statement(name: str, found: Values) -> str:
    """The statement that makes what a variable holds fp32; empty where that is not known."""
    held = found - {NONE}
    kinds = {_kind(t) for t in held} - {""}
    tensors = frozenset(t for t in held if not _kind(t))
    if kinds and tensors:  # a tuple in training, a tensor in evaluation
        form, other = _form(held - tensors, name), _form(tensors, name)
        cast = f"{form} if isinstance({name}, {next(iter(kinds))}) else {other}"
        cast = cast if form and other else ""
    else:
        cast = _form(held, name)
    if not cast or NONE not in found:
        return f"{name} = {cast}" if cast else ""
    return f"if {name} is not None:\n    {name} = {cast}"


def _form(found: Values, what: str) -> str:
    """The fp32 form of ``what``; empty where it is not known to be a tensor, or one kind of
    container of them.
    """
    if _all_floats(found):
        return f"{what}.float()"
    kinds = {_kind(t) for t in found}
    parts = [_parts(t) for t in found]
    if len(kinds) != 1 or not all(p and all(map(_floats_or_none, p)) for p in parts):
        return ""
    is_none = any(NONE in p for ps in parts for p in ps or ())
    part = f"{PART} if {PART} is None else {PART}.float()" if is_none else f"{PART}.float()"
    match kinds.pop():
        case "dict":
            return f"dict((name, {part}) for name, {PART} in {what}.items())"
        case "list":
            return f"[{part} for {PART} in {what}]"
    return f"tuple({part} for {PART} in {what})"


def _kind(thing: Thing) -> str:
    """What kind of container a thing certainly is; empty for any other thing."""
    match thing:
        case Seq(kind="tuple" | "list"):
            return thing.kind
        case Dict(open="", node=ast.Dict()):
            return "dict"
    return ""


def _parts(thing: Thing) -> tuple[Values, ...] | None:
    """What the elements of a container are, one by one or all together; None where that is not
    known.
    """
    if isinstance(thing, Seq) and _kind(thing):
        return thing.exact or (thing.any(),)
    if isinstance(thing, Dict) and _kind(thing) and not thing.rest:
        return tuple(
            frozenset(t for e in entries for t in e.values) for entries in thing.entries.values()
        )
    return None


def _floats_or_none(found: Values) -> bool:
    return found == {NONE} or _all_floats(found - {NONE})


def _all_floats(found: Values) -> bool:
    return bool(found) and all(_is_floats(t) for t in found)


def _is_floats(thing: Thing) -> bool:
    return isinstance(thing, Tensor) and thing.rank != "?" and thing.dtype not in NO_CAST
