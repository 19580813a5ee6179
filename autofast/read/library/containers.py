"""Dicts, lists and copies of things: what a program puts into them and takes out."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import partial
from typing import Any

from autofast.model.contents import ITEMS, attributes, dict_items, with_contents
from autofast.model.events import LoopFrame
from autofast.model.kinds import is_module
from autofast.model.limits import MOST_COPIES, MOST_ITEMS
from autofast.model.several import wordset
from autofast.model.values import (
    NONE,
    NOTHING,
    NUMBER,
    OBJECTS,
    Arguments,
    ById,
    Const,
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
    all_of,
    any_of,
    const,
    is_named,
    one,
    ordered,
    things as values,
)
from autofast.read.library.iteration import element
from autofast.read.library.module_parts import pairs_in
from autofast.read.state.core import Core, join

SETTINGS = " may set others"  # after the name of a file with settings: why a dict is open
# Objects of libraries that hold settings as attributes.
NAMESPACES = wordset(
    "argparse.Namespace yacs.config.CfgNode fvcore.common.config.CfgNode detectron2.config.CfgNode "
    "ml_collections.ConfigDict easydict.EasyDict"
)
# A loop that is over wherever one asks: what it made are several things.
OVER = LoopFrame(ast.Pass(), NOTHING)


def begin_dict(
    interp: Core, node: Where, of: Thing | None = None
) -> tuple[Dict, dict[Any, list[Entry]] | None]:
    """The dict that is made at a place, without entries, and those of the dicts made there before
    (None: it is the first).
    """
    known = len(interp.things)
    made = interp.intern(Dict, (node, of), lambda: Dict(node, made=tuple(interp.stack)))
    past = made.entries if known == len(interp.things) else None
    made.__dict__["entries"] = {}  # no change yet: :func:`revive` says whether it is one
    return made, past


def dict_of(interp: Core, node: Where, args: Arguments, of: Thing | None = None) -> Dict:
    """``dict(...)``, or the ``**kwargs`` of a call, or a copy of the dict ``of``."""
    made, past = begin_dict(interp, node, of)
    for given in args.positional:
        for thing in ordered(given.values):
            sure = len(given.values) == 1
            pairs = pairs_in(thing)
            if pairs is None and (rows := _rows(thing)):
                for row in rows:
                    _may_hold(interp, made, row, node)
            elif pairs is None:
                interp.spread(made, thing, sure)
            for key, found in pairs or ():
                made.entries[key] = [Entry(found, None, node, sure)]
                interp.keep(found, made, key)
    for key, given in args.named.items():
        home = given.via[0][1].home if given.via else args.call or node
        made.entries[key] = [Entry(given.values, given.expr, home, given.sure)]
        interp.keep(given.values, made, key)
    if args.open:
        made.widen(args.open)
    revive(made, past)
    return made


def _rows(thing: Thing) -> list[tuple[Values, Values]]:
    """The pairs that a list of them may hold; empty where it may hold anything else."""
    rows = [p.exact for p in thing.any() if isinstance(p, Seq)] if isinstance(thing, Seq) else []
    if not isinstance(thing, Seq) or len(rows) != len(thing.any()):
        return []
    pairs = [(r[0], r[1]) for r in rows if r is not None and len(r) == 2]
    return pairs if len(pairs) == len(rows) else []


def _may_hold(interp: Core, made: Dict, row: tuple[Values, Values], node: Where) -> None:
    """A dict may get this pair."""
    key, found = const(row[0]), row[1]
    if isinstance(key, (str, int)):
        old = NOTHING.union(*(e.values for e in made.entries.get(key, ())))
        made.entries[key] = [Entry(join(old, found), None, node, False)]
        interp.keep(found, made, key)
    else:
        made.rest = join(made.rest, found)
        made.open = made.open or "a key is computed"


def revive(made: Dict, past: dict[Any, list[Entry]] | None) -> None:
    """Dicts made at the same place before (``past``) live on: what they hold stays possible, what
    they lack is not certain.
    """
    if past is None:
        made.entries = made.entries
        return
    for name in made.entries.keys() - past.keys():
        made.entries[name] = [replace(e, sure=False) for e in made.entries[name]]
    for name, entries in past.items():
        kept: dict[ast.expr | None, Entry] = {}
        for old in entries:
            other = kept.get(old.expr)
            kept[old.expr] = Entry(
                old.values if other is None else join(old.values, other.values),
                old.expr,
                old.home,
                False,
            )
        now = made.entries.setdefault(name, [])
        held: dict[ast.expr | None, list[Entry]] = {}  # there may be hundreds
        for new in now:
            held.setdefault(new.expr, []).append(new)
        now += [
            e
            for place, e in kept.items()
            if not any(e.values <= n.values for n in held.get(place, ()))
        ]
    filled, made.__dict__["entries"] = made.entries, past
    made.entries = filled


def namespace_method(interp: Core, this: Ext, name: str, args: Arguments, node: Where) -> Values:
    """``vars(x).update(...)``, ``x.__dict__.get(...)``, ``vars(x).items()``."""
    if name in ("update", "setdefault", "pop", "clear", "__setitem__", "popitem"):
        for key, given in args.named.items() if name == "update" else ():
            interp.set_in_namespace(this, key, given.values)
        table = one(args.positional[0].values) if len(args.positional) == 1 else None
        if name == "update" and isinstance(table, Dict) and is_settings(table):
            for owner in ordered(this.attrs["of"]):
                for key in _constants(owner):  # which other settings may replace
                    interp.set_in_namespace(this, key, NUMBER)
            for key in table.entries:
                interp.set_in_namespace(this, key, table.get(key))
        elif args.positional or args.open:
            interp.set_in_namespace(this, ..., NOTHING)
    key = const(args.get(0, "key"))
    if name in ("get", "pop") and isinstance(key, str):
        return args.get(1, "default").union(
            *(interp.attribute(t, key, None) for t in this.attrs["of"])
        )
    table = as_table(interp, this)
    if name in ("items", "keys", "values", "copy") and isinstance(table, Dict):
        return dict_method(interp, table, name, args, node)
    return values(Unknown("an object's attributes as a dict"))


def as_table(interp: Core, this: Thing) -> Thing:
    """A copy of ``vars(x)`` as it is now, the items of an object that is a dict; anything else as
    it is."""
    if (held := dict_items(this)) is not None:
        return held
    if not isinstance(this, Ext) or this.name != "builtins.vars":
        return this
    made = interp.intern(Dict, ("table", this), lambda: Dict(None))
    owners = ordered(this.attrs["of"])
    for owner in owners:
        for key, found in owner.attrs.items() if isinstance(owner, OBJECTS) else ():
            if made.get(key) != found:
                made.entries[key] = [Entry(found, None, None, len(owners) == 1)]
        seen = isinstance(owner, Inst) and owner.cls.external <= {"builtins.object"}
        seen = seen or is_named(owner, Ext, "argparse.Namespace")
        open_as = getattr(owner, "open", "") if seen else "an object's attributes as a dict"
        if open_as and not made.open:
            made.widen(open_as)
    return made


def is_settings(thing: Dict) -> bool:
    """A dict as it was loaded from a file with settings."""
    return not thing.rest and bool(thing.entries) and thing.open.endswith(SETTINGS)


def _constants(owner: Thing) -> list[str]:
    attrs = owner.attrs if isinstance(owner, OBJECTS) else {}
    return [key for key, found in attrs.items() if any_of(found, Const)]


def dict_method(interp: Core, this: Dict, name: str, args: Arguments, node: Where) -> Values:
    if name == "update":
        interp.emit("set_item", node, this, args, NOTHING.union(*args.each))
        sure = not interp.weak(this.made)
        for given in args.positional:
            for thing in ordered(given.values):
                interp.spread(this, thing, sure and len(given.values) == 1)
        for key, given in args.named.items():
            home = given.via[0][1].home if given.via else node
            interp.set_entry(this, key, Entry(given.values, given.expr, home, given.sure))
        if args.open:
            this.widen(args.open)
        return NONE
    if name in ("get", "pop", "setdefault", "__getitem__"):
        return _looked_up(interp, this, name, args, node)
    if name in ("__setitem__", "__delitem__"):
        key = const(args.get(0, "key"))
        if name == "__delitem__":
            interp.drop_entry(this, key)
        else:
            interp.emit("set_item", node, this, args, args.get(1, "value"))
            interp.set_entry(this, key, Entry(args.get(1, "value"), None, node, True))
        return NONE
    if name in ("clear", "popitem"):
        interp.drop_entry(this, ...)
        if name == "popitem":
            return this.any() or values(Unknown("the dict is empty here"))
        return NONE
    return _view(interp, this, name, node)


def _looked_up(interp: Core, this: Dict, name: str, args: Arguments, node: Where) -> Values:
    """``d.get(key, default)`` and its kin."""
    key = const(args.get(0, "key"))
    default = args.get(1, "default")
    found = this.get(key) if key is not ... else this.any()
    sure = key is not ... and this.holds(key)
    if name == "setdefault":
        interp.emit("set_item", node, this, args, default)
        if not sure:
            weak = interp.weak(this.made)
            interp.set_entry(this, key, Entry(found | default, None, node, True))
            if key is not ... and not weak:
                this.entries[key] = [Entry(found | default, None, node, True)]
    if name == "pop":
        interp.drop_entry(this, key)
    if sure:
        return found
    return found | (default or (NONE if name in ("get", "setdefault") else NOTHING)) or values(
        Unknown("the key is never set")
    )


def _view(interp: Core, this: Dict, name: str, node: Where) -> Values:
    keys = values(*(Const(k) for k in this.entries)) | (
        values(Num(), *([Unknown(this.open)])) if this.open or this.rest else NOTHING
    )
    if name == "items":
        pairs = []
        for k in this.entries:
            key = values(Const(k))
            pair = interp.intern(
                Seq, (node, this, k), partial(Seq, node, (key, NOTHING), NOTHING, "tuple")
            )
            pair.items = (key, (pair.items or (key, NOTHING))[1] | this.get(k))
            pairs.append(pair)
        if this.rest or this.open:
            rest = interp.intern(
                Seq, (node, this), lambda: Seq(node, (NUMBER, NOTHING), NOTHING, "tuple")
            )
            rest.items = (keys, this.any() or values(Unknown(this.open)))
            pairs.append(rest)
        return values(row_of(interp, (node, this, "items"), node, values(*pairs), "view"))
    if name in ("values", "keys"):
        found = this.any() if name == "values" else keys
        return values(row_of(interp, (node, this, name), node, found, "view"))
    if name == "copy":
        return values(copied(interp, this, node))
    return NUMBER


def row_of(
    interp: Core, key: tuple[Any, ...], node: Where, elem: Values, kind: str = "list"
) -> Seq:
    seq = interp.intern(Seq, (*key, kind), lambda: Seq(node, None, NOTHING, kind))
    seq.elem |= elem
    return seq


def seq_method(interp: Core, this: Seq, name: str, args: Arguments, node: Where) -> Values:
    if name in ("append", "add", "insert", "appendleft"):
        given = args.positional[-1].values if args.positional else NOTHING
        if name == "append":
            extend(interp, this, values(Seq(node, (given,))))
        else:
            interp.keep(given, this)
            this.elem |= given
            shuffle(interp, this)
        interp.emit("append", node, this, args, given)
        return NONE
    if name in ("extend", "update"):
        for more in args.positional:
            interp.emit("append", node, this, args, more.values)
            extend(interp, this, more.values)
        return NONE
    if name in ("pop", "popleft", "popitem"):
        found = this.any() or values(Unknown("the list is empty here"))
        shuffle(interp, this)
        return found
    if name in ("remove", "clear", "reverse", "sort", "discard"):
        shuffle(interp, this)
        return NONE
    if name in ("send", "__next__", "next"):
        return this.any() or values(Unknown("it yields nothing"))
    if name == "copy":
        return values(copied(interp, this, node))
    return NUMBER


def extend(interp: Core, seq: Seq, found: Values) -> None:
    """``seq += found``, ``seq.extend(found)``, ``seq.append(x)``: exactly, where that happens
    once.
    """

    single = one(found)
    looped = any_of(seq.made, LoopFrame)
    if (
        isinstance(single, Seq)
        and single.exact is not None
        and seq.exact is not None
        and not looped
        and not interp.weak(seq.made)
    ):
        if single is not seq and len(seq.exact) < MOST_ITEMS:
            for part in single.exact:
                interp.keep(part, seq)
            seq.items = (*seq.exact, *single.exact)
            return
    every = NOTHING.union(*(element(interp, thing, None) for thing in found))
    interp.keep(every, seq)
    seq.elem = join(seq.elem, every)


def shuffle(interp: Core, seq: Seq) -> None:
    """Something is removed, or the order changes: what stands where is no longer known."""
    if seq.items is not None:
        interp.changes += bool(seq.items)
        seq.items, seq.elem = None, seq.any()


def deep_copied(interp: Core, thing: Thing, node: Where, done: ById | None = None) -> Thing:
    """A copy with copies of the lists, dicts and plain objects in it; layers are not told from
    their copies.

    Of a copy of a copy of a copy that one place has made, it makes no other: the last one stands
    for several things from then on.
    """
    done = {} if done is None else done
    if id(thing) in done:
        return done[id(thing)]
    turns = interp.copies.get((thing, node), 0)
    if turns == MOST_COPIES:
        for part in with_contents((thing,), attributes):
            if isinstance(part, (Dict, Seq, Inst, Ext)) and not is_module(part):
                part.made = (*(f for f in part.made if f is not OVER), OVER)
                done[id(part)] = part  # also where it is met once more
        return thing
    if not isinstance(thing, (Dict, Seq, Inst, Ext)) or is_module(thing):
        return copied(interp, thing, node)
    made = done[id(thing)] = copied(interp, thing, node)
    if made is not thing:
        interp.copies[made, node] = turns + 1

    def inner(found: Values) -> Values:
        return frozenset(
            deep_copied(interp, t, node, done)
            if (isinstance(t, (Dict, Seq, Inst)) and not is_module(t))
            or is_named(t, Ext, NAMESPACES)
            else t
            for t in ordered(found)
        )

    if made is thing:
        pass
    elif isinstance(made, Dict):
        for key, entries in made.entries.items():
            made.entries[key] = [replace(e, values=inner(e.values)) for e in entries]
        made.rest = inner(made.rest)
    elif isinstance(made, Seq):
        made.items = None if made.items is None else tuple(map(inner, made.items))
        made.elem = inner(made.elem)
    elif isinstance(made, OBJECTS):
        for name, found in made.attrs.items():
            made.attrs[name] = inner(found)
    return made


def copied(interp: Core, thing: Thing, node: Where, kind: str = "") -> Thing:
    """A shallow copy of what a program changes; ``kind`` is what a sequence becomes, if another."""
    if isinstance(thing, Dict):
        return dict_of(interp, node, Arguments(node, [Given(values(thing), None)]), thing)
    if isinstance(thing, Seq):
        seq = interp.intern(
            Seq,
            (node, thing, "copy", kind),
            lambda: Seq(node, thing.items, thing.elem, kind or thing.kind, tuple(interp.stack)),
        )
        if thing.items is not None and seq.items is not None and len(thing.items) == len(seq.items):
            seq.items = tuple(old | new for old, new in zip(seq.items, thing.items, strict=True))
        else:
            seq.items = None
        seq.elem = join(seq.elem, thing.any() if seq.items is None else thing.elem)
        return seq
    if isinstance(thing, Inst):
        inst: Inst | Ext = interp.intern(
            Inst,
            (node, thing, "copy"),
            lambda: Inst(thing.cls, thing.node, {}, tuple(interp.stack), thing.args),
        )
    elif is_named(thing, Ext, NAMESPACES):
        inst = interp.intern(
            Ext,
            (node, thing, "copy"),
            lambda: Ext(thing.name, thing.node, thing.args, {}, tuple(interp.stack)),
        )
    else:
        return thing
    for name, found in thing.attrs.items():
        inst.attrs[name] = join(inst.attrs.get(name, NOTHING), found)
    if (held := dict_items(thing)) is not None:
        inst.attrs[ITEMS] = frozenset({copied(interp, held, node)})
    inst.open = inst.open or thing.open
    return inst


def field_names(interp: Core, kind: Ext) -> tuple[str, ...]:
    """The fields of ``namedtuple("Batch", "images labels")``; none where they are not known."""
    given = kind.args.get(1, "field_names")
    plain, several = const(given), one(given)
    if isinstance(several, Seq) and several.exact is not None:
        plain = tuple(const(part) for part in several.exact)
    if isinstance(plain, str):
        plain = tuple(plain.replace(",", " ").split())
    return plain if (isinstance(plain, tuple) and all_of(plain, str)) else ()


def named_tuple(interp: Core, kind: Ext, args: Arguments, node: Where) -> Values:
    """A new tuple of a class that ``namedtuple`` has made."""
    names = field_names(interp, kind)
    if not names:
        return values(Unknown("a named tuple, whose fields are not known"))
    parts = tuple(
        given.values if (given := args.given(n, name)) is not None else values(Unknown("a default"))
        for n, name in enumerate(names)
    )
    row = interp.intern(
        Seq, (node, kind, parts), lambda: Seq(node, parts, NOTHING, "tuple", names=names)
    )
    return values(row)
