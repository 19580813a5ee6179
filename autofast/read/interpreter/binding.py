"""Names, attributes and items: where a value is put."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from autofast.model.changes import CLOCK
from autofast.model.contents import dict_items, each_once
from autofast.model.events import LoopFrame
from autofast.model.kinds import is_module
from autofast.model.names import canonical
from autofast.model.syntax import SEQUENCES, is_attribute
from autofast.model.values import (
    NONE,
    NOTHING,
    NUMBER,
    OBJECTS,
    Bound,
    Cls,
    Const,
    Dict,
    Entry,
    Env,
    Ext,
    Func,
    Inst,
    Method,
    Module,
    Num,
    Partial,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    Where,
    all_of,
    any_of,
    const,
    is_const,
    is_named,
    ordered,
    things as values,
)
from autofast.ops import is_new
from autofast.read.interpreter.lookup import Lookup
from autofast.read.library import module_parts, protocols
from autofast.read.library.containers import as_table
from autofast.read.library.iteration import element
from autofast.read.state.core import join
from autofast.read.state.reachable import PLAIN


class Binding(Lookup):
    """Assignment, and deletion."""

    def assign(self, target: ast.expr, found: Values, env: Env, expr: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self.bind(target.id, found, env)
        elif isinstance(target, SEQUENCES):
            self.unpack(target, found, env)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, values(Seq(target, None, found)), env, None)
        elif isinstance(target, ast.Attribute):
            for thing in self.choices(self.expr(target.value, env)):
                self.set_attribute(thing, target, found, env)
        elif isinstance(target, ast.Subscript):
            index = self.expr(target.slice, env)
            for thing in self.choices(self.expr(target.value, env)):
                several = len(index) > 1 and isinstance(thing, Dict) and all_of(index, Const)
                for key in (
                    [t.value for t in ordered(index) if isinstance(t, Const)]
                    if several
                    else [const(index)]
                ):
                    self.set_item(thing, key, found, target, expr, sure=not several)

    def bind(self, name: str, found: Values, env: Env) -> None:
        if name in env.globals:
            self.set_global(env.module, name, found)
        elif name in env.nonlocals:
            outer = env.outer
            while outer is not None and (old := outer.held(name)) is None:
                outer = outer.outer
            if outer is not None and old is not None:
                self.keep(found, id(outer), name)
                if not found <= old:
                    CLOCK.tick(outer.vars, name)
                outer.vars[name] = join(old, found)
        else:
            env.vars[name] = found

    def set_global(self, module: Env, name: str, found: Values) -> None:
        """Assign to a module's variable from elsewhere."""
        self.keep(found, id(module), name)
        old = module.vars.get(name, NOTHING)
        now = join(old, found) if self.weak(()) else found
        if now != old:
            CLOCK.tick(module.vars, name)
        module.vars[name] = now

    def unpack(self, target: ast.Tuple | ast.List, found: Values, env: Env) -> None:
        n = len(target.elts)
        starred = next((i for i, e in enumerate(target.elts) if isinstance(e, ast.Starred)), None)
        for i, part in enumerate(target.elts):
            parts: Values = NOTHING
            for thing in found:
                if (
                    isinstance(thing, Seq)
                    and thing.exact is not None
                    and starred is None
                    and len(thing.exact) == n
                ):
                    parts |= thing.exact[i]
                elif starred is not None and i >= starred:
                    parts |= element(self, thing, None)
                elif is_const(thing, tuple) and len(thing.value) == n and starred is None:
                    parts |= values(Const(thing.value[i]))
                else:
                    parts |= element(self, thing, i)
            if isinstance(part, ast.Starred):
                self.assign(part.value, values(Seq(part, None, parts)), env, None)
            else:
                self.assign(part, parts, env, None)

    def store_attribute(
        self, thing: Inst | Ext, name: str, found: Values, sure: bool = True
    ) -> None:
        """``thing.name = found``: what was there before stays possible where this may not happen,
        or not to this very object.
        """
        found |= thing.past.get(name, NOTHING) if isinstance(thing, Inst) else NOTHING
        again = any_of(thing.made, LoopFrame) and thing not in self.building
        old = thing.attrs.get(name)
        # a table or a state that is made at the first batch, and that nothing sets back to None
        first = old == NONE and not any_of(found, Const, Num)
        if not sure or again or self.weak(thing.made, once=first):
            if old is None and isinstance(thing, Inst):
                old = frozenset(
                    t for t in thing.cls.find(name) or NOTHING if not isinstance(t, Func)
                )
            found = join(old or NOTHING, found)
        known = self.changes
        self.keep(found, thing, name)
        if self.changes != known and is_module(thing):
            self.model_changes += 1
        thing.attrs[name] = found

    def open_attributes(self, thing: Thing, why: str) -> None:
        """Any attribute may have been set."""
        if isinstance(thing, OBJECTS) and not thing.open:
            thing.open = why
            self.changes += 1
        elif isinstance(thing, Module):
            self.changes += not thing.env.opaque
            if not thing.env.opaque:
                CLOCK.shake()
            thing.env.opaque, thing.env.exposed = thing.env.opaque or why, None

    def forget(self, found: Values, scope: Env, why: str) -> None:
        """Everything that can be reached from ``found`` and by the names of ``scope`` may have been
        changed.
        """
        unknown = values(Unknown(why))
        todo: list[Thing | Env] = [scope, *found]
        opened: set[Values] = set()  # many hold the same
        for thing in each_once(todo):
            parts: list[Values] = []
            if isinstance(thing, Env):
                if not thing.opaque:
                    CLOCK.shake()
                thing.opaque, thing.exposed = thing.opaque or why, None
                source = thing.module.source
                thing.rebound = source.rebound if source is not None else frozenset()
                parts = [*thing.vars.values(), *thing.past.values()]
                todo += [thing.outer] if thing.outer is not None else []
            elif isinstance(thing, OBJECTS):
                self.open_attributes(thing, why)
                parts = [
                    *thing.attrs.values(),
                    *(thing.args.all() if thing.args is not None else ()),
                ]
                todo += [thing.cls] if isinstance(thing, Inst) else []
            elif isinstance(thing, Dict):
                parts = [thing.rest, *(e.values for es in thing.entries.values() for e in es)]
                thing.widen(why)
            elif isinstance(thing, Seq):
                parts = [thing.elem, *(thing.items or ())]
                thing.elem |= unknown
            elif isinstance(thing, Cls):
                parts = list(thing.members.values())
                thing.members.update(
                    (n, v | unknown) for n, v in thing.members.items() if not any_of(v, Func)
                )
                todo += [thing.env, *thing.bases]
            elif isinstance(thing, Func):
                parts = list(thing.attrs.values())
                thing.attrs.update((n, v | unknown) for n, v in thing.attrs.items())
                todo.append(thing.env)
            elif isinstance(thing, Bound):
                todo += [thing.func, thing.this]
            elif isinstance(thing, Method):
                todo.append(thing.this)
            elif isinstance(thing, Partial):
                parts = [thing.func, *thing.args.all()]
            elif isinstance(thing, Module):
                todo.append(thing.env)
            for part in parts:
                if part not in opened:
                    opened.add(part)
                    todo += [t for t in part if type(t) not in PLAIN]

    def set_in_namespace(self, space: Ext, key: Any, found: Values) -> None:
        """``vars(x)[key] = found``, ``x.__dict__[key] = found``."""
        for owner in ordered(space.attrs["of"]):
            if isinstance(owner, OBJECTS) and isinstance(key, str):
                self.store_attribute(owner, key, found, sure=False)
            else:
                self.open_attributes(owner, "its attributes are set through its __dict__")

    def set_attribute(self, thing: Thing, target: ast.Attribute, found: Values, env: Env) -> None:
        name = target.attr
        if protocols.put(self, thing, name, found, target):
            self.emit("set_attribute", target, thing, result=found, name=name)
        elif isinstance(thing, Inst) and thing.cls.find(f"{name}.setter"):
            self.call_method_of(thing, f"{name}.setter", [found], target)
        elif isinstance(thing, OBJECTS):
            held = dict_items(thing) if thing in thing.attrs.get("__dict__", NOTHING) else None
            if held is None:
                self.store_attribute(thing, name, found)
            else:
                self.set_entry(held, name, Entry(found, None, target, True))
            self.emit("set_attribute", target, thing, result=found, name=name)
        elif isinstance(thing, Dict):
            self.set_entry(thing, name, Entry(found, None, target, True))
        elif isinstance(thing, (Cls, Module, Unknown, Func)):
            if isinstance(thing, Module):
                self.set_global(thing.env, name, found)
            elif not isinstance(thing, Unknown):
                self.keep(found, thing, name)
                own = thing.members if isinstance(thing, Cls) else thing.attrs
                old = thing.find(name) if isinstance(thing, Cls) else own.get(name)
                own[name] = join(old or NOTHING, found)
            self.emit("set_elsewhere", target, thing, result=found, name=name)
        elif isinstance(thing, Ref):
            self.set_in_library(thing, name, found, target)
        elif isinstance(thing, Tensor):
            kind = "grad_write" if name == "grad" else "tensor_write"
            self.emit(kind, target, thing, result=found, name=name)

    def set_in_library(self, thing: Ref, name: str, found: Values, node: Where) -> None:
        """``thing.name = found`` where ``thing`` is a module or class of a library."""
        kind = "set_elsewhere" if is_new(f"{thing.name}.{name}") else "set_flag"
        self.emit(kind, node, thing, result=found, name=f"{thing.name}.{name}")
        if any_of(found, Func, Bound, Cls, Partial, Inst):
            full = canonical(f"{thing.name}.{name}")
            self.keep(found, full)
            if not found <= self.patched.get(full, NOTHING):
                CLOCK.shake()
            self.patched[full] = join(self.patched.get(full, NOTHING), found)

    def set_item(
        self,
        thing: Thing,
        key: Any,
        found: Values,
        target: ast.Subscript,
        expr: ast.expr | None,
        *,
        sure: bool = True,
    ) -> None:
        """``thing[key] = ...``; where it is not ``sure``, it may be under another key."""
        if not isinstance(thing, Tensor) or thing.sure is None:
            self.emit("set_item", target, thing, result=found)
        if isinstance(thing, Inst) and thing.cls.find("__setitem__") is None:
            thing = dict_items(thing) or thing
        if isinstance(thing, Dict):
            self.set_entry(thing, key, Entry(found, expr, target, sure))
            if is_attribute(target.value, "_modules"):
                for owner in self.choices(self.at.get(target.value.value, NOTHING)):
                    if isinstance(owner, OBJECTS):
                        module_parts.put(self, owner, key, found)
        elif isinstance(thing, Seq):
            if isinstance(target.slice, ast.Slice):  # others may stand elsewhere now
                found = NOTHING.union(*(element(self, t, None) for t in found))
                thing.items, thing.elem = None, thing.any()
            self.keep(found, thing)
            known = thing.exact
            if known is not None and type(key) is int and -len(known) <= key < len(known):
                place = key % len(known)
                thing.items = tuple(
                    join(old, found) if n == place else old for n, old in enumerate(known)
                )
            else:
                thing.elem = join(thing.elem, found)
        elif is_named(thing, Ext, "builtins.vars"):
            self.set_in_namespace(thing, key, found)
        elif isinstance(thing, Ext) and module_parts.is_container(thing):
            module_parts.put(self, thing, key, found)
        elif isinstance(thing, Inst):
            if thing.cls.find("__setitem__") is not None:
                self.call_method_of(thing, "__setitem__", [NUMBER, found], target)
            elif module_parts.is_container(thing):
                module_parts.put(self, thing, key, found)
            else:
                self.open_attributes(thing, "items are set on it")
        elif isinstance(thing, Tensor) and thing.sure is not None:
            self.emit("tensor_write", target, thing, result=found, name="[]")

    def set_entry(self, thing: Dict, key: Any, entry: Entry) -> None:
        """``thing[key] = ...``: the entry replaces all others where it is certain, else it is one
        more.
        """
        self.keep(entry.values, thing, key if isinstance(key, (str, int)) else None)
        if key is ...:
            thing.rest = join(thing.rest, entry.values)
            thing.open = thing.open or "a key is computed"
            return
        old = thing.entries.get(key, [])
        if entry.sure and not self.weak(thing.made):
            thing.entries[key] = [entry]
            return
        mine = next((e for e in old if e.home is entry.home and e.expr is entry.expr), None)
        if mine is None:
            thing.entries[key] = [*old, replace(entry, sure=False)]
        elif not entry.values <= mine.values:
            thing.entries[key] = [
                replace(e, values=join(e.values, entry.values)) if e is mine else e for e in old
            ]

    def drop_entry(self, thing: Dict, key: Any) -> None:
        """``del thing[key]``, ``thing.pop(key)``: the entry may be gone, any entry where the key is
        not known.
        """
        thing.removed |= {key}
        certain = key is not ... and not self.weak(thing.made)
        for name in list(thing.entries) if key is ... else [key] if key in thing.entries else []:
            if any(e.sure for e in thing.entries[name]):
                self.changes += 1
            if certain:
                del thing.entries[name]
            else:
                thing.entries[name] = [replace(e, sure=False) for e in thing.entries[name]]

    def spread(self, into: Dict, thing: Thing, sure: bool) -> None:
        """``{**thing}`` or ``into.update(thing)``."""
        thing = as_table(self, thing)
        if isinstance(thing, Dict):
            if thing is into:
                return
            self.steps += len(thing.entries) // 4
            for key, entries in thing.entries.items():
                certain = sure and any(e.sure for e in entries)
                moved = [Entry(e.values, e.expr, e.home, e.sure and sure) for e in entries]
                if certain:
                    old = []
                else:
                    old = [
                        e
                        for e in into.entries.get(key, [])
                        if not any(m.expr is e.expr and e.values <= m.values for m in moved)
                    ]
                self.keep(
                    NOTHING.union(*(e.values for e in moved)),
                    into,
                    key if isinstance(key, (str, int)) else None,
                )
                into.entries[key] = [*old, *moved]
            into.rest = join(into.rest, thing.rest)
            into.removed |= thing.removed
            into.open = into.open or thing.open
        else:
            into.widen("it is extended by something that is not known")
