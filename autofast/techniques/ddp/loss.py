"""Whether a loss is a mean or a sum over the samples of a batch, which decides what averaged gradients mean.

DistributedDataParallel averages gradients over processes. For a mean over equal parts that is the gradient of the mean over all; for a sum
it is too small by the number of processes. A loss that is neither - a quotient of sums, a root of a mean, a sum with a part that does not
depend on the samples, anything that compares the samples of a batch with each other - has no such factor, and is refused.

The loss is followed backwards from ``backward()`` through variables, functions of the project and models.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import reduce

from autofast.flow.callgraph import Callee, CallGraph, code_of
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow
from autofast.flow.scopes import own_nodes, parameters
from autofast.model.kinds import is_loss, is_module
from autofast.model.names import FUNCTIONAL_LOSSES
from autofast.model.script import Backward, Script
from autofast.model.source import function_of, parent_of
from autofast.model.values import (
    Arg,
    Bound,
    Const,
    Dict,
    Ext,
    Func,
    Given,
    Inst,
    Method,
    Num,
    Ref,
    Seq,
    Tensor,
    Thing,
    Values,
    const,
    one,
)
from autofast.rule import Refusal, at
from autofast.techniques.ddp.samples import ELEMENTWISE, REDUCTIONS, TURNS, check_forward, first_dim

FUNCTIONAL = "torch.nn.functional."
SHAPES = frozenset(
    "view reshape flatten squeeze unsqueeze view_as contiguous detach clone to float double half long int bool cuda cpu type type_as "
    "expand expand_as unflatten narrow chunk split repeat_interleave requires_grad_ data".split()
)
RANDOM = frozenset(
    {
        "randn",
        "rand",
        "randint",
        "normal",
        "bernoulli",
        "randn_like",
        "rand_like",
        "randint_like",
        "poisson",
    }
)
CONSTANT = frozenset(
    {
        "zeros",
        "ones",
        "full",
        "empty",
        "zeros_like",
        "ones_like",
        "full_like",
        "arange",
        "linspace",
        "tensor",
        "as_tensor",
        "eye",
    }
)
# Their mean is one over the weights of the targets.
WEIGHTED = frozenset({"cross_entropy", "nll_loss"})
PLAIN_NUMBERS = frozenset(
    f"builtins.{n}" for n in ("float", "int", "abs", "max", "min", "round", "pow")
)


class Kind(Enum):
    """What a value is in terms of the samples of a batch."""

    NUMBER = "a number that is the same in every process"
    COUNT = "the number of samples in a batch"
    SAME = "a value that only depends on parameters"
    SAMPLES = "values of each sample, the first dimension being the batch"
    TURNED = "values of each sample, the place of the batch's dimension being unknown"
    MEAN = "a mean over the batch"
    SUM = "a sum over the batch"


EACH = (Kind.SAMPLES, Kind.TURNED)
FLAT = (Kind.NUMBER, Kind.SAME)
Env = Mapping[str, Kind]


class _Circular(Exception):
    """A value that depends on nothing but itself, as far as it has been followed."""


class Loss:
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
            raise self.unknown(backward.expr) from None
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
            raise self.unknown(expr)
        try:
            return self._kind(expr, scope, env)
        finally:
            self._depth -= 1

    def unknown(self, expr: ast.AST, why: str = "") -> Refusal:
        text = ast.unparse(expr)
        text = text if len(text) <= 40 else text[:37] + "..."
        return Refusal(
            why
            or f"whether `{text}` on {at(expr)} is a mean over the samples of the batch is not known"
        )

    def _kind(self, expr: ast.expr, scope: ast.AST | None, env: Env) -> Kind:
        values = self.script.values(expr)
        if values and all(_is_plain(t) for t in values):
            return self._number(expr, scope, env)
        match expr:
            case ast.Constant():
                return Kind.NUMBER
            case ast.Name():
                return self._name(expr, scope, env)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert() | ast.Not()):
                return self.kind(expr.operand, scope, env)
            case ast.BinOp():
                return self._arithmetic(
                    expr,
                    expr.op,
                    self.kind(expr.left, scope, env),
                    self.kind(expr.right, scope, env),
                )
            case ast.Compare():
                kinds = [self.kind(e, scope, env) for e in (expr.left, *expr.comparators)]
                return self._each(expr, kinds)
            case ast.IfExp():
                return self._join(
                    expr, [self.kind(expr.body, scope, env), self.kind(expr.orelse, scope, env)]
                )
            case ast.Call():
                return self._call(expr, scope, env)
            case ast.Subscript():
                return self._subscript(expr, scope, env)
            case ast.Attribute():
                return self._attribute(expr, values)
            case ast.Tuple() | ast.List():
                kinds = [self.kind(e, scope, env) for e in expr.elts]
                return kinds[0] if len(set(kinds)) == 1 else self._each(expr, kinds)
            case ast.NamedExpr():
                return self.kind(expr.value, scope, env)
        raise self.unknown(expr)

    def _number(self, expr: ast.expr, scope: ast.AST | None, env: Env) -> Kind:
        """A Python number: of the batch's size, or the same everywhere."""
        for node in ast.walk(expr):
            if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
                for thing in self.script.values(node):
                    if isinstance(thing, Num) and thing.synced is not None:
                        raise self.unknown(
                            expr,
                            f"`{ast.unparse(expr)}` on {at(expr)} is read from a tensor: each process has another",
                        )
        if self._counts(expr, scope, env):
            return Kind.COUNT
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
                    raise self.unknown(expr)
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
                    raise self.unknown(expr)
        return False

    def _counts_defined(self, d: Definition, scope: ast.AST | None, env: Env, depth: int) -> bool:
        if d.is_parameter:
            return env.get(d.name) is Kind.COUNT
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
        return self._join(expr, kinds)

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
                wider = found if kind is None else self._join(load, [kind, found])
                if wider is kind or key not in self._asked:
                    return wider
                kind = wider
        finally:
            del self._assumed[key]
            self._asked.discard(key)
        raise self.unknown(load)

    def _value(self, d: Definition, load: ast.Name, scope: ast.AST | None, env: Env) -> Kind:
        if d.is_parameter and function_of(d.node) is scope and d.name in env:
            return env[d.name]
        if not isinstance(d.node, ast.Name):
            return self._by_values(load)
        if isinstance(parent := parent_of(d.node), ast.AugAssign):
            return self._arithmetic(
                parent,
                parent.op,
                self._name(d.node, scope, env),
                self.kind(parent.value, scope, env),
            )
        if d.value is not None:
            return self.kind(d.value, scope, env)
        if (kind := self._part(load, d.node, scope, env)) is not None:
            return kind
        raise self.unknown(load)

    def _part(
        self, load: ast.Name, store: ast.Name, scope: ast.AST | None, env: Env
    ) -> Kind | None:
        """A name in a tuple, or the target of a loop."""
        whole = _whole_target(store)
        outer = parent_of(whole)
        if isinstance(outer, ast.Assign):
            values = self.script.values(load)
            if values and all(_is_plain(t) for t in values):
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
        tensors = _tensors(found)
        if not tensors or any(not isinstance(t, (Tensor, Seq, Dict, Const)) for t in found):
            raise self.unknown(expr)
        if all(t.param for t in tensors):
            return Kind.SAME
        if all(t.batch and not t.models and not t.loss for t in tensors):
            return Kind.SAMPLES
        raise self.unknown(expr)

    # ------------------------------------------------------------------------------------------------ rules of calculation
    def _each(self, expr: ast.AST, kinds: Iterable[Kind]) -> Kind:
        """An operation on each element."""
        found = set(kinds)
        if found & {Kind.COUNT, Kind.MEAN, Kind.SUM}:
            raise self.unknown(expr)
        for kind in (Kind.TURNED, Kind.SAMPLES, Kind.SAME):
            if kind in found:
                return kind
        return Kind.NUMBER

    def _join(self, expr: ast.AST, kinds: list[Kind]) -> Kind:
        """One of several."""
        found = set(kinds)
        if len(found) > 1:
            found.discard(Kind.NUMBER)
        if found == {Kind.MEAN, Kind.SAME}:
            return Kind.MEAN
        if len(found) > 1 and found <= {*EACH, Kind.SAME}:
            return Kind.TURNED if Kind.TURNED in found else Kind.SAMPLES
        if len(found) != 1:
            raise self.unknown(expr)
        return found.pop()

    def _arithmetic(self, expr: ast.AST, op: ast.operator, a: Kind, b: Kind) -> Kind:
        if isinstance(op, ast.MatMult):
            if {a, b} & set(EACH) and {a, b} & set(FLAT):
                return a if a in EACH else b
            raise self.unknown(expr)
        if isinstance(op, (ast.Add, ast.Sub)):
            total = {a, b} - {Kind.NUMBER}
            if len(total) == 1 and (kind := next(iter(total))) is not Kind.COUNT:
                return kind
            if total == {Kind.MEAN, Kind.SAME}:
                return Kind.MEAN
            if total == {Kind.SUM, Kind.SAME}:
                raise self.unknown(
                    expr,
                    f"the loss on {at(expr)} adds a sum over the batch and a part that does not depend on it",
                )
            if total == {Kind.SUM, Kind.MEAN}:
                raise self.unknown(
                    expr, f"the loss on {at(expr)} adds a sum over the batch and a mean"
                )
        if isinstance(op, (ast.Mult, ast.Div)):
            left, right = a, b
            if isinstance(op, ast.Mult) and right in (Kind.MEAN, Kind.SUM):
                left, right = right, left
            if left in (Kind.MEAN, Kind.SUM):
                if right is Kind.NUMBER:
                    return left
                if right is Kind.COUNT and (left is Kind.SUM) == isinstance(op, ast.Div):
                    return Kind.MEAN if left is Kind.SUM else Kind.SUM
                raise self.unknown(expr)
        return self._each(expr, [a, b])

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
        if base in FLAT or (base in EACH and whole and fixed):
            return base
        raise self.unknown(
            expr,
            f"`{ast.unparse(expr)}` on {at(expr)} picks some of the samples: how many may differ between processes",
        )

    def _attribute(self, expr: ast.Attribute, values: Values) -> Kind:
        if expr.attr in ("data", "T", "mT"):
            inner = self.kind(expr.value, None, {})
            return Kind.TURNED if expr.attr != "data" and inner in EACH else inner
        return self._by_values(expr)

    # ------------------------------------------------------------------------------------------------ calls
    def _call(self, call: ast.Call, scope: ast.AST | None, env: Env) -> Kind:
        callees = self.script.values(call.func)
        if len(callees) != 1:
            kinds = [self._of(call, t, scope, env) for t in callees]
            if not kinds:
                raise self.unknown(call)
            return self._join(call, kinds)
        return self._of(call, next(iter(callees)), scope, env)

    def _of(self, call: ast.Call, callee: Thing, scope: ast.AST | None, env: Env) -> Kind:
        if is_loss(callee) and isinstance(callee, Ext):
            short = callee.name.rsplit(".", 1)[-1]
            return self._loss(
                call,
                _functional(short),
                dict(callee.args.named),
                bool(callee.args.positional),
                scope,
                env,
            )
        if is_module(callee):
            return self._module(call, callee, scope, env)
        if isinstance(callee, Ref):
            return self._library(call, callee.name, scope, env)
        if isinstance(callee, Method):
            return self._method(call, callee.name, scope, env)
        if isinstance(callee, (Func, Bound)):
            return self._function(call, code_of(callee)[0], scope, env)
        raise self.unknown(call)

    def _loss(
        self,
        call: ast.Call,
        name: str,
        named: Mapping[str, Given],
        positional: bool,
        scope: ast.AST | None,
        env: Env,
    ) -> Kind:
        """A loss function of torch."""
        tensors = [self.kind(a, scope, env) for a in call.args[:3]]
        if not any(k in EACH for k in tensors) or any(
            k not in (*EACH, Kind.NUMBER) for k in tensors
        ):
            raise self.unknown(call)
        reduction = named.get("reduction")
        how = "mean" if reduction is None else const(reduction.values)
        if (
            positional
            or {"reduce", "size_average"} & named.keys()
            or how not in ("mean", "sum", "none", "batchmean")
        ):
            raise self.unknown(call, f"how the loss on {at(call)} is reduced is not known")
        if how == "none":
            return Kind.TURNED
        if how == "sum":
            return Kind.SUM
        for weight in ("weight", "ignore_index"):
            if name in WEIGHTED and weight in named and const(named[weight].values) is not None:
                raise self.unknown(
                    call,
                    f"the loss on {at(call)} is a mean over the `{weight}` of the targets, of which each process has others: "
                    "the mean of the processes' means is another number",
                )
        return Kind.MEAN

    def _module(self, call: ast.Call, callee: Thing, scope: ast.AST | None, env: Env) -> Kind:
        given = [
            self.kind(a.value if isinstance(a, ast.Starred) else a, scope, env)
            for a in (*call.args, *(k.value for k in call.keywords))
        ]
        if is_loss(callee) or (isinstance(callee, Inst) and self._reduces(callee)):
            forward = code_of(callee)
            if len(forward) != 1:
                raise self.unknown(call)
            return self._function(call, forward[0], scope, env)
        kind = self._each(call, given)
        if id(callee) not in self._checked:
            self._checked[id(callee)] = check_forward(self.script, callee)
        turned = self._checked[id(callee)]
        return (
            Kind.TURNED
            if turned and kind in EACH
            else Kind.SAMPLES
            if kind is not Kind.TURNED
            else kind
        )

    def _reduces(self, callee: Inst) -> bool:
        """A module without parameters: a loss of the project's."""
        return not any(
            is_module(t) and not is_loss(t) or isinstance(t, Tensor) and t.param
            for v in callee.attrs.values()
            for t in v
        )

    def _library(self, call: ast.Call, name: str, scope: ast.AST | None, env: Env) -> Kind:
        short = name.rsplit(".", 1)[-1]
        if name.startswith(FUNCTIONAL) and short in FUNCTIONAL_LOSSES:
            named = {
                k.arg: Given(self.script.values(k.value), k.value)
                for k in call.keywords
                if k.arg is not None
            }
            if any(k.arg is None for k in call.keywords):
                raise self.unknown(call)
            return self._loss(
                call,
                short,
                named,
                len(call.args) > 2 and short != "triplet_margin_loss",
                scope,
                env,
            )
        if name == "builtins.sum" and len(call.args) == 1:
            return self._sum(call, call.args[0], scope, env)
        if name in PLAIN_NUMBERS or name == "builtins.len":
            return self._each(call, [self.kind(a, scope, env) for a in call.args])
        if not name.startswith("torch."):
            raise self.unknown(call)
        if short in RANDOM and name.count(".") == 1:
            return Kind.SAMPLES
        if short in CONSTANT and name.count(".") == 1:
            return Kind.NUMBER
        kinds = [self.kind(a, scope, env) for a in call.args[:1]]
        rest = [self.kind(a, scope, env) for a in call.args[1:] if _tensors(self.script.values(a))]
        return self._operation(call, short, call.args[1:], [*kinds, *rest])

    def _method(self, call: ast.Call, name: str, scope: ast.AST | None, env: Env) -> Kind:
        assert isinstance(call.func, ast.Attribute)
        kinds = [self.kind(call.func.value, scope, env)]
        kinds += [self.kind(a, scope, env) for a in call.args if _tensors(self.script.values(a))]
        return self._operation(call, name, call.args, kinds)

    def _operation(
        self, call: ast.Call, name: str, arguments: list[ast.expr], kinds: list[Kind]
    ) -> Kind:
        """An operation of torch on what is given first; ``arguments`` are the others."""
        first = kinds[0] if kinds else Kind.NUMBER
        if set(kinds) <= {*FLAT}:
            return Kind.SAME if Kind.SAME in kinds else Kind.NUMBER
        if name in ("mean", "sum") and len(kinds) == 1:
            dims = first_dim(self.script, call, arguments)
            if first in (Kind.MEAN, Kind.SUM) and dims is None:
                return first
            if first in EACH and dims is None:
                return Kind.MEAN if name == "mean" else Kind.SUM
            if first is Kind.SAMPLES and dims is False:
                return Kind.SAMPLES
            raise self.unknown(call)
        if name in SHAPES and (
            first not in (Kind.MEAN, Kind.SUM)
            or name in ("squeeze", "view", "reshape", "to", "float", "contiguous", "clone")
        ):
            return first
        if name in TURNS and first in EACH:
            return Kind.TURNED
        if name in ("cat", "stack", "concat") and first in EACH:
            return Kind.TURNED
        if name in ELEMENTWISE:
            return self._each(call, kinds)
        if (
            name in REDUCTIONS
            and first is Kind.SAMPLES
            and first_dim(self.script, call, arguments) is False
        ):
            return Kind.SAMPLES
        raise self.unknown(call)

    def _sum(self, call: ast.Call, over: ast.expr, scope: ast.AST | None, env: Env) -> Kind:
        """``sum(losses)``"""
        if isinstance(over, (ast.GeneratorExp, ast.ListComp)) and len(over.generators) == 1:
            kind = self.kind(over.elt, scope, env)
        else:
            kind = self.kind(over, scope, env)
        if kind in (Kind.MEAN, Kind.SUM, Kind.SAME, Kind.NUMBER):
            return kind
        raise self.unknown(call)

    def _function(
        self,
        call: ast.Call,
        callee: Callee,
        scope: ast.AST | None,
        env: Env,
        part: int | None = None,
    ) -> Kind:
        """A function of the project: what it returns with these arguments, or one part of that."""
        node = callee.function
        inner: dict[str, Kind] = {}
        given: set[int] = set()
        for parameter in parameters(node):
            value = self.calls.argument(call, callee, parameter.arg)
            if value is None and not self.calls.leaves_default(call, callee, parameter.arg):
                raise self.unknown(call)
            given.add(id(value))
            inner[parameter.arg] = (
                self._argument(value, scope, env) if value is not None else Kind.NUMBER
            )
        if any(id(a) not in given for a in call.args):  # they go to `*args`
            raise self.unknown(call)
        reached = [r for r in self.calls.results(node) if self.script.reached(r)]
        if not reached or any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_nodes(node)):
            raise self.unknown(call)
        if part is not None and all(
            isinstance(r, ast.Tuple) and len(r.elts) > part for r in reached
        ):
            reached = [r.elts[part] for r in reached if isinstance(r, ast.Tuple)]
        return reduce(
            lambda a, b: self._join(call, [a, b]), (self.kind(r, node, inner) for r in reached)
        )

    def _argument(self, value: ast.expr, scope: ast.AST | None, env: Env) -> Kind:
        found = self.script.values(value)
        if found and not _tensors(found) and not all(_is_plain(t) for t in found):
            # A module, a function, options: what they do is seen where they are used.
            return Kind.NUMBER
        return self.kind(value, scope, env)


# ------------------------------------------------------------------------------------------------ small questions
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


def _is_plain(thing: Thing) -> bool:
    return isinstance(thing, (Const, Num, Arg))


def _tensors(values: Values) -> list[Tensor]:
    found: list[Tensor] = []
    todo, seen = list(values), set()
    while todo:
        thing = todo.pop()
        if isinstance(thing, Tensor):
            found.append(thing)
        elif isinstance(thing, (Seq, Dict)) and id(thing) not in seen:
            seen.add(id(thing))
            todo.extend(thing.any())
    return found


def _functional(cls: str) -> str:
    return {
        "CrossEntropyLoss": "cross_entropy",
        "NLLLoss": "nll_loss",
        "NLLLoss2d": "nll_loss",
    }.get(cls, cls)
