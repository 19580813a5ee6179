"""Functions and classes: what a definition makes."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from itertools import product
from math import prod

from autofast.flow.scopes import defaults
from autofast.model.calls import is_name
from autofast.model.changes import Watched
from autofast.model.limits import MOST_CALLEES
from autofast.model.names import NAMED_TUPLE, last_part
from autofast.model.several import surely, wordset
from autofast.model.source import nodes_in
from autofast.model.syntax import Def
from autofast.model.values import (
    NOTHING,
    Arguments,
    Bound,
    Cls,
    Const,
    Dict,
    Env,
    Ext,
    Func,
    Given,
    Inst,
    Method,
    Partial,
    Ref,
    Seq,
    Thing,
    Unknown,
    Values,
    any_named,
    any_of,
    is_named,
    of_kind,
    ordered,
    things as values,
    unbound,
)
from autofast.model.values.thing import Row
from autofast.read.interpreter.binding import Binding
from autofast.read.library import model_zoo
from autofast.read.library.containers import field_names
from autofast.read.library.options import enlist
from autofast.read.state.core import TOO_MANY, join

# These make objects as `type` does.
PLAIN_METACLASSES = values(Ref("abc.ABCMeta"), Ref("builtins.type"))
DATACLASSES = wordset("dataclass define attrs frozen mutable s")


class Definitions(Binding):
    """``def``, ``lambda``, ``class``, and what their decorators make of them."""

    def stmt_FunctionDef(self, node: Def, env: Env) -> None:
        decorators = tuple(self.expr(d, env) for d in node.decorator_list)
        home = env.outer if env.kind == "class" and env.outer is not None else env
        func = values(self.function(node, env, home, env.owner, decorators))
        of_property = {t.name for d in decorators for t in d if isinstance(t, Method)}
        name = node.name + next((f".{n}" for n in ("setter", "deleter") if n in of_property), "")
        self.bind(name, self.decorated(func, node, decorators), env)

    stmt_AsyncFunctionDef = stmt_FunctionDef

    def expr_Lambda(self, node: ast.Lambda, env: Env) -> Values:
        return values(self.function(node, env, env))

    def function(
        self,
        node: Def | ast.Lambda,
        env: Env,
        home: Env,
        owner: Cls | None = None,
        decorators: Row = (),
    ) -> Func:
        """What a definition or a lambda makes, with the defaults of its parameters."""
        written = {name: d for name, d in defaults(node).items() if d is not None}
        given = {name: self.expr(default, env) for name, default in written.items()}
        home.captured = True
        made = self.intern(
            Func,
            (node, home, owner),
            lambda: Func(node, home, owner, decorators, Watched(given)),
        )
        for name, found in given.items():
            made.defaults[name] = join(made.defaults.get(name, NOTHING), found)
        return made

    def decorated(
        self,
        found: Values,
        node: Def | ast.ClassDef,
        decorators: Row,
    ) -> Values:
        """A function or class after its decorators of the project; those of libraries leave it as
        it is.
        """
        for decorator, written in reversed(list(zip(decorators, node.decorator_list, strict=True))):
            if enlist(self, written, found):
                continue
            own = frozenset(
                t for t in decorator if isinstance(t, (Func, Bound, Partial, Cls, Inst))
            )
            if surely(self.only_registers(t) for t in own):
                continue
            if own:
                made = self.call_values(own, Arguments(None, [Given(found, None)]), written)
                found = made if len(own) == len(decorator) and made else made | found
            if any_named(decorator, Ref, model_zoo.REGISTERS):
                model_zoo.register(self, node.name, found)
            if any_of(decorator, Unknown) and isinstance(node, ast.FunctionDef):
                found |= values(
                    Unknown(f"`{node.name}` is decorated by something that is not known")
                )
        return found

    def only_registers(self, decorator: Thing) -> bool:
        """Whether a decorator returns what it is given and has been followed often enough: what it
        fills is unknown from then on.
        """
        func = unbound(decorator)
        if not isinstance(func, Func) or not isinstance(func.node, ast.FunctionDef):
            return False
        parameters = func.node.args.args
        returns = [n.value for n in nodes_in(func.node, ast.Return)]
        if not parameters or not all(is_name(r, parameters[-1].arg) for r in returns):
            return False
        held = [t for found in func.env.vars.values() for t in found]
        held += [decorator.this] if isinstance(decorator, Bound) else []
        owners = of_kind(held, Inst)  # the registry
        key = (func.node, *owners)
        self.registered[key] = self.registered.get(key, 0) + 1
        if self.registered[key] <= MOST_CALLEES:
            return False
        around = [func.env.module.vars, func.env.vars, *(t.attrs for t in owners)]
        for thing in (t for names in around for found in names.values() for t in found):
            if isinstance(thing, Dict) and TOO_MANY not in thing.rest:
                thing.widen(TOO_MANY.why)
            elif isinstance(thing, Seq) and TOO_MANY not in thing.elem:
                thing.elem |= {TOO_MANY}
        return True

    def stmt_ClassDef(self, node: ast.ClassDef, env: Env) -> None:
        """One class for each choice of bases, as ``class Data(SETS[name], SAMPLERS[task])`` has
        several.
        """
        given = [ordered(self.expr(e, env)) for e in node.bases]
        decorators = tuple(self.expr(d, env) for d in node.decorator_list)
        is_dataclass = any(
            isinstance(t, Ref) and last_part(t.name) in DATACLASSES
            for d in node.decorator_list
            for t in self.at.get(d.func if isinstance(d, ast.Call) else d, NOTHING)
        )
        has_metaclass = [
            k.arg
            for k in node.keywords
            if self.expr(k.value, env) - PLAIN_METACLASSES and k.arg == "metaclass"
        ]
        choices: Iterable[tuple[Thing, ...]] = product(*filter(None, given))
        if prod(map(len, filter(None, given))) > MOST_CALLEES:
            choices = [(TOO_MANY,)]
        found = NOTHING
        for bases in choices:
            cls = self.define_class(node, bases, env)
            cls.external |= {"dataclass"} if is_dataclass else frozenset()
            cls.external |= frozenset(has_metaclass)
            self.announce(cls, env)
            found |= values(cls)
        self.bind(node.name, self.decorated(found, node, decorators), env)

    def announce(self, cls: Cls, env: Env) -> None:
        """``__init_subclass__`` of its bases, as registries have it."""
        hooks = NOTHING.union(*(base.find("__init_subclass__") or NOTHING for base in cls.bases))
        for hook in ordered(hooks):
            given = {
                k.arg: Given(self.expr(k.value, env), k.value) for k in cls.node.keywords if k.arg
            }
            given.pop("metaclass", None)
            this = Bound(hook, cls) if isinstance(hook, Func) else hook
            self.call_thing(this, Arguments(None, [], given), cls.node.bases[0])

    def define_class(self, node: ast.ClassDef, given: Iterable[Thing], env: Env) -> Cls:
        bases: list[Cls] = []
        external: set[str] = set()
        fields: tuple[str, ...] = ()
        for thing in given:
            if isinstance(thing, Cls):
                bases.append(thing)
                external |= thing.external
            elif isinstance(thing, Ref):
                external.add(thing.name)
            elif isinstance(thing, Unknown):
                external.add("?")
            elif is_named(thing, Ext, "collections.namedtuple"):
                external.add(NAMED_TUPLE)
                fields = field_names(self, thing)
        home = env.outer if env.kind == "class" and env.outer is not None else env
        home.captured = True
        key = (node, env, tuple(bases), frozenset(external))
        cls = self.intern(Cls, key, lambda: Cls(node, home, tuple(bases)))
        cls.external |= external
        inner = Env("class", {}, home, None, owner=cls)
        self.block(node.body, inner)
        if fields:
            cls.members["_fields"] = values(Const(fields))
        for name, found in inner.vars.items():
            cls.members[name] = found | (
                cls.members.get(name, NOTHING) if self.in_loop() else NOTHING
            )
        return cls
