"""Runs the code of networks: Python's statements and expressions, with what the reader knows of the
project in the place of what stands outside of them.

Nothing of the project is executed: its syntax trees are followed, step by step, with a limit.
What is not known is :data:`UNKNOWN`, and stays so through whatever is done with it; a condition
that is not known is taken for false.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from autofast.facts.cost.meta import functions, library
from autofast.facts.cost.meta.backbones import Backbone
from autofast.facts.cost.meta.expressions import IDLE, Expressions
from autofast.facts.cost.meta.layers import Layer, run
from autofast.facts.cost.meta.objects import (
    Closure,
    Frame,
    Library,
    Method,
    Object,
    Partial,
    Super,
)
from autofast.facts.cost.meta.python import (
    WIDE,
    is_harmless,
    native,
)
from autofast.facts.cost.meta.tensor import UNKNOWN, Meta
from autofast.facts.cost.work import Unsized
from autofast.model.syntax import PAUSES, Def
from autofast.model.values import Cls, Func, Values

DEEP = 60  # calls inside each other


@dataclass(frozen=True)
class Jump:
    """``return`` with its value; else ``break``, or (``again``) ``continue``."""

    value: Any = None
    leaves: bool = True
    again: bool = False

    @property
    def outside(self) -> Jump | None:
        """What is left of it outside of the loop."""
        return self if self.leaves else None


class Evaluator(Expressions):
    """Runs code; :attr:`ledger` has what that costs."""

    # ------------------------------------------------------------------------------------- calls
    def call(self, what: Any, args: list[Any], named: dict[str, Any]) -> Any:
        """What a call gives."""
        self.ledger.budget.spend()
        match what:
            case Layer():
                return self.layer(what, args, named)
            case Object():
                return self._object(what, args, named)
            case Method(this=this, func=str(name)):
                return self._method(this, name, args, named)
            case Method(this=this, func=Closure() as func):
                return self._closure(func, [this, *args], named)
            case Method(this=this, func=Func() as func):
                return self.function(func, [this, *args], named)
            case Func():
                return self.function(what, args, named)
            case Closure():
                return self._closure(what, args, named)
            case Cls():
                return self.construct(what, args, named)
            case Library(name=name):
                return library.call(self, name, args, named)
            case Partial():
                return self.call(what.func, [*what.args, *args], {**what.named, **named})
            case Backbone():
                return what.run(self.ledger, args)
        if what is UNKNOWN and any(a is UNKNOWN or isinstance(a, Meta) for a in args):
            self.ledger.unsure("a call is not followed")
        return UNKNOWN

    def layer(self, layer: Layer, args: list[Any], named: dict[str, Any]) -> Any:
        if layer.kind in ("Sequential", "ModuleList"):
            (value,) = args or (UNKNOWN,)
            for part in layer.attrs["parts"]:
                value = self.call(part, [value], {})
            return value
        return run(layer, self.ledger, args, named)

    def _object(self, this: Object, args: list[Any], named: dict[str, Any]) -> Any:
        """A pass through a module, or the call of another object."""
        for name in ("forward", "__call__"):
            if name in this.attrs:
                return self.call(this.attrs[name], args, named)
            found = this.cls.find(name)
            if found:
                return self.call(self._member(this, found, name), args, named)
        if this.parts is not None:
            value = args[0] if args else UNKNOWN
            for part in this.parts:
                value = self.call(part, [value], {})
            return value
        if this.base is not None:
            return run(this.base, self.ledger, args, named)
        self.ledger.unsure("a call is not followed")
        return UNKNOWN

    def construct(self, cls: Cls, args: list[Any], named: dict[str, Any]) -> Object:
        """A new object of a class of the project."""
        made = Object(cls)
        self.initialise(made, cls.find("__init__"), cls, args, named)
        return made

    def initialise(
        self, made: Object, init: Values | None, cls: Cls, args: list[Any], named: dict[str, Any]
    ) -> None:
        """Run a constructor, or set what a dataclass or a container of torch is given."""
        func = self._concrete(init) if init else None
        if isinstance(func, Func):
            self.function(func, [made, *args], named)
            return
        fields = library.fields_of(cls)
        made.attrs.update({n: self._default(cls, n) for n in fields})
        made.attrs.update(zip(fields, args, strict=False))
        made.attrs.update({n: v for n, v in named.items() if n in fields})
        library.initialise(self, made, args, named)

    def _default(self, cls: Cls, name: str) -> Any:
        found = cls.find(name)
        return self._concrete(found) if found else UNKNOWN

    def function(self, func: Func, args: list[Any], named: dict[str, Any]) -> Any:
        """A function of the project."""
        this = args[0] if args and func.owner is not None else None
        frame = Frame(func.env, this, func.owner)
        defaults = {n: self._concrete(v) for n, v in func.defaults.items()}
        quiet = any(n in library.QUIET for n in self._decorators(func.node, frame))
        with self._without_gradient(quiet):
            return self._run(func.node, frame, args, named, defaults)

    def _closure(self, func: Closure, args: list[Any], named: dict[str, Any]) -> Any:
        frame = Frame(func.frame, func.frame.this, func.frame.owner)
        places = [*func.node.args.posonlyargs, *func.node.args.args]
        given = places[len(places) - len(func.defaults) :]
        defaults = dict(zip((p.arg for p in given), func.defaults, strict=True))
        return self._run(func.node, frame, args, named, defaults | func.named)

    def _decorators(self, node: Def | ast.Lambda, frame: Frame) -> Iterator[str]:
        for expr in getattr(node, "decorator_list", ()):
            found = self.value(expr.func if isinstance(expr, ast.Call) else expr, frame)
            yield found.name if isinstance(found, Library) else ""

    @contextmanager
    def _without_gradient(self, quiet: bool) -> Iterator[None]:
        before = self.ledger.grad
        self.ledger.grad = before and not quiet
        try:
            yield
        finally:
            self.ledger.grad = before

    def _run(
        self,
        node: Def | ast.Lambda,
        frame: Frame,
        args: list[Any],
        named: dict[str, Any],
        defaults: dict[str, Any],
    ) -> Any:
        self._depth += 1
        if self._depth > DEEP:
            self._depth -= 1
            raise Unsized("it is too deep")
        try:
            self._bind(node.args, frame, args, dict(named), defaults)
            if isinstance(node, ast.Lambda):
                return self.value(node.body, frame)
            if self._pauses(node):
                return UNKNOWN
            jump = self.block(node.body, frame)
        finally:
            self._depth -= 1
        return None if jump is None else jump.value

    def _pauses(self, node: Def) -> bool:
        """Whether it is a generator, or a coroutine."""
        if node not in self._paused:
            self._paused[node] = any(isinstance(n, PAUSES) for n in ast.walk(node))
        return self._paused[node]

    def _bind(
        self,
        to: ast.arguments,
        frame: Frame,
        args: list[Any],
        named: dict[str, Any],
        defaults: dict[str, Any],
    ) -> None:
        places = [p.arg for p in (*to.posonlyargs, *to.args)]
        frame.vars.update(zip(places, args, strict=False))
        for name in (*places[len(args) :], *(p.arg for p in to.kwonlyargs)):
            frame.vars[name] = named.pop(name) if name in named else defaults.get(name, UNKNOWN)
        if to.vararg is not None:
            frame.vars[to.vararg.arg] = tuple(args[len(places) :])
        if to.kwarg is not None:
            frame.vars[to.kwarg.arg] = named

    def _method(self, this: Any, name: str, args: list[Any], named: dict[str, Any]) -> Any:
        if isinstance(this, Super):
            return self._super(this, name, args, named)
        if isinstance(this, (Object, Layer, Backbone)):
            return library.module_method(self, this, name, args, named)
        if this is UNKNOWN:
            return functions.operate(self.ledger, name, [this, *args], named)
        if isinstance(this, Meta):
            if name == "item" or name == "tolist":
                return UNKNOWN
            if name in ("size", "dim", "numel", "nelement", "ndimension"):
                return _asked(this, name, args)
            return functions.operate(self.ledger, name, [this, *args], named)
        if is_harmless(this, name):
            wide = isinstance(this, str) and name == "format" and WIDE.search(this)
            return UNKNOWN if wide else native(self.ledger, getattr(this, name), args, named)
        return UNKNOWN

    def _super(self, this: Super, name: str, args: list[Any], named: dict[str, Any]) -> Any:
        found = this.this.cls.find(name, this.after)
        if found:
            return self.call(self._member(this.this, found, name), args, named)
        if name == "__init__":
            library.initialise(self, this.this, args, named)
        elif name == "forward" and this.this.base is not None:
            return run(this.this.base, self.ledger, args, named)
        elif name == "forward" and this.this.parts is not None:
            parts = Object(this.this.cls, parts=this.this.parts)
            return self.layer(library.sequential(parts.parts or []), args, named)
        else:
            return library.module_method(self, this.this, name, args, named)
        return None

    # -------------------------------------------------------------------------------- statements
    def block(self, body: Iterable[ast.stmt], frame: Frame) -> Jump | None:
        """Run statements; what ends them early, where something does."""
        for stmt in body:
            self.ledger.budget.spend()
            if (jump := self._statement(stmt, frame)) is not None:
                return jump
        return None

    def _statement(self, stmt: ast.stmt, frame: Frame) -> Jump | None:
        match stmt:
            case ast.Expr(value=value):
                self.value(value, frame)
            case ast.Assign(targets=targets, value=value):
                found = self.value(value, frame)
                for target in targets:
                    self.assign(target, found, frame)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(target, self.value(value, frame), frame)
            case ast.AugAssign(target=target, op=op, value=value):
                old = self.value(target, frame)
                self.assign(target, self._binary(op, old, self.value(value, frame)), frame)
            case ast.Return(value=value):
                return Jump(None if value is None else self.value(value, frame))
            case ast.If(test=test, body=body, orelse=orelse):
                return self.block(body if self._truth(test, frame) else orelse, frame)
            case ast.For(target=target, iter=over, body=body, orelse=orelse):
                return self._loop(target, over, body, orelse, frame)
            case ast.While(test=test, body=body):
                while self._truth(test, frame):
                    jump = self.block(body, frame)
                    if jump is not None and not jump.again:
                        return jump.outside
            case ast.With(items=items, body=body):
                contexts = [self.value(item.context_expr, frame) for item in items]
                with self._without_gradient(any(c == library.NO_GRADIENT for c in contexts)):
                    return self.block(body, frame)
            case ast.Try(body=body, orelse=orelse, finalbody=last):
                return self.block([*body, *orelse, *last], frame)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                frame.vars[stmt.name] = self._made(stmt, frame)
            case ast.Raise():
                raise Unsized("it raises an error")
            case ast.Nonlocal(names=names):
                frame.shared.update(names)
            case ast.Global():
                self.ledger.unsure("a variable of a module is set")
            case ast.Break() | ast.Continue():
                return Jump(leaves=False, again=isinstance(stmt, ast.Continue))
            case ast.Match() | ast.ClassDef() | ast.Delete():
                self.ledger.unsure("a statement is not followed")
        return None

    def _loop(
        self,
        target: ast.expr,
        over: ast.expr,
        body: list[ast.stmt],
        orelse: list[ast.stmt],
        frame: Frame,
    ) -> Jump | None:
        items = self.items(self.value(over, frame))
        if items is None:
            self.ledger.unsure("how often a loop turns is not known")
            items = []
        before, launched = self.done(), self.ledger.work.kernels
        for n, item in enumerate(items, 1):
            self.assign(target, item, frame)
            jump = self.block(body, frame)
            if jump is not None and not jump.again:
                return jump.outside
            if n % IDLE == 0:
                if self.done() == before:
                    if self.ledger.work.kernels > launched:  # in a pass, not in a constructor
                        self.ledger.unsure("a long loop is not followed")
                    break  # numbers of a table
                before, launched = self.done(), self.ledger.work.kernels
        return self.block(orelse, frame)


def _asked(x: Meta, name: str, args: list[Any]) -> Any:
    if name == "size":
        if not args:
            return x.dims
        known = type(args[0]) is int and -len(x.dims) <= args[0] < len(x.dims)
        return x.dims[args[0]] if known else UNKNOWN
    return x.count if name in ("numel", "nelement") else len(x.dims)
