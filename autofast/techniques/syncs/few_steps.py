"""What a loop over batches shows in every step is shown in few: a print, what a progress bar says.

``bar.set_postfix(loss=total / (step + 1))`` makes the host wait in every step, for what is added up
as well. Below ``if step % 100 == 0:`` it does in few, and what it shows may stay on the device
until then. The training is the same; what a person sees of it is not, so it is written on request
only.

The conditions are supposed first: what can be done about reads is asked of a script in which they
stand already. Those that something counts on are written.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace

from autofast.edit.edits import Around, Edit, Edits, Remove, Replace
from autofast.edit.ignores import is_spared
from autofast.edit.merge import anchors
from autofast.edit.order import Rank
from autofast.facts.cost.gains.standing import waiting_beside
from autofast.facts.shows import Shows
from autofast.facts.timed import takes_time_of_parts
from autofast.facts.updates.cadence import inside_bar
from autofast.flow.frequency import Frequency, arms_around, frequency
from autofast.flow.loops import Loop, loops_around
from autofast.flow.positions import index_in_block, statements_beside
from autofast.flow.program import graph_of
from autofast.flow.scopes import declared, mentions, stored_in
from autofast.model.calls import is_call_of, is_path, names_in
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import ByNode, at, function_of, is_same_function, nodes_in, within
from autofast.model.syntax import is_stored
from autofast.rule import Effect, Finding, Refusal
from autofast.techniques.syncs.code_motion import NAME, movable
from autofast.techniques.syncs.deferred import ListNames
from autofast.techniques.syncs.sinks import is_record
from autofast.techniques.syncs.steps import EVERY, InFew, is_step
from autofast.write.step_counter import step_counter

OFTEN = (Frequency.EVERY, Frequency.SOME)


@dataclass(frozen=True)
class Supposed:
    """A script as it would be with conditions around what it shows, and the edits that write each
    of them.
    """

    script: Script
    gates: ByNode[ast.If]
    edits: ByNode[Edits]

    def where_nothing_waits(self, waits: Container[ast.AST]) -> Supposed:
        """The same without the conditions beside which one of ``waits`` waits in every turn, with
        nothing begun in between: they would spare nothing.
        """
        few = self.script.analysis(InFew)
        idle: ByNode[str] = {}
        for gate in {g: g for g in self.gates.values()}:
            found = (waiting_beside(self.script, gate.body[0], waits, b) for b in (False, True))
            beside = (s for s in found if s is not None and s not in gate.body)
            if (wait := next(beside, None)) is not None:
                idle[gate] = f"{at(wait)} waits for the device all the same"
        if not idle:
            return self
        left = {s: g for s, g in self.gates.items() if g not in idle}
        why = few.why | {s: idle[g] for s, g in self.gates.items() if g in idle}
        return _supposed(self.script, left, self.edits, why)

    def with_gates(self, finding: Finding) -> Finding:
        """A finding with the conditions that it counts on; one about what is shown itself, which
        has no edits, is done by its condition. Records that are written later change what is seen
        of the training, too.
        """
        gates = self.counted_on(finding) or self._around([finding.node] * (not finding.edits))
        if not gates and not any(map(self._delays, finding.edits)):
            return finding
        more = (e for g in gates for e in self.edits[g])
        edits = (*finding.edits, *more)
        return replace(finding, edits=edits, refusal="", advice="", effect=Effect.RECIPE)

    def counted_on(self, finding: Finding) -> ByNode[ast.If]:
        """The conditions that hold places which its edits change."""
        return self._around([n for e in finding.edits for n in anchors(e)])

    def _around(self, places: Iterable[ast.AST]) -> ByNode[ast.If]:
        around = self.script.analysis(InFew).around
        return {g: g for n in places if (g := around(n)) is not None}

    def _delays(self, edit: Edit) -> bool:
        match edit:
            case Replace(ast.Expr(call)) | Remove(ast.Expr(call)):
                return is_record(self.script, call)
        return False


def supposed_in_few(script: Script) -> Supposed:
    """The script with all conditions that could be written."""
    gates: ByNode[ast.If] = {}
    edits: ByNode[Edits] = {}
    why: ByNode[str] = {}
    for loop, run in _runs(script, why):
        try:
            test, made = _test(script, loop, run)
        except Refusal as reason:
            why |= dict.fromkeys(run, str(reason))
            continue
        around = Around(run[0], run[-1], f"if {test}:", rank=Rank.GUARD)
        gate = ast.If(ast.Constant(True), run, [])
        edits[gate] = (*made, around)
        gates.update((statement, gate) for statement in run)
    return _supposed(script, gates, edits, why)


def _supposed(
    script: Script, gates: ByNode[ast.If], edits: ByNode[Edits], why: ByNode[str]
) -> Supposed:
    few = InFew(script)
    few.is_asked, few.gates, few.why = True, gates, why
    view = replace(script, _analyses=ChainMap({InFew: few}, script._analyses))
    view._analyses[movable] = movable(view)
    view._analyses[ListNames] = ListNames(view)
    return Supposed(view, gates, edits)


def _runs(script: Script, why: ByNode[str]) -> Iterator[tuple[Loop, list[ast.stmt]]]:
    """The statements below each other that loops over batches show something by; of others that
    may, ``why`` they stay.
    """
    runs: list[tuple[Loop, list[ast.stmt]]] = []
    shows = script.analysis(Shows)
    for statement in of_kind(script.nodes, (ast.Expr, ast.Assign)):
        around = list(loops_around(statement)) if shows.is_told(statement) else []
        loop = next((x for x in around if is_step(script, x)), None)
        if loop is None:
            continue
        if not all(_is_of_each_step(x, loop) for x in around[: around.index(loop)]):
            why[statement] = "it is shown in the steps only that are told"
            continue
        if frequency(graph_of(script, statement), statement, loop) not in OFTEN:
            continue
        if reason := _why_not(script, statement, loop):
            why[statement] = reason
            continue
        here, last = statements_beside(statement), runs[-1][1][-1] if runs else None
        if last is not None and index_in_block(here, last) == index_in_block(here, statement) - 1:
            if last in here:
                runs[-1][1].append(statement)
                continue
        runs.append((loop, [statement]))
    yield from runs


def _is_of_each_step(inner: Loop, loop: Loop) -> bool:
    """Whether a loop in one over batches goes over the same in each of its steps."""
    over = getattr(inner, "iter", None)
    return over is not None and not _of_step(over, loop)


def _why_not(script: Script, statement: ast.stmt, loop: Loop) -> str:
    """Why a statement stays in every step."""
    if not script.analysis(Shows).only_shows(statement):
        return "what it does besides, or where it is kept, is needed"
    if is_spared(statement, NAME):
        return "a comment says so"
    # that of what is launched only, where nothing waits
    timed = takes_time_of_parts(script, loop)
    return "the loop takes the time of a part of its steps" if timed else ""


# --------------------------------------------------------------------------------- the condition
def _test(script: Script, loop: Loop, run: list[ast.stmt]) -> tuple[str, Edits]:
    """The condition that holds in few steps of a loop, and in its last where how many there are is
    at hand; with the edits that make its counter. Raises :class:`Refusal`.
    """
    changed = {name for statement in loop.body for name in stored_in(statement)}
    counted, end = next(_counters(script, loop, changed), ("", ""))
    name = counted
    made: Edits = ()
    match loop:
        case ast.For():
            other, start, more = step_counter(script, loop, changed)
            if not (more and counted):
                name, made = other, more
                length = _length(script, loop, changed)
                end = f"len({length}){' - 1' * (start == 0)}" if length else ""
        case _ if not counted:
            raise Refusal("the loop does not count its steps")
    for statement in run:
        jumps = graph_of(script, statement).leaving_before(statement, loop)
        if any(name in names_in(test) for jump in jumps for test in _asked(jump, loop)):
            raise Refusal("it is shown in some steps of a pattern only")
        if any(_of_step(test, loop) for test in _asked(statement, loop)):
            raise Refusal("it is shown in the steps only that are told")
    return f"{name} % {EVERY} == 0" + f" or {name} == {end}" * bool(end), made


def _counters(script: Script, loop: Loop, changed: set[str]) -> Iterator[tuple[str, str]]:
    """The variables that a loop counts its steps by, each with what it is in the last one where
    that is known: that of a range, or one that it adds 1 to.
    """
    match loop:
        case ast.For(target=ast.Name(id=number), iter=whole) if number not in changed:
            over = inside_bar(script.values(whole)) or whole
            if is_call_of(over, "range"):
                yield number, _last(over, changed)
    for statement in loop.body:
        match statement:
            case ast.AugAssign(ast.Name(name) as target, ast.Add(), ast.Constant(1)):
                scope = function_of(loop)
                stored = [n for n in mentions(scope, name) if is_stored(n) and within(n, loop)]
                if stored == [target] and name not in declared(scope):
                    yield name, ""


def _last(over: ast.Call, changed: set[str]) -> str:
    """``n - 1`` of ``range(n)``."""
    match over.args:
        case [ast.Constant(value=int(end))]:
            return str(end - 1)
        case [end] if not names_in(end) & changed:
            sized = end.args[0] if is_call_of(end, "len") and end.args else end
            return f"{ast.unparse(end)} - 1" if is_path(sized) else ""
    return ""


def _asked(node: ast.AST, loop: Loop) -> Iterator[ast.expr]:
    """The conditions of a loop around a place."""
    yield from (gate.test for gate, _ in arms_around(node, loop))


def _of_step(test: ast.expr, loop: Loop) -> bool:
    """Whether a condition may hold in one step and not in the next: ``if loss > 9:``."""
    stored = {n.attr for n in nodes_in(loop, ast.Attribute) if is_stored(n)}
    asked = {n.attr for n in nodes_in(test, ast.Attribute)}
    return bool(names_in(test) & stored_in(loop) or asked & stored)


def _length(script: Script, loop: ast.For, changed: set[str]) -> str:
    """What a loop goes over, by a name, where that certainly has a length."""
    sizes = (n for n in nodes_in(function_of(loop), ast.Call) if is_call_of(n, "len"))
    asked = {ast.unparse(n.args[0]) for n in sizes if n.args}
    over: ast.expr | None = loop.iter
    while over is not None:
        code = ast.unparse(over)
        if is_path(over) and not names_in(over) & changed:
            if code in asked or _is_sized(script, over):
                return code
        over = next(iter(getattr(over, "args", ())), None) or inside_bar(script.values(over))
        if over is not None and not is_same_function(over, loop):
            return ""
    return ""


def _is_sized(script: Script, over: ast.expr) -> bool:
    """Whether it is a loader whose batches can be counted."""
    found = [script.loader_of(t) for t in script.values(over)]
    return surely(
        x is not None and surely(not (d.iterable or d.unknown) for d in x.datasets) for x in found
    )
