"""Objects of classes that extend ``dict``: registries, settings whose items are attributes, too.

What such an object holds as a dict is a :class:`Dict` beside its attributes.
"""

from __future__ import annotations

from dataclasses import replace

from autofast.model.contents import ITEMS, dict_items
from autofast.model.values import (
    NONE,
    NOTHING,
    Arguments,
    Const,
    Dict,
    Inst,
    Method,
    Ref,
    Thing,
    Values,
    Where,
    things as values,
)
from autofast.read.library.containers import dict_method, dict_of
from autofast.read.state.core import Core

ORDERED = "collections.OrderedDict"
BASES = frozenset({"builtins.dict", ORDERED, "typing.Dict"})


def begin(this: Inst) -> None:
    """An object is made, or made again: what those before had as items, it may have."""
    if not BASES & this.cls.external:
        return
    held = dict_items(this) or Dict(this.node, made=this.made)
    for key, entries in held.entries.items():
        held.entries[key] = [replace(e, sure=False) for e in entries]
    this.attrs[ITEMS] = values(held)


def method(interp: Core, this: Inst, held: Dict, name: str, args: Arguments, node: Where) -> Values:
    """A method that the object has of ``dict``."""
    if name in ("__init__", "update"):
        given = dict_of(interp, node, args, this)
        interp.emit("set_item", node, held, args, given.any())
        if ORDERED in this.cls.external and this.cls.find("__setitem__"):  # each by that
            for key in given.entries:
                interp.call_method_of(
                    this, "__setitem__", [values(Const(key)), given.get(key)], node
                )
            held.open, held.rest = held.open or given.open, held.rest | given.rest
        else:
            interp.spread(held, given, not interp.weak(held.made))
        return NONE
    return dict_method(interp, held, name, args, node)


def unbound(member: Thing) -> str:
    """``get`` of ``dict.get``; empty for anything else."""
    base, _, name = member.name.rpartition(".") if isinstance(member, Ref) else ("", "", "")
    return name if base in BASES and name != "fromkeys" else ""  # which belongs to the class


def of_class(interp: Core, member: Ref, args: Arguments, node: Where) -> Values:
    """``dict.update(table, key=1)``, which is not what the object makes of it."""
    found = NOTHING
    rest = replace(args, positional=args.positional[1:])
    for thing in args.positional[0].values:
        name = unbound(member).replace("__init__", "update")
        held = dict_items(thing) or thing
        found |= interp.call_values(values(Method(held, name)), rest, node)
    return found
