"""Loops over classes that pass over those that are absent.

for c in range(n_classes):          for c in range(n_classes):
    t = (y == c).float()                t = (y == c).float()
    if t.sum() == 0:                    present = t.sum() > 0
        continue                   ->
    dice += 1 - (...) / (...)           dice += present * (1 - (...) / (...))
    n += 1                              n += present
loss = dice / max(n, 1)             loss = dice / n.clamp(min=1)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.edit.edits import Edit, Edits, Holes, Replace, Rewrite
from autofast.facts.element_reads import stays_inside
from autofast.facts.finite import Finite
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow, definitions_of, graph_of
from autofast.flow.scopes import mentions
from autofast.model.calls import is_call_of, is_method, is_name, only_target
from autofast.model.contents import each_once
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import (
    function_of,
    is_elif,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
    within,
    within_any,
)
from autofast.model.syntax import is_constant, is_operation, is_written
from autofast.model.values import Tensor
from autofast.ops.families import SIGNS
from autofast.rule import Refusal
from autofast.techniques.syncs.counted import Counted, check_plain, leaves
from autofast.write.spelling import torch_in

MOVES = wordset("to cuda cpu type")
GIVES = (ast.Assign, ast.AugAssign)
COMPUTES = (ast.BinOp, ast.Return, ast.AugAssign)
SUMS = (ast.Add, ast.Sub)
OTHER = {"+": "-", "-": "+"}
ATOMS = (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant)


@dataclass
class Skipped:
    """A turn of a loop that ends where there are none."""

    script: Script
    branch: ast.If
    counted: Counted

    def edits(self) -> Edits:
        script, branch, loop = self.script, self.branch, self.loop
        below = loop.body[loop.body.index(branch) + 1 :]
        name = source_of(branch).fresh("present", "some")
        seen = f"{name} = {self.counted.code()}"
        edits: list[Edit] = [Replace(branch, seen, {"count": self.counted.count})]
        counts: list[ast.Name] = []
        sums: list[ast.Name] = []
        if not all(isinstance(s, GIVES) for s in below):
            raise Refusal
        for statement in below:
            check_plain(script, statement.value)  # type: ignore[attr-defined]
            total, terms = _added(statement)
            if total is None:
                made = only_target(statement)
                if not any(
                    stays_inside(script, n, loop) and not self.is_carried(n)
                    for n in of_kind([made], ast.Name)
                ):
                    raise Refusal
                continue
            if len(terms) == 1 and is_constant(terms[0][1], 1) and terms[0][0] == "+":
                counts.append(total)
                edits.append(Rewrite(terms[0][1], name))
            else:
                sums.append(total)
                edits.append(self.masked(name, total, terms, statement))
        if not sums or not self.is_apart([*sums, *counts]):
            raise Refusal
        for total in sums:
            self.check_sum(total)
        for count in counts:
            edits += self.counting(count, {n.id for n in sums})
        return tuple(edits)

    @property
    def loop(self) -> ast.For:
        loop = parent_of(self.branch)
        if not isinstance(loop, ast.For) or loop.orelse or self.branch not in loop.body:
            raise Refusal
        return loop

    def is_carried(self, made: ast.Name) -> bool:
        """Whether a turn may see what the one before it left in a variable."""
        flow, graph = definitions_of(self.script, made), graph_of(self.script, made)
        here = statement_of(made)
        return any(not graph.dominates(here, statement_of(u)) for u in flow.uses_of(made))

    def is_apart(self, totals: list[ast.Name]) -> bool:
        """Whether all that the loop does with the sums is to add to them, each at one place."""
        names, scope = {n.id for n in totals}, function_of(self.loop)
        own = [n for t in totals for n in nodes_in(statement_of(t), ast.Name) if n.id == t.id]
        inside = [n for n in nodes_in(self.loop, ast.Name) if n.id in names]
        return (
            len(names) == len(totals)
            and len(own) == len(inside) <= 2 * len(totals)
            and all(function_of(m) is scope for name in names for m in mentions(scope, name))
        )

    def begun(self, total: ast.Name) -> list[Definition]:
        """What a sum is before the loop: 0; raises where it may be something else."""
        flow, loop = definitions_of(self.script, self.loop), self.loop
        reads = (n for n in nodes_in(statement_of(total), ast.Name) if n.id == total.id)
        made = {d: d for n in reads for d in flow.reaching(n)}
        found = [d for d in made if not within(d.node, loop)]
        if not found or not all(is_written(d.value, 0) for d in found):
            raise Refusal
        return found

    # ------------------------------------------------------------------------------------- the sums
    def check_sum(self, total: ast.Name) -> None:
        """Raises where a sum is asked for more than to be computed with."""
        self.begun(total)
        for use in self.uses(total):
            if not isinstance(parent_of(use), COMPUTES):
                raise Refusal

    def check_gradients(self, total: ast.Name, keys: set[object]) -> None:
        """Raises where what the terms are computed of may have no gradients where all turns are
        passed over: what the sum is added to has the same (``keys``).
        """
        todo = self.uses(total) if keys else []
        if keys and not todo:
            raise Refusal
        for use in each_once(todo):
            statement = statement_of(use)
            value = getattr(statement, "value", None) or use
            if not keys <= {key for _, key in leaves(self.script, value, self.loop)}:
                match statement:
                    case ast.Assign([ast.Name() as made]) | ast.AugAssign(ast.Name() as made):
                        todo += definitions_of(self.script, made).uses_of(made)
                    case _:
                        raise Refusal

    def uses(self, total: ast.Name) -> list[ast.Name]:
        """Where it is read behind the loop."""
        flow = definitions_of(self.script, self.loop)
        return [u for u in flow.uses_of(total) if not within(u, self.loop)]

    def masked(
        self, name: str, total: ast.Name, terms: list[tuple[str, ast.expr]], statement: ast.stmt
    ) -> Edit:
        """``total + present * (1 - x)`` for ``total + 1 - x``."""
        script, value = self.script, statement.value  # type: ignore[attr-defined]
        if not any(script.must_be(e, Tensor) for _, e in terms):
            raise Refusal
        if not all(script.analysis(Finite).of(e) for _, e in terms):
            raise Refusal
        self.check_gradients(total, {key for _, e in terms for _, key in leaves(script, e)})
        first, code, holes = terms[0][0], "", Holes()
        for n, (sign, term) in enumerate(terms):
            holes[f"t{n}"] = term
            product = is_operation(term, ast.Mult, ast.Div)
            bare = isinstance(term, ATOMS) or (product and len(terms) > 1)
            shown = sign if first == "+" else OTHER[sign]
            code += f" {shown} " * bool(n) + (f"{{t{n}}}" if bare else f"({{t{n}}})")
        code = f"{name} * " + (code if len(terms) == 1 else f"({code})")
        if isinstance(statement, ast.Assign):
            holes["total"], code = _leftmost(value), f"{{total}} {first} {code}"
        return Rewrite(value, code, holes)

    # ----------------------------------------------------------------------------------- the counts
    def counting(self, count: ast.Name, sums: set[str]) -> Iterator[Edit]:
        """How many turns were not passed over, on the device."""
        (start,), uses = self.begun(count)[:1], self.uses(count)
        torch, imports = torch_in(source_of(self.loop))
        flow = definitions_of(self.script, self.loop)
        made = {d for u in uses for d in flow.reaching(u)} - {start}
        assert start.value is not None and start.statement is not None
        if not uses or not all(within(d.node, self.loop) for d in made):
            raise Refusal
        yield from imports
        device = f"{self.base(start.statement)}.device"
        yield Rewrite(start.value, f"{torch}.zeros((), device={device})")
        guards: list[ast.AST] = []
        for use in uses:
            match outer := parent_of(use):
                case ast.Call(args=[one, other]) if is_call_of(outer, "max") and (
                    is_constant(one, 1) or is_constant(other, 1)
                ):
                    yield Rewrite(outer, "{n}.clamp(min=1)", {"n": use})
                case ast.Compare(ops=[ast.Gt()], comparators=[zero]) if is_constant(zero, 0):
                    guard = parent_of(outer)
                    if not isinstance(guard, ast.If) or guard.orelse or is_elif(guard):
                        raise Refusal
                    match guard.body:
                        case [ast.AugAssign(ast.Name(id=a), ast.Div(), ast.Name(id=n))]:
                            b = a
                        case [
                            ast.Assign(
                                [ast.Name(id=a)],
                                ast.BinOp(ast.Name(id=b), ast.Div(), ast.Name(id=n)),
                            )
                        ]:
                            pass
                        case _:
                            raise Refusal
                    if a != b or a not in sums or n != count.id:
                        raise Refusal
                    guards.append(guard)
                    yield Replace(guard, f"{a} = {a} / {n}.clamp(min=1)")
        if any(not within_any(u, guards) and not is_call_of(parent_of(u), "max") for u in uses):
            raise Refusal

    def base(self, start: ast.stmt) -> str:
        """A tensor on the device of the mask that is there where the count begins."""
        script, graph = self.script, graph_of(self.script, self.loop)
        flow, made_of = script.analysis(Flow), [*script.analysis(Flow).made_of([self.counted.mask])]
        if any(is_method(n, *MOVES) for n in made_of):
            raise Refusal
        for name in of_kind(made_of, ast.Name):
            made = flow.definition(name)
            if (
                made is not None
                and not within(made.node, self.loop)
                and script.must_be(name, Tensor)
            ):
                before = made.statement
                if made.is_parameter or (
                    before not in (None, start) and graph.dominates(before, start)
                ):
                    return name.id
        raise Refusal


def _added(statement: ast.stmt) -> tuple[ast.Name | None, list[tuple[str, ast.expr]]]:
    """What a statement adds to a variable, each with its sign: ``x = x + 1 - y``."""
    match statement:
        case ast.AugAssign(ast.Name() as total, ast.Add() | ast.Sub() as sign, value):
            return total, [(SIGNS[type(sign)], value)]
        case ast.Assign([ast.Name() as total], ast.BinOp() as value) if is_name(
            _leftmost(value), total.id
        ):
            terms: list[tuple[str, ast.expr]] = []
            here: ast.expr = value
            while is_operation(here, *SUMS):
                terms.insert(0, (SIGNS[type(here.op)], here.right))
                here = here.left
            return total, terms
    return None, []


def _leftmost(value: ast.expr) -> ast.expr:
    while is_operation(value, *SUMS):
        value = value.left
    return value
