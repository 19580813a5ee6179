"""Whether a loss is a mean or a sum over the samples of a batch, which decides what averaged gradients mean.

DistributedDataParallel averages gradients over processes. For a mean over equal parts that is the gradient of the mean over all; for a sum
it is too small by the number of processes. A loss that is neither - a quotient of sums, a root of a mean, a sum with a part that does not
depend on the samples, anything that compares the samples of a batch with each other - has no such factor, and is refused.

The loss is followed backwards from ``backward()`` through variables, functions of the project and models.
"""

from __future__ import annotations

import ast

from autofast.facts.batch.kinds import EACH, FREE, Kind, combined, each, one_of, unknown
from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow
from autofast.model.script import Backward, Script
from autofast.model.source import at, function_of, parent_of
from autofast.model.tensors import tensors_in
from autofast.model.values import (
    Bound,
    Const,
    Dict,
    Func,
    Num,
    Seq,
    Tensor,
    Values,
    const,
    one,
)
from autofast.rule import Refusal
from autofast.techniques.ddp.loss_calls import Env, LossCalls, is_plain


class _Circular(Exception):
    """A value that depends on nothing but itself, as far as it has been followed."""


class Loss(LossCalls):
    """Follows the losses of a script. Results are kept by place and by what the parameters are."""

    def __init__(self, script: Script):
        self.script = script
        self.flow = script.analysis(Flow)
        self.calls = script.analysis(CallGraph)
        self._depth = 0
        self._checked: dict[int, bool] = {}
        # Definitions (with an env) that are being looked at.
        self._assumed: dict[tuple[Definition, int], Kind | None] = {}
        # Those of them whose value depends on itself.
        self._asked: set[tuple[Definition, int]] = set()

    def reduction(self, backward: Backward) -> str:
        """``mean`` or ``sum``; raises :class:`Refusal`."""
        try:
            kind = self.kind(backward.expr, None, {})
        except _Circular:
            raise unknown(backward.expr) from None
        if kind is Kind.MEAN:
            return "mean"
        if kind is Kind.SUM:
            return "sum"
        raise Refusal(
            f"the loss on {at(backward.node)} is {kind.value}: whether its gradient is averaged or added up is not known"
        )

    def is_count(self, expr: ast.expr) -> bool:
        """Whether a number depends on how many samples a batch has."""
        try:
            return self._counts(expr, None, {})
        except Refusal:
            return True

    # ------------------------------------------------------------------------------------------------ expressions
    def kind(self, expr: ast.expr, scope: ast.AST | None, env: Env) -> Kind:
        """What ``expr`` is; ``env`` says it of the parameters of the function ``scope``."""
        self._depth += 1
        if self._depth > 60:
            raise unknown(expr)
        try:
            return self._kind(expr, scope, env)
        finally:
            self._depth -= 1

    def _kind(self, expr: ast.expr, scope: ast.AST | None, env: Env) -> Kind:
        values = self.script.values(expr)
        if values and all(is_plain(t) for t in values):
            return self._number(expr, scope, env)
        match expr:
            case ast.Constant():
                return Kind.NUMBER
            case ast.Name():
                return self._name(expr, scope, env)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert() | ast.Not()):
                return self.kind(expr.operand, scope, env)
            case ast.BinOp():
                return combined(
                    expr.op,
                    self.kind(expr.left, scope, env),
                    self.kind(expr.right, scope, env),
                    expr,
                )
            case ast.Compare():
                kinds = [self.kind(e, scope, env) for e in (expr.left, *expr.comparators)]
                return each(kinds, expr)
            case ast.IfExp():
                return one_of((self.kind(e, scope, env) for e in (expr.body, expr.orelse)), expr)
            case ast.Call():
                return self._call(expr, scope, env)
            case ast.Subscript():
                return self._subscript(expr, scope, env)
            case ast.Attribute():
                return self._attribute(expr, values)
            case ast.Tuple() | ast.List():
                kinds = [self.kind(e, scope, env) for e in expr.elts]
                return kinds[0] if len(set(kinds)) == 1 else each(kinds, expr)
            case ast.NamedExpr():
                return self.kind(expr.value, scope, env)
        raise unknown(expr)

    def _number(self, expr: ast.expr, scope: ast.AST | None, env: Env) -> Kind:
        """A Python number: of the batch's size, or the same everywhere."""
        for node in ast.walk(expr):
            if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
                for thing in self.script.values(node):
                    if isinstance(thing, Num) and thing.synced is not None:
                        raise unknown(
                            expr,
                            f"`{ast.unparse(expr)}` on {at(expr)} is read from a tensor: each process has another",
                        )
        if self._counts(expr, scope, env):
            return Kind.SIZE
        return Kind.NUMBER

    def _counts(self, expr: ast.expr, scope: ast.AST | None, env: Env, depth: int = 0) -> bool:
        """``x.size(0)``, ``len(x)``, ``x.shape[0]``: the size of the share."""
        if depth > 6:
            return False
        match expr:
            case ast.Name():
                found = [
                    self._counts_defined(d, scope, env, depth + 1) for d in self.flow.reaching(expr)
                ]
                if any(found) and not all(found):
                    raise unknown(expr)
                return any(found)
            case ast.Call(func=ast.Attribute(attr=attr, value=inner)) if attr in (
                "size",
                "numel",
                "nelement",
            ):
                given = [const(self.script.values(a)) for a in expr.args]
                return self._is_batch(inner) and (
                    attr != "size" or not given or given[0] in (0, ...)
                )
            case ast.Call(func=ast.Name(id="len"), args=[inner]):
                return self._is_batch(inner)
            case ast.Subscript(value=ast.Attribute(attr="shape", value=inner)):
                return self._is_batch(inner) and const(self.script.values(expr.slice)) in (0, ...)
            case ast.BinOp(op=ast.Mult()):
                return self._counts(expr.left, scope, env, depth + 1) != self._counts(
                    expr.right, scope, env, depth + 1
                )
            case ast.BinOp() | ast.UnaryOp():
                if any(
                    self._counts(e, scope, env, depth + 1)
                    for e in ast.iter_child_nodes(expr)
                    if isinstance(e, ast.expr)
                ):
                    raise unknown(expr)
        return False

    def _counts_defined(self, d: Definition, scope: ast.AST | None, env: Env, depth: int) -> bool:
        if d.is_parameter:
            return env.get(d.name) is Kind.SIZE
        if d.is_augmented and isinstance(d.node, ast.Name):
            return self._counts(d.node, scope, env, depth)
        return d.value is not None and self._counts(d.value, scope, env, depth)

    def _is_batch(self, expr: ast.expr) -> bool:
        """A tensor that depends on the batch, not the loader or its dataset."""
        return any(isinstance(t, Tensor) and not t.param for t in self.script.values(expr))

    def _name(self, expr: ast.Name, scope: ast.AST | None, env: Env) -> Kind:
        definitions = self.flow.reaching(expr)
        if not definitions:
            return self._by_values(expr)
        found = [self._defined(d, expr, scope, env) for d in sorted(definitions, key=_place)]
        kinds = [kind for kind in found if kind is not None]
        if not kinds:
            raise _Circular
        return one_of(kinds, expr)

    def _defined(
        self, d: Definition, load: ast.Name, scope: ast.AST | None, env: Env
    ) -> Kind | None:
        """What a definition gives its variable; None while that only depends on itself (``loss = loss + more`` in a loop)."""
        key = d, id(env)
        if key in self._assumed:
            self._asked.add(key)
            return self._assumed[key]
        kind: Kind | None = None
        try:
            for _ in range(4):
                self._assumed[key] = kind
                try:
                    found = self._value(d, load, scope, env)
                except _Circular:
                    return kind
                wider = found if kind is None else one_of([kind, found], load)
                if wider is kind or key not in self._asked:
                    return wider
                kind = wider
        finally:
            del self._assumed[key]
            self._asked.discard(key)
        raise unknown(load)

    def _value(self, d: Definition, load: ast.Name, scope: ast.AST | None, env: Env) -> Kind:
        if d.is_parameter and function_of(d.node) is scope and d.name in env:
            return env[d.name]
        if not isinstance(d.node, ast.Name):
            return self._by_values(load)
        if isinstance(parent := parent_of(d.node), ast.AugAssign):
            return combined(
                parent.op,
                self._name(d.node, scope, env),
                self.kind(parent.value, scope, env),
                parent,
            )
        if d.value is not None:
            return self.kind(d.value, scope, env)
        if (kind := self._part(load, d.node, scope, env)) is not None:
            return kind
        raise unknown(load)

    def _part(
        self, load: ast.Name, store: ast.Name, scope: ast.AST | None, env: Env
    ) -> Kind | None:
        """A name in a tuple, or the target of a loop."""
        whole = _whole_target(store)
        outer = parent_of(whole)
        if isinstance(outer, ast.Assign):
            values = self.script.values(load)
            if values and all(is_plain(t) for t in values):
                return Kind.NUMBER
            if isinstance(outer.value, ast.Call) and (place := _index(whole, store)) is not None:
                callee = one(self.script.values(outer.value.func))
                if isinstance(callee, (Func, Bound)):
                    return self._function(outer.value, code_of(callee)[0], scope, env, place)
            return self.kind(outer.value, scope, env)
        return (
            self._by_values(load)
            if isinstance(outer, (ast.For, ast.AsyncFor, ast.comprehension))
            else None
        )

    def _by_values(self, expr: ast.expr) -> Kind:
        """What the reader knows of a value that comes from elsewhere."""
        found = self.script.values(expr)
        tensors = tensors_in(found)
        if not tensors or any(not isinstance(t, (Tensor, Seq, Dict, Const)) for t in found):
            raise unknown(expr)
        if all(t.param for t in tensors):
            return Kind.FREE
        if all(t.batch and not t.models and not t.loss for t in tensors):
            return Kind.ROWS
        raise unknown(expr)

    # ------------------------------------------------------------------------------------------------ parts of values
    def _subscript(self, expr: ast.Subscript, scope: ast.AST | None, env: Env) -> Kind:
        base = self.kind(expr.value, scope, env)
        found = self.script.values(expr.value)
        if any(isinstance(t, (Seq, Dict)) for t in found) and not any(
            isinstance(t, Tensor) and t.rank != "?" for t in found
        ):
            return base
        parts = expr.slice.elts if isinstance(expr.slice, ast.Tuple) else [expr.slice]
        whole = (
            isinstance(parts[0], ast.Slice)
            and parts[0].lower is parts[0].upper is parts[0].step is None
        )
        whole |= isinstance(parts[0], ast.Constant) and parts[0].value in (None, Ellipsis)
        fixed = all(
            isinstance(p, ast.Slice)
            or isinstance(const(self.script.values(p)), (int, type(None)))
            or isinstance(p, ast.Constant)
            for p in parts
        )
        if base in FREE or (base in EACH and whole and fixed):
            return base
        raise unknown(
            expr,
            f"`{ast.unparse(expr)}` on {at(expr)} picks some of the samples: how many may differ between processes",
        )

    def _attribute(self, expr: ast.Attribute, values: Values) -> Kind:
        if expr.attr in ("data", "T", "mT"):
            inner = self.kind(expr.value, None, {})
            return Kind.TURNED if expr.attr != "data" and inner in EACH else inner
        return self._by_values(expr)


def _place(d: Definition) -> tuple[str, int, int]:
    return d.name, getattr(d.node, "lineno", 0), getattr(d.node, "col_offset", 0)


def _whole_target(store: ast.AST) -> ast.AST:
    """The tuple of targets that a name stands in."""
    while isinstance(outer := parent_of(store), (ast.Tuple, ast.List, ast.Starred)):
        store = outer
    return store


def _index(target: ast.AST, store: ast.Name) -> int | None:
    """The place of a name in ``loss, hits = ...``."""
    if not isinstance(target, (ast.Tuple, ast.List)) or any(
        isinstance(e, ast.Starred) for e in target.elts
    ):
        return None
    return next((n for n, e in enumerate(target.elts) if e is store), None)
