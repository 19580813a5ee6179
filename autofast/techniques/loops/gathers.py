"""Rows that each turn picks out of its own row of a tensor: ``x[i][index[i]]``, for all ``i``.

``torch.stack([x[i][index[i]] for i in range(n)])``, the same of a list that a loop fills, and
``out[i, j] = x[i, index[i, j]]`` are one index of all: ``x[torch.arange(n)[:, None], index]``.
"""

from __future__ import annotations

import ast

from autofast.edit.edits import Edit, Edits, Holes, Remove, Replace, Rewrite
from autofast.facts.batch.alignment import Alignment
from autofast.facts.batch.samples import is_all
from autofast.facts.dimensions import dimension_count
from autofast.facts.element_reads import stays_inside
from autofast.facts.extents import measured_by
from autofast.facts.index_types import are_long
from autofast.facts.turns import Turning
from autofast.flow.changes import may_change
from autofast.flow.memory import Memory
from autofast.flow.program import Flow, definitions_of
from autofast.model.calls import (
    is_method,
    is_path,
    is_same_code,
    items_of,
    literal_of,
    names_in,
    variable_name,
)
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import (
    block_of,
    is_same_function,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
)
from autofast.model.syntax import is_stored
from autofast.model.values import Tensor
from autofast.rule import Effect, Refusal
from autofast.techniques.loops.rows import Planned, appended, put_together
from autofast.write.spelling import torch_in

Index = tuple[ast.expr, list[ast.expr]]  # a tensor, and all parts of what it is indexed by
COUNTS = ("builtins.range", "torch.arange")
EACH = " "  # what counts the turns of ``zip``


def gather_edits(script: Script, loop: Turning) -> Planned:
    """What picks all rows at once; raises :class:`Refusal`, without words where it is another
    loop.
    """
    turns = _Turns(script, loop)
    match loop:
        case ast.ListComp(elt=elt, generators=[ast.comprehension(ifs=[], is_async=0) as head]):
            (inlined, gone), (call, held) = _inlined(script, elt), _put_together(script, loop)
            turns.add(inlined[0] or head.target, head.iter)
            made = turns.together(call, inlined[1])
            return turns.edits(*gone, *held, made)
        case ast.For(body=[ast.For(body=[statement], orelse=[]) as inner], orelse=[]):
            turns.add(loop.target, loop.iter)
            turns.add(inner.target, inner.iter)
        case ast.For(body=[statement], orelse=[]):
            turns.add(loop.target, loop.iter)
        case _:
            raise Refusal
    stored = [n for n in nodes_in(loop, ast.Name) if is_stored(n)]
    if not all(stays_inside(script, n, loop) for n in stored):
        raise Refusal
    if found := appended(statement):
        call, home, place = put_together(script, loop, found[0])
        made = turns.together(call, found[1])
        block = block_of(loop)
        between = block[block.index(loop) + 1 : block.index(place)]
        if any(may_change(script, between, e) for e in turns.holes.values()):
            raise Refusal
        return turns.edits(Remove(home), Remove(loop), made)
    return turns.edits(turns.filled(loop, statement))


