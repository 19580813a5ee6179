"""Numbers that a loop computes of each row, and adds up or collects: losses of single samples, the
hardest example of each.

What is done to each place of a row is done to each place of the batch, and what reduces a row to a
number reduces all dimensions of the batch but the first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from autofast.edit.edits import Edits, Remove, Replace, Rewrite
from autofast.facts.batch.alignment import Alignment, is_flat
from autofast.facts.dimensions import dimension_count, least_dimensions
from autofast.flow.changes import may_change
from autofast.flow.scopes import stored_in
from autofast.model.calls import (
    is_method,
    is_name,
    is_same_code,
    items_of,
    names_in,
    only_target,
    variable_name,
)
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import any_in, any_of, surely, wordset
from autofast.model.source import block_of, running
from autofast.model.syntax import is_written
from autofast.model.values import Arg, Const, Num, Tensor, of_kind
from autofast.ops import families, is_pointwise
from autofast.ops.families import COMPARED
from autofast.rule import Effect, Refusal
from autofast.techniques.loops.rows import Planned, Rows, appended, put_together

SIGNS = families.SIGNS | {ast.Pow: "**"}
TURNED = {"==": "!=", "!=": "=="}  # NaN is neither below nor above
REDUCED = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}
INFINITE = {"max": 'float("-inf")', "min": 'float("inf")'}
KEEP = wordset("float double detach contiguous")
TRUTHS = wordset("eq ne gt lt ge le")


RANKS = {"+": 1, "-": 1, "*": 2, "/": 2, "**": 4}  # how closely operators bind; 3: a sign
ATOM = 9


class Form(Enum):
    NUMBER = "the same in all turns"
    EACH = "a number for each row"
    FLAT = "a vector for each row"
    ROWS = "a tensor for each row"


@dataclass(frozen=True)
class Value:
    """What an expression is for all rows: its code (a template), its form.

    ``parts``: the tensors of whose rows it is made. ``negated``: the code for the contrary of
    truths. ``kept``: for which places (a code, of the others) a row is reduced.
    ``in_row``: the number of each row has a dimension of its own.
    """

    code: str
    form: Form
    parts: tuple[ast.expr, ...] = ()
    rank: int = ATOM
    negated: str = ""
    kept: str = ""
    in_row: bool = False

    def __str__(self) -> str:
        return self.beside(ATOM)

    def beside(self, rank: int, behind: bool = False) -> str:
        """Its code as an operand of an operator of this rank."""
        return self.code if self.rank > rank - (not behind) else f"({self.code})"


def number_edits(script: Script, rows: Rows) -> Planned:
    """What computes the numbers of all rows at once, and what that changes; raises
    :class:`Refusal`, without words where the loop does anything else.
    """
    return _Numbers(script, rows).edits()


@dataclass
class _Numbers:
    script: Script
    rows: Rows
    names: dict[str, Value] = field(default_factory=dict)  # that the loop binds
    parts: list[ast.expr] = field(default_factory=list)
    lists: dict[ast.Name, Value] = field(default_factory=dict)
    sums: list[ast.expr] = field(default_factory=list)
    exact: bool = True

    def edits(self) -> Planned:
        loop = self.rows.loop
        lines = list(self.block(loop.body))
        if not lines and not self.lists:
            raise Refusal
        self.rows.check_device(self.parts)
        self.rows.check_rows(self.parts)
        self.rows.check_names(self.sums)
        collected = [e for held, value in self.lists.items() for e in self.joined(held, value)]
        if lines and not self.lists:
            made: Edits = (Replace(loop, "\n".join(lines), self.rows.holes),)
        elif self.lists and not lines:
            made = (Remove(loop),)
        else:
            raise Refusal
        return (*collected, *made), Effect.EXACT if self.exact else Effect.ROUNDING

    # ----------------------------------------------------------------------------------- statements
    def block(self, body: Sequence[ast.stmt]) -> Iterator[str]:
        """The statements for all rows."""
        for statement in running(body):
            match statement:
                case ast.For(target=ast.Name() as target, iter=over, body=inner, orelse=[]) if (
                    self.script.is_call(over, "builtins.range") and self.rows.stays(over)
                ):
                    before = len(self.lists)
                    lines = list(self.block(inner))
                    if len(self.lists) > before or not lines:
                        raise Refusal
                    yield f"for {target.id} in {self.rows.hole(over)}:"
                    yield from (f"    {line}" for line in lines)
                case _:
                    yield from self.statement(statement)

    def statement(self, statement: ast.stmt) -> Iterator[str]:
        """One of them: it names a number, adds it up, or puts it into a list."""
        match statement:
            case ast.Assign(value=value) if name := variable_name(only_target(statement)):
                if self.is_sum(name, value):
                    self.sums += [only_target(statement) or value]
                    yield f"{name} = {self.added(name, value)}"
                else:
                    yield self.named(name, value)
            case ast.Assign(
                targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values) as together
            ) if len(targets) == len(values):
                names = [variable_name(target) for target in targets]
                if not all(names) or any_in(names, names_in(together)):
                    raise Refusal
                yield from map(self.named, names, values)
            case ast.AugAssign(target=ast.Name(id=name) as total, op=ast.Add(), value=value):
                self.sums.append(total)
                yield f"{name} += {self.total(self.value(value))}"
            case _ if found := appended(statement):
                self.lists[found[0]] = self.value(found[1])
            case _:
                raise Refusal

    def named(self, name: str, value: ast.expr) -> str:
        """``name = value``"""
        found = self.value(value)
        if found.form is Form.NUMBER or found.kept:
            raise Refusal
        self.names[name] = replace(found, code=name, rank=ATOM)
        return f"{name} = {found.code}"

    def is_sum(self, name: str, value: ast.expr) -> bool:
        """``total = total + ...``, of a variable that is made before the loop."""
        return any(is_name(term, name) for term, _ in _terms(value)) and name not in self.names

    def added(self, name: str, value: ast.expr) -> str:
        """The same for all rows: ``total + (1 - ...).sum()``."""
        terms = _terms(value)
        old = [(t, sign) for t, sign in terms if is_name(t, name)]
        if [sign for _, sign in old] != [1]:
            raise Refusal
        rest = [(self.value(t), sign) for t, sign in terms if (t, sign) not in old]
        code = "".join(f" {'+' if sign > 0 else '-'} {v.beside(1, True)}" for v, sign in rest)
        code = code.removeprefix(" + ") if rest[0][1] > 0 else "-" + code.removeprefix(" - ")
        forms = {v.form for v, _ in rest}
        if not {Form.EACH} <= forms <= {Form.EACH, Form.NUMBER}:
            raise Refusal
        alone = len(rest) == 1 and rest[0][1] > 0
        whole = Value(code, Form.EACH, rank=rest[0][0].rank if alone else 1)
        return f"{name} + {self.total(whole)}"

    def total(self, value: Value) -> str:
        if value.form is not Form.EACH or value.kept or value.in_row:
            raise Refusal
        self.exact = False
        return f"{value}.sum()"

    def joined(self, held: ast.Name, value: Value) -> Edits:
        """The list, in the one place that makes a tensor of it."""
        script, loop = self.script, self.rows.loop
        call, home, place = put_together(script, loop, held)
        along = [*call.args[1:], *(k.value for k in call.keywords)]
        if value.form is not Form.EACH or script.is_call(call, "torch.cat") != value.in_row:
            raise Refusal
        if not all(is_written(a, 0) for a in along):
            raise Refusal
        if not stored_in(home) <= {n.id for n in self.lists}:
            raise Refusal
        block = block_of(loop)
        between = block[block.index(loop) + 1 : block.index(place)]
        if any(may_change(script, between, part) for part in value.parts):
            raise Refusal
        return Rewrite(call, value.code, self.rows.holes), Remove(home)

    # ---------------------------------------------------------------------------------- expressions
    def value(self, expr: ast.expr) -> Value:
        """What an expression of one turn is in all; raises :class:`Refusal` where that is not
        known.
        """
        match expr:
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.Name(id=name) if name in self.rows.over and not self.rows.stays(expr):
                return self.row(self.rows.over[name], [])
            case ast.Subscript(value=tensor, slice=index):
                first, *rest = items_of(index)
                if is_name(first, self.rows.index or "?") and self.rows.stays(tensor):
                    return self.row(tensor, rest)
                return self.chosen(self.value(tensor), self.value(index))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in SIGNS:
                return self.combined(SIGNS[type(op)], self.value(left), self.value(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARED:
                sign, both = COMPARED[type(op)], (self.value(left), self.value(right))
                if both[0].negated and is_written(right, 0) and sign in ("==", "!="):  # truths
                    contrary = replace(both[0], code=both[0].negated, negated=both[0].code)
                    return contrary if sign == "==" else both[0]
                found = self.combined(sign, *both)
                turned = self.combined(TURNED[sign], *both).code if sign in TURNED else ""
                return replace(found, negated=turned or f"~({found.code})")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                found = self.value(operand)
                return replace(found, code=f"-{found.beside(3)}", rank=3)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                found = self.value(operand)
                if not found.negated:
                    raise Refusal
                return replace(found, code=found.negated, negated=found.code, rank=0)
            case ast.Call() if not self.script.must_be(expr, Const, Num, Arg):
                return self.called(expr)
        if self.rows.stays(expr) and self.script.must_be(expr, Const, Num, Arg):
            return Value(self.rows.hole(expr), Form.NUMBER)
        raise Refusal

    def row(self, tensor: ast.expr, rest: list[ast.expr]) -> Value:
        """``x[i]``, ``x[i, c]``"""
        fixed = all(self.script.must_be(r, Const, Num, Arg) for r in rest)
        if not self.script.must_be(tensor, Tensor) or not fixed:
            raise Refusal
        self.parts.append(tensor)
        code = self.rows.hole(tensor)
        if rest:
            code += f"[:, {', '.join(map(self.rows.hole, rest))}]"
        dims = dimension_count(self.script, tensor)
        form = {1: Form.EACH, 2: Form.FLAT}.get((dims or 9) - len(rest), Form.ROWS)
        truths = not rest and self.is_truth(tensor)
        return Value(code, form, (tensor,), negated=f"~{code}" if truths else "")

    def is_truth(self, tensor: ast.expr) -> bool:
        """Whether a tensor certainly holds truths."""
        made = self.rows.flow.values(tensor)
        return surely(any_of([e], ast.Compare) or is_method(e, *TRUTHS) for e in made)

    def chosen(self, values: Value, places: Value) -> Value:
        """``dist[i][mask[i]]``, of which a number is made next."""
        if values.form is not Form.FLAT or places.form is not Form.FLAT or not places.negated:
            raise Refusal
        kept = places.negated
        return replace(values, parts=(*values.parts, *places.parts), kept=kept)

    def combined(self, sign: str, one: Value, other: Value) -> Value:
        forms = {one.form, other.form} - {Form.NUMBER}
        if len(forms) != 1 or one.kept or other.kept:
            raise Refusal
        form = forms.pop()
        if form is Form.ROWS and one.parts and other.parts and not self.are_alike(one, other):
            raise Refusal
        rank = RANKS.get(sign, 0)
        power, chained = sign == "**", rank == 0
        code = f"{one.beside(rank, power or chained)} {sign} {other.beside(rank, not power)}"
        return Value(code, form, (*one.parts, *other.parts), rank)

    def are_alike(self, one: Value, other: Value) -> bool:
        """Whether rows have as many dimensions, so that none is spread over the batch."""
        first, *others = (*one.parts, *other.parts)
        together = self.script.analysis(Alignment)
        counts = {dimension_count(self.script, p) for p in (first, *others)}
        return (len(counts) == 1 and None not in counts) or all(
            is_same_code(first, p) or together.have_same_shape(first, p) for p in others
        )

    def called(self, call: ast.Call) -> Value:
        name, given = self.script.operation(call)
        if not given or not name:
            raise Refusal
        short, found = last_part(name), self.value(given[0])
        if found.form is Form.NUMBER:
            raise Refusal
        if is_flat(call):
            if found.form is Form.EACH or found.kept:
                raise Refusal
            if found.form is Form.FLAT:
                return found
            return replace(found, code=self.flat(found), form=Form.FLAT, rank=ATOM)
        if short in REDUCED and len(given) == 1 and name in (f".{short}", f"torch.{short}"):
            return self.reduced(short, found)
        if found.form is Form.EACH and (
            (short == "unsqueeze" and is_written(given[1], 0))
            or (short == "view" and is_written(given[1], 1))
        ):
            return replace(found, in_row=True)
        numbers = all(self.script.must_be(a, Const, Num, Arg) for a in given[1:])
        if found.kept or not numbers or not (is_pointwise(name) or short in KEEP):
            raise Refusal
        if name.startswith("."):
            args = ", ".join(
                [*map(self.rows.hole, call.args)]
                + [f"{k.arg}={self.rows.hole(k.value)}" for k in call.keywords]
            )
            return replace(found, code=f"{found}.{short}({args})", rank=ATOM, negated="")
        raise Refusal

    def flat(self, value: Value) -> str:
        """A batch with a vector for each row, also of rows of one number."""
        tensor = value.parts[0]
        if least_dimensions(self.script, tensor) - value.code.count("[:, ") >= 2:
            return f"{value}.flatten(1)"
        if self.script.analysis(Alignment).are_samples(tensor):
            return f"{value}.reshape(len({self.rows.hole(tensor)}), -1)"  # not of no rows
        taken = f"{value.code[:-1]}, " if value.code.endswith("]") else f"{value}[:, "
        return f"{taken}None].flatten(1)"

    def reduced(self, name: str, value: Value) -> Value:
        if value.form is Form.EACH:
            raise Refusal
        code = self.flat(value) if value.form is Form.ROWS else f"{value}"
        if value.kept:
            if name not in INFINITE or not self.is_float(value):
                raise Refusal
            code += f".masked_fill({value.kept}, {INFINITE[name]})"
        self.exact = self.exact and name in INFINITE
        return Value(f"{code}.{REDUCED[name]}(1)", Form.EACH, value.parts)

    def is_float(self, value: Value) -> bool:
        found = of_kind(self.script.values(value.parts[0]), Tensor)
        return all(t.dtype != "int" for t in found)


def _terms(expr: ast.expr, sign: int = 1) -> list[tuple[ast.expr, int]]:
    """What is added, and what is taken away (-1)."""
    match expr:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            other = sign if isinstance(op, ast.Add) else -sign
            return [*_terms(left, sign), *_terms(right, other)]
    return [(expr, sign)]
