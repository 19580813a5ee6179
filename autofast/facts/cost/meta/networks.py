"""The networks of a script, made again and run: what the reader knows of them is the beginning."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from autofast.facts.cost.bounds import largest_value
from autofast.facts.cost.meta import library
from autofast.facts.cost.meta.backbones import HEADS, Backbone
from autofast.facts.cost.meta.evaluator import Evaluator
from autofast.facts.cost.meta.layers import CONTAINERS, Layer
from autofast.facts.cost.meta.objects import Frame, Library, Method, Object, Partial
from autofast.facts.cost.meta.tensor import UNKNOWN, Ledger
from autofast.facts.cost.work import Unsized, Work
from autofast.flow.callgraph import CallGraph
from autofast.flow.frequency import arms_around
from autofast.flow.program import definitions_at
from autofast.model.kinds import is_module
from autofast.model.names import WRAPPERS, last_part
from autofast.model.script import Script
from autofast.model.several import all_of, are_whole, of_kind
from autofast.model.values import (
    Arg,
    Arguments,
    Bound,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Given,
    Inst,
    Method as LibraryMethod,
    Module,
    Num,
    Partial as PartialThing,
    Ref,
    Seq,
    Setting,
    Thing,
    Unknown,
    Values,
    any_of,
    ordered,
)
from autofast.read.library.containers import NAMESPACES

STEPS = 4  # definitions that an argument is followed through


class Networks:
    """Makes what the reader knows, and runs it; ``ledger`` says what that costs."""

    def __init__(self, script: Script, ledger: Ledger):
        self.script, self.ledger = script, ledger
        self.evaluator = Evaluator(ledger, self.concrete, script.values)
        self._made: dict[int, Any] = {}
        self._known: dict[ast.Name, Any] = {}  # variables outside of the networks

    def restart(self, ledger: Ledger) -> None:
        """Count anew, with the networks as they are."""
        self.ledger = ledger
        self.evaluator.restart(ledger)

    def run(self, thing: Thing, args: list[Any], named: dict[str, Any] | None = None) -> Any:
        """A pass through a network."""
        made = self.made(thing)
        if made is UNKNOWN:
            raise Unsized("its layers are not known")
        return self.evaluator.call(made, args, named or {})

    # ------------------------------------------------------------------ from what the reader knows
    def concrete(self, values: Values) -> Any:
        """What one of these is while options have their defaults: the largest of several numbers;
        :data:`UNKNOWN` where that is not certain.
        """
        things = ordered(values)
        if len(things) == 1:
            return self.made(things[0])
        told = [t for t in things if not isinstance(t, (Unknown, LibraryMethod))]
        if any_of(told, Arg):  # beside what the code makes of it
            told = [t for t in told if type(t) is not Num]
        if len(told) == 1 and not is_module(told[0]):
            return self.made(told[0])
        if not told or not all_of(told, Const, Setting, Arg):
            return UNKNOWN
        told = (
            of_kind(told, Setting) or told
        )  # what a file says, in the place of what the code does
        found = [x for t in told if (x := self.made(t)) is not None]  # which is set later
        if found and are_whole(found):
            return max(found)
        alike = all(x == found[0] for x in found)
        return UNKNOWN if not alike else found[0] if found else None

    def made(self, thing: Thing) -> Any:
        """What a thing is, made once."""
        match thing:
            case Const(value=value) | Setting(value=value):
                return value
            case Arg(default=default):
                return self.concrete(default)
            case Ext() if thing.name in NAMESPACES:
                return thing
            case Ref(name=name):
                return Library(name)
            case Func() | Cls() | Module():
                return thing
            case Bound(func=func, this=this):
                return Method(self.made(this), func)
            case LibraryMethod(this=this, name=name):
                return Method(self.made(this), name)
        if id(thing) not in self._made:
            self._made[id(thing)] = UNKNOWN  # while it is made
            try:
                self._made[id(thing)] = self._new(thing)
            except Unsized as why:
                self._made[id(thing)] = why
        found = self._made[id(thing)]
        if isinstance(found, Unsized):
            raise found
        return found

    def _new(self, thing: Thing) -> Any:
        match thing:
            case Inst():
                return self._instance(thing)
            case Ext():
                return self._external(thing)
            case Seq(kind=kind) if thing.exact is not None and kind in ("list", "tuple"):
                parts = [self.concrete(v) for v in thing.exact]
                return tuple(parts) if kind == "tuple" else parts
            case Dict() if not thing.rest and (thing.entries or not thing.open):
                return {k: self.concrete(thing.get(k)) for k in thing.entries}
            case PartialThing(func=func, args=args):
                return Partial(self.concrete(func), *self._arguments(args))
        return UNKNOWN

    def _instance(self, thing: Inst) -> Object:
        """An object of the project: a module is made anew, of any other its attributes are asked
        for.
        """
        made = Object(thing.cls, thing=thing)
        if not is_module(thing) or thing.args is None:
            return made
        self._made[id(thing)] = made
        args, named = self._arguments(thing.args)
        spent, self.ledger.work = self.ledger.work, Work()  # it is made before all steps
        ev = self.evaluator
        try:
            ev.initialise(made, thing.cls.find("__init__"), thing.cls, args, named)
        finally:
            self.ledger.work = spent
        self._set_later(made, thing)
        return made

    def _set_later(self, made: Object, thing: Inst) -> None:
        """Layers that other code puts in the place of those of the constructor."""
        for name, values in thing.attrs.items():
            things = ordered(values)
            old = made.attrs.get(name)
            if len(things) != 1 or not isinstance(things[0], Ext) or not isinstance(old, Layer):
                continue
            if old.node is not None and things[0].node is not old.node:
                made.attrs[name] = self.made(things[0])

    def _external(self, thing: Ext) -> Any:
        args, named = self._arguments(thing.args)
        if thing.name in WRAPPERS:
            return args[0] if args else named.get("module", UNKNOWN)
        if not thing.args.known and last_part(thing.name) in CONTAINERS:
            made = self._worked_out(thing.node) if isinstance(thing.node, ast.Call) else UNKNOWN
            if not isinstance(made, Layer):
                raise Unsized("its layers are not known")
            return made
        if library.makes_layer(thing.name):
            return library.made(self.evaluator, thing.name, args, named, thing.node)
        if is_module(thing):
            name = thing.name
            if name.endswith("*") and isinstance(chosen := self._chosen(thing), str):
                name = f"{name[:-1]}{chosen}"
            found = library.call(self.evaluator, name, args, named)
            if isinstance(found, Backbone) and not thing.attrs.keys() <= {*HEADS, "features"}:
                raise Unsized("its layers are not known")
            for name, values in thing.attrs.items() if hasattr(found, "attrs") else ():
                found.attrs[name] = self.concrete(values)
            return found
        return UNKNOWN

    def _arguments(self, args: Arguments) -> tuple[list[Any], dict[str, Any]]:
        found = [self._argument(g) for g in args.positional]
        return found, {name: self._argument(g) for name, g in args.named.items()}

    def given(self, given: Given) -> Any:
        """An argument: as the reader knows it, or the largest number that its expression gives."""
        found = self.concrete(given.values)
        if found is UNKNOWN and given.expr is not None:
            most = largest_value(self.script, given.expr)
            return UNKNOWN if most is None else most
        return found

    # --------------------------------------------------------------------- outside of the networks
    def _argument(self, given: Given) -> Any:
        """An argument of a constructor: the same, or as its expression is worked out."""
        found = self.concrete(given.values)
        if found is UNKNOWN and given.expr is not None:
            found = self._worked_out(given.expr)
            found = found if _is_plain(found) else UNKNOWN
        return self.given(given) if found is UNKNOWN else found

    def _worked_out(self, expr: ast.expr, steps: int = STEPS) -> Any:
        """What an expression of the script gives, with what its variables are given, without
        networks.
        """
        names = [n for n in ast.walk(expr) if isinstance(n, ast.Name)]
        names = [n for n in names if definitions_at(self.script, n)]
        frame = Frame(None, vars={n.id: self._variable(n, steps) for n in names})
        here, before = self.ledger, replace(self.ledger)
        here.work = Work()
        try:
            found = self.evaluator.value(expr, frame)
        except Unsized:
            found = UNKNOWN
        here.work, here.guessed, here.is_partial = before.work, before.guessed, before.is_partial
        return found

    def _variable(self, name: ast.Name, steps: int) -> Any:
        values = self.script.values(name)
        if name not in self._known and not any(map(is_module, values)):
            self._known[name] = UNKNOWN  # while it is followed
            known = self.concrete(values)
            if known is UNKNOWN and steps:
                known = self._of_definitions(name, steps - 1)
                known = known if _is_plain(known) else UNKNOWN
            self._known[name] = known
        return self._known.get(name, UNKNOWN)

    def _runs(self, node: ast.AST, steps: int) -> bool:
        tests = [(f.test, arm) for f, arm in arms_around(node, None)]
        known = [(self._worked_out(t, steps), arm) for t, arm in tests] if steps else []
        return all((x is not UNKNOWN and bool(x)) is arm for x, arm in known)

    def _of_definitions(self, name: ast.Name, steps: int) -> Any:
        """What the last definition of a variable gives it that a default run comes to; a condition
        that is not known is taken for false.
        """
        made = [d for d in definitions_at(self.script, name) if self._runs(d.node, steps)]
        graph = self.script.analysis(CallGraph)
        given = [(d, e) for d in made for e in graph.gives(d)]
        if not given or (len(given) > 1 and given[0][0].is_parameter):
            return UNKNOWN
        definition, expr = given[-1]
        if expr is not None:
            return self._worked_out(expr, steps)
        match definition.statement:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                parts = self._worked_out(value, steps)
                if isinstance(parts, (tuple, list)) and len(parts) == len(targets):
                    places = [n for n, t in enumerate(targets) if t is definition.node]
                    return parts[places[0]] if places else UNKNOWN
        return UNKNOWN

    def _chosen(self, thing: Ext) -> Any:
        """The name by which ``models.__dict__[args.arch](...)`` chooses a network."""
        match thing.node:
            case (
                ast.Call(func=ast.Subscript(slice=key))
                | ast.Call(
                    func=ast.Call(args=[_, key])  # getattr(models, args.arch)
                )
            ):
                return self.concrete(self.script.values(key))
        return UNKNOWN


def _is_plain(found: Any) -> bool:
    """Numbers, texts, classes and functions of the project, and rows of these."""
    if isinstance(found, (tuple, list)):
        return bool(found) and all(map(_is_plain, found))
    return found is None or isinstance(found, (int, float, str, Cls, Func))
