"""The modules directly below a module: layers of a Sequential, attributes that hold modules,
modules under names that are computed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, TypeGuard

from autofast.model.contents import with_contents
from autofast.model.events import LoopFrame
from autofast.model.kinds import is_module
from autofast.model.names import CONTAINERS
from autofast.model.several import surely, wordset
from autofast.model.values import (
    COLLECTIONS,
    NOTHING,
    OBJECTS,
    Arguments,
    ByName,
    Cls,
    Dict,
    Entry,
    Ext,
    Given,
    Inst,
    Num,
    Seq,
    Thing,
    Unknown,
    Values,
    Where,
    any_of,
    begins,
    const,
    is_named,
    one,
    things as values,
)
from autofast.read.state.core import Core

MORE = "__parts__"  # the attribute for those whose names are not known
DICTS = frozenset({"torch.nn.ModuleDict"})
LISTS = wordset("torch.nn.Sequential torch.nn.ModuleList")
SEQUENTIAL = frozenset({"torch.nn.Sequential"})


def is_container(thing: Thing | None, kinds: frozenset[str] = CONTAINERS) -> TypeGuard[Inst | Ext]:
    """Whether it is one of torch's containers of modules, or of a class that extends one."""
    if isinstance(thing, Inst):
        return bool(thing.cls.external & kinds)
    return is_named(thing, Ext, kinds)


def is_of_library(thing: Thing | None) -> bool:
    """A model of torchvision: each of its parts is taken for the whole, as that says what it is
    made of.
    """
    return begins(thing, Ext, "torchvision.models.")


def module_parts(thing: Inst | Ext) -> tuple[ByName, Values]:
    """Those under names that are known, in order; and what may stand under any other, or at any
    place.
    """
    named: ByName = {}
    rest: Values = NOTHING
    if isinstance(thing, Ext):
        if thing.name in CONTAINERS:
            named, rest = given_parts(thing.args)
        elif not thing.name.startswith("torch.nn."):
            # Attributes that the script sets are some of the parts of a library's model. Each part
            # is taken for the whole, as that says what it is made of.
            rest = values(thing if is_of_library(thing) else Unknown(f"a part of {thing.name}"))
    for name, found in list(thing.attrs.items()):
        if name == MORE:
            rest |= found
        elif modules := frozenset(t for t in found if is_module(t)):
            named[name] = modules
    if thing.open:
        rest |= values(Unknown(thing.open))
    return named, rest


def given_parts(args: Arguments) -> tuple[ByName, Values]:
    """Likewise, for the arguments that a container is made with."""
    named: ByName = {}
    rest: Values = NOTHING
    given = [*args.positional, *(g for n, g in args.named.items() if n in ("modules", "args"))]
    for n, part in enumerate(given):
        held = one(part.values)
        if args.loose is not None and n >= args.loose:
            rest |= part.values
        elif isinstance(held, Dict):
            named.update((str(k), held.get(k)) for k in held.entries)
            rest |= held.rest
        elif held is not None and (pairs := pairs_in(held)):
            named.update((str(k), found) for k, found in pairs)
        elif isinstance(held, Seq) and held.exact is not None:
            named.update((str(i), found) for i, found in enumerate(held.exact))
        elif any_of(part.values, Seq, Dict):
            for thing in part.values:
                rest |= thing.any() if isinstance(thing, COLLECTIONS) else values(thing)
        else:
            named[str(n)] = part.values
    if (
        args.open and args.loose is None
    ):  # else what comes through `*` is there, at no certain place
        rest |= values(Unknown(args.open))
    return named, rest


def pairs_in(thing: Thing) -> list[tuple[Any, Values]] | None:
    """Keys and values of ``[("a", x), ("b", y)]``; None where they are not known one by one."""
    if not isinstance(thing, Seq) or thing.exact is None:
        return None
    found = []
    for item in thing.exact:
        pair = one(item)
        row = pair.exact if isinstance(pair, Seq) else None
        if row is None or len(row) != 2 or not isinstance(const(row[0]), (str, int)):
            return None
        found.append((const(row[0]), row[1]))
    return found


def any_part(thing: Inst | Ext) -> Values:
    """What a module directly below it may be."""
    named, rest = module_parts(thing)
    return rest.union(*named.values())