class _Turns:
    """The variables that count, in order, each with how often (None: as the rows of a tensor);
    those that get rows of a tensor; and what stands for parts of the script in the new code.
    """

    def __init__(self, script: Script, loop: Turning):
        self.script = script
        self.torch, self.imports = torch_in(source_of(loop))
        self.counts = dict[str, ast.expr | None]()
        self.rows = dict[str, ast.expr]()
        self.holes: Holes = {}
        self.own = {n.id for n in nodes_in(loop, ast.Name) if is_stored(n)}
        # a lambda reads the variables around it when it is called
        self.here = {n.id: n for n in nodes_in(loop, ast.Name) if not is_stored(n)}

    def add(self, target: ast.expr, over: ast.expr) -> None:
        """The variables of a loop; raises :class:`Refusal` where it goes over something else."""
        while is_method(over, "long") and not over.args:
            over = over.func.value
        match target, over:
            case ast.Name(id=name), ast.Call(args=[count], keywords=[]) if self.script.is_call(
                over, *COUNTS
            ):
                self.counts[name] = count
            case ast.Tuple(elts=[ast.Name(id=name), ast.Name(id=row)]), ast.Call(
                args=[rows], keywords=[]
            ) if self.script.is_call(over, "builtins.enumerate"):
                self.counts[name], self.rows[row] = None, rows
            case (
                ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)]),
                ast.Call(args=[one, other]),
            ) if self.script.is_call(over, "builtins.zip"):
                if not self.script.analysis(Alignment).have_same_rows(one, other):
                    raise Refusal
                self.counts[EACH] = None
                self.rows |= {first: one, second: other}
            case _:
                raise Refusal

    def edits(self, *made: Edit) -> Planned:
        """All edits; raises :class:`Refusal` where what they keep is another in each turn."""
        names = {n for e in self.holes.values() for n in names_in(e)}
        if names & {*self.counts, *self.rows, *self.own}:
            raise Refusal
        return (*self.imports, *made), Effect.ROUNDING

    def hole(self, expr: ast.expr) -> str:
        """A part of the script in the new code."""
        same = (n for n, e in self.holes.items() if is_same_code(e, expr))
        name = next(same, f"e{len(self.holes)}")
        self.holes[name] = expr
        return f"{{{name}}}"

    def index(self, expr: ast.expr) -> Index:
        """``x`` and ``i``, ``index[i]`` of ``x[i][index[i], :]``; without what takes all of a
        dimension.
        """
        match expr:
            case ast.Name(id=name) if name in self.rows:
                counter = ast.Name(next(iter(self.counts)), ast.Load())
                return self.rows[name], [counter]
            case ast.Subscript(value=inner, slice=index):
                tensor, parts = self.index(inner)
                more = items_of(index)
                while more and is_all(more[-1]):
                    more = more[:-1]
                return tensor, [*parts, *more]
            case ast.Call(
                func=ast.Attribute(value=inner, attr="index_select"),
                args=[axis, index],
                keywords=[],
            ) if literal_of(axis) == 0:
                tensor, parts = self.index(inner)
                return tensor, [*parts, index]
            case ast.Call(args=[inner, axis, index], keywords=[]) if literal_of(
                axis
            ) == 0 and self.script.is_call(expr, "torch.index_select"):
                tensor, parts = self.index(inner)
                return tensor, [*parts, index]
        if not is_path(expr) or not self.script.must_be(expr, Tensor):
            raise Refusal
        return expr, []

    def all(self, expr: ast.expr) -> tuple[str, ast.expr, list[ast.expr], ast.expr]:
        """The code for what an expression picks in all turns, its tensor, the parts of its index,
        and the tensor with the places; raises :class:`Refusal` where it picks nothing.
        """
        tensor, parts = self.index(expr)
        if all(t.device == "cpu" for t in of_kind(self.script.values(tensor), Tensor)):
            raise Refusal  # nothing is launched
        picked = [p for p in parts if not self._is_counter(p)]
        if len(picked) != 1:
            raise Refusal
        places, counters = self.index(picked[0])
        places = self.here.get(variable_name(places), places)
        if [*map(variable_name, counters)] != [*self.counts] or not are_long(self.script, places):
            raise Refusal
        codes = [
            self._picked(places) if p is picked[0] else self._counted(tensor, places, p)
            for p in parts
        ]
        return f"{self.hole(tensor)}[{', '.join(codes)}]", tensor, parts, places

    def _is_counter(self, expr: ast.expr) -> bool:
        return variable_name(expr) in self.counts

    def _count(self, name: str, places: ast.expr) -> str:
        count = self.counts[name]
        return f"len({self.hole(places)})" if count is None else self.hole(count)

    def _counted(self, tensor: ast.expr, places: ast.expr, counter: ast.expr) -> str:
        """The turns of one loop, as an index beside the places."""
        name = variable_name(counter)
        behind = 1 + [*self.counts].index(name)
        numbers = (
            f"{self.torch}.arange({self._count(name, places)}, device={self.hole(tensor)}.device)"
        )
        rank = dimension_count(self.script, places)
        if rank is None:
            return f"{numbers}.view(-1, *[1] * ({self.hole(places)}.dim() - {behind}))"
        return f"{numbers}[:{', None' * (rank - behind)}]" if rank > behind else numbers

    def _picked(self, places: ast.expr) -> str:
        """The places of all turns."""
        count, *more = self.counts.values()
        if count is None:
            return self.hole(places)
        measured = measured_by(count)
        together = self.script.analysis(Alignment)
        if not more and measured is not None and together.have_same_rows(measured, places):
            return self.hole(places)
        ends = [":" if n is None else f":{self.hole(n)}" for n in (count, *more)]
        return f"{self.hole(places)}[{', '.join(ends)}]"

    def together(self, call: ast.AST | None, value: ast.expr) -> Rewrite:
        """What stands in the place of ``torch.stack``, or ``torch.cat``, of all that is picked."""
        script = self.script
        stacks = script.is_call(call, "torch.stack")
        match value:
            case ast.Call(func=ast.Attribute(value=row, attr="unsqueeze"), args=[axis]) if (
                not stacks and literal_of(axis) == 0
            ):
                value, stacks = row, True
        match call:
            case (
                ast.Call(args=[_], keywords=[])
                | ast.Call(args=[_], keywords=[ast.keyword(arg="dim", value=ast.Constant(value=0))])
                | ast.Call(args=[_, ast.Constant(value=0)], keywords=[])
            ) if script.is_call(call, "torch.stack", "torch.cat"):
                code, _, _, places = self.all(value)
            case _:
                raise Refusal
        if len(self.counts) > 1 or not (stacks or dimension_count(script, places) == 2):
            raise Refusal
        return Rewrite(call, code if stacks else f"{code}.flatten(0, 1)", self.holes)

    def filled(self, loop: ast.stmt, statement: ast.stmt) -> Replace:
        """What fills all places at once: ``out[:n, :m] = ...``."""
        script = self.script
        match statement:
            case ast.Assign(targets=[ast.Subscript() as target], value=value):
                out, counters = self.index(target)
            case _:
                raise Refusal
        code, tensor, parts, places = self.all(value)
        memory, names = script.analysis(Memory), [*self.counts]
        if [*map(variable_name, counters)] != names:
            raise Refusal
        if memory.may_share(out, tensor) or memory.may_share(out, places):
            raise Refusal
        rank = dimension_count(script, places)
        if not self._fits(out, tensor, len(parts), rank):
            raise Refusal
        ends = ", ".join(f":{self._count(n, places)}" for n in names)
        filled = f"{self.hole(out)}[{ends}]"
        code += f".view_as({filled})" if rank is None else ""
        return Replace(loop, f"{filled} = {code}", self.holes)

    def _fits(self, out: ast.expr, tensor: ast.expr, parts: int, rank: int | None) -> bool:
        """Whether what is picked has as many dimensions as the place that it comes to."""
        script = self.script
        like = script.analysis(Alignment).have_same_shape(out, tensor)
        if rank is None:
            return like and parts == len(self.counts)  # numbers, or tensors of one
        one, other = dimension_count(script, out), dimension_count(script, tensor)
        known = one is not None and other is not None and one == rank + other - parts
        return known or (like and rank == parts)


