"""``torch.FloatTensor(n, m).zero_()``: tensors of the old constructors, whose numbers are
overwritten by one number at once."""

from __future__ import annotations

import ast

from autofast.edit.edits import Holes, Rewrite
from autofast.model.calls import is_method, names_in, receiver_of
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import source_of
from autofast.model.syntax import is_attribute
from autofast.model.values import Arg, Num, Tensor, Unknown, certainly, const, said

DTYPES = {  # of the constructors; Tensor has the default dtype
    "Tensor": "",
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
    "HalfTensor": "float16",
    "LongTensor": "long",
    "IntTensor": "int",
    "ByteTensor": "uint8",
    "BoolTensor": "bool",
}
WHOLE = wordset("long int uint8 bool")
ZERO = ast.Constant(0)  # of ``zero_()``


def constructor(script: Script, call: ast.Call) -> str:
    """The name of the old constructor that a call gives nothing but sizes; empty for anything
    else."""
    name = script.library_function(call).removeprefix("torch.")
    if name not in DTYPES or call.keywords or not call.args:
        return ""
    several = len(call.args) > 1  # one by one: numbers, as data come as one list
    sized = all(_is_size(script, a, several) for a in call.args)
    return name if sized or _shape(script, call) else ""


def _is_size(script: Script, arg: ast.expr, several: bool) -> bool:
    found = script.values(arg)
    return (
        bool(found)
        and not isinstance(arg, ast.Starred)
        and all(
            isinstance(t, Num)
            or type(said(t)) is int
            or (several and isinstance(t, (Arg, Unknown)))
            for t in found
        )
    )


def _shape(script: Script, call: ast.Call) -> bool:
    """``x.size()`` or ``x.shape`` as the only argument: a tuple of numbers would be data."""
    match call.args:
        case [ast.Call(func=ast.Attribute(value=of, attr="size"), args=[], keywords=[])] | [
            ast.Attribute(value=of, attr="shape")
        ]:
            return certainly(script.values(of), Tensor)
    return False


def made_there(script: Script, filled: ast.Call, where: str) -> Rewrite | None:
    """``torch.zeros(n, m, device=...)`` in the place of ``torch.FloatTensor(n, m).zero_()``; None
    where that cannot be said.

    ``filled`` is the call of ``zero_`` or ``fill_``, or a constructor that something fills later
    (``torch.empty``); ``where`` the device.
    """
    func, bare = filled.func, bool(constructor(script, filled))
    made = filled if bare else receiver_of(filled)
    if not is_attribute(func) or not is_method(made):
        return None
    name, given = constructor(script, made), ZERO if bare else _number(func.attr, filled)
    if not name or given is None or script.calls("torch.set_default_dtype") or "{" in where:
        return None
    if bare and len(made.args) == 1 and not _shape(script, made):
        if script.may_be(made.args[0], Num):
            return None  # it may be an array, which is data
    dtype = DTYPES[name] or "float32"
    number = script.constant(given) if given is not ZERO else 0
    if not _is_number(script, given, whole=dtype in WHOLE):
        return None
    holes: Holes = {f"d{i}": a for i, a in enumerate(made.args)}
    sizes = ", ".join(f"{{{hole}}}" for hole in holes)
    torch = source_of(made).segment(made.func.value)
    kind = f"dtype={torch}.{dtype}, "
    end = f"{'' if dtype == 'float32' else kind}device={where}"
    written = not names_in(given)
    if bare:
        return Rewrite(filled, f"{torch}.empty({sizes}, {end})", holes)
    if written and number in (0, 1):
        return Rewrite(filled, f"{torch}.{'ones' if number else 'zeros'}({sizes}, {end})", holes)
    if not _shape(script, made):
        sizes = f"({sizes}{',' if len(holes) == 1 else ''})"
    if not written:  # it may be a whole number, whose type torch.full would take
        holes["number"] = given
        return Rewrite(filled, f"{torch}.full({sizes}, {{number}}, {kind}device={where})", holes)
    value = source_of(filled).segment(given)
    if dtype not in WHOLE and isinstance(number, int):
        value = f"{value}.0" if value.isdecimal() else repr(float(number))
    return Rewrite(filled, f"{torch}.full({sizes}, {value}, {end})", holes)


def _number(method: str, filled: ast.Call) -> ast.expr | None:
    """What all elements get."""
    if method == "zero_" and not filled.args and not filled.keywords:
        return ZERO
    one = method == "fill_" and len(filled.args) == 1 and not filled.keywords
    return filled.args[0] if one else None


def _is_number(script: Script, given: ast.expr, whole: bool) -> bool:
    """Whether it is certainly a number of Python, which waits for nothing."""
    if given is ZERO:
        return True
    kinds = (int,) if whole else (int, float)
    found = script.values(given)
    return surely(
        (isinstance(t, Num) and t.synced is None and not whole)
        or type(const(t.default if isinstance(t, Arg) else frozenset({t}))) in kinds
        for t in found
    )
