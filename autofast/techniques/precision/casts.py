"""How the fp32 form of what a model returns is written: of a tensor, of what holds tensors, or of one part of it."""

from __future__ import annotations

import ast

from autofast.edit.edits import After, Edit
from autofast.edit.order import Rank
from autofast.facts.precision.half_values import Half
from autofast.model.script import Script
from autofast.model.source import parent_of
from autofast.model.values import Const, Dict, Seq, Tensor, Thing, Values

PART = "part"  # of a tuple that a model returns
NONE = Const(None)


def cast_of(script: Script, call: ast.Call, maybe: bool = False) -> str:
    """A template for the output: a tensor, or a tuple, list or dict of them; empty where it is not known to be one.

    With ``maybe``, parts may be None.
    """
    found = script.values(call)
    if _all_floats(found):
        return "{}.float()"
    held = {kind for t in found if (kind := _kind(t))}
    if len(held) != 1 or not all(_kind(t) and _parts_are_floats(t, maybe) for t in found):
        return ""
    kind = held.pop()
    is_none = any(NONE in p for t in found for p in _parts(t) or ())
    part = f"{PART} if {PART} is None else {PART}.float()" if is_none else f"{PART}.float()"
    if kind == "dict":
        return f"dict((name, {part}) for name, {PART} in {{}}.items())"
    return f"[{part} for {PART} in {{}}]" if kind == "list" else f"tuple({part} for {PART} in {{}})"


def casts_of_parts(script: Script, half: Half, call: ast.Call) -> list[Edit]:
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
        if half.misuse_of_part(call, n, name):
            parts = [t[n] for t in tuples if len(t) == len(target.elts)]
            cast = _by_name(name.id, parts) if len(parts) == len(tuples) else ""
            if not cast:
                return []
            edits.append(After(stmt, cast, rank=Rank.AUTOCAST))
    return edits


def _by_name(name: str, parts: list[Values]) -> str:
    """The statement that makes a variable fp32; empty where what it holds is not known."""
    if all(_all_floats(p) for p in parts):
        return f"{name} = {name}.float()"
    if all(_all_floats(p - {NONE}) or p == {NONE} for p in parts):
        return f"if {name} is not None:\n    {name} = {name}.float()"
    return ""


def _kind(thing: Thing) -> str:
    """What kind of container a thing certainly is; empty for any other thing."""
    if isinstance(thing, Seq) and thing.kind in ("tuple", "list"):
        return thing.kind
    if isinstance(thing, Dict) and not thing.open and isinstance(thing.node, ast.Dict):
        return "dict"
    return ""


def _parts(thing: Thing) -> tuple[Values, ...] | None:
    """What the elements of a container are, one by one or all together; None where that is not known."""
    if isinstance(thing, Seq):
        return thing.exact or (thing.any(),)
    if isinstance(thing, Dict) and not thing.rest:
        return tuple(
            frozenset(t for e in entries for t in e.values) for entries in thing.entries.values()
        )
    return None


def _parts_are_floats(thing: Thing, maybe: bool) -> bool:
    parts = _parts(thing)
    if not parts:
        return False
    return all(_all_floats(p - {NONE} if maybe else p) or (maybe and p == {NONE}) for p in parts)


def _all_floats(found: Values) -> bool:
    return bool(found) and all(_is_floats(t) for t in found)


def _is_floats(thing: Thing) -> bool:
    return isinstance(thing, Tensor) and thing.rank != "?" and thing.dtype != "int"