def _put_together(script: Script, rows: ast.ListComp) -> tuple[ast.AST | None, Edits]:
    """The call that a list is given to, also in the statement below, where nothing else has it, and
    what takes away its variable.
    """
    match above := parent_of(rows):
        case ast.Assign(targets=[ast.Name() as held]):
            uses, block = definitions_of(script, held).uses_of(held), block_of(above)
            (below,) = block[block.index(above) + 1 :][:1] or [above]
            if len(uses) == 1 and statement_of(uses[0]) is below:
                return parent_of(uses[0]), (Remove(above),)
            raise Refusal
    return above, ()


def _inlined(script: Script, elt: ast.expr) -> tuple[tuple[ast.expr | None, ast.expr], Edits]:
    """The body of ``get`` for ``get(i)``, where that is a lambda of one statement above, with its
    own name for what it is given; else what is there.
    """
    flow = script.analysis(Flow)
    match elt:
        case ast.Call(func=ast.Name() as func, args=[ast.Name()], keywords=[]):
            made = flow.value(func)
        case _:
            return (None, elt), ()
    match made:
        case ast.Lambda(args=ast.arguments(args=[ast.arg(arg=name)], defaults=[]), body=body):
            if is_same_function(made, elt):
                alone = flow.value_of_its_own(func) is made
                gone = (Remove(statement_of(made)),) if alone else ()
                return (ast.Name(name, ast.Store()), body), gone
    raise Refusal
