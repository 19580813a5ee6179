"""The kinds of expressions: how what one process has goes together to what all have, through
arithmetic, tensors and calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from autofast.facts.host_io import IMAGES, effect_of
from autofast.flow.callgraph import Callee, code_of
from autofast.model.calls import arguments_of, is_method, method_name, receiver_of
from autofast.model.kinds import is_module
from autofast.model.several import is_numeric
from autofast.model.source import at
from autofast.model.syntax import has_star
from autofast.model.values import (
    Bound,
    Cls,
    Const,
    Ext,
    Func,
    Inst,
    Method,
    Partial,
    Ref,
    Tensor,
    Thing,
    Unknown,
    any_of,
    of_kind,
)
from autofast.rule import Refusal
from autofast.techniques.ddp.uniformity.calls import ADDERS, CLASSES
from autofast.techniques.ddp.uniformity.kinds import (
    BATCH,
    EQUAL,
    LOADER,
    NEAR,
    NONE,
    ZERO,
    Called,
    Kind,
    joined,
    of,
    other,
)
from autofast.techniques.ddp.uniformity.parts import Parts


class Values(Parts):
    """What expressions are; statements and functions are :class:`.walk.Walk`'s."""

    def ev(self, node: ast.expr | None) -> Kind:
        if node is None:
            return EQUAL
        self.step()
        found = self._ev(node)
        self.kinds[node] = found
        self.met(node, found)
        return found

    def _ev(self, node: ast.expr) -> Kind:
        if (loaders := self._loader(node)) is not None and not isinstance(node, ast.Call):
            return loaders
        match node:
            case ast.Constant(value=value):
                is_number = is_numeric(value)
                return NONE if value is None else ZERO if is_number and value == 0 else EQUAL
            case ast.Name():
                return self.lookup(node)
            case ast.BinOp():
                return self._binary(node, self.ev(node.left), self.ev(node.right), node.op)
            case ast.UnaryOp():
                kind = self.ev(node.operand)
                if isinstance(node.op, ast.Not):
                    return self._truth(node.operand, kind)
                return replace(kind, zero=False) if kind.name != "equal" else kind
            case ast.Compare():
                return self._compare(node)
            case ast.BoolOp():
                return self._bool(node)
            case ast.IfExp():
                return self._if(node)
            case ast.Tuple() | ast.List():
                return self._display(node)
            case ast.Set():
                return joined(EQUAL, *(self.ev(e).whole for e in node.elts))
            case ast.Dict():
                self._made_anew(node)
                kinds = [self.ev(value).whole for value in node.values]
                for key in node.keys:
                    self.ev(key)
                return joined(*kinds) if kinds else EQUAL
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Call():
                return self._call(node)
            case ast.JoinedStr():
                return self._text(of_kind(node.values, ast.FormattedValue))
            case ast.FormattedValue():
                return self._formatted(node.value)
            case ast.NamedExpr():
                kind = self.ev(node.value)
                self.store(node.target, kind)
                return kind
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
            case ast.Starred():
                return self.ev(node.value)
            case ast.Slice():
                return joined(*(self.ev(p) for p in (node.lower, node.upper, node.step)))
            case ast.Lambda():
                return EQUAL
            case ast.Await() | ast.Yield() | ast.YieldFrom():
                return self.ev(node.value) if node.value is not None else EQUAL
        return EQUAL

    def _loader(self, node: ast.expr) -> Kind | None:
        """A loader whose batches are shared out."""
        found = self.things(node)
        loaders = [t for t in of_kind(found, Ext) if self.training.shares(t)]
        if not loaders:
            return None
        rest = [t for t in found if t not in loaders and t != Const(None)]
        return LOADER if not rest else other("it is one loader or another")

    def _display(self, node: ast.Tuple | ast.List) -> Kind:
        self._made_anew(node)
        kinds = [self.ev(e) for e in node.elts]
        if has_star(node.elts):
            if all(k.same for k in kinds):
                return joined(EQUAL, *(k.whole for k in kinds))
            return joined(*(k.whole for k in kinds))
        return of(*kinds)

    def _made_anew(self, node: ast.expr) -> None:
        """An empty container again: what those made here before hold is known where they were
        put.
        """
        for thing in self.things(node):
            if isinstance(thing, CLASSES) and thing.node is node:
                self.state.pop(("c", id(thing), ""), None)

    def _call(self, node: ast.Call) -> Kind:
        if (out := self.outside(node)) is not None:
            return out
        found = self.things(node.func)
        if (loader := self._loader(node)) is not None and any_of(found, Ref):
            for part in arguments_of(node):
                self.ev(part)
            return loader
        effect = effect_of(self.script, node)
        if effect is not None and effect.kind in ("guard", "writer"):
            return self._effect(node, effect.name)
        receiver = EQUAL
        if is_method(node):
            receiver = self._inside(node.func.value, self.ev(node.func.value))
        if (
            is_method(node)
            and receiver.whole.name == "equal"
            and node.func.attr == "format"
            and isinstance(
                next((t.value for t in self.things(node.func.value) if isinstance(t, Const)), None),
                str,
            )
        ):
            return self._text(arguments_of(node))
        args = [self.ev(a) for a in node.args]
        named = {k.arg or f"**{n}": self.ev(k.value) for n, k in enumerate(node.keywords)}
        call = Called(node, args, named, receiver)
        if effect is not None and effect.kind in ("read", "ask", "file", "download"):
            self.files(node, effect.kind)
        results = [self._call_thing(t, call) for t in _different(found)] or [self._unresolved(call)]
        return joined(*results) if len(results) > 1 else results[0]

    def _effect(self, node: ast.Call, name: str) -> Kind:
        images = IMAGES.fullmatch(name) is not None
        if (of := receiver_of(node)) is not None:
            self.ev(of)
        if name.endswith(".summary") and name.startswith("torch"):
            self.draws(node)
        text = name.startswith(("builtins.print", "logging.", "tqdm", "sys.", "pprint."))
        for part in arguments_of(node):
            kind = self._formatted(part) if text else self.ev(part)
            if not text or not kind.same:
                self.settle(part, images)
        self.files(node, "guard")
        return NONE

    def _call_thing(self, thing: Thing, call: Called) -> Kind:
        match thing:
            case Bound(func=func, this=this) if (
                func.name == "forward" and is_module(this) and self._is_model(this)
            ):
                return self._forward(call)
            case Func() | Bound():
                return self.call_function(code_of(thing)[0], call.node, call.given)
            case Cls():
                return self._make(thing, call)
            case Inst():
                return self._call_instance(thing, call)
            case Partial():
                return self._opaque(call.kinds, "what a partial function makes of a batch")
            case Ref():
                return self._function(thing.name, call)
            case Method(this=this, name=name):
                return self._method(this, name, call)
            case Ext():
                return self._module(thing, call)
        return self._unresolved(call)

    def _unresolved(self, call: Called) -> Kind:
        name, whole = method_name(call.node), call.receiver.whole
        if whole.name in ("batch", "mean", "sum"):
            return self._tensor(name, whole, call)
        if name in ADDERS:
            self._put(call)
        return self._opaque([call.receiver, *call.kinds], "what is made of a batch here")

    def _opaque(self, kinds: Iterable[Kind], why: str) -> Kind:
        kinds = [k.whole for k in kinds]
        if any(k.name in ("batch", "other", "mean", "sum", "per") for k in kinds):
            return next((k for k in kinds if k.name == "other"), other(why))
        return NEAR

    def _is_model(self, thing: Thing) -> bool:
        return self.training.trains(thing) or any(m.thing is thing for m in self.script.models)

    def _call_instance(self, thing: Inst, call: Called) -> Kind:
        if is_module(thing) and self.training.trains(thing):
            return self._forward(call)
        for callee in code_of(thing)[:1]:
            return self.call_function(callee, call.node, call.given)
        return self._opaque(call.kinds, f"what {thing.cls.node.name} objects make of a batch")

    def _forward(self, call: Called) -> Kind:
        """A model gives a row for each sample; where a loss function is part of it, it is not known
        what it gives.
        """
        node, wholes = call.node, call.wholes
        if node in self.passes:
            self.happens(node)
        if any(t.loss for t in of_kind(self.things(node), Tensor)) and any(
            not k.same for k in wholes
        ):
            return other("the model computes the loss itself")
        if any(k.name in ("mean", "sum", "other") for k in wholes):
            return next(
                (k for k in wholes if k.name == "other"),
                other("the model is given a part of a number"),
            )
        if any(k.name == "batch" for k in wholes):
            if all(k.axis == 0 for k in wholes if k.name == "batch"):
                return BATCH
            return other("the batch is not the first dimension")
        return NEAR

    def _make(self, cls: Cls, call: Called) -> Kind:
        for thing in self.things(call.node):
            if isinstance(thing, Inst) and thing.cls is cls:
                for func in cls.find("__init__") or ():
                    if isinstance(func, Func):
                        self.call_function(Callee(func, thing), call.node, call.given)
        if cls.find("__init__") or all(k.same or k.name == "loader" for k in call.wholes):
            return EQUAL
        return self._opaque(call.kinds, "an object that holds a batch")

    def _put(self, call: Called) -> None:
        """``losses.append(x)``: the list holds it from now on, whatever it is called."""
        node, args = call.node, call.args
        if not args:
            return
        self.changes(node)
        if not is_method(node):  # append = losses.append
            if any(not a.same for a in args):
                raise Refusal(
                    f"what {at(node)} keeps is not known: call the method of the list itself"
                )
            return
        args = [self.kept(e, k) for e, k in zip(node.args, args, strict=False)]
        what = joined(*(a.whole for a in args)) if args else EQUAL
        if node.func.attr in ("insert", "setdefault"):
            what = args[-1].whole
        elif node.func.attr in ("extend", "update") and node.args:
            what = self.element(node.args[0], args[0]).whole
        self.hold(node.func.value, what)

    def hold(self, container: ast.expr, what: Kind) -> None:
        raise NotImplementedError


def _different(found: list[Thing]) -> list[Thing]:
    """Without further tensors whose same method is called."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for thing in found:
        if isinstance(thing, Method) and isinstance(thing.this, (Tensor, Unknown)):
            key = type(thing.this).__name__, thing.name
        else:
            key = None
        if key is None or key not in seen:
            kept.append(thing)
        if key is not None:
            seen.add(key)
    return kept