def whole(thing: Inst | Ext) -> Values:
    """A module and all below it."""
    start: list[Thing] = [thing]
    return frozenset(with_contents(start, _any_parts))


def _any_parts(thing: Thing) -> Iterable[Thing]:
    return any_part(thing) if isinstance(thing, OBJECTS) else ()


def part(thing: Inst | Ext, key: object) -> Values:
    """``container[key]``. Those whose names are not known stand behind all others."""
    named, rest = module_parts(thing)
    every = list(named.values())
    if isinstance(key, str):
        return named.get(key, NOTHING) | rest or any_part(thing)
    if isinstance(key, int) and -len(every) <= key < len(every) and not (rest and key < 0):
        return every[key] | rest
    return rest if rest and isinstance(key, int) and key >= 0 else any_part(thing)


def put(interp: Core, thing: Inst | Ext, key: object, found: Values) -> None:
    """``container[key] = found``, ``module._modules[key] = found``."""
    named, rest = module_parts(thing)
    names = list(named)
    if isinstance(key, int) and -len(names) <= key < len(names) and not rest:
        key = names[key]
    if not isinstance(key, str):
        add_part(interp, thing, found)
        return
    if key in named and _may_be_many(interp, thing):
        found |= named[key]
    interp.store_attribute(thing, key, found)


def grow(interp: Core, thing: Inst | Ext, name: str, args: Arguments) -> None:
    """``append``, ``extend``, ``insert`` and ``update`` of a container."""
    given = args.positional[-1] if args.positional else next(iter(args.named.values()), None)
    if given is None:
        return
    named, rest = {"0": given.values}, NOTHING
    if name in ("extend", "update"):
        held = one(given.values)
        new = Arguments(None, [given])
        named, rest = module_parts(held) if is_container(held) else given_parts(new)
    if name == "update":
        for key, found in named.items():
            put(interp, thing, key, found)
    elif name == "insert":
        displace_modules(interp, thing)
        rest = rest.union(*named.values())
    elif isinstance(thing, Inst) or _is_loose(interp, thing):
        rest = rest.union(*named.values())
    else:
        known = [g.values for g in thing.args.positional]
        for found in named.values():
            if found not in known:
                thing.args.positional.append(Given(found, given.expr))
                thing.touch()
    if rest:
        add_part(interp, thing, rest)


def displace_modules(interp: Core, thing: Inst | Ext) -> None:
    """Modules of a container may stand at other places from now on."""
    if found := any_part(thing):
        add_part(interp, thing, found)


def _is_loose(interp: Core, thing: Inst | Ext) -> bool:
    """Whether it is not known at which place of a container a module comes that is put last."""
    named, rest = module_parts(thing)
    of_attributes = any(is_module(t) for found in thing.attrs.values() for t in found)
    return bool(rest) or of_attributes or _may_be_many(interp, thing)


def _may_be_many(interp: Core, thing: Inst | Ext) -> bool:
    """Whether what happens to it here may not happen, or not to it, or several times."""
    return any_of(thing.made, LoopFrame) or interp.weak(thing.made)


def children(interp: Core, thing: Inst | Ext, node: Where) -> Values:
    """``thing.children()``: one by one where their number is known."""
    named, rest = module_parts(thing)
    if rest or not named:
        return NOTHING
    return interp.tuple_of(node, tuple(named.values()), "children", thing)


def table(interp: Core, thing: Inst | Ext) -> Values:
    """``thing._modules``, and what ``keys``, ``values`` and ``items`` of a container go through."""
    named, rest = module_parts(thing)
    made = interp.intern(Dict, ("_modules", thing), lambda: Dict(None))
    for name, found in named.items():
        made.entries[name] = [Entry(found, None, None, True)]
    made.rest |= rest
    return values(made)


def joined(interp: Core, node: ast.BinOp, both: list[Inst | Ext]) -> Values:
    """``layers + more``: a ModuleList of both."""
    known = [module_parts(thing) for thing in both]
    args = Arguments(None, [Given(f, None) for named, _ in known for f in named.values()])
    if rest := NOTHING.union(*(rest for _, rest in known)):
        every = rest.union(*args.placed)
        args = Arguments(None, [Given(every, None)], loose=0)
    made = interp.intern(
        Ext,
        (node, *both),
        lambda: Ext("torch.nn.ModuleList", node, args, {}, tuple(interp.stack)),
    )
    made.args = args
    return values(made)


