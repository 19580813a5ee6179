"""How small the whole numbers of an expression are at the least: lengths, counts, places."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autofast.facts.aliases import written_to
from autofast.facts.makers import Items, Way
from autofast.flow.program import Flow
from autofast.model.calls import keyword_of
from autofast.model.names import LEGACY_TENSORS, last_part
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.syntax import SEQUENCES
from autofast.model.values import Const, Seq, certainly

# Never negative, also as a part of what is given; what is as small as its first argument.
COUNTS = wordset("len size numel nelement dim argmax argmin nonzero argsort zeros")
PLACES: dict[object, frozenset[str]] = {0: wordset("enumerate"), 1: wordset("max min topk sort")}
KEEP = LEGACY_TENSORS | wordset(
    """to cuda cpu detach long int short item tolist numpy view reshape flatten squeeze unsqueeze
    expand repeat contiguous clone copy astype type max min sum tensor as_tensor from_numpy array
    asarray stack cat sorted list tuple reversed clamp"""
)
DEEP = 40


class Smallest:
    """``script.analysis(Smallest)``"""

    def __init__(self, script: Script):
        self.script, self.flow = script, script.analysis(Flow)
        self.makers = script.analysis(Items)
        self._open: set[tuple[ast.expr, Way]] = set()
        self._assumed: set[tuple[ast.expr, Way]] = set()
        self._depth = 0

    def of(self, expr: ast.expr | None, way: Way = ()) -> float | None:
        """A number that nothing in the expression (in its part at the end of the way) is below;
        None where nothing shows one.
        """
        if expr is None or self._depth > DEEP:
            return None
        if not isinstance(expr, ast.Name):
            self._depth += 1
            found = self._of(expr, way)
            self._depth -= 1
            return found
        key = expr, way
        if key in self._open:  # in terms of itself: not negative, if what it begins with is not
            self._assumed.add(key)
            return 0
        self._open.add(key)
        made = self.flow.reaching(expr)
        filled = [e for d in made for e in self.makers.filled(d.node)]
        if filled and not way:
            found = _least(self.of(e) for e in filled)
        elif not filled and any(d.node in self.script.analysis(written_to) for d in made):
            found = None
        else:
            found = self._of(expr, way)
        self._open.discard(key)
        if key in self._assumed:
            self._assumed.discard(key)
            return None if found is None or found < 0 else 0
        return found

    def _of(self, expr: ast.expr, way: Way) -> float | None:
        found = self.script.values(expr)
        if not way and certainly(found, Const):
            numbers = [t.value for t in of_kind(found, Const)]
            return min(numbers) if all(type(n) is int for n in numbers) else None
        match expr:
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return 0
            case ast.Attribute(attr="shape" | "ndim"):
                return 0
            case ast.Subscript(value=inner, slice=index):
                return self.of(inner, (self.script.constant(index), *way))
            case ast.List(elts=elts) | ast.Tuple(elts=elts) if not way:
                return _least(self.of(e) for e in elts)
            case ast.ListComp(elt=elt) | ast.GeneratorExp(elt=elt) if not way:
                return self.of(elt)
            case ast.BinOp(left=left, op=op, right=right) if not self.script.may_be(expr, Seq):
                return self._combined(op, left, right)
        back = self.makers.back(expr, way)
        if back is None:
            return self._called(expr, way) if isinstance(expr, ast.Call) else None
        return _least(self.of(*place) for place in back)

    def _combined(self, op: ast.operator, left: ast.expr, right: ast.expr) -> float | None:
        first, other = self.of(left), self.of(right)
        if first is None:
            return None
        match op:
            case ast.Sub() if type(known := self.script.constant(right)) is int:
                return first - known
            case ast.Add() if other is not None:
                return first + other
            case ast.Mult() if other is not None and min(first, other) >= 0:
                return first * other
            case ast.FloorDiv() if other is not None and other >= 1:
                return min(first, 0)
        return None

    def _called(self, call: ast.Call, way: Way) -> float | None:
        function, given = self.script.operation(call)
        name = last_part(function)
        if name in COUNTS or (way and name in PLACES.get(way[-1], ())):
            return 0
        low = keyword_of(call, "min") or keyword_of(call, "low")
        if name in ("clamp", "clip", "clamp_min"):
            bounds = call.args[given[0] in call.args :]
            return self.of(low or next(iter(bounds), None))
        if name in ("arange", "range", "randrange") and len(call.args) > 2:
            return None  # it may count down
        if name in ("randint", "randrange", "integers", "arange", "range"):
            several = low or (len(given) > 1 and not isinstance(given[1], SEQUENCES))
            return self.of(low or given[0]) if several else 0
        if name == "full" and len(given) > 1:
            return self.of(given[1])
        if name not in KEEP or not given:
            return None
        others = given[1:] if name in ("min", "max", "sum") else []
        found = _least([self.of(given[0], way), *(self.of(e) for e in others)])
        return found if found is None or name != "sum" else min(found, 0)


def _least(found: Iterable[float | None]) -> float | None:
    known = list(found)
    return None if None in known or not known else min(n for n in known if n is not None)
