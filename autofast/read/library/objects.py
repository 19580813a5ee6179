"""Functions of Python's library that make, copy or look into objects, and what comes out as a
number or a text.
"""

from __future__ import annotations

from dataclasses import replace

from autofast.model.contents import dict_items
from autofast.model.names import last_part
from autofast.model.several import first_such
from autofast.model.values import (
    NONE,
    NOTHING,
    NUMBER,
    OBJECTS,
    Arg,
    Arguments,
    Dict,
    Entry,
    Ext,
    Inst,
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
    Where,
    any_of,
    is_const,
    joined,
    of_kind,
    ordered,
    result_of,
    things as values,
)
from autofast.read.library import chosen, loaded_settings, module_parts, protocols  # noqa: F401
from autofast.read.library.containers import copied, deep_copied, dict_of
from autofast.read.library.table import first_of, gives_for, plain
from autofast.read.library.tensor_results import result
from autofast.read.search_paths import folder
from autofast.read.state.core import Core, join

NUMBERS = [f"builtins.{name}" for name in "id round isinstance hasattr input open ord hash".split()]
TEXTS = [f"builtins.{name}" for name in "print str repr format".split()]

gives_for(
    "collections.namedtuple", "contextlib.nullcontext", "contextlib.suppress", "dataclasses.field"
)(plain)


