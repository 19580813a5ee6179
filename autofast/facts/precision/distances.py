"""Distances by way of a product, ``|a|² + |b|² - 2ab``: where a and b are near, what is left is the
rounding of the product.

Autocast keeps ``torch.cdist`` in fp32; written out, the product is 16-bit: off by up to 1/256 of
``|a||b|`` in bf16, however small the distance. Their negatives, of which the largest are the
nearest (``topk``), are the same.

``log(1 - p)`` of a sigmoid, or of the square of a tanh: what 16 bits round to 1 has the logarithm
of 0 there, and ``clamp(p, max=1 - 1e-5)`` does not keep it from that.

Ratios of two probabilities, ``exp(new - old)``: one precision for both, or for neither.

Where a policy is updated from what an earlier pass of it has said, both must round alike: the ratio
is 1 in the first step then, and with ``new`` in 16 bits and ``old`` in fp32 it is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from autofast.facts.precision.activations import is_activation
from autofast.facts.precision.code import Code
from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition, bound_to
from autofast.flow.program import Flow, function_around
from autofast.model.calls import is_method, is_same_code
from autofast.model.contents import each_once
from autofast.model.kinds import is_module
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import Nodes, at, nodes_in, parent_of, walk
from autofast.model.syntax import is_attribute, is_operation, is_read, is_unary
from autofast.model.values import (
    Arg,
    Cls,
    Const,
    Func,
    Method,
    Module,
    Num,
    Ref,
    Tensor,
    begins,
    one,
)

PRODUCTS = wordset("matmul mm bmm einsum inner")
ADDING = wordset(
    "addmm baddbmm"
)  # what they are given, and a product: ``torch.addmm(squares, a, b, alpha=-2)``
SAME_NUMBERS = wordset(
    "unsqueeze squeeze view reshape expand expand_as repeat t transpose permute contiguous float clone detach"
)
DEEP = 6


def distances(code: Code) -> str:
    """Why the distances in it need fp32, in words; empty where there are none."""
    here = (code.script.of_node(_inside, part) for part in code.parts)
    found = next((node for node in here if node is not None), None)
    if found is None:
        return ""
    return f"{at(found)} computes distances by way of a product, which in 16 bits is off by more than a small distance"


def similarities(code: Code) -> str:
    """Why a network needs fp32 that gives a contrastive loss itself: ``a @ b.T / temperature`` are
    logits of any size. A module without layers of its own is a loss, which is computed apart.
    """
    for node in _beside_losses(code):
        if _compares(code.script, node):
            return f"{at(node)} compares samples by way of a product, whose 16-bit rounding a loss multiplies"
    return ""


def _beside_losses(code: Code) -> Iterator[ast.AST]:
    losses = {s for m in code.models if not m.layers for c in m.classes for s in c.body}
    return (n for part in code.parts if part not in losses for n in walk(part))


def _compares(script: Script, node: ast.AST) -> bool:
    """``a @ b.T`` of two activations, which something divides."""
    match node:
        case ast.BinOp(left=ast.BinOp(left=one, op=ast.MatMult(), right=other), op=ast.Div()):
            turned = other.func if is_method(other, "t") else other
            return is_attribute(turned, "T", "t") and all(
                is_activation(script.values(side)) for side in (one, turned.value)
            )
    return False


def complements(code: Code) -> str:
    """Why what a sigmoid or a tanh leaves of 1 needs fp32, in words; empty where no network takes
    the logarithm of it.
    """
    made_of = code.script.analysis(Flow).made_of
    for call in of_kind(_beside_losses(code), ast.Call):
        if _called(code.script, call) == "log":
            for rest in made_of([call]):
                match rest:
                    case ast.BinOp(left=ast.Constant(), op=ast.Sub(), right=near):
                        if any(
                            (isinstance(p, ast.Call) and _called(code.script, p) == "tanh")
                            or any(t.prob for t in of_kind(code.script.values(p), Tensor))
                            for p in made_of([near])
                        ):
                            return f"{at(call)} takes the logarithm of what is left of 1, which in 16 bits is 0 for a sigmoid that is nearly 1"
    return ""


def _inside(script: Script, part: ast.AST) -> ast.AST | None:
    return written_out(script, walk(part))


def written_out(script: Script, nodes: Iterable[ast.AST]) -> ast.AST | None:
    """The first of the nodes that computes distances by way of a product, if one does."""
    for node in nodes:
        match node:
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult()) | ast.Call():
                other = isinstance(node, ast.Call) and _called(script, node) not in ADDING
                if other or not _is_whole(node) or not script.reached(node):
                    continue
                terms = list(_terms(script, node))
            case ast.AugAssign(target=ast.Name(), value=value) if script.reached(value):
                terms = [*_terms(script, node.target), *_added(script, node)]
            case _:
                continue
        if _cancels(script, terms):
            return node
    return None


def _is_whole(node: ast.expr) -> bool:
    """Not a part of a longer sum."""
    return not is_operation(parent_of(node), ast.Add, ast.Sub)


def _cancels(script: Script, terms: list[tuple[ast.expr, int]]) -> bool:
    """Whether a sum of squares has a product of matrices taken away, or the reverse."""
    squares = {sign for term, sign in terms if _is_sum_of_squares(script, term)}
    return any(-sign in squares and _is_product(script, term) for term, sign in terms)


def _terms(
    script: Script, expr: ast.expr, sign: int = 1, depth: int = 0
) -> Iterator[tuple[ast.expr, int]]:
    """What a sum is made of, with its sign, without factors that are numbers and without changes of
    shape.
    """
    match expr:
        case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub() as how):
            yield from _terms(script, left, sign, depth)
            yield from _terms(script, right, -sign if isinstance(how, ast.Sub) else sign, depth)
        case ast.BinOp(left=left, right=right, op=ast.Mult()):
            tensors = [side for side in (left, right) if script.may_be(side, Tensor)]
            factor = right if tensors == [left] else left
            if len(tensors) == 1:
                negative = is_unary(factor, ast.USub)
                yield from _terms(script, tensors[0], -sign if negative else sign, depth)
            else:
                yield expr, sign
        case ast.UnaryOp(operand=operand, op=ast.USub()):
            yield from _terms(script, operand, -sign, depth)
        case ast.Call(func=ast.Attribute(value=tensor, attr=name)) if (
            name in SAME_NUMBERS and script.may_be(tensor, Tensor)
        ):
            yield from _terms(script, tensor, sign, depth)
        case ast.Call(args=[first, *_]) if _called(script, expr) in ADDING:
            func = expr.func
            method = isinstance(func, ast.Attribute) and script.may_be(func.value, Tensor)
            yield from _terms(script, func.value if method else first, sign, depth)  # type: ignore[attr-defined]
            yield expr, -sign if _is_taken_away(expr) else sign
        case ast.Name() if depth < DEEP:
            made = script.analysis(Flow).origins(expr)
            values = [d.value for d in made if not d.is_augmented]
            if len(values) == 1 and values[0] is not None:
                yield from _terms(script, values[0], sign, depth + 1)
                for d in made:
                    if isinstance(d.statement, ast.AugAssign):
                        yield from _added(script, d.statement, sign, depth + 1)
            else:
                yield expr, sign
        case _:
            yield expr, sign


def _added(
    script: Script, statement: ast.AugAssign, sign: int = 1, depth: int = 0
) -> Iterator[tuple[ast.expr, int]]:
    """What ``dist += squares`` adds to a sum, or ``-=`` takes away."""
    if isinstance(statement.op, (ast.Add, ast.Sub)):
        less = isinstance(statement.op, ast.Sub)
        yield from _terms(script, statement.value, -sign if less else sign, depth)


def _is_taken_away(call: ast.Call) -> bool:
    """``alpha=-2``, or as it was written long ago: ``squares.addmm(1, -2, a, b)``."""
    given = [k.value for k in call.keywords if k.arg == "alpha"] or call.args[:2]
    return any(isinstance(v.op, ast.USub) for v in of_kind(given, ast.UnaryOp))


def _is_product(script: Script, term: ast.expr) -> bool:
    if isinstance(term, ast.BinOp):
        return isinstance(term.op, ast.MatMult)
    return isinstance(term, ast.Call) and _called(script, term) in PRODUCTS | ADDING


def _is_sum_of_squares(script: Script, term: ast.expr) -> bool:
    match term:
        case ast.Call(func=ast.Attribute(value=tensor)) if _called(script, term) == "sum":
            of = tensor if script.may_be(tensor, Tensor) else next(iter(term.args), None)
            return of is not None and _is_square(script, of)
        case ast.BinOp(left=norm, op=ast.Pow(), right=ast.Constant(value=2)):
            return isinstance(norm, ast.Call) and _called(script, norm) == "norm"
        case ast.Call(func=ast.Attribute(value=ast.Call() as norm)) if _called(script, term) in (
            "pow",
            "square",
        ):
            return _called(script, norm) == "norm"
    return False


def _is_square(script: Script, expr: ast.expr, depth: int = 0) -> bool:
    match expr:
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=2)):
            return True
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return is_same_code(left, right)
        case ast.Call():
            return _called(script, expr) in ("pow", "square")
        case ast.Name() if depth < DEEP:
            flow = script.analysis(Flow)
            return flow.is_made_by(expr, lambda made: _is_square(script, made, depth + 1))
    return False


def _called(script: Script, call: ast.Call) -> str:
    """The operation of torch that a call is one of, as a function or as a method."""
    names = {
        last_part(t.name)
        for t in script.called(call)
        if (begins(t, Ref, "torch.")) or (isinstance(t, Method) and isinstance(t.this, Tensor))
    }
    return one(names, "")


# what is done to a difference of logarithms before exp() is taken of it
BETWEEN = wordset("sum mean view reshape squeeze unsqueeze flatten clamp float nan_to_num")
PLAIN = (Const, Num, Arg, Ref, Module, Func, Cls)


class Ratios:
    """The ratios in a piece of code: ``parts`` and what they call, the node ids ``inside``, of
    which ``passes`` lead to a forward pass.
    """

    def __init__(self, script: Script, parts: list[ast.AST], inside: Nodes, passes: Nodes):
        self.script, self.parts, self.inside, self.passes = script, parts, inside, passes
        self.flow, self.calls = script.analysis(Flow), script.analysis(CallGraph)

    @cached_property
    def of_an_earlier_pass(self) -> ast.Call | None:
        """``exp(a - b)`` of which one is made of a forward pass of this code, and the other comes
        from outside of it.
        """
        for call in (n for p in self.parts for n in nodes_in(p, ast.Call)):
            for a, b in self._differences(call):
                if {self._is_made_here(a), self._is_made_here(b)} == {True, False}:
                    return call
        return None

    def _differences(self, call: ast.Call) -> Iterator[tuple[ast.expr, ast.expr]]:
        """What is subtracted from what, in the argument of ``exp``."""
        if Ref("torch.exp") in self.script.called(call) and call.args:
            todo = [call.args[0]]
        elif is_method(call, "exp"):
            todo = [call.func.value]
        else:
            return
        for expr in each_once(todo):
            match expr:
                case ast.BinOp(left=a, op=ast.Sub(), right=b):
                    yield a, b
                case ast.Name():
                    todo += [d.value for d in self.flow.reaching(expr) if d.value is not None]
                case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in BETWEEN:
                    todo += [inner, *expr.args[:1]]  # x.sum(-1), torch.sum(x, -1)

    def _is_made_here(self, expr: ast.expr) -> bool | None:
        """Whether a value is made of a forward pass in this code; False where it comes from
        outside, None where it is neither.
        """
        from_outside = False
        todo: list[ast.AST] = [expr]
        for node in each_once(todo):
            if node in self.passes:
                return True
            if isinstance(node, ast.Name):
                if is_read(node) and not self._is_plain(node):
                    for definition in self.flow.reaching(node):
                        before = self._before(definition)
                        todo += before
                        from_outside |= not before
                continue
            todo += ast.iter_child_nodes(node)
        return False if from_outside else None

    def _before(self, definition: Definition) -> list[ast.expr]:
        """The expressions of this code that a variable gets its value from; empty where it comes
        from outside.
        """
        if definition.is_parameter:
            function = function_around(definition.node)
            assert not isinstance(function, ast.Module)
            given = self.calls.arguments(function, definition.name)
            return [a for call, a in given if a is not None and call in self.inside]
        value, _ = bound_to(definition.node)
        return [value] if value is not None and definition.node in self.inside else []

    def _is_plain(self, name: ast.Name) -> bool:
        """A number, a function, a module or a parameter: nothing that a pass has made."""
        found = self.script.values(name)
        return surely(
            isinstance(t, PLAIN) or is_module(t) or (isinstance(t, Tensor) and bool(t.param))
            for t in found
        )