def sliced(interp: Core, thing: Inst | Ext, node: ast.Subscript) -> Values:
    """``layers[2:]``: a container of the same kind."""
    named, rest = module_parts(thing)
    every, bounds = list(named.values()), _bounds(interp, node)
    if rest or bounds is None:
        args = Arguments(None, [Given(rest.union(*every), None)], loose=0)
    else:
        args = Arguments(None, [Given(found, None) for found in every[bounds]])
    name = thing.name if isinstance(thing, Ext) else next(iter(thing.cls.external & LISTS))
    made = interp.intern(Ext, (node, "part", thing), lambda: Ext(name, node, args))
    made.args = args
    return values(made)


def sliced_list(interp: Core, thing: Seq, node: ast.Subscript) -> Values:
    """``layers[2:]`` of a list of modules that are known one by one; nothing for any other list."""
    bounds = _bounds(interp, node)
    if not thing.exact or bounds is None or not all(map(is_module, thing.any())):
        return NOTHING
    items = thing.exact[bounds]
    made = interp.intern(Seq, (node, thing, items), lambda: Seq(node, items, NOTHING, thing.kind))
    return values(made) if made.exact == items else NOTHING  # else something was added to it


def _bounds(interp: Core, node: ast.Subscript) -> slice | None:
    """The slice, where its ends are constants."""
    index = node.slice
    if not isinstance(index, ast.Slice):
        return None
    ends = [
        None if e is None else const(interp.at.get(e, NOTHING))
        for e in (index.lower, index.upper, index.step)
    ]
    return slice(*ends) if all(e is None or isinstance(e, int) for e in ends) else None


def keep_parts(interp: Core, thing: Inst, args: Arguments) -> None:
    """A class of the project that extends a container is made: what it is given are modules below
    it.
    """
    named, rest = given_parts(args)
    for name, found in named.items():
        interp.store_attribute(thing, name, found)
    if rest:
        add_part(interp, thing, rest)


def add_part(interp: Core, thing: Inst | Ext, found: Values) -> None:
    """A module comes under a name that is not known."""
    interp.store_attribute(thing, MORE, thing.attrs.get(MORE, NOTHING) | found)


def in_order(interp: Core, thing: Inst | Ext, args: Arguments, base: Values) -> Values:
    """What a Sequential gives: each part is called with what the one before has given."""
    current = args.positional[0].values if args.positional else base
    named, rest = module_parts(thing)
    for found in (*named.values(), *((rest,) if rest else ())):
        current = interp.call_values(found, Arguments(None, [Given(current, None)]), None)
    return current


def by_prefix(thing: Thing, name: Values) -> Values:
    """``getattr(self, f"conv{i}")``: the modules whose names begin like this; nothing where others
    may be.
    """
    first = _beginning(name)
    if not first or not isinstance(thing, OBJECTS) or thing.open or not is_module(thing):
        return NOTHING
    found = [v for n, v in thing.attrs.items() if n.startswith(first)]
    if isinstance(thing, Inst) and _has_members(thing.cls, first):
        return NOTHING
    return thing.attrs.get(MORE, NOTHING).union(*found)


def _has_members(cls: Cls, first: str) -> bool:
    return any(n.startswith(first) for c in (cls, *cls.ancestors()) for n in c.members)


def set_by_prefix(interp: Core, thing: Thing, args: Arguments) -> bool:
    """``setattr(self, f"conv{i}", nn.Conv2d(...))``; False where other attributes may be set by
    it.
    """
    first, found = _beginning(args.get(1, "name")), args.get(2, "value")
    if not first or not isinstance(thing, Inst) or not is_module(thing):
        return False
    if not surely(is_module(t) for t in found) or _has_members(thing.cls, first):
        return False
    for name, old in list(thing.attrs.items()):
        if name.startswith(first):
            interp.store_attribute(thing, name, old | found)
    add_part(interp, thing, found)
    return True


def _beginning(name: Values) -> str:
    """The text that a computed string certainly begins with."""
    firsts = {t.pattern.partition("*")[0] if isinstance(t, Num) else "" for t in name}
    return one(firsts, "")
