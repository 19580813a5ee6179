"""Values of the model in words. What is not known is said to be not known, with the reason that the
model has."""

from __future__ import annotations

import ast
import re

from autofast.model.source import source_of
from autofast.model.tensors import SHAPE
from autofast.model.values import (
    Arg,
    Bound,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Method,
    Module,
    Num,
    Partial,
    Ref,
    Seq,
    Setting,
    Tensor,
    Thing,
    Unknown,
    Values,
)

MOST = 4  # values of one expression that are listed
LONG = 60  # characters of a constant
_DEVICE = {"cpu": "on the CPU", "dev": "on the device of the script"}
_DTYPE = {
    "f64": "float64",
    "f32": "float32",
    "half": "16 bits",
    "int": "integers",
    "complex": "complex",
}


def place(node: ast.AST | None) -> str:
    """``train.py:12``; empty for what stands nowhere."""
    line = getattr(node, "lineno", None)
    return source_of(node).place(line) if node is not None and line else ""


def names(said: str, place: str) -> bool:
    """Whether ``train.py:12`` (not ``train.py:120``) stands in what is said."""
    return re.search(rf"{re.escape(place)}(?!\d)", said) is not None


def values(found: Values) -> str:
    """Everything an expression may be."""
    said = sorted(dict.fromkeys(map(thing, found)))
    more = f" or {len(said) - MOST} others" if len(said) > MOST else ""
    return " or ".join(said[:MOST]) + more


def thing(value: Thing) -> str:
    """A value in words."""
    match value:
        case Const(value=constant):
            said = repr(constant)
            return said if len(said) <= LONG else said[: LONG - 3] + "..."
        case Setting(value=default, file=file, line=line):
            return f"a setting, {default!r} in {file}:{line}"
        case Num(synced=synced, pattern=pattern):
            text = "a shape" if pattern == SHAPE else f"text like {pattern!r}"
            what = text if pattern else "a number or text that is not known"
            return f"{what}, read from a tensor" if synced is not None else what
        case Ref(name=name):
            return name
        case Unknown(why=why):
            return f"not known: {why}"
        case Module(source=source):
            return f"the module {source.rel}"
        case Bound(func=func) | (Func() as func):
            return f"the function {func.name} ({place(func.node)})"
        case Cls(node=node):
            return f"the class {node.name} ({place(node)})"
        case Method(this=this, name=name):
            return f"the method {name} of {thing(this)}"
        case Arg(name=name, default=default, node=node):
            return f"the option --{name} ({place(node)}; default: {values(default) or 'none'})"
        case Tensor():
            return tensor(value)
    return _made(value)


def _made(value: Thing) -> str:
    """An object, and where it is made."""
    match value:
        case Ext(name=name, node=node):
            what = name
        case Inst(cls=cls, node=node):
            what = f"an object of the class {cls.node.name}"
        case Seq(kind=kind, node=node, exact=exact):
            what = f"a {kind}" + (f" of {len(exact)}" if exact is not None else "")
        case Dict(node=node):
            what = "a dict"
        case Partial(func=func):
            return f"functools.partial of {values(func)}"
        case _:
            return type(value).__name__
    where = place(node)
    return f"{what} (made at {where})" if where else what


def tensor(value: Tensor) -> str:
    """What is known of a tensor."""
    parts = ["the loss" if value.loss else "a parameter" if value.param else "a tensor"]
    if value.batch:
        where = sorted({place(getattr(loader, "node", None)) for loader in value.batch} - {""})
        parts.append("of a batch" + (f" of the loader at {' and '.join(where)}" if where else ""))
    if value.models:
        where = sorted({place(getattr(model, "node", None)) for model in value.models} - {""})
        parts.append("out of the model" + (f" made at {' and '.join(where)}" if where else ""))
    if value.fresh:
        parts.append(f"made by {value.fresh}")
    known = [
        _DEVICE.get(value.device, "on a device that is not known"),
        _DTYPE.get(value.dtype, "of a type that is not known"),
        "with gradients" if value.grad else "",
    ]
    return f"{' '.join(parts)} ({', '.join(filter(None, known))})"
