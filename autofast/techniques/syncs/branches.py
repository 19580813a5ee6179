"""Branches by how much there is of something, of which both ways give the same numbers.

    n = pos.sum()
    if n == 0:                          loss = (term * pos).sum() / n.clamp(min=1)
        loss = logits.sum() * 0    ->
    else:
        loss = (term * pos).sum() / n

Where a mask is empty, sums of products with it are 0 by themselves, with gradients that are 0: what
is left to avoid is to divide by 0. All that is computed then where it was not before must be
finite, with finite gradients.
"""

from __future__ import annotations

import ast
import random
from contextlib import suppress
from dataclasses import dataclass, field

from autofast.edit.edits import Edits, Holes, Remove, Replace, Rewrite
from autofast.facts.computes import Computes
from autofast.facts.finite import Finite
from autofast.flow.program import Flow
from autofast.flow.scopes import is_local, owner
from autofast.model.calls import keyword_of, literal_of, only_target
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import (
    ByNode,
    block_of,
    is_at_top,
    is_elif,
    nodes_in,
    statement_of,
    within,
)
from autofast.model.values import Arg, Const, Unknown, all_of, is_on_device
from autofast.ops import is_pointwise
from autofast.ops.families import COMBINES, SIGNS
from autofast.rule import Effect, Refusal
from autofast.techniques.syncs.absent import Skipped
from autofast.techniques.syncs.counted import CASTS, Counted, check_plain, leaves
from autofast.techniques.syncs.steps import runs_in_steps

REDUCED = wordset("sum mean")
ZEROS = wordset("zeros zeros_like new_zeros")
MOVES = wordset("to cuda cpu")


def without_branch(script: Script, branch: ast.AST) -> tuple[Edits, Effect]:
    """The edits that leave a branch out; none where it decides more, or something else."""
    with suppress(Refusal):
        if isinstance(branch, ast.If) and not is_elif(branch):
            counted = Counted.of(script, branch.test)
            match branch:
                case ast.If(body=[ast.Continue()], orelse=[]) if not counted.some:
                    return Skipped(script, branch, counted).edits(), Effect.ROUNDING
            return _Arms(script, branch, counted).edits(), Effect.EXACT
    return (), Effect.EXACT


