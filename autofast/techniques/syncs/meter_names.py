"""What gets at average meters, or changes how they count, where no expression of the script is one
of them: ``key=attrgetter("avg")``, ``"{m.avg}".format_map(found)``, ``meter.alpha = 0.99``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container

from autofast.model.calls import (
    call_of,
    is_call_of,
    is_method,
    is_name,
    literal_of,
    receiver_of,
    short_name,
    variable_name,
)
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import function_of
from autofast.model.syntax import is_stored
from autofast.model.values import Thing, Unknown
from autofast.rule import Refusal
from autofast.techniques.syncs.meter_class import MeterClass

GETTERS = wordset("attrgetter methodcaller itemgetter")
ATTRIBUTES = wordset("getattr setattr delattr vars")
SETTERS = wordset("setattr delattr __setattr__ __delattr__")
SCOPES = wordset("locals globals vars")
PART = re.compile(r"\{\w*[.\[]")  # "{m.avg}", "{m[loss]}"


def check_by_name(script: Script, meter: MeterClass, objects: Container[Thing]) -> None:
    """Raises :class:`Refusal` where something may look at a meter by a text, or set what its
    counting only reads.
    """

    def may_be_one(expr: ast.expr) -> bool:
        found = script.values(expr)
        return not surely(
            t not in objects and not isinstance(t, Unknown) and t is not meter.cls for t in found
        )

    def is_one(expr: ast.expr) -> bool:
        return any(t in objects or t is meter.cls for t in script.values(expr))

    # what is not known, and set by a name that is not, matters for what counting only reads
    unnamed = may_be_one if meter.only_read else is_one
    for node in script.nodes:
        match node:
            case ast.Name() | ast.Attribute() if not is_stored(node) and _gets(script, node, meter):
                raise Refusal("may look at it, too", call_of(node) or node)
            case ast.Call() if _shows_parts(node):
                raise Refusal("may show what it has", node)
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()) if name in meter.only_read:
                if not _sets_up(node) and may_be_one(node.value):
                    raise Refusal(f"sets `{name}`, which counting reads", node)
            case ast.Call() if _sets_by_name(node, meter, may_be_one, unnamed):
                raise Refusal("may set what counting reads", node)


def _gets(script: Script, node: ast.Name | ast.Attribute, meter: MeterClass) -> bool:
    """``attrgetter("avg")``, and ``getattr`` that is handed to another function."""
    known, call = script.library_name(node), call_of(node)
    name = last_part(known) if known.startswith(("operator.", "builtins.")) else short_name(node)
    if name in ATTRIBUTES:
        return call is None and bool(known or variable_name(node))
    if name not in GETTERS:
        return False
    if name == "itemgetter":
        return bool(meter.cls.find("__getitem__"))
    if call is None:  # another name for it
        return True
    asked = [literal_of(a) for a in (call.args if name == "attrgetter" else call.args[:1])]
    return not all(isinstance(a, str) and meter.shown.isdisjoint(a.split(".")) for a in asked)


def _shows_parts(call: ast.Call) -> bool:
    """``"{m.avg}".format_map(found)``, ``"{m.avg}".format(**locals())``."""
    if not is_method(call, "format", "format_map", "vformat"):
        return False
    spread = [k.value for k in call.keywords if k.arg is None]
    if call.func.attr == "format" and not any(is_call_of(s, *SCOPES) for s in spread):
        return False
    vformat = call.func.attr == "vformat"
    text = literal_of(call.args[0] if vformat and call.args else call.func.value)
    return not isinstance(text, str) or PART.search(text) is not None


def _sets_up(node: ast.Attribute) -> bool:
    """``self.alpha = alpha`` in an ``__init__``: before anything is counted."""
    match function_of(node):
        case ast.FunctionDef(name="__init__", args=ast.arguments(args=[me, *_])):
            return is_name(node.value, me.arg)
    return False


def _sets_by_name(
    call: ast.Call,
    meter: MeterClass,
    named: Callable[[ast.expr], bool],
    unnamed: Callable[[ast.expr], bool],
) -> bool:
    """``setattr(meter, "alpha", 0.99)``"""
    if short_name(call.func) not in SETTERS or meter.own(function_of(call)):  # these read first
        return False
    whole = 2 if "del" in short_name(call.func) else 3  # with the object, where it is a function
    given, this = call.args, receiver_of(call)
    if len(given) == whole - 1 and this is not None:
        given = [this, *given]
    if len(given) != whole:
        return True
    name = literal_of(given[1])
    if not isinstance(name, str):
        return unnamed(given[0])
    return name in meter.only_read | meter.attrs and named(given[0])
