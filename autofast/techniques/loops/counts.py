"""Loops that count: matrices of labels and predictions, hits of each class, hits of all.

``confusion[t, p] += 1`` for each row of two tensors is ``index_put_`` with ``accumulate=True``: the
same sums in the same places, also where one comes twice, and the same error where there is no such
place. Whole numbers are added, so their order does not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from autofast.edit.edits import Edits, Replace
from autofast.facts.arrays import array_of
from autofast.facts.dimensions import dimension_count
from autofast.flow.memory import Memory, base_of
from autofast.flow.program import definitions_of
from autofast.model.calls import is_path, items_of, only_target, variable_name
from autofast.model.script import Script
from autofast.model.source import nodes_in, running, source_of
from autofast.model.syntax import VARIABLES
from autofast.model.values import Tensor, of_kind
from autofast.rule import Effect, Refusal
from autofast.techniques.loops.rows import Planned, Rows, Whole
from autofast.write.spelling import module_name


def count_edits(script: Script, rows: Rows) -> Planned:
    """What counts all rows at once; raises :class:`Refusal`, without words where the loop does
    anything else.
    """
    counting = _Counting(script, rows)
    sums = list(counting.block(rows.loop.body, []))
    if not sums:
        raise Refusal
    counting.check(sums)
    lines = [line for each in sums for line in counting.lines(*each)]
    made = Replace(rows.loop, "\n".join(lines), rows.holes)
    return (*counting.imports, made), Effect.EXACT


Sum = tuple[ast.expr, ast.expr, list[tuple[ast.expr, bool]]]  # to what, what, under which tests


class _Counting:
    def __init__(self, script: Script, rows: Rows):
        self.script, self.rows, self.imports = script, rows, Edits()

    def block(self, body: Sequence[ast.stmt], tests: list[tuple[ast.expr, bool]]) -> Iterator[Sum]:
        """What the statements add."""
        for statement in running(body):
            match statement:
                case ast.If(test=test, body=then, orelse=other):
                    yield from self.block(then, [*tests, (test, True)])
                    yield from self.block(other, [*tests, (test, False)])
                case ast.AugAssign(target=target, op=ast.Add(), value=value):
                    yield target, value, tests
                case ast.Assign(value=value) if variable_name(only_target(statement)):
                    self.rows.check_plain(value)
                case _:
                    raise Refusal

    def check(self, sums: list[Sum]) -> None:
        """Raises where one of the sums is looked at in the loop."""
        memory = self.script.analysis(Memory)
        targets = [target for target, _, _ in sums]
        mine = {n for t in targets for n in (t, base_of(t))}
        written = set(map(ast.unparse, mine))
        for node in nodes_in(self.rows.loop, *VARIABLES):
            if node not in mine and ast.unparse(node) in written:
                raise Refusal
        for target in targets:
            for part in self.rows.over.values():
                if memory.may_share(base_of(target), part):
                    raise Refusal
        self.rows.check_names(targets)

    def lines(
        self, target: ast.expr, value: ast.expr, tests: list[tuple[ast.expr, bool]]
    ) -> list[str]:
        """The statements for one sum over all rows."""
        rows, places = self.rows, list[ast.expr]()
        match target:
            case ast.Subscript(value=held, slice=index) if not rows.stays(index):
                places, target = items_of(index), held
            case ast.Subscript() if tests:
                raise Refusal  # a dict may have no such key, as long as nothing is counted
            case ast.Name(id=name) if tests:
                if not definitions_of(self.script, target).is_bound_at(rows.loop, name):
                    raise Refusal  # no more than a variable needs a value
        if not variable_name(target) and not rows.stays(target):
            raise Refusal
        with rows.in_one_shape([*places, value, *(test for test, _ in tests)]):
            more = rows.whole(value)
            if not self._counts(value, more):
                raise Refusal
            kept = self._kept(tests)
            if not places:
                return [self._total(target, value, more, kept)]
            if not is_path(target):
                raise Refusal
            return list(self._at_places(target, [rows.place(p) for p in places], more, kept))

    def _kept(self, tests: list[tuple[ast.expr, bool]]) -> Whole | None:
        """The rows for which all tests come out as they have to; None for all."""
        kept = None
        for test, holds in tests:
            asked = self.rows.whole(test)
            if not asked.is_bool:
                raise Refusal
            asked = asked if holds else Whole(f"~{asked}", atom=False)
            kept = asked if kept is None else Whole(f"{kept} & {asked}", atom=False)
        return kept

    def _counts(self, value: ast.expr, more: Whole) -> bool:
        """Whether whole numbers are added, whose sum is the same in any order."""
        if not more.parts:
            number = self.script.constant(value)
            return isinstance(number, (int, float)) and float(number).is_integer()
        found = self.script.values(value)
        tensors = [t for p in more.parts for t in of_kind(self.script.values(p), Tensor)]
        return more.is_bool or bool(found) and all(t.dtype == "int" for t in tensors)

    def _total(self, target: ast.expr, value: ast.expr, more: Whole, kept: Whole | None) -> str:
        """``correct += (p == t).sum().item()``"""
        rows, to = self.rows, self.rows.hole(target)
        if more.real or isinstance(self.script.constant(value), float):
            raise Refusal  # which makes a float of the sum
        if more.parts:
            chosen = f"[{kept.code}]" if kept else ""
            return f"{to} += {more}{chosen}.sum(){'.item()' * more.read}"
        if kept is not None:
            found = f"{kept}.sum().item()"
        else:
            found = rows.hole(rows.count) if rows.count else f"len({rows.hole(rows.first())})"
        return f"{to} += {found if self.script.constant(value) == 1 else f'{more} * {found}'}"

    def _at_places(
        self, target: ast.expr, places: list[Whole], more: Whole, kept: Whole | None
    ) -> Iterator[str]:
        """``confusion.index_put_((y, p), confusion.new_tensor(1), accumulate=True)``"""
        to, source = self.rows.hole(target), source_of(self.rows.loop)
        if kept and len(places) + bool(more.parts) > 1:
            name = source.fresh("kept")
            yield f"{name} = {kept.code}"
            kept = Whole(name)
        chosen = f"[{kept.code}]" if kept else ""
        found = self.script.values(target)
        if self.script.must_be(target, Tensor):
            if any(t.grad or t.param or t.dtype == "half" for t in of_kind(found, Tensor)):
                raise Refusal
            if more.parts and dimension_count(self.script, target) != len(places):
                raise Refusal
            there = [f"{p}{chosen}{self._move(target, p)}" for p in places]
            added = f"{more}{chosen}.to({to})" if more.parts else f"{to}.new_tensor({more})"
            index = f"({', '.join(there)}{',' * (len(there) == 1)})"
            yield f"{to}.index_put_({index}, {added}, accumulate=True)"
            return
        held = array_of(self.script, target)
        if held is None or held.is_list or held.tensor:
            named = ast.unparse(target)
            raise Refusal(
                f"`{named}` is no tensor or array: as one, it could count all rows at once"
            )
        if more.parts and held.rank != len(places):
            raise Refusal
        numpy, imports = module_name(source, "numpy", "np")
        self.imports += imports
        there = [f"{p}{chosen}.cpu().numpy()" for p in places]
        index = there[0] if len(there) == 1 else f"({', '.join(there)})"
        added = f"{more}{chosen}.cpu().numpy()" if more.parts else f"{more}"
        yield f"{numpy}.add.at({to}, {index}, {added})"

    def _move(self, target: ast.expr, place: Whole) -> str:
        """What brings the places to where the counts are."""
        kinds = [
            {t.device for t in of_kind(self.script.values(e), Tensor)}
            for e in (target, *place.parts)
        ]
        if kinds[0] == {"cpu"}:
            return "" if all(k == {"cpu"} for k in kinds) else ".cpu()"
        return "" if all(k == {"dev"} for k in kinds) else f".to({self.rows.hole(target)}.device)"
