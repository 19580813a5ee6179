"""Sums over groups of rows: ``out.append(h[batch == g].sum(0))``, readouts of networks of graphs.

What is done to the rows of one group is done to all rows, and ``index_add_`` sums them by the
number of their group.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from autofast.edit.edits import Edits, Remove, Replace, Rewrite
from autofast.facts.dimensions import dimension_count
from autofast.facts.index_types import are_long
from autofast.facts.makers import Makers
from autofast.facts.rowwise import Rowwise
from autofast.facts.smallest import Smallest
from autofast.flow.changes import may_change
from autofast.flow.scopes import stored_in
from autofast.model.calls import (
    is_method,
    is_name,
    is_same_code,
    keyword_of,
    literal_of,
    only_target,
    variable_name,
)
from autofast.model.names import AUTOCAST
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import block_of, running, source_of
from autofast.model.syntax import is_written
from autofast.model.values import Tensor, of_kind
from autofast.ops.families import SIGNS
from autofast.rule import Effect, Refusal
from autofast.techniques.loops.rows import (
    Planned,
    Rows,
    appended,
    applied,
    bare,
    is_fixed,
    put_together,
)
from autofast.write.spelling import torch_in

REDUCED = ("sum", "mean")
DETERMINISTIC = "torch.use_deterministic_algorithms"


@dataclass(frozen=True)
class Value:
    """What an expression is for all groups: its code (a template).

    ``of``: the tensor of whose rows it is made; None of a test that picks the rows of a group.
    ``summed``: it has a row for each group. ``kept``: and one group has a dimension for it.
    ``real``: it certainly holds floating-point numbers.
    """

    code: str
    of: ast.expr | None = None
    summed: bool = False
    kept: bool = False
    real: bool = False


def group_edits(script: Script, rows: Rows) -> Planned:
    """What sums the rows of all groups at once; raises :class:`Refusal`, without words where it is
    another loop.
    """
    return _Groups(script, rows).edits()


@dataclass
class _Groups:
    script: Script
    rows: Rows
    names: dict[str, Value] = field(default_factory=dict)  # that the loop binds
    lines: list[str] = field(default_factory=list)
    imports: Edits = ()
    index: ast.expr | None = None  # the group of each row
    tensors: list[ast.expr] = field(default_factory=list)

    def edits(self) -> Planned:
        rows, loop = self.rows, self.rows.loop
        *before, last = running(loop.body)
        if rows.count is None or not (found := appended(last)):
            raise Refusal
        for statement in before:
            self.bind(variable_name(only_target(statement)), statement)
        value = self.value(found[1])
        call, home, place = put_together(self.script, loop, found[0])
        along = [*call.args[1:], *(k.value for k in call.keywords)]
        if not value.summed or self.script.is_call(call, "torch.cat") != value.kept:
            raise Refusal
        if not all(is_written(a, 0) for a in along) or stored_in(home) != {found[0].id}:
            raise Refusal
        block = block_of(loop)
        between = block[block.index(loop) + 1 : block.index(place)]
        if any(may_change(self.script, between, t) for t in self.tensors):
            raise Refusal
        rows.check_device(self.tensors)
        self.check(rows.count)
        rows.check_names()
        done = Replace(loop, "\n".join(self.lines), rows.holes) if self.lines else Remove(loop)
        made = Rewrite(call, bare(value.code), rows.holes)
        return (*self.imports, done, made, Remove(home)), Effect.ROUNDING

    def bind(self, name: str, statement: ast.stmt) -> None:
        """What a statement of the loop names; where it computes, it does so for all rows."""
        if not name or name in self.names:
            raise Refusal
        found = self.value(statement.value)  # type: ignore[attr-defined]
        if "(" in found.code:
            self.lines.append(f"{name} = {bare(found.code)}")
            found = replace(found, code=name)
        self.names[name] = found

    # ---------------------------------------------------------------------------------- expressions
    def value(self, expr: ast.expr) -> Value:
        """What an expression is for all groups; raises :class:`Refusal` where that is not known."""
        match expr:
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                index, group = (right, left) if is_name(left, self.rows.index) else (left, right)
                if not is_name(group, self.rows.index) or not self.rows.stays(index):
                    raise Refusal
                if not is_same_code(self.index or index, index):
                    raise Refusal
                self.index = index
                return Value("")
            case ast.Subscript(value=tensor, slice=test) if self.rows.stays(tensor):
                if self.value(test).of is not None:
                    raise Refusal
                return self.whole(tensor)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in SIGNS and all(
                self.script.must_be(e, Tensor) for e in (left, right)
            ):
                one, other = self.value(left), self.value(right)
                if not self.are_alike(one, other):
                    raise Refusal
                code = f"({one.code} {SIGNS[type(op)]} {other.code})"
                return replace(one, code=code, real=one.real or other.real)
            case ast.Call():
                name, given = self.script.operation(expr)
                short = name.rpartition(".")[2]
                if short in REDUCED and name in (f".{short}", f"torch.{short}"):
                    return self.reduced(short, expr, given)
        step = self.script.analysis(Rowwise).step(expr)
        if step is None or not is_fixed(self.script, self.rows.loop, expr, step[0]):
            raise Refusal
        found = self.value(step[0])
        if found.of is None or found.kept:
            raise Refusal
        code = applied(expr, step[0], found.code, self.rows.hole)
        return replace(found, code=code, real=found.real or step[1])

    def whole(self, tensor: ast.expr) -> Value:
        found = of_kind(self.script.values(tensor), Tensor)
        if not self.script.must_be(tensor, Tensor):
            raise Refusal
        self.tensors.append(tensor)
        real = surely(t.grad or t.dtype in ("f32", "f64", "half") for t in found)
        return Value(self.rows.hole(tensor), tensor, real=real)

    def are_alike(self, one: Value, other: Value) -> bool:
        """Whether both are rows, or sums, with as many dimensions."""
        if one.of is None or other.of is None or one.kept or other.kept:
            return False
        counts = {dimension_count(self.script, v.of) for v in (one, other) if v.of is not None}
        same = is_same_code(one.of, other.of) or (len(counts) == 1 and None not in counts)
        return same and one.summed == other.summed

    def reduced(self, name: str, call: ast.Call, given: list[ast.expr]) -> Value:
        """``x.sum(0)``, ``torch.mean(x, dim=0, keepdim=True)``"""
        axis = keyword_of(call, "dim") or keyword_of(call, "axis")
        keep = keyword_of(call, "keepdim")
        found = self.value(given[0])
        count = dimension_count(self.script, found.of) if found.of is not None else None
        plain = len(given) == 1 and count == 1 and not call.keywords
        if axis is None and not plain:
            axis = given[1] if len(given) > 1 + len(call.keywords) else None
        if found.of is None or found.summed or not (plain or literal_of(axis) == 0):
            raise Refusal
        if len(given) != 2 - plain + (keep is not None):
            raise Refusal
        if not found.real:
            raise Refusal(
                f"nothing shows that `{ast.unparse(found.of)}` is of floating-point numbers"
            )
        if name == "mean" and count not in (1, 2):
            raise Refusal(
                f"nothing shows how many dimensions `{ast.unparse(found.of)}` has, whose means are taken"
            )
        code, place = self.summed(found, count)
        if name == "mean":
            torch, self.imports = torch_in(source_of(call))
            counts = f"{torch}.bincount({place})"
            code = f"({code} / {counts}{'.unsqueeze(1)' * (count == 2)})"
        kept = keep is not None and literal_of(keep) is True
        return replace(found, code=code, summed=True, kept=kept)

    def summed(self, value: Value, count: int | None) -> tuple[str, str]:
        """Sums of the rows of each group, and the numbers of the groups."""
        code = value.code
        if self.rows.half or self.script.calls(*AUTOCAST):
            code = f"{code}.float()"  # as `sum` gives it
        if "(" in code:
            name = source_of(self.rows.loop).fresh(
                *["weighted"] * (" * " in code), "rows", "per_row"
            )
            self.lines.append(f"{name} = {bare(code)}")
            code = name
        assert self.rows.count is not None
        sides = {1: "", 2: f", {code}.size(1)"}.get(count or 0, f", *{code}.shape[1:]")
        zeros = f"{code}.new_zeros({bare(self.rows.hole(self.rows.count))}{sides})"
        if self.index is None:
            raise Refusal
        tensors = [t for e in (self.index, *self.tensors) for t in self.script.values(e)]
        there = {t.device for t in of_kind(tensors, Tensor)}
        place = self.rows.hole(self.index)
        if len(there) != 1 or "?" in there:  # a mask of the host picks rows of the device, too
            place += f".to({code}.device)"
        if not are_long(self.script, self.index):
            place += ".long()"
        return f"{zeros}.index_add_(0, {place}, {code})", place

    # --------------------------------------------------------------------------------------- groups
    def check(self, count: ast.expr) -> None:
        """Raises where some rows may belong to no group, or sums may have to be the same in each
        run.
        """
        script, index = self.script, self.index
        found = of_kind(script.values(index), Tensor) if index is not None else []
        if index is None or not script.must_be(index, Tensor):
            raise Refusal
        if not surely(t.dtype == "int" for t in found) and not are_long(script, index):
            raise Refusal(f"nothing shows that `{ast.unparse(index)}` holds whole numbers")
        makers = script.analysis(Makers).all(index) or [index]
        if not all(dimension_count(script, e) == 1 for e in makers):
            raise Refusal(f"nothing shows that `{ast.unparse(index)}` has one dimension")
        if not self.is_one_above(count, index):
            raise Refusal(
                f"nothing shows that `{ast.unparse(index)}` is always below `{ast.unparse(count)}`"
            )
        least = script.analysis(Smallest).of(index)
        if least is None or least < 0:
            raise Refusal(f"nothing shows that `{ast.unparse(index)}` is never negative")
        if script.deterministic and not script.calls(DETERMINISTIC):
            raise Refusal(
                f"runs are to be the same, and `index_add_` adds in any order without `{DETERMINISTIC}`"
            )

    def is_one_above(self, count: ast.expr, index: ast.expr) -> bool:
        """``int(index.max()) + 1``"""
        flow = self.rows.flow
        most = flow.value(count) or count
        one = False
        while True:
            match most:
                case ast.BinOp(left=left, op=ast.Add(), right=right) if literal_of(right) == 1:
                    if one:
                        return False
                    most, one = left, True
                case ast.Call(args=[inner]) if self.script.is_call(
                    most, "builtins.int", "torch.max"
                ):
                    if not self.script.is_call(most, "builtins.int"):
                        return one and self.is_index(inner, index)
                    most = inner
                case ast.Call(func=ast.Attribute(value=inner), args=[]) if is_method(most, "item"):
                    most = inner
                case ast.Call(func=ast.Attribute(value=inner), args=[]) if is_method(most, "max"):
                    return one and self.is_index(inner, index)
                case _:
                    return False

    def is_index(self, one: ast.expr, index: ast.expr) -> bool:
        return self.rows.flow.is_same(one, index) or (
            variable_name(one) == "" and is_same_code(one, index)
        )
