"""Conditions that ask whether there is something: ``mask.sum() > 0``, ``n == 0``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.facts.aliases import written_to
from autofast.facts.computes import Computes
from autofast.facts.finite import Finite
from autofast.flow.callgraph import code_of
from autofast.flow.program import Flow
from autofast.model.calls import is_call_of, is_method, is_same_code, literal_of, variable_name
from autofast.model.contents import each_once
from autofast.model.kinds import is_module
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import nodes_in, within
from autofast.model.syntax import is_read
from autofast.model.values import Const, Num, Tensor, Unknown, any_of, certainly
from autofast.rule import Refusal

# Comparisons with 0, or with 1, that ask whether there are some, or none.
SOME: dict[type[ast.cmpop], int] = {ast.NotEq: 0, ast.Gt: 0, ast.GtE: 1}
NONE: dict[type[ast.cmpop], int] = {ast.Eq: 0, ast.LtE: 0, ast.Lt: 1}
READS = wordset("item detach cpu")
COUNTS = ("sum", "any", "count_nonzero")
CASTS = wordset("float long int double bool half to detach")


@dataclass
class Counted:
    """A condition: ``count`` is what is counted (a tensor of one number), ``mask`` of what;
    ``some``: the body runs where there are some.
    """

    script: Script
    count: ast.expr
    mask: ast.expr
    some: bool

    @classmethod
    def of(cls, script: Script, test: ast.expr) -> Counted:
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                found = cls.of(script, inner)
                return cls(script, found.count, found.mask, not found.some)
            case ast.Compare(left=left, ops=[sign], comparators=[side]):
                edge, count = literal_of(side), unread(left)
                some = edge == SOME.get(type(sign), "")
                if not some and edge != NONE.get(type(sign), ""):
                    raise Refusal
            case _:
                edge, some, count = 0, True, unread(test)
        made = script.analysis(Flow).value(count) or count
        (name, given), *_ = [*map(script.operation, of_kind([made], ast.Call)), ("", [])]
        counts = last_part(name) in COUNTS and len(given) == 1 and script.must_be(count, Tensor)
        finite = script.analysis(Finite)
        if not counts or finite.bounds(given[0])[0] < 0:
            raise Refusal
        if edge and not finite.is_whole(given[0]):  # weights add up to less than 1
            raise Refusal
        return cls(script, count, bare(given[0]), some)

    def code(self) -> str:
        """Whether there are some, on the device (hole ``{count}``)."""
        return "{count}" if is_method(self.count, "any") else "{count} > 0"

    def is_mask(self, expr: ast.expr) -> bool:
        """Whether an expression is the mask, in whatever type."""
        flow, plain = self.script.analysis(Flow), bare(expr)
        if not variable_name(plain):
            return self._is_alike(plain, self.mask)
        made = flow.value(plain)
        return self._is_alike(plain, self.mask) or (
            made is not None and bare(made) is not made and self.is_mask(made)
        )

    def is_count(self, expr: ast.expr) -> bool:
        if self._is_alike(expr, self.count):
            return True
        match expr:
            case ast.Call() if self.script.must_be(expr, Tensor):
                name, given = self.script.operation(expr)
                if last_part(name) in CASTS and given:
                    return self.is_count(given[0])
                return last_part(name) == "sum" and len(given) == 1 and self.is_mask(given[0])
        return False

    def _is_alike(self, one: ast.expr, other: ast.expr) -> bool:
        """Whether it is the same variable, or the same code of the same variables, and nothing
        writes to them.
        """
        flow, written = self.script.analysis(Flow), self.script.analysis(written_to)
        return (
            is_same_code(one, other)
            and self.script.analysis(Computes).only(one)
            and all(
                flow.is_same(a, b) and written.isdisjoint(d.node for d in flow.reaching(a))
                for a, b in zip(nodes_in(one, ast.Name), nodes_in(other, ast.Name), strict=True)
            )
        )


def check_plain(script: Script, code: ast.AST) -> None:
    """Raises where code that would run more often does more than to compute a little."""
    called = (t for call in nodes_in(code, ast.Call) for t in script.called(call))
    if any(map(is_module, called)) or not script.analysis(Computes).only(code):
        raise Refusal


def leaves(
    script: Script, expr: ast.expr, beside: ast.AST | None = None
) -> Iterator[tuple[ast.AST, object]]:
    """What may have gradients, and is not computed of anything by operations here, of all that an
    expression is computed of, but for what variables get in a loop (``beside``): the node, and what
    two places have in common that mean the same.
    """
    flow, todo = script.analysis(Flow), list[ast.AST]([expr])
    for node in each_once(todo):
        found = script.values(node)
        tensors = of_kind(found, Tensor)
        if found and not any(t.grad or t.passes or t.param for t in tensors):
            if certainly(found, Tensor, Num, Const):
                continue
        match node:
            case ast.Compare() | ast.Call(func=ast.Attribute(attr="detach")):
                continue
            case ast.Name() if is_read(node) and (tensors or any_of(found, Unknown)):
                made = [d for d in flow.reaching(node) if not (beside and within(d.node, beside))]
                yield from ((d.node, d.node) for d in made if d.value is None)
                todo += [d.value for d in made if d.value is not None]
            case ast.Call() if any(is_module(t) or code_of(t) for t in script.called(node)):
                yield node, node
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) if tensors and not (
                script.must_be(inner, Tensor)
            ):
                yield node, ast.unparse(node)
            case _:
                todo += ast.iter_child_nodes(node)


def unread(expr: ast.expr) -> ast.expr:
    """``n`` of ``n.item()``, ``int(n)``, ``bool(n)``."""
    while True:
        if is_method(expr, *READS) and not expr.args:
            expr = expr.func.value
        elif is_call_of(expr, "int", "float", "bool") and len(expr.args) == 1:
            expr = expr.args[0]
        else:
            return expr


def bare(expr: ast.expr) -> ast.expr:
    """``mask`` of ``mask.float()``."""
    while is_method(expr, *CASTS):
        expr = expr.func.value
    return expr