@gives_for("builtins.staticmethod", "builtins.classmethod", "weakref.proxy")
def _itself(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return first_of(args)


@gives_for(protocols.PROPERTY, *protocols.WEAK)
def _referring(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return values(interp.intern(Ext, (node, name, first_of(args)), lambda: Ext(name, node, args)))


@gives_for("sys.path.append", "sys.path.insert", "site.addsitedir")
def _search_path(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    where = args.given(int(name == "sys.path.insert"), "")
    if where is not None and where.expr is not None:
        start = interp.project.search[0]
        if (place := folder(where.expr, interp.stack, start)) is not None:
            interp.project.search_also(place, name == "sys.path.insert")
    return NONE


@gives_for("builtins.float", "builtins.int", "builtins.bool")
def _cast(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    first = first_of(args)
    for thing in first:
        if isinstance(thing, (Tensor, Unknown)):
            interp.emit("sync", node, thing, args, how=last_part(name))
    return values(Num(first_such(first, Tensor), scalar=True))


@gives_for("builtins.abs")
def _absolute(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    found = first_of(args)
    if tensors := of_kind(found, Tensor):
        return result(interp, "torch.abs", tensors, args, node)
    return NUMBER


@gives_for(*NUMBERS)
def _number(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return NUMBER


@gives_for(*TEXTS)
def _text(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    for given in args.positional:
        for thing in given.values:
            if isinstance(thing, Tensor):
                interp.emit("format", node, thing, args)
    return NUMBER


@gives_for("collections.defaultdict")
def _defaultdict(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    """What is missing is what the first argument gives."""
    made = dict_of(interp, node, replace(args, positional=args.positional[1:]))
    if not args.positional or args.positional[0].values == NONE:
        return values(made)
    missing = interp.call_values(args.positional[0].values, Arguments(node), node)
    made.rest = join(made.rest, missing)
    made.open = made.open or "what is missing is made"
    interp.keep(missing, made, None)
    return values(made)


@gives_for("builtins.dict", "collections.OrderedDict")
def _dict(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return values(dict_of(interp, node, args))


@gives_for("builtins.type")
def _type(interp: Core, name: str, args: Arguments, node: Where) -> Values | None:
    if len(args.positional) == 3:
        return plain(interp, name, args, node)
    things = first_of(args)
    if len(args.positional) != 1 or not any_of(things, Inst, Seq, Dict):
        return None
    return frozenset(map(_type_of, things))


def _type_of(thing: Thing) -> Thing:
    if isinstance(thing, Inst):
        return thing.cls
    kind = "dict" if isinstance(thing, Dict) else thing.kind if isinstance(thing, Seq) else ""
    known = kind in ("list", "tuple", "set", "dict") and not getattr(thing, "names", ())
    return Ref(f"builtins.{kind}") if known else result_of("builtins.type")


@gives_for("builtins.getattr")
def _getattr(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    """``getattr(x, "name"[, default])``, the name being one of a few."""
    found = args.get(2, "default")
    for thing in ordered(args.get(0, "object")):
        for key in ordered(args.get(1, "name")):
            if is_const(key, str):
                found |= interp.attribute(thing, key.value, node)
            elif isinstance(thing, Module) and isinstance(key, (Setting, Arg)):
                found |= chosen.member(interp, thing, key, node)
            elif parts := module_parts.by_prefix(thing, values(key)):
                found |= parts
            elif offered := chosen.any_member(thing, key):
                found |= offered
            else:
                found |= values(
                    Ref(f"{thing.name}.*") if isinstance(thing, Ref) else chosen.COMPUTED
                )
    return found


@gives_for("builtins.setattr")
def _setattr(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    names = args.get(1, "name")
    for thing in interp.choices(args.get(0, "object")):
        for key in ordered(names):
            if is_const(key, str) and isinstance(thing, OBJECTS):
                interp.store_attribute(thing, key.value, args.get(2, "value"), sure=len(names) == 1)
                if (held := dict_items(thing)) is not None:
                    entry = Entry(args.get(2, "value"), None, node, False)
                    interp.set_entry(held, key.value, entry)
                interp.emit(
                    "set_attribute", node, thing, args, args.get(2, "value"), name=key.value
                )
            elif isinstance(thing, Ref):
                set_as = key.value if is_const(key, str) else "*"
                interp.set_in_library(thing, set_as, args.get(2, "value"), node)
            elif not module_parts.set_by_prefix(interp, thing, args):
                interp.open_attributes(thing, "an attribute is set whose name is computed")
                if (held := dict_items(thing)) is not None:
                    held.widen("an attribute is set whose name is computed")
    return NONE


@gives_for("builtins.delattr")
def _delattr(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    for thing in interp.choices(first_of(args)):
        for key in args.get(1, "name"):
            if is_const(key, str):
                protocols.drop_attribute(interp, thing, key.value, node)
            else:
                interp.open_attributes(thing, "an attribute is deleted whose name is computed")
    return NONE


@gives_for("builtins.vars")
def _vars(interp: Core, name: str, args: Arguments, node: Where) -> Values | None:
    owners = ordered(first_of(args))
    return (
        NOTHING.union(*(interp.attribute(t, "__dict__", node) for t in owners)) if owners else None
    )


@gives_for("functools.partial")
def _partial(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    first = first_of(args)
    loose = None if args.loose is None else max(args.loose - 1, 0)
    kept = Arguments(node, args.positional[1:], dict(args.named), args.dicts, args.open, loose)
    partial = interp.intern(Partial, (node, first), lambda: Partial(first, kept))
    partial.args = joined([partial.args, kept]) if partial.args is not kept else kept
    return values(partial)


@gives_for("copy.deepcopy", "copy.copy")
def _copy(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    how = deep_copied if name == "copy.deepcopy" else copied
    own = f"__{name[5:]}__"
    return NOTHING.union(
        *(
            interp.call_method_of(thing, own, [NOTHING][: how is deep_copied], node)
            if isinstance(thing, Inst) and thing.cls.find(own)
            else values(how(interp, thing, node))
            for thing in ordered(first_of(args))
        )
    )


@gives_for("os.environ.get", "os.getenv", "os.environ.pop")
def _environment(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return NUMBER | (args.get(1, "default") or NONE)


@gives_for("logging.getLogger")
def _logger(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return values(interp.intern(Ext, (node, name), lambda: Ext("logging.Logger", node, args)))


@gives_for(*(f"{name}.**" for name in "math time random os sys datetime logging".split()))
def _measured(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return NUMBER


@gives_for("json.**")
def _json(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    return values(result_of(name))
