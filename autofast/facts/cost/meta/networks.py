"""The networks of a script, made again and run: what the reader knows of them is the beginning."""

from __future__ import annotations

import ast
from typing import Any

from autofast.facts.cost.bounds import largest_value
from autofast.facts.cost.meta import library
from autofast.facts.cost.meta.backbones import HEADS, Backbone
from autofast.facts.cost.meta.evaluator import Evaluator
from autofast.facts.cost.meta.layers import Layer
from autofast.facts.cost.meta.objects import Library, Method, Object, Partial
from autofast.facts.cost.meta.tensor import UNKNOWN, Ledger
from autofast.facts.cost.work import Unsized, Work
from autofast.model.kinds import is_module
from autofast.model.names import WRAPPERS
from autofast.model.script import Script
from autofast.model.several import are_whole
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
    Partial as PartialThing,
    Ref,
    Seq,
    Setting,
    Thing,
    Values,
    ordered,
    said,
)


class Networks:
    """Makes what the reader knows, and runs it; ``ledger`` says what that costs."""

    def __init__(self, script: Script, ledger: Ledger):
        self.script, self.ledger = script, ledger
        self.evaluator = Evaluator(ledger, self.concrete, script.values)
        self._made: dict[int, Any] = {}

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
        found = [said(t) for t in things]
        return max(found) if found and are_whole(found) else UNKNOWN

    def made(self, thing: Thing) -> Any:
        """What a thing is, made once."""
        match thing:
            case Const() | Setting() | Arg():
                found = said(thing)
                return UNKNOWN if found is ... else found
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
            case Dict() if not thing.open and not thing.rest:
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
        found = [self.given(g) for g in args.positional]
        return found, {name: self.given(g) for name, g in args.named.items()}

    def given(self, given: Given) -> Any:
        """An argument: as the reader knows it, or the largest number that its expression gives."""
        found = self.concrete(given.values)
        if found is UNKNOWN and given.expr is not None:
            most = largest_value(self.script, given.expr)
            return UNKNOWN if most is None else most
        return found

    def _chosen(self, thing: Ext) -> Any:
        """The name by which ``models.__dict__[args.arch](...)`` chooses a network."""
        match thing.node:
            case ast.Call(func=ast.Subscript(slice=key)) | ast.Call(
                func=ast.Call(args=[_, key])  # getattr(models, args.arch)
            ):
                return self.concrete(self.script.values(key))
        return UNKNOWN