@dataclass
class _Arms:
    """A branch both of whose arms give a variable a value, or the result of the function."""

    script: Script
    branch: ast.If
    counted: Counted
    divisors: list[ast.expr] = field(default_factory=list)
    known: list[ast.expr] = field(default_factory=list)  # to be 0, or computed in any case
    numbers: dict[object, float] = field(default_factory=dict)

    @property
    def flow(self) -> Flow:
        return self.script.analysis(Flow)

    def edits(self) -> Edits:
        code, left, right, rest = self.forms()
        check_plain(self.script, left)
        for statement in rest:
            check_plain(self.script, statement)
        before = [right] if right is not None else self.flow.values(self.branch.body[0].target)  # type: ignore[attr-defined]
        kept = {key for e in before for _, key in leaves(self.script, e)}
        if any(key not in kept for _, key in leaves(self.script, left)):
            raise Refusal  # gradients would be 0 that were missing, with which weights decay
        for seed in range(3):
            self.numbers, rng = {}, random.Random(seed)
            one, divisors = self.value(left, rng), [*self.divisors]
            other = 0.0 if right is None else self.value(right, rng)
            if one != other or self.divisors != divisors:
                raise Refusal
        if right is not None:  # what both need is there anyway
            shared = nodes_in(right, ast.Name)
            names = nodes_in(left, ast.Name)
            self.known += [n for n in names if any(self.flow.is_same(n, s) for s in shared)]
        finite = self.script.analysis(Finite)
        values = [s.value for s in rest]  # type: ignore[attr-defined]
        if (
            not finite.of(left, frozenset([*self.divisors, *self.known]))
            or not all(self.is_zero(v) or finite.of(v) for v in values)
            or (self.divisors and not finite.is_whole(self.counted.mask))
        ):
            raise Refusal
        clamped = [Rewrite(d, "{n}.clamp(min=1)", {"n": d}) for d in self.divisors]
        done = Replace(self.branch, code, Holes(value=left)) if code else Remove(self.branch)
        return (done, *clamped)

    def forms(self) -> tuple[str, ast.expr, ast.expr | None, list[ast.stmt]]:
        """The code in the place of the branch, what is computed where there are some, and where
        there are none (None: nothing), and the statements that are come to only where there are.
        """
        body, other = self.branch.body, self.branch.orelse
        some, none = (body, other) if self.counted.some else (other, body)
        match some, none:
            case (
                [ast.Assign(targets=[ast.Name(id=a)], value=left)],
                [ast.Assign(targets=[ast.Name(id=b)], value=right)],
            ) if a == b:
                return f"{a} = {{value}}", left, right, []
            case [ast.AugAssign(ast.Name(id=a), ast.Add() | ast.Sub() as sign, left)], []:
                return f"{a} {SIGNS[type(sign)]}= {{value}}", left, None, []
            case [], [ast.Return(value=ast.expr() as right)]:
                block = block_of(self.branch)
                *rest, last = block[block.index(self.branch) :]
                used = {n.id for e in (right, self.branch.test) for n in nodes_in(e, ast.Name)}
                made = of_kind(map(only_target, rest[1:]), ast.Name)
                names = [n.id for n in made if is_local(n)]
                match last:
                    case ast.Return(value=ast.expr() as left) if len(names) == len(rest) - 1:
                        if used.isdisjoint(names):
                            return "", left, right, rest[1:]
        raise Refusal

    # ------------------------------------------------------------------------- where there are none
    def value(self, expr: ast.expr, rng: random.Random) -> float:
        """What an expression is, with any numbers for what is not known."""
        if self.is_zero(expr):
            self.known.append(expr)
            return 0.0
        match expr:
            case ast.Constant(value=int() | float() as value):
                return float(value)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -self.value(inner, rng)
            case ast.BinOp(left=left, op=ast.Div(), right=right) if self.counted.is_count(right):
                if right not in self.divisors:
                    self.divisors.append(right)
                return self.value(left, rng)
            case ast.BinOp(left=left, op=sign, right=right) if combine := COMBINES.get(type(sign)):
                return combine(self.value(left, rng), self.value(right, rng))
            case ast.Call(func=ast.Attribute(value=inner, attr="clamp")):
                least = literal_of(keyword_of(expr, "min") or next(iter(expr.args), None))
                if isinstance(least, (int, float)) and self.counted.is_count(inner):
                    return float(least)
        if self.counted.is_count(expr):
            return 0.0
        made = (d.node for n in nodes_in(expr, ast.Name) for d in self.flow.reaching(n))
        return self.numbers.setdefault((ast.dump(expr), frozenset(made)), rng.uniform(1, 2))

    def is_zero(self, expr: ast.expr) -> bool:
        """Whether it is 0, with gradients of 0, where the mask is empty."""
        finite = self.script.analysis(Finite)
        match expr:
            case ast.Constant(value=int() | float() as value):
                return value == 0
            case ast.Name():
                return surely(map(self.is_zero, self.flow.values(expr)))
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self.is_zero(inner)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                both = (left, right), (right, left)
                return any(self.is_zero(a) and finite.of(b) for a, b in both)
            case ast.Call():
                name, given = self.script.operation(expr)
                short = last_part(name)
                if short == "tensor" or short in CASTS | MOVES:
                    return bool(given) and self.is_zero(given[0])
                sums = short in REDUCED and self.is_empty(given[0], short == "sum")
                return short in ZEROS or sums
        return False

    def is_empty(self, expr: ast.expr, picks: bool) -> bool:
        """Whether all places are 0 then, or (``picks``) there are none."""
        finite = self.script.analysis(Finite)
        if self.counted.is_mask(expr) or (picks and self.is_picked(expr)):
            return True
        match expr:
            case ast.Name():
                return surely(self.is_empty(e, picks) for e in self.flow.values(expr))
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self.is_empty(inner, picks)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                both = (left, right), (right, left)
                return any(self.is_empty(a, picks) and finite.of(b) for a, b in both)
        return False

    def is_picked(self, expr: ast.expr) -> bool:
        """Whether it is computed, place by place, of what the mask picks: it has no places then."""
        match expr:
            case ast.Subscript(slice=index):
                return self.counted.is_mask(index)
            case ast.BinOp(left=left, right=right):
                return self.is_picked(left) or self.is_picked(right)
            case ast.UnaryOp(operand=inner):
                return self.is_picked(inner)
            case ast.Call():
                name, given = self.script.operation(expr)
                return is_pointwise(name) and bool(given) and self.is_picked(given[0])
        return False


# ------------------------------------------------------------------------------ switches come first
def asked_last(script: Script) -> ByNode[Edits]:
    """The conditions of steps that ask the device before a switch that is off by default, ``if
    torch.isnan(x).any() and DEBUG:``, each with the edit that asks the switch first.
    """
    found: ByNode[Edits] = {}
    for _, site in script.log.each():
        branch = statement_of(site.node)
        match branch:
            case ast.If(test=test) | ast.While(test=test) if (
                branch not in found
                and within(site.node, test)
                and any(o.this is not None and is_on_device(o.this) for o in site)
                and runs_in_steps(script, site)
            ):
                if edits := _switch_first(script, test):
                    found[branch] = edits
    return found


def _switch_first(script: Script, test: ast.expr) -> Edits:
    """``DEBUG and torch.isnan(x).any()``: nothing is left out of what changes anything."""
    match test:
        case ast.BoolOp(op=ast.And(), values=[first, *rest]):
            off = [p for p in rest if _is_off(script, p)]
            parts = [*off, first, *(p for p in rest if p not in off)]
            passed = test.values[: test.values.index(off[-1])] if off else []
            if passed and all(map(script.analysis(Computes).only, passed)):
                holes = {f"p{n}": part for n, part in enumerate(parts)}
                return (Rewrite(test, " and ".join(f"{{{name}}}" for name in holes), holes),)
    return ()


def _is_off(script: Script, switch: ast.expr) -> bool:
    """Whether it is a variable, or an option, that is false by default, and there to be asked."""
    match switch:
        case ast.Name():
            own = script.analysis(Flow).definitions(switch)
            of_module = isinstance(owner(switch), ast.Module) and not is_at_top(switch)
            there = of_module or not own.may_be_unbound(switch)
        case ast.Attribute(value=ast.Name() as held):
            there = surely(not isinstance(t, Const | Unknown) for t in script.values(held))
        case _:
            return False
    found = script.values(switch)
    plain = [v for t in found for v in (t.default if isinstance(t, Arg) else (t,))]
    return there and all_of(plain, Const) and not all(t.value for t in of_kind(plain, Const))
