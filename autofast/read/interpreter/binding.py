"""Names, attributes and items: where a value is kept and found again."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from autofast.flow.scopes import own_nodes
from autofast.model import names
from autofast.model.changes import CLOCK
from autofast.model.events import CallFrame, LoopFrame, TryFrame
from autofast.model.kinds import (
    is_autograd_function,
    is_classmethod,
    is_module,
    is_property,
    is_static,
)
from autofast.model.names import canonical
from autofast.model.values import (
    NOTHING,
    Arguments,
    Bound,
    Cls,
    Const,
    Dict,
    Entry,
    Env,
    Ext,
    Func,
    Given,
    Inst,
    Method,
    Module,
    Num,
    Partial,
    Reason,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    const,
    ordered,
)
from autofast.model.values import things as values
from autofast.read.library import hugging_face_data, module_parts, options, pretrained, protocols
from autofast.read.library import torch_library as torchlib
from autofast.read.library.containers import as_table
from autofast.read.library.iteration import element
from autofast.read.state.core import Core, NoValue, join
from autofast.read.state.reachable import PLAIN

BUILTINS = frozenset(dir(builtins))
DICT_METHODS = frozenset(dir(dict))
UNBOUND = frozenset({"UnboundLocalError", "NameError", "Exception", "BaseException", ""})
UNSET = frozenset({"AttributeError"})  # who names it expects it; a handler for anything may not


class Binding(Core):
    """Assignment and look-up."""

    def assign(self, target: ast.expr, found: Values, env: Env, expr: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self.bind(target.id, found, env)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target, found, env)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, values(Seq(target, None, found)), env, None)
        elif isinstance(target, ast.Attribute):
            for thing in self.choices(self.expr(target.value, env)):
                self.set_attribute(thing, target, found, env)
        elif isinstance(target, ast.Subscript):
            index = self.expr(target.slice, env)
            for thing in self.choices(self.expr(target.value, env)):
                several = (
                    len(index) > 1
                    and isinstance(thing, Dict)
                    and all(isinstance(t, Const) for t in index)
                )
                for key in (
                    [t.value for t in ordered(index) if isinstance(t, Const)]
                    if several
                    else [const(index)]
                ):
                    self.set_item(thing, key, found, target, expr, sure=not several)

    def choices(self, found: Values) -> Iterator[Thing]:
        """The things one by one; where there are several, what happens to each may not happen."""
        if len(found) < 2:
            yield from found
            return
        with self.maybe():
            yield from ordered(found)

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
                elif (
                    isinstance(thing, Const)
                    and isinstance(thing.value, tuple)
                    and len(thing.value) == n
                    and starred is None
                ):
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
        """``thing.name = found``: what was there before stays possible where this may not happen, or not to this very object."""
        found |= thing.past.get(name, NOTHING) if isinstance(thing, Inst) else NOTHING
        again = any(isinstance(f, LoopFrame) for f in thing.made) and not any(
            t is thing for t in self.building
        )
        old = thing.attrs.get(name)
        # a table or a state that is made at the first batch, and that nothing sets back to None
        first = old == values(Const(None)) and not any(isinstance(t, (Const, Num)) for t in found)
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
        if isinstance(thing, (Inst, Ext)) and not thing.open:
            thing.open = why
            self.changes += 1
        elif isinstance(thing, Module):
            self.changes += not thing.env.opaque
            if not thing.env.opaque:
                CLOCK.shake()
            thing.env.opaque = thing.env.opaque or why

    def forget(self, found: Values, scope: Env, why: str) -> None:
        """Everything that can be reached from ``found`` and by the names of ``scope`` may have been changed."""
        unknown = values(Unknown(why))
        todo: list[Thing | Env] = [scope, *found]
        seen: set[int] = set()
        while todo:
            thing = todo.pop()
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            parts: list[Values] = []
            if isinstance(thing, Env):
                if not thing.opaque:
                    CLOCK.shake()
                thing.opaque = thing.opaque or why
                source = thing.module.source
                thing.rebound = source.rebound if source is not None else frozenset()
                parts = [*thing.vars.values(), *thing.past.values()]
                todo += [thing.outer] if thing.outer is not None else []
            elif isinstance(thing, (Inst, Ext)):
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
                    (n, v | unknown)
                    for n, v in thing.members.items()
                    if not any(isinstance(t, Func) for t in v)
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
            todo += [
                t for part in parts for t in part if type(t) not in PLAIN and id(t) not in seen
            ]

    def set_in_namespace(self, space: Ext, key: Any, found: Values) -> None:
        """``vars(x)[key] = found``, ``x.__dict__[key] = found``."""
        for owner in ordered(space.attrs["of"]):
            if isinstance(owner, (Inst, Ext)) and isinstance(key, str):
                self.store_attribute(owner, key, found, sure=False)
            else:
                self.open_attributes(owner, "its attributes are set through its __dict__")

    def set_attribute(self, thing: Thing, target: ast.Attribute, found: Values, env: Env) -> None:
        name = target.attr
        if protocols.put(self, thing, name, found, target):
            self.emit("set_attribute", target, thing, None, found, name=name)
        elif isinstance(thing, Inst) and (setter := thing.cls.find(f"{name}.setter")):
            self.call_values(
                self.bind_members(setter, thing, target),
                Arguments(target, [Given(found, None)]),
                target,
            )
        elif isinstance(thing, (Inst, Ext)):
            self.store_attribute(thing, name, found)
            self.emit("set_attribute", target, thing, None, found, name=name)
        elif isinstance(thing, Dict):
            self.set_entry(thing, name, Entry(found, None, target, True))
        elif isinstance(thing, Cls):
            self.keep(found, thing, name)
            thing.members[name] = join(thing.find(name) or NOTHING, found)
            self.emit("set_elsewhere", target, thing, None, found, name=name)
        elif isinstance(thing, Module):
            self.set_global(thing.env, name, found)
            self.emit("set_elsewhere", target, thing, None, found, name=name)
        elif isinstance(thing, Unknown):
            self.emit("set_elsewhere", target, thing, None, found, name=name)
        elif isinstance(thing, Func):
            self.keep(found, thing, name)
            thing.attrs[name] = join(thing.attrs.get(name, NOTHING), found)
            self.emit("set_elsewhere", target, thing, None, found, name=name)
        elif isinstance(thing, Ref):
            self.set_in_library(thing, name, found, target)
        elif isinstance(thing, Tensor):
            self.emit(
                "grad_write" if name == "grad" else "tensor_write",
                target,
                thing,
                None,
                found,
                name=name,
            )

    def set_in_library(self, thing: Ref, name: str, found: Values, node: ast.AST | None) -> None:
        """``thing.name = found`` where ``thing`` is a module or class of a library."""
        self.emit("set_flag", node, thing, None, found, name=f"{thing.name}.{name}")
        if any(isinstance(t, (Func, Bound, Cls, Partial, Inst)) for t in found):
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
        if not isinstance(thing, Tensor):
            self.emit("set_item", target, thing, None, found)
        if isinstance(thing, Dict):
            self.set_entry(thing, key, Entry(found, expr, target, sure))
        elif isinstance(thing, Seq):
            if isinstance(target.slice, ast.Slice):  # others may stand elsewhere now
                found = NOTHING.union(*(element(self, t, None) for t in found))
                thing.items, thing.elem = None, thing.any()
            self.keep(found, thing)
            known = thing.exact
            if (
                known is not None
                and isinstance(key, int)
                and not isinstance(key, bool)
                and -len(known) <= key < len(known)
            ):
                place = key % len(known)
                thing.items = tuple(
                    join(old, found) if n == place else old for n, old in enumerate(known)
                )
            else:
                thing.elem = join(thing.elem, found)
        elif isinstance(thing, Ext) and thing.name == "builtins.vars":
            self.set_in_namespace(thing, key, found)
        elif isinstance(thing, Inst):
            if thing.cls.find("__setitem__") is not None:
                self.call_method_of(thing, "__setitem__", [values(Num()), found], target)
            else:
                self.open_attributes(thing, "items are set on it")
        elif isinstance(thing, Tensor):
            self.emit("tensor_write", target, thing, None, found, name="[]")

    def set_entry(self, thing: Dict, key: Any, entry: Entry) -> None:
        """``thing[key] = ...``: the entry replaces all others where it is certain, else it is one more."""
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
        """``del thing[key]``, ``thing.pop(key)``: the entry may be gone, any entry where the key is not known."""
        thing.removed |= {key}
        certain = key is not ... and not self.weak(thing.made)
        for name in list(thing.entries) if key is ... else [key] if key in thing.entries else []:
            if any(e.sure for e in thing.entries[name]):
                self.changes += 1
            if certain:
                del thing.entries[name]
            else:
                thing.entries[name] = [replace(e, sure=False) for e in thing.entries[name]]

    def lookup(self, name: str, env: Env) -> Values:
        scope: Env | None = env
        if name in env.globals:
            scope = env.module
        first, own = True, True
        while scope is not None:
            if first or scope.kind != "class":
                found = scope.vars.get(name) if own else scope.held(name)
                if found is not None:
                    if scope is not env:
                        self.summaries.read(scope, name, found)
                    return self.variable(scope, name, found)
            first = first and scope.kind == "comprehension"
            own = own and scope.kind != "function"
            scope = scope.outer
        self.summaries.read(env.module, name, None)
        if (starred := env.module.starred) and not (
            name in BUILTINS and starred in names.NO_BUILTINS
        ):
            return values(Unknown(f"`{name}` may come from {starred}", Reason.FOREIGN, name))
        if name in BUILTINS:
            return values(Ref(f"builtins.{name}"))
        self.changes += self.records[-1].first_miss(name)
        if self.is_unbound_local(name, env) and self.catches(UNBOUND):
            raise NoValue
        return values(Unknown(f"`{name}` is not defined here", Reason.UNDEFINED, name))

    def is_unbound_local(self, name: str, env: Env) -> bool:
        """Whether ``name`` is a variable of the running function alone, which has not come to where it gets a value."""
        call = next((f for f in reversed(self.stack) if isinstance(f, CallFrame)), None)
        if call is None or env.kind != "function" or env.module.opaque or name in env.nonlocals:
            return False
        return any(
            isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
            for n in own_nodes(call.func.node)
        )

    def catches(self, errors: frozenset[str]) -> bool:
        """Whether this place stands in a ``try`` of the running function that goes on where one of these errors is raised."""
        for frame in reversed(self.stack):
            if isinstance(frame, CallFrame):
                return False
            if isinstance(frame, TryFrame) and frame.part == "body":
                return catches(frame.node, errors)
        return False

    def variable(self, scope: Env, name: str, found: Values) -> Values:
        """The value of a name of ``scope``; where anything may have been set, constants and what functions rebind are not known."""
        if scope.opaque and (any(isinstance(t, Const) for t in found) or name in scope.rebound):
            return found | values(Unknown(scope.opaque))
        return found

    def attribute(self, thing: Thing, name: str, node: ast.AST | None) -> Values:
        if isinstance(thing, Module) and name == "__dict__":
            table = {
                key: [Entry(found, None, None, True)]
                for key, found in thing.env.vars.items()
                if not key.startswith("__")
            }
            return values(self.intern(Dict, ("namespace", id(thing)), lambda: Dict(None, table)))
        if isinstance(thing, Module):
            self.summaries.read(thing.env, name, thing.env.vars.get(name))
            if name in thing.env.vars:
                return self.variable(thing.env, name, thing.env.vars[name])
            sub = (
                self.project.find(name, 1, thing.source)
                if thing.source.path.name == "__init__.py"
                else None
            )
            return (
                values(self.run_module(sub, False))
                if sub
                else values(Unknown(f"`{name}` is not found in {thing.source.rel}"))
            )
        if isinstance(thing, Ref):
            return self.library_attribute(thing, name)
        if isinstance(thing, Inst) and name == "__class__":
            return values(thing.cls)
        if isinstance(thing, (Inst, Ext)) and name == "__dict__":
            return values(
                self.intern(
                    Ext,
                    ("vars", thing),
                    lambda: Ext("builtins.vars", node, Arguments(None), {"of": values(thing)}),
                )
            )
        if isinstance(thing, Inst):
            return self.of_instance(thing, name, node)
        if isinstance(thing, Cls):
            found = thing.find(name)
            if not found and name == "apply" and is_autograd_function(thing):
                why = f"{thing.node.name} is an autograd Function"
                return values(Unknown(why, Reason.FUNCTION, thing.node.name))
            if not found and name == "__name__":
                return values(Const(thing.node.name))
            if not found and name in protocols.SPELLED:
                return values(Ref(protocols.SPELLED[name]))
            if not found and name == pretrained.NAME and pretrained.extends_one(thing):
                return values(Method(thing, name))
            if not found:
                return values(Unknown(f"`{thing.node.name}.{name}` is not found"))
            if any(n.startswith("enum.") for n in thing.external):
                return values(Unknown(f"`{thing.node.name}.{name}` is a member of an enumeration"))
            return frozenset(
                Bound(t, thing) if isinstance(t, Func) and is_classmethod(t) else t for t in found
            )
        if isinstance(thing, Ext) and name in thing.attrs:
            return thing.attrs[name] | (values(Unknown(thing.open)) if thing.open else NOTHING)
        if isinstance(thing, Func) and name in thing.attrs:
            return thing.attrs[name]
        if isinstance(thing, Unknown):
            return values(Method(thing, name))
        if isinstance(thing, Seq) and name in thing.names and thing.items is not None:
            return thing.items[thing.names.index(name)] | thing.elem
        if isinstance(thing, Dict) and name not in DICT_METHODS and (found := thing.get(name)):
            return found  # one that gives its items as attributes, too
        return torchlib.attribute(self, thing, name, node)

    def library_attribute(self, thing: Ref, name: str) -> Values:
        """``thing.name`` of a library, or of a folder of the project without ``__init__.py``."""
        full = canonical(f"{thing.name}.{name}")
        if full in self.patched and thing.name == options.FLAGS:
            return self.patched[full]
        if full in self.patched:
            return self.patched[full] | values(Ref(full))
        if (source := self.project.in_namespace(full)) is not None:
            return values(self.run_module(source, False))
        return values(Ref(full))

    def of_instance(self, thing: Inst, name: str, node: ast.AST | None) -> Values:
        """``thing.name`` of an object of the project."""
        if not name.startswith("__") and protocols.own_getter(self, thing):
            return self.call_method_of(thing, "__getattribute__", [values(Const(name))], node)
        found = thing.attrs.get(name)
        if not found and (member := thing.cls.find(name)):
            found = self.bind_members(member, thing, node)
        if found:
            data = thing.open and not any(isinstance(t, (Func, Bound)) for t in found)
            return found | (values(Unknown(thing.open)) if data else NOTHING)
        if (getter := thing.cls.find("__getattr__")) and not name.startswith("__"):
            return self.call_values(
                self.bind_members(getter, thing, node),
                Arguments(node, [Given(values(Const(name)), None)]),
                node,
            )
        if name == "_modules" and is_module(thing) and not thing.open:
            return module_parts.table(self, thing)
        if thing.cls.external - {"dataclass"} or name.startswith("__"):
            return torchlib.attribute(self, thing, name, node)
        if thing.open:
            return values(Unknown(thing.open))
        if self.catches(UNSET):
            raise NoValue
        return values(
            Unknown(f"`.{name}` is never set on {thing.cls.node.name}", Reason.UNSET, name)
        )

    def bind_members(self, found: Values, this: Inst, node: ast.AST | None) -> Values:
        out: Values = NOTHING
        for member in found:
            if not isinstance(member, Func):
                out |= protocols.get(self, member, this, node)
            elif is_static(member):
                out |= values(member)
            elif is_property(member):
                out |= self.call_thing(Bound(member, this), Arguments(node), node)
            else:
                out |= values(Bound(member, this.cls if is_classmethod(member) else this))
        return out

    def subscript(self, thing: Thing, index: Values, node: ast.AST | None) -> Values:
        key = const(index)
        if isinstance(thing, Dict):
            found: Values = NOTHING
            for one_key in index:
                found |= thing.get(one_key.value) if isinstance(one_key, Const) else thing.any()
            known = bool(index) and all(isinstance(one_key, Const) for one_key in index)
            if found or (known and not thing.open):
                return found  # nothing: where the key is not there, the script does not go on
            return values(
                Unknown(f"the key {key!r} is never set" if key is not ... else "a key is computed")
            )
        if isinstance(thing, Ext) and thing.name == "builtins.vars" and isinstance(key, str):
            return NOTHING.union(*(self.attribute(t, key, node) for t in thing.attrs["of"]))
        if isinstance(thing, Seq):
            if (
                thing.items is not None
                and isinstance(key, int)
                and -len(thing.items) <= key < len(thing.items)
            ):
                return thing.items[key] | thing.elem if key >= 0 or not thing.elem else thing.any()
            if isinstance(key, int) and 0 <= key < len(thing.head):
                return thing.head[key]
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
                if layers := module_parts.sliced_list(self, thing, node):
                    return layers
                if (first := _first_of(thing, node.slice)) is not None:
                    return values(
                        self.intern(
                            Seq,
                            (id(node), thing, first),
                            lambda: Seq(node, first, NOTHING, "tuple"),
                        )
                    )
                part: Seq = self.intern(
                    Seq, (id(node), thing), lambda: Seq(node, None, NOTHING, thing.kind)
                )
                part.elem = join(part.elem, thing.any())
                return values(part)
            return thing.any() or values(Unknown("the list is empty here"))
        if isinstance(thing, Const) and isinstance(thing.value, (tuple, str)):
            if isinstance(key, int) and -len(thing.value) <= key < len(thing.value):
                return values(Const(thing.value[key]))
            return values(Num())
        if isinstance(thing, Inst):
            getter = thing.cls.find("__getitem__")
            if getter is not None:
                return self.call_values(
                    self.bind_members(getter, thing, node),
                    Arguments(node, [Given(index, None)]),
                    node,
                )
        if isinstance(thing, (Inst, Ext)) and module_parts.is_container(thing):
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
                return module_parts.sliced(self, thing, node)
            if isinstance(key, str):
                return module_parts.part(thing, key) or values(Unknown("a submodule"))
        if isinstance(thing, Ext) and hugging_face_data.is_dataset(thing):
            return hugging_face_data.split(thing, key)
        if isinstance(thing, Tensor) and thing.loss_first:
            if key == "loss":
                key = 0
            elif isinstance(node, ast.Subscript) and _is_beginning(node.slice):
                return values(thing)
        return element(self, thing, key if isinstance(key, int) else None)

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
                old = (
                    []
                    if certain
                    else [
                        e
                        for e in into.entries.get(key, [])
                        if not any(m.expr is e.expr and e.values <= m.values for m in moved)
                    ]
                )
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


def _is_beginning(index: ast.expr) -> bool:
    """``[:2]``, ``[0:2]``"""
    lower = index.lower if isinstance(index, ast.Slice) else index
    return isinstance(index, ast.Slice) and (
        lower is None or isinstance(lower, ast.Constant) and lower.value == 0
    )


def _first_of(thing: Seq, index: ast.Slice) -> tuple[Values, ...] | None:
    """``row[:2]`` of a tuple: the elements; None where they are not known one by one."""
    match index:
        case ast.Slice(None | ast.Constant(0), ast.Constant(int(end)), None) if (
            thing.kind == "tuple" and not thing.names and end >= 0
        ):
            known = thing.exact
            if known is not None or end <= len(thing.head):
                return (known or thing.head)[:end]
    return None


def catches(node: ast.AST, errors: frozenset[str]) -> bool:
    """Whether a handler of this ``try`` names one of these errors ("": it names none)."""
    kinds = [h.type for h in getattr(node, "handlers", ())]
    several = [k.elts if isinstance(k, ast.Tuple) else [k] for k in kinds]
    named = ["" if k is None else getattr(k, "id", None) for ks in several for k in ks]
    return not errors.isdisjoint(named)
