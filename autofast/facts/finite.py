"""Between which bounds the numbers of an expression lie, and whether it is finite, with finite
gradients, whatever finite numbers it is computed of.

Such an expression may be computed where its value is not wanted: times 0, it is 0, and so are its
gradients. Of others (``log(p)``, ``x / n``) 0 times infinity would be NaN.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any, TypeVar

from autofast.facts.aliases import written_to
from autofast.facts.batch.alignment import Alignment
from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.defuse import Definition, taken_by
from autofast.flow.program import Flow
from autofast.model.calls import is_same_code, items_of, keyword_of
from autofast.model.kinds import is_module
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import not_none, of_kind, surely, wordset
from autofast.model.values import Const, Func, Num, Tensor, certainly
from autofast.ops.families import COMBINES, REGROUPING, TRUTHS

T = TypeVar("T")
Bounds = tuple[float, float]
ANY: Bounds = (-math.inf, math.inf)
SHARES = TRUTHS | wordset("softmax sigmoid one_hot any all")
POSITIVE = wordset("relu abs square exp softplus numel size")
# What gives some of the numbers that it is given first, or means of them.
SAME = REGROUPING | wordset("""float long int double half to detach clone item t expand expand_as mean max min
    amax amin gather index_select cpu cuda type_as""")  # fmt: skip
ASKED = TRUTHS | wordset("bool any all")
INFINITE = wordset("inf infinity nan")
KEPT = wordset("float long int double to item detach sum view reshape flatten squeeze unsqueeze")
SMOOTH = wordset("""relu abs square softplus sum tanh logsigmoid log_softmax clamp clip clamp_min
    clamp_max gelu silu elu leaky_relu cos sin neg""")  # fmt: skip
LOOKED_UP = wordset("gather index_select one_hot")  # at places that may not be there
CLASSES = ("cross_entropy", "nll_loss")
LOSSES = frozenset(CLASSES) | wordset("""mse_loss l1_loss smooth_l1_loss huber_loss
    binary_cross_entropy_with_logits""")  # fmt: skip
CLAMPS = wordset("clamp clip clamp_min clamp_max")
ROUNDED = 2.0**-23
DEEP = 25


class Finite:
    """``script.analysis(Finite)``"""

    def __init__(self, script: Script):
        self.script, self.flow = script, script.analysis(Flow)
        self.calls = script.analysis(CallGraph)
        self._known: dict[tuple[object, ...], Any] = {}
        self._depth = 0

    def made(self, name: ast.expr) -> list[ast.expr | None]:
        """What gives a variable its value, at the calls of a function its parameter, too; None for
        what is not written down, or written to later.
        """
        written, found = self.script.analysis(written_to), self.flow.reaching(name)
        gives = ([] if d.node in written else self.calls.gives(d) for d in found)
        return [e for given in gives for e in given or [None]]

    def _each(
        self, made: Iterable[ast.expr | None], no: T, ask: Callable[..., T], *more: object
    ) -> Iterator[T]:
        """The answers of all that gives a variable its value; ``no`` for what does not show."""
        for expr in made:
            place = expr, ask.__name__, *more
            if place not in self._known:
                self._known[place] = no  # also of what is computed of itself
                if expr is not None and self._depth < DEEP:
                    self._depth += 1
                    self._known[place] = ask(expr, *more)
                    self._depth -= 1
            yield self._known[place]

    def bounds(self, expr: ast.expr) -> Bounds:
        """The least and the largest that a number of an expression may be; none of the two for
        what is no number.
        """
        value = self.script.constant(expr)
        if isinstance(value, (int, float)):
            return float(value), float(value)
        match expr:
            case ast.Compare(left=left, comparators=[other]) if is_same_code(left, other):
                return ANY  # what is no number, and nothing else: it would be computed with
            case ast.Compare():
                return 0.0, 1.0
            case ast.Name():
                each = [*self._each(self.made(expr), ANY, self.bounds)]
                return (min(e[0] for e in each), max(e[1] for e in each)) if each else ANY
            case ast.UnaryOp(op=ast.Invert(), operand=inner) if self.is_whole(inner, frozenset()):
                return self.bounds(inner)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                low, high = self.bounds(inner)
                return -high, -low
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return self._of_power(left, right)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                low = min(self.bounds(left)[0], self.bounds(right)[0])
                return (0.0, math.inf) if low >= 0 else ANY
            case ast.BinOp(left=left, op=sign, right=right) if combine := COMBINES.get(type(sign)):
                ends = product(self.bounds(left), self.bounds(right))
                found = [n for n in (combine(a, b) for a, b in ends) if not math.isnan(n)]
                low, high = (min(found), max(found)) if len(found) == 4 else ANY
                # what single precision rounds away: 1 - x for an x of up to 1 - 1e-8
                near = isinstance(sign, ast.Sub) and 0 < low < ROUNDED * abs(self.bounds(left)[0])
                return (0.0 if near else low), high
            case ast.Subscript(value=inner) if self.script.must_be(inner, Tensor):
                return self.bounds(inner)
            case ast.Call():
                return self._of_call(expr)
        return ANY

    def _of_power(self, base: ast.expr, power: ast.expr) -> Bounds:
        value = self.script.constant(power)
        even = isinstance(value, int) and value % 2 == 0
        return (0.0, math.inf) if even or self.bounds(base)[0] >= 0 else ANY

    def _results(self, call: ast.Call) -> list[ast.expr | None]:
        """What a function of the project gives; nothing for others."""
        called = self.script.called(call)
        if not surely(isinstance(t, Func) for t in called):
            return []
        functions = (t.node for t in of_kind(called, Func))
        found: list[ast.expr | None] = []
        for function in functions:
            found += self.calls.results(function) or [None]
        return found

    def _of_call(self, call: ast.Call) -> Bounds:
        if found := [*self._each(self._results(call), ANY, self.bounds)]:
            return min(e[0] for e in found), max(e[1] for e in found)
        name, given = self.script.operation(call)
        short = last_part(name)
        if short == "pow" and len(given) == 2:
            return self._of_power(*given)
        if short in SHARES:
            return 0.0, 1.0
        if short in POSITIVE:
            return 0.0, math.inf
        low, high = self.bounds(given[0]) if given and short in CLAMPS | SAME | {"sum"} else ANY
        if short == "sum":
            return (0.0 if low >= 0 else -math.inf), (0.0 if high <= 0 else math.inf)
        if short in CLAMPS:
            ends = dict(
                zip(("max",) if short == "clamp_max" else ("min", "max"), given[1:], strict=False)
            )
            for end in ("min", "max"):
                if (bound := keyword_of(call, end) or ends.get(end)) is not None:
                    least, most = self.bounds(bound)
                    low, high = (
                        (max(low, least), max(high, least))
                        if end == "min"
                        else (min(low, most), min(high, most))
                    )
        return low, high

    def is_whole(self, expr: ast.expr, kept: frozenset[str] = KEPT) -> bool:
        """Whether it certainly holds whole numbers: truths, and counts of them (where nothing is
        ``kept``: truths alone).
        """
        if kept and self.script.must_be(expr, Tensor):
            if all(t.dtype == "int" for t in of_kind(self.script.values(expr), Tensor)):
                return True
        match expr:
            case ast.Compare():
                return True
            case ast.Name():
                return surely(self._each(self.made(expr), False, self.is_whole, kept))
            case ast.UnaryOp(operand=inner) | ast.Subscript(value=inner):
                return self.is_whole(inner, kept)
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() | ast.Mult(), right=right):
                return self.is_whole(left, kept) and self.is_whole(right, kept)
            case ast.Call():
                name, given = self.script.operation(expr)
                short = last_part(name)
                return short in ASKED or (short in kept and bool(given) and self.is_whole(given[0]))
        return False

    def of(self, expr: ast.expr, but: frozenset[ast.expr] = frozenset()) -> bool:
        """Whether it is finite, with finite gradients; ``but``: what is known to be, or, of
        divisors, never to be 0.
        """
        if expr in but:
            return True
        if certainly(self.script.values(expr), Const, Num):
            parts = of_kind(self.flow.made_of([expr]), ast.Constant)
            return not any(str(p.value).lower().strip("+-") in INFINITE for p in parts)

        def each(*parts: ast.expr) -> bool:
            return all(self.of(p, but) for p in parts)

        match expr:
            case ast.Compare():
                return True
            case ast.Name():
                made, found = self.made(expr), self.flow.reaching(expr)
                known = not_none(made)
                if any(map(self._is_hidden, found)) or not all(
                    self._each(known, False, self.of, but)
                ):
                    return False
                return 0 < len(known) == len(made) or self.script.must_be(expr, Tensor)
            case ast.Attribute():
                return self.script.must_be(expr, Tensor)
            case ast.Call() if surely(is_module(t) for t in self.script.called(expr)):
                return surely(
                    isinstance(t, Tensor) and not t.loss for t in self.script.values(expr)
                )
            case ast.BinOp() | ast.Call() if self._is_narrow(expr):
                return False
            case ast.UnaryOp(operand=inner):
                return each(inner)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return each(left) and self._is_smooth_power(left, right)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                low, high = self.bounds(right)
                return each(left, right) and (right in but or low > 0 or high < 0)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
                return each(left, right)
            case ast.Subscript(value=inner, slice=index):
                plain = (
                    isinstance(p, (ast.Slice, ast.Constant)) or self._is_number(p)
                    for p in items_of(index)
                )
                return all(plain) and self.script.must_be(inner, Tensor) and each(inner)
            case ast.Call() if results := self._results(expr):
                return surely(self._each(results, False, self.of, but))
            case ast.Call():
                name, given = self.script.operation(expr)
                short, tensors = (
                    last_part(name).removesuffix("_"),
                    [e for e in given if self.script.may_be(e, Tensor)],
                )
                if short == "pow" and len(given) == 2:
                    return each(given[0]) and self._is_smooth_power(*given)
                if short in ASKED:  # without gradients
                    return True
                if short in ("log", "sqrt", "rsqrt") and given:
                    return self.bounds(given[0])[0] > 0 and each(given[0])
                if short in LOSSES:  # means of what is left of none would be NaN
                    alone = self.script.constant(keyword_of(expr, "reduction") or expr) == "none"
                    if short in CLASSES:
                        alone = alone and self._has_classes(given)
                        tensors = given[:1]
                    return alone and each(*tensors)
                return short in (SMOOTH | SAME | SHARES) - LOOKED_UP and each(*tensors)
        return False

    def _is_smooth_power(self, base: ast.expr, power: ast.expr) -> bool:
        value = self.script.constant(power)
        return (
            isinstance(value, (int, float))
            and value >= 1
            and (value == int(value) or self.bounds(base)[0] >= 0)
        )

    def _is_hidden(self, made: Definition) -> bool:
        """Whether a variable gets what is written to, or a part of what a function of the project
        gives: no data that comes with the batch, or that a model gives.
        """
        taker, way = taken_by(made.node)
        call = getattr(taker, "value", None) if way and made.value is None else None
        called = () if call is None else self.script.called(call)
        return made.node in self.script.analysis(written_to) or any(
            code_of(t) and not is_module(t) for t in called
        )

    def _has_classes(self, given: list[ast.expr]) -> bool:
        """Whether labels are certainly classes that there are: others end the script."""
        return len(given) > 1 and self.script.analysis(Alignment).is_choice(given[1])

    def _is_narrow(self, expr: ast.expr) -> bool:
        """Whether it may be computed in 16 bits: squares end at 65504, and 1e-8 is 0."""
        return any(t.dtype == "half" for t in of_kind(self.script.values(expr), Tensor))

    def _is_number(self, expr: ast.expr) -> bool:
        return certainly(self.script.values(expr), Const, Num)
