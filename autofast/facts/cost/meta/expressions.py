"""The expressions of the code of a network."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from autofast.facts.cost.meta import functions, library
from autofast.facts.cost.meta.backbones import Backbone
from autofast.facts.cost.meta.calls import Pair
from autofast.facts.cost.meta.layers import Layer
from autofast.facts.cost.meta.objects import (
    Closure,
    Frame,
    Library,
    Method,
    Object,
    Super,
)
from autofast.facts.cost.meta.python import (
    COMPARES,
    SIGNS,
    UNARY,
    is_harmless,
    native,
    too_large,
)
from autofast.facts.cost.meta.tensor import UNKNOWN, Ledger, Meta, broadcast, few
from autofast.facts.cost.work import Unsized
from autofast.model.calls import is_name
from autofast.model.syntax import Def
from autofast.model.values import Cls, Env, Ext, Func, Module, Values

# Turns of a loop, and of a comprehension, in which nothing is made or multiplied, behind which no
# more follow.
IDLE, LISTED = 64, 32


class Expressions:
    """What expressions give; who runs code says what calls do."""

    def __init__(
        self,
        ledger: Ledger,
        concrete: Callable[[Values], Any],
        values: Callable[[ast.AST], Values],
    ):
        self.ledger, self._concrete, self._values = ledger, concrete, values
        self.made = 0  # layers of torch
        self.weights: list[Meta] = []  # parameters that constructors make by hand
        self._depth = 0
        self._asking: set[str] = set()
        self._paused: dict[ast.AST, bool] = {}

    def restart(self, ledger: Ledger) -> None:
        """Count anew, with what has been made so far."""
        ledger.budget, ledger.budget.here = self.ledger.budget, 0
        self.ledger, self._depth = ledger, 0
        for weight in self.weights:
            ledger.use(weight, weight.count, 1)

    def call(self, what: Any, args: list[Any], named: dict[str, Any]) -> Any:
        """What a call gives."""
        raise NotImplementedError

    def function(self, func: Func, args: list[Any], named: dict[str, Any]) -> Any:
        """What a function of the project gives."""
        raise NotImplementedError

    def value(self, expr: ast.expr, frame: Frame) -> Any:
        """What an expression gives; where its parts do not tell, what the reader says of it."""
        self.ledger.budget.spend()
        found = self._value(expr, frame)
        if found is UNKNOWN and isinstance(expr, (ast.Attribute, ast.Subscript, ast.Call)):
            return self._concrete(self._values(expr))
        return found

    def _value(self, expr: ast.expr, frame: Frame) -> Any:
        match expr:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.look_up(name, frame)
            case ast.Attribute(value=owner, attr=attr):
                return self.attribute(self.value(owner, frame), attr)
            case ast.Call():
                return self._called(expr, frame)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(op, self.value(left, frame), self.value(right, frame))
            case ast.UnaryOp(op=op, operand=operand):
                return self._unary(op, self.value(operand, frame))
            case ast.BoolOp(op=op, values=values):
                return self._either(isinstance(op, ast.Or), values, frame)
            case ast.Compare(left=left, ops=ops, comparators=rest):
                return self._compared(left, ops, rest, frame)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self._truth(test, frame) else orelse, frame)
            case ast.Tuple(elts=elts):
                return tuple(self._elements(elts, frame))
            case ast.List(elts=elts):
                return self._elements(elts, frame)
            case ast.Dict(keys=keys, values=values):
                return self._dict(keys, values, frame)
            case ast.Subscript(value=owner, slice=key):
                return self._item(self.value(owner, frame), key, frame)
            case (
                ast.ListComp(elt=elt, generators=heads)
                | ast.GeneratorExp(elt=elt, generators=heads)
            ):
                found: list[Any] = []
                whole = self._comprehend(heads, frame, lambda f: found.append(self.value(elt, f)))
                return found if whole else UNKNOWN
            case ast.DictComp(key=key, value=value, generators=heads):
                made: dict[Any, Any] = {}
                self._comprehend(heads, frame, partial(self._enter, made, key, value))
                return made
            case ast.Lambda():
                return self._made(expr, frame)
            case ast.NamedExpr(target=target, value=value):
                found_here = self.value(value, frame)
                self.assign(target, found_here, frame)
                return found_here
            case ast.JoinedStr(values=values):
                return self._text(values, frame)
            case ast.Set(elts=elts):
                return native(self.ledger, dict.fromkeys, [self._elements(elts, frame)], {})
        return UNKNOWN

    def _enter(self, to: dict[Any, Any], key: ast.expr, value: ast.expr, frame: Frame) -> None:
        native(self.ledger, to.__setitem__, [self.value(key, frame), self.value(value, frame)], {})

    def _made(self, node: Def | ast.Lambda, frame: Frame) -> Closure:
        defaults = [self.value(d, frame) for d in node.args.defaults]
        pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        named = {p.arg: self.value(d, frame) for p, d in pairs if d is not None}
        return Closure(node, frame, defaults, named)

    def _text(self, values: list[ast.expr], frame: Frame) -> Any:
        parts = []
        for part in values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            found = self.value(inner, frame)
            if found is UNKNOWN:
                return UNKNOWN
            parts.append(str(native(self.ledger, str, [found], {})))
        return "".join(parts)

    def look_up(self, name: str, frame: Frame) -> Any:
        scope: Frame | Env | None = frame
        while scope is not None:
            if name in scope.vars:
                found = scope.vars[name]
                if isinstance(scope, Frame):
                    return found
                known = self._concrete(found)
                return self._said_at_the_top(name, scope) if known is UNKNOWN else known
            scope = scope.outer
        return Library(f"builtins.{name}")

    def _said_at_the_top(self, name: str, scope: Env) -> Any:
        """What the only statement of a module that sets a name gives it."""
        if scope.kind != "module" or scope.source is None or name in self._asking:
            return UNKNOWN
        set_ = [
            s.value
            for s in scope.source.tree.body
            if isinstance(s, ast.Assign) and any(is_name(t, name) for t in s.targets)
        ]
        if len(set_) != 1:
            return UNKNOWN
        self._asking.add(name)
        try:
            return self.value(set_[0], Frame(scope))
        finally:
            self._asking.discard(name)

    def attribute(self, this: Any, name: str) -> Any:
        """An attribute of an object."""
        match this:
            case Object():
                return self._of_object(this, name)
            case Layer() | Backbone():
                return library.layer_attribute(this, name)
            case Super():
                return Method(this, name)
            case Pair() if name in ("values", "indices"):
                return getattr(this, name)
            case Meta(dims=dims):
                if name in ("shape", "ndim"):
                    return dims if name == "shape" else len(dims)
                if name in ("T", "mT", "data", "grad", "real", "imag"):
                    return functions.operate(self.ledger, name, [this], {})
                return UNKNOWN if name in ("device", "dtype", "is_cuda") else Method(this, name)
            case Library(name=owner):
                return library.attribute(owner, name)
            case dict() if name in this and not hasattr(this, name):  # EasyDict
                return this[name]
            case Ext(attrs=attrs):  # settings
                return self._concrete(attrs[name]) if name in attrs else UNKNOWN
            case Cls():
                found = this.find(name)
                return self._unbound(this, found, name) if found else UNKNOWN
            case Module(env=env):
                return self._concrete(env.vars[name]) if name in env.vars else UNKNOWN
        known = is_harmless(this, name) or (this is UNKNOWN and name in ("view", "reshape"))
        return Method(this, name) if known else UNKNOWN

    def _of_object(self, this: Object, name: str) -> Any:
        if name in this.attrs:
            return this.attrs[name]
        if name == "__dict__":
            return this.attrs
        kept = this.thing.attrs.get(name) if this.thing is not None else None
        if kept and (known := self._concrete(kept)) is not UNKNOWN:
            return known
        if found := this.cls.find(name):
            return self._member(this, found, name)
        if name == "training":
            return True
        if name == "__class__":
            return this.cls
        if this.base is not None and name in this.base.attrs:
            return this.base.attrs[name]
        return Method(this, name) if library.is_module_method(name) else UNKNOWN

    def _member(self, this: Object, found: Values, name: str) -> Any:
        value = self._concrete(found)
        if isinstance(value, Func) and not isinstance(value.node, ast.Lambda):
            kinds = {n.id for n in value.node.decorator_list if isinstance(n, ast.Name)}
            if "staticmethod" in kinds:
                return value
            if kinds & {"property", "cached_property"}:
                return self.function(value, [this], {})
            return Method(this.cls if "classmethod" in kinds else this, value)
        return value

    def _unbound(self, cls: Cls, found: Values, name: str) -> Any:
        value = self._concrete(found)
        if isinstance(value, Func) and not isinstance(value.node, ast.Lambda):
            kinds = {n.id for n in value.node.decorator_list if isinstance(n, ast.Name)}
            return Method(cls, value) if "classmethod" in kinds else value
        return value

    def _called(self, expr: ast.Call, frame: Frame) -> Any:
        match expr.func:
            case ast.Name(id="super"):
                owner = frame.owner
                this = frame.this
                if not isinstance(this, Object) or owner is None:
                    return UNKNOWN
                return Super(this, owner)
        what = self.value(expr.func, frame)
        args = self._elements(expr.args, frame)
        named: dict[str, Any] = {}
        for keyword in expr.keywords:
            found = self.value(keyword.value, frame)
            if keyword.arg is not None:
                named[keyword.arg] = found
            elif isinstance(found, dict):
                named.update(found)
        if isinstance(what, Library) and library.makes_layer(what.name):
            return library.made(self, what.name, args, named, expr)
        self.ledger.last = None
        found = self.call(what, args, named)
        match expr.args:
            case [ast.Name(id=name), *_] if self._depth == 1 and args[0] is UNKNOWN:
                if isinstance(what, Layer) and self.ledger.last is not None:
                    self.ledger.inputs.setdefault(name, self.ledger.last)
        return found

    def _elements(self, elts: Iterable[ast.expr], frame: Frame) -> list[Any]:
        found: list[Any] = []
        for elt in elts:
            if isinstance(elt, ast.Starred):
                parts = self.items(self.value(elt.value, frame))
                found += parts if parts is not None else [UNKNOWN]
            else:
                found.append(self.value(elt, frame))
        return found

    def _dict(self, keys: list[ast.expr | None], values: list[ast.expr], frame: Frame) -> Any:
        made: dict[Any, Any] = {}
        for key, value in zip(keys, values, strict=True):
            found = self.value(value, frame)
            if key is None:
                made.update(found if isinstance(found, dict) else {})
            else:
                native(self.ledger, made.__setitem__, [self.value(key, frame), found], {})
        return made

    def _comprehend(
        self, heads: list[ast.comprehension], frame: Frame, each: Callable[[Frame], None]
    ) -> bool:
        """Run ``each`` in all turns; false where these are numbers of a table, and no more
        follow.
        """
        head, *rest = heads
        inner = Frame(frame, frame.this, frame.owner)
        items = self.items(self.value(head.iter, frame))
        if items is None:
            self.ledger.unsure("how often a loop turns is not known")
        before = self.done()
        for n, item in enumerate(items or (), 1):
            self.assign(head.target, item, inner)
            if all(self._truth(test, inner) for test in head.ifs):
                if rest:
                    self._comprehend(rest, inner, each)
                else:
                    each(inner)
            if n % LISTED == 0 and self.done() == before:
                return False
        return True

    def done(self) -> tuple[int, float]:
        """What grows where code makes layers, or runs some."""
        work = self.ledger.work
        return self.made, work.convolutions + work.products

    def _item(self, held: Any, key: ast.expr, frame: Frame) -> Any:
        if isinstance(held, Meta):
            return self._part(held, key, frame)
        if isinstance(key, ast.Slice):
            bounds = [
                None if e is None else self.value(e, frame)
                for e in (key.lower, key.upper, key.step)
            ]
            if any(b is UNKNOWN for b in bounds):
                return UNKNOWN
            place: Any = slice(*bounds)
        else:
            place = self.value(key, frame)
        if isinstance(held, (Layer, Object)):
            return library.part(held, place)
        if isinstance(held, Ext) and isinstance(place, str):
            return self.attribute(held, place)
        if isinstance(held, (list, tuple, dict, str, range)) and place is not UNKNOWN:
            return native(self.ledger, operator.getitem, [held, place], {})
        return UNKNOWN

    def _part(self, x: Meta, key: ast.expr, frame: Frame) -> Meta:
        """``x[:, 0]``, ``x[mask]``, ``x[..., :n]``"""
        keys = list(key.elts) if isinstance(key, ast.Tuple) else [key]
        singles = [k for k in keys if not _is_new_axis(k)]
        dims, n, found = list(x.dims), 0, list[int]()
        for k in keys:
            if _is_new_axis(k):
                found.append(1)
                continue
            if isinstance(k, ast.Constant) and k.value is ...:
                rest = len(dims) - n - (len(singles) - 1)
                found += dims[n : n + rest]
                n += rest
                continue
            if n >= len(dims):
                raise Unsized(f"{x.dims} has no more dimensions")
            if isinstance(k, ast.Slice):
                found.append(self._sliced(dims[n], k, frame))
            else:
                place = self.value(k, frame)
                if place is None:  # np.newaxis
                    found.append(1)
                    continue
                if isinstance(place, Meta):
                    is_mask = place.dims == x.dims[: len(place.dims)]
                    found += place.dims[:1] if is_mask else place.dims
                    n += len(place.dims) - 1 if is_mask else 0
                elif isinstance(place, (list, tuple)):
                    found.append(len(place))
            n += 1
        return x.like(*found, *dims[n:])

    def _sliced(self, size: int, key: ast.Slice, frame: Frame) -> int:
        bounds = [
            None if e is None else self.value(e, frame) for e in (key.lower, key.upper, key.step)
        ]
        if not all(b is None or type(b) is int for b in bounds):
            return size
        return len(range(size)[slice(*bounds)])

    def _binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        tensors = [t for t in (left, right) if isinstance(t, Meta)]
        if isinstance(left, (Layer, Object)) and isinstance(op, ast.Add):
            return library.joined(left, right)
        if tensors:
            if isinstance(op, ast.MatMult):
                return functions.operate(self.ledger, "matmul", [left, right], {})
            self.ledger.launch()
            return Meta(
                broadcast(tensors), all(t.whole for t in tensors) and not isinstance(op, ast.Div)
            )
        if left is UNKNOWN or right is UNKNOWN or too_large(op, left, right):
            return UNKNOWN
        return native(self.ledger, SIGNS.get(type(op)), [left, right], {})

    def _unary(self, op: ast.unaryop, value: Any) -> Any:
        if isinstance(value, Meta):
            self.ledger.launch()
            return value
        if value is UNKNOWN:
            return UNKNOWN
        if isinstance(op, ast.Not):
            return not _is_true(value)
        return native(self.ledger, UNARY[type(op)], [value], {})

    def _either(self, first_true: bool, values: list[ast.expr], frame: Frame) -> Any:
        found: Any = UNKNOWN
        for value in values:
            found = self.value(value, frame)
            known = found is not UNKNOWN and not isinstance(found, Meta)
            if known and bool(found) is first_true:
                return found
        return found

    def _compared(
        self, left: ast.expr, ops: list[ast.cmpop], rest: list[ast.expr], frame: Frame
    ) -> Any:
        first = self.value(left, frame)
        for op, expr in zip(ops, rest, strict=True):
            second = self.value(expr, frame)
            if isinstance(op, (ast.Is, ast.IsNot)):
                same = first is second and first is not UNKNOWN
                found: Any = same is isinstance(op, ast.Is)
            elif tensors := [t for t in (first, second) if isinstance(t, Meta)]:
                self.ledger.launch(1, 0)
                return Meta(broadcast(tensors), whole=True)
            elif first is UNKNOWN or second is UNKNOWN:
                return UNKNOWN
            elif isinstance(op, (ast.In, ast.NotIn)) and isinstance(second, Layer):
                found = (first in second.attrs.get("names", ())) is isinstance(op, ast.In)
            else:
                found = native(self.ledger, COMPARES[type(op)], [first, second], {})
            if found is UNKNOWN or not found:
                return found
            first = second
        return True

    def _truth(self, test: ast.expr, frame: Frame) -> bool:
        return _is_true(self.value(test, frame))

    # ----------------------------------------------------------------------------------- targets
    def items(self, value: Any) -> list[Any] | None:
        """What a loop goes over; None where that is not known."""
        if isinstance(value, Meta) and value.dims:
            return [value.like(*value.dims[1:])] * few(value.dims[0])
        if isinstance(value, (Object, Layer)):
            return library.parts_of(value)
        if not isinstance(value, (list, tuple, dict, range, str)):
            return None
        few(len(value))
        return list(value)

    def assign(self, target: ast.expr, found: Any, frame: Frame) -> None:
        match target:
            case ast.Name(id=name):
                self._home(name, frame).vars[name] = found
            case ast.Attribute(value=owner, attr=attr):
                this = self.value(owner, frame)
                if isinstance(this, (Object, Layer, Backbone)):
                    this.attrs[attr] = found
            case ast.Subscript(value=owner, slice=key):
                held, place = self.value(owner, frame), self.value(key, frame)
                if isinstance(held, list) and place is UNKNOWN:
                    self.ledger.unsure("a list is not followed")
                elif isinstance(held, (list, dict)) and place is not UNKNOWN:
                    native(self.ledger, held.__setitem__, [place, found], {})
                elif isinstance(held, Layer) and "parts" in held.attrs:
                    library.set_part(held, place, found)
                elif isinstance(held, Meta):
                    self.ledger.launch()
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                self._unpack(elts, found, frame)

    def _home(self, name: str, frame: Frame) -> Frame:
        """Whose variable it is: of a function around, where that is said by ``nonlocal``."""
        home: Frame | Env | None = frame
        while isinstance(home, Frame) and name in home.shared:
            home = home.outer
        return home if isinstance(home, Frame) else frame

    def _unpack(self, targets: list[ast.expr], found: Any, frame: Frame) -> None:
        parts = self.items(found) if not isinstance(found, str) else None
        stars = [n for n, t in enumerate(targets) if isinstance(t, ast.Starred)]
        if parts is not None and stars:
            n, after = stars[0], len(targets) - stars[0] - 1
            end = len(parts) - after
            parts = [*parts[:n], parts[n:end], *parts[end:]]
        if parts is None or len(parts) != len(targets):
            parts = [UNKNOWN] * len(targets)
        for target, part in zip(targets, parts, strict=True):
            inner = target.value if isinstance(target, ast.Starred) else target
            self.assign(inner, part, frame)


def _is_new_axis(key: ast.expr) -> bool:
    return isinstance(key, ast.Constant) and key.value is None


def _is_true(found: Any) -> bool:
    """What is not known is taken for false."""
    if isinstance(found, (Layer, Object)):
        return library.held_by(found) != []
    return found is not UNKNOWN and not isinstance(found, Meta) and bool(found)
