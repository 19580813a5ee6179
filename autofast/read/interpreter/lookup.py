"""What a name, an attribute and a subscript give."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Iterator
from typing import Any

from autofast.flow.scopes import own_nodes
from autofast.model import names
from autofast.model.calls import is_name, items_of
from autofast.model.contents import dict_items
from autofast.model.events import CallFrame, TryFrame
from autofast.model.kinds import (
    is_autograd_function,
    is_classmethod,
    is_module,
    is_property,
    is_static,
)
from autofast.model.names import canonical
from autofast.model.several import first_such
from autofast.model.syntax import is_stored
from autofast.model.tensors import SHAPE
from autofast.model.values import (
    NOTHING,
    OBJECTS,
    Arguments,
    Bound,
    Cls,
    Const,
    Dict,
    Entry,
    Env,
    Ext,
    Func,
    Inst,
    Located,
    Method,
    Module,
    Num,
    Reason,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    Where,
    any_of,
    certainly,
    const,
    is_named,
    ordered,
    things as values,
)
from autofast.model.values.thing import Row
from autofast.read.library import (
    hugging_face_data,
    module_parts,
    options,
    pretrained,
    protocols,
    torch_library as torchlib,
)
from autofast.read.library.iteration import element
from autofast.read.state.core import Core, NoValue, join

BUILTINS = frozenset(dir(builtins))
DICT_METHODS = frozenset(dir(dict))
UNBOUND = frozenset({"UnboundLocalError", "NameError", "Exception", "BaseException", ""})
UNSET = frozenset({"AttributeError"})  # who names it expects it; a handler for anything may not


PI = ("math.pi", "numpy.pi", "torch.pi")


class Lookup(Core):
    """Reads of variables, attributes and elements."""

    def choices(self, found: Values) -> Iterator[Thing]:
        """The things one by one; where there are several, what happens to each may not happen."""
        if len(found) < 2:
            yield from found
            return
        with self.maybe():
            yield from ordered(found)

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
        """Whether ``name`` is a variable of the running function alone, which has not come to where
        it gets a value.
        """
        call = first_such(reversed(self.stack), CallFrame)
        if call is None or env.kind != "function" or env.module.opaque or name in env.nonlocals:
            return False
        return any(is_name(n, name) and is_stored(n) for n in own_nodes(call.func.node))

    def catches(self, errors: frozenset[str]) -> bool:
        """Whether this place stands in a ``try`` of the running function that goes on where one of
        these errors is raised.
        """
        for frame in reversed(self.stack):
            if isinstance(frame, CallFrame):
                return False
            if isinstance(frame, TryFrame) and frame.part == "body":
                return catches(frame.node, errors)
        return False

    def variable(self, scope: Env, name: str, found: Values) -> Values:
        """The value of a name of ``scope``; where anything may have been set, constants and what
        functions rebind are not known.
        """
        mine = scope.exposed is None or name in scope.exposed
        if scope.opaque and mine and (any_of(found, Const) or name in scope.rebound):
            return found | values(Unknown(scope.opaque))
        return found

    def attribute(self, thing: Thing, name: str, node: Where) -> Values:
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
            if thing.source.path.name == "__init__.py":
                sub = self.project.find(name, 1, thing.source)
            else:
                sub = None
            if sub:
                return values(self.run_module(sub, False))
            return values(Unknown(f"`{name}` is not found in {thing.source.rel}"))
        if isinstance(thing, Ref):
            return self.library_attribute(thing, name)
        if isinstance(thing, Inst) and name == "__class__":
            return values(thing.cls)
        if isinstance(thing, OBJECTS) and name == "__dict__":
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
                applied = Unknown(why, Reason.FUNCTION, thing.node.name)
                self.functions[applied] = thing
                return values(applied)
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
            # One that gives its items as attributes, too; `.register_forward_hook` is none of the
            # modules that a dict holds under keys that are not known.
            if name in thing.entries or not any(map(is_module, found)):
                return found
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
        return values(Const(math.pi) if full in PI else Ref(full))

    def of_instance(self, thing: Inst, name: str, node: Where) -> Values:
        """``thing.name`` of an object of the project."""
        if not name.startswith("__") and protocols.own_getter(self, thing):
            return self.call_method_of(thing, "__getattribute__", [values(Const(name))], node)
        found = thing.attrs.get(name)
        held = dict_items(thing)
        same = held is not None and thing in thing.attrs.get("__dict__", NOTHING)
        if held is not None and name in held.entries:
            if same:  # its items are its attributes
                found = held.get(name)
            elif found and thing.cls.find("__setattr__"):  # setattr() may have set either
                found |= held.get(name)
        if not found and (member := thing.cls.find(name)):
            found = self.bind_members(member, thing, node)
        if not found and held is not None and name in DICT_METHODS:
            return values(Method(thing, name))
        if not found and held is not None and same:
            found = self.subscript(held, values(Const(name)), node)
        if found:
            data = thing.open and not any_of(found, Func, Bound)
            return found | (values(Unknown(thing.open)) if data else NOTHING)
        if thing.cls.find("__getattr__") and not name.startswith("__"):
            return self.call_method_of(thing, "__getattr__", [values(Const(name))], node)
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

    def bind_members(self, found: Values, this: Inst, node: Where) -> Values:
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

    def subscript(self, thing: Thing, index: Values, node: Where) -> Values:
        key = const(index)
        if isinstance(thing, Inst) and thing.cls.find("__getitem__") is None:
            thing = dict_items(thing) or thing
        if isinstance(thing, Dict):
            found: Values = NOTHING
            for one_key in index:
                found |= thing.get(one_key.value) if isinstance(one_key, Const) else thing.any()
            known = certainly(index, Const)
            if found or (known and not thing.open):
                return found  # nothing: where the key is not there, the script does not go on
            return values(
                Unknown(f"the key {key!r} is never set" if key is not ... else "a key is computed")
            )
        if is_named(thing, Ref, "sys.argv"):
            if isinstance(getattr(node, "slice", None), ast.Slice):
                return values(thing)
            return values(Located(by=Const(None)))
        if is_named(thing, Ref, "sys.modules") and isinstance(key, str):
            named = values(Const(key))
            mine = (m for m in self.modules.values() if m.env.vars.get("__name__") == named)
            return values(*mine) or values(Ref(key))
        if is_named(thing, Ext, "builtins.vars") and isinstance(key, str):
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
                some = _part_of(thing, node.slice)
                if some is not None and thing.kind == "tuple":
                    return self.tuple_of(node, some, thing)
                items = None if some is None else ()
                part = self.intern(
                    Seq, (node, thing), lambda: Seq(node, items, NOTHING, thing.kind)
                )
                if some is None:
                    part.items, part.elem = None, join(part.elem, part.any(), thing.any())
                else:
                    self.fill(part, some)
                return values(part)
            return thing.any() or values(Unknown("the list is empty here"))
        if isinstance(thing, Inst) and thing.cls.find("__getitem__") is not None:
            return self.call_method_of(thing, "__getitem__", [index], node)
        if module_parts.is_container(thing):
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
                return module_parts.sliced(self, thing, node)
            if isinstance(key, str):
                return module_parts.part(thing, key) or values(Unknown("a submodule"))
        if isinstance(thing, Ext) and hugging_face_data.is_dataset(thing):
            return hugging_face_data.split(thing, key)
        if thing == Num(pattern=SHAPE) and isinstance(getattr(node, "slice", None), ast.Slice):
            return values(thing)
        if isinstance(thing, Tensor) and thing.loss_first:
            if key == "loss":
                key = 0
            elif isinstance(node, ast.Subscript) and _is_beginning(node.slice):
                return values(thing)
        return element(self, thing, key if isinstance(key, int) else None)


def _is_beginning(index: ast.expr) -> bool:
    """``[:2]``, ``[0:2]``"""
    lower = index.lower if isinstance(index, ast.Slice) else index
    return isinstance(index, ast.Slice) and (
        lower is None or isinstance(lower, ast.Constant) and lower.value == 0
    )


def _part_of(thing: Seq, index: ast.Slice) -> Row | None:
    """``row[:2]``, ``batch[2:]``: the elements; None where they are not known one by one."""
    bounds = [_bound_of(part) for part in (index.lower, index.upper, index.step)]
    if thing.kind not in ("tuple", "list") or thing.names or ... in bounds or bounds[2] == 0:
        return None
    lower, upper, step = bounds
    if (known := thing.exact) is not None:
        return known[lower:upper:step]
    end = upper if isinstance(upper, int) and not lower and step is None else -1
    return thing.head[:end] if 0 <= end <= len(thing.head) else None


def _bound_of(part: ast.expr | None) -> Any:
    """A whole number that is written out, or None where nothing is; ``...`` for anything else."""
    match part:
        case None:
            return None
        case ast.Constant(int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(int(number))):
            return -number
    return ...


def catches(node: ast.AST, errors: frozenset[str]) -> bool:
    """Whether a handler of this ``try`` names one of these errors ("": it names none)."""
    kinds = [h.type for h in getattr(node, "handlers", ())]
    several = [items_of(k) for k in kinds]
    named = ["" if k is None else getattr(k, "id", None) for ks in several for k in ks]
    return not errors.isdisjoint(named)
