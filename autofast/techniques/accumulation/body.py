"""The statements of an iteration that belong to the update, put under "the last batch of a window";
also where they stand in other functions.

What a function does for the update alone (clip, step, clear) is done by its call. Where it computes
the gradients as well, the condition and the share of the batch become parameters of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from textwrap import indent

from autofast.edit.edits import After, Around, Before, Edit, Remove, Wrap, plain_code
from autofast.edit.order import Rank
from autofast.facts.batch.kinds import Kind
from autofast.facts.updates.cadence import cut_short
from autofast.facts.updates.events import Event, Iteration, clears
from autofast.flow.callgraph import CallGraph
from autofast.flow.positions import index_in_block, nodes_of, place_in, statements_beside
from autofast.flow.program import graph_of
from autofast.flow.scopes import Variable, loaded_in, mentions, stored_in
from autofast.model.calls import is_same_code, receiver_of
from autofast.model.roles import Backward
from autofast.model.script import Script
from autofast.model.several import any_in, grouped
from autofast.model.source import (
    Nodes,
    at,
    function_of,
    is_elif,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
    within,
    within_any,
)
from autofast.model.syntax import Def, is_read, is_stored
from autofast.rule import Refusal
from autofast.techniques.accumulation.statements import (
    Unit,
    outermost,
    repeated,
    top_of,
    with_preparation,
)
from autofast.techniques.accumulation.window import Window
from autofast.write.plumbing import Way

# what brings nothing to a function is every batch an update of its own, of its whole loss
PLAIN = {"is_update": "True", "share": "1.0"}


class Body:
    """``kinds`` tells of each backward what its loss is of the samples."""

    def __init__(
        self, script: Script, iteration: Iteration, window: Window, kinds: dict[int, Kind]
    ):
        self.script, self.iteration, self.window, self.kinds = script, iteration, window, kinds
        self.loop = iteration.loop
        self.home = function_of(self.loop)
        self.edits: list[Edit] = []
        self.inside: Nodes = set()  # the nodes that go under the condition
        self._carried: dict[str, Way] = {}
        self._names: dict[str, str] = {}

    def build(self) -> list[Edit]:
        ends = self._units([e for e in self.iteration.events if e.at_end or self._comes_after(e)])
        starts = self._units(
            [e for e in self.iteration.events if e.kind == "zero" and not self._comes_after(e)]
        )
        ends = with_preparation(ends, self.iteration)
        self._check_exits([*ends, *starts])
        self._check_names(ends)
        runs = self._runs(ends)
        # Those in other functions first: they name the condition.
        for run in sorted(runs, key=lambda r: function_of(r[0]) is self.home):
            self.inside |= nodes_of(run)
            self.edits.append(
                Around(run[0], run[-1], f"if {plain_code(self._last(run[0]))}:", rank=Rank.GUARD)
            )
        for start in starts:
            self._move(start, ends, runs)
        if self.window.drop and not starts:
            for unit in ends:
                if all(e.kind == "zero" for e in unit.events):
                    self._clear_first(unit.statement)
                elif any(e.kind == "zero" for e in unit.events):
                    raise Refusal(
                        f"what a last window that is not whole has gathered is not cleared before the next one ({at(unit.statement)})"
                    )
        self._divide()
        self._bring()
        return self.edits

    def _comes_after(self, event: Event) -> bool:
        """Gradients that are cleared after the update, not before the backward."""
        return event.kind == "zero" and all(
            event.order > e.order for e in self.iteration.of("backward")
        )

    # ----------------------------------------------------------------------------------- statements
    def _units(self, events: Iterable[Event]) -> list[Unit]:
        wanted = list(events)
        found = grouped((self._statement(event, wanted), event) for event in wanted)
        return [Unit(statement, mine) for statement, mine in found.items()]

    def _statement(self, event: Event, wanted: list[Event]) -> ast.stmt:
        """The statement that does this, as far out as it does nothing but what is ``wanted``."""
        for level, call in enumerate(event.calls):
            way = [c.node for c in event.calls[: level + 1]]
            inside = [
                e
                for e in self.iteration.events
                if len(e.calls) > level
                and all(c.node is w for c, w in zip(e.calls, way, strict=False))
            ]
            if all(e in wanted for e in inside) and self._does_only(
                call.func.node, inside, level + 1
            ):
                statement = statement_of(call.node)
                if isinstance(statement, (ast.Expr, ast.Assign)) and statement.value is call.node:
                    return statement
        statement = statement_of(event.node)
        if not isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign)):
            raise Refusal(f"what belongs to the update on {at(event)} is part of another statement")
        if event.kind in ("average", "zero") and event in wanted:
            return outermost(statement, self.loop, self.iteration, event.kind)
        return statement

    def _does_only(self, function: ast.AST, events: list[Event], level: int) -> bool:
        """All statements of a function do something of these."""
        places = {e.calls[level].node if len(e.calls) > level else e.node for e in events}
        body = getattr(function, "body", [])
        if not isinstance(body, list):
            return False
        for statement in body:
            mine = bool(nodes_of([statement]) & places)
            match statement:
                case ast.Pass() | ast.Expr(value=ast.Constant()) | ast.Return(value=None):
                    continue
                case ast.If() | ast.With() if mine and _all_of(statement, places):
                    continue
                case ast.Expr() | ast.Assign() | ast.For() if mine:
                    continue
            return False
        return True

    def _runs(self, units: list[Unit]) -> list[list[ast.stmt]]:
        """Neighbours of one block, together; an ``if`` or ``with`` that holds nothing else, as a
        whole.
        """
        chosen = {u.statement: u.statement for u in units}
        while True:
            for statement in list(chosen.values()):
                outer = parent_of(statement)
                if (
                    outer is self.loop
                    or not isinstance(outer, (ast.If, ast.With))
                    or not within(outer, function_of(statement))
                ):
                    continue
                inner = [*outer.body, *getattr(outer, "orelse", [])]
                if (
                    all(s in chosen or isinstance(s, ast.Pass) for s in inner)
                    and not is_elif(outer)
                    and not within(self.loop, outer)
                ):
                    for s in inner:
                        chosen.pop(s, None)
                    chosen[outer] = outer
                    break
            else:
                break
        runs: list[list[ast.stmt]] = []
        for statement in sorted(
            chosen.values(), key=lambda s: (source_of(s).rel, s.lineno, s.col_offset)
        ):
            here = statements_beside(statement)
            if not here:
                raise Refusal(f"what belongs to the update stands on {at(statement)}, in no block")
            if (
                runs
                and index_in_block(here, runs[-1][-1]) == index_in_block(here, statement) - 1 >= 0
            ):
                runs[-1].append(statement)
            else:
                runs.append([statement])
        return runs

    # ------------------------------------------------------------------------------------- clearing
    def _move(self, start: Unit, ends: list[Unit], runs: list[list[ast.stmt]]) -> None:
        """Gradients that are cleared before the backward are cleared after the update."""
        statement = start.statement
        here = statements_beside(statement)
        place = index_in_block(here, statement)
        last = -1
        steps = self._steps_after(start)
        for unit in ends:
            if any_in(unit.events, steps):
                top = self._holder(here, unit)
                if top <= place:
                    raise Refusal(
                        f"gradients are cleared on {at(statement)}, in another place than those of the update"
                    )
                last = max(last, top)
        after = here[last]
        code, holes = repeated(statement)
        self.edits.append(Remove(statement))
        run = next((r for r in runs if after in r), None) or self._only_run(ends, runs)
        if run is not None:
            self.edits.append(After(run[-1], code, holes, rank=Rank.ZERO))
        else:
            self.edits.append(
                After(
                    after,
                    f"if {plain_code(self._last(after))}:\n{indent(code, '    ')}",
                    holes,
                    rank=Rank.ZERO,
                )
            )
        self._clear_first(statement)

    def _steps_after(self, start: Unit) -> list[Event]:
        """The steps after which gradients may be cleared: all, or those of the same optimizers
        where others compute their gradients later.
        """
        steps, backwards = self.iteration.of("step"), self.iteration.of("backward")
        if max(b.order for b in backwards) < min(s.order for s in steps):
            return steps
        return [s for s in steps if any(clears(self.script, z, s) for z in start.events)]

    def _only_run(self, ends: list[Unit], runs: list[list[ast.stmt]]) -> list[ast.stmt] | None:
        """The one place of all updates, where the backwards stand beside it: without it there are
        no gradients.
        """
        steps = [u for u in ends if any(e.kind == "step" for e in u.events)]
        run = next((r for r in runs if all(within_any(u.statement, r) for u in steps)), None)
        if run is None or any(e.calls for u in steps for e in u.events):
            return None
        here = statements_beside(run[0])
        beside = all(
            self._holder(here, Unit(statement_of(b.node), [b])) >= 0
            for b in self.iteration.of("backward")
        )
        return run if beside else None

    def _holder(self, here: list[ast.stmt], unit: Unit) -> int:
        """The statement of a block in which a unit happens; -1 where there is none."""
        places = [unit.statement, *(c.node for e in unit.events for c in e.calls)]
        return next((n for p in places if (n := place_in(here, p)) >= 0), -1)

    def _clear_first(self, statement: ast.stmt) -> None:
        """What may be there when the first window begins is cleared before the loop."""
        if statements_beside(statement) is self.loop.body:
            if stored_in(self.loop) - stored_in(statement) & loaded_in(statement):
                raise Refusal(f"what clears gradients on {at(statement)} is made in the loop")
            if not self._is_cleared_before(statement):
                code, holes = repeated(statement)
                self.edits.append(Before(self.loop, code, holes, rank=Rank.ZERO))
        elif self.window.drop:
            raise Refusal(
                f"what a last window that is not whole has gathered is not cleared before the next one ({at(statement)})"
            )
        elif other := self._other_backward():
            raise Refusal(
                f"gradients of the backward on {at(other)} may be left when the first window begins"
            )

    def _is_cleared_before(self, statement: ast.stmt) -> bool:
        here = statements_beside(self.loop)
        place = index_in_block(here, self.loop)
        return place > 0 and is_same_code(here[place - 1], statement)

    def _other_backward(self) -> ast.AST | None:
        """A backward of the script outside of the loop."""
        for site in self.script.log.of(".backward", ".manual_backward", "torch.autograd.backward"):
            for occurrence in site:
                if not any(getattr(f, "node", None) is self.loop for f in occurrence.stack):
                    return site.node
        return None

    # ----------------------------------------------------------------------------------- the losses
    def _divide(self) -> None:
        for event in self.iteration.of("backward"):
            backward = event.backward
            assert backward is not None
            if self.kinds[id(event)] is Kind.SUM:
                continue
            if self.kinds[id(event)] is Kind.FREE:
                raise Refusal(
                    f"the loss on {at(backward)} does not depend on the batch, as far as can be seen"
                )
            if function_of(backward.node) is self.home:
                weight = self.window.weight
            else:
                weight = self._in(backward.node, "share", self.window.weight)
            self.edits.append(
                Wrap(whole(backward), f"{{}} * {plain_code(weight)}", rank=Rank.LOSS_DIVIDE)
            )

    # ------------------------------------------------------------------------------ other functions
    def _last(self, statement: ast.stmt) -> str:
        if function_of(statement) is not self.home:
            return self._in(statement, "is_update", self.window.is_last)
        if "is_update" in self._carried:
            body = self.loop.body
            if place_in(body, statement) >= index_in_block(body, self._first_call()):
                return self._names["is_update"]
        return self.window.is_last

    def _first_call(self) -> ast.stmt:
        """The first statement of the loop's body that calls a function with something of the
        iteration in it.
        """
        called = [Unit(self.loop, [e]) for e in self.iteration.events if e.calls]
        return min(
            (top_of(self.loop, unit) for unit in called),
            key=lambda s: index_in_block(self.loop.body, s),
        )

    def _in(self, node: ast.AST, name: str, value: str) -> str:
        """What to write for a value of the loop in the code of a function that it calls."""
        if name not in self._carried:
            self._check_callers()
            taken = frozenset().union(*(s.names for s in self.script.sources))
            self._names[name] = (
                name
                if name not in taken
                else next(f"{name}_{k}" for k in range(2, 99) if f"{name}_{k}" not in taken)
            )
            assert isinstance(self.home, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module))
            origin = Variable(self._names[name], self.home)
            self._carried[name] = Way(self.script, origin, plain=PLAIN[name], made=[self.loop])
        way = self._carried[name]
        found = way.to(function_of(node))
        if found is None:
            raise Refusal(f"the end of a window cannot be brought to {at(node)}: {way.refusal}")
        self._values = {**getattr(self, "_values", {}), name: value}
        return found

    def _bring(self) -> None:
        """The variables that are brought to other functions, and that these are called from nowhere
        else.
        """
        if not self._carried:
            return
        first = self._first_call()
        for name, way in self._carried.items():
            self.edits.append(
                Before(first, f"{self._names[name]} = {plain_code(self._values[name])}")
            )
            self.edits += way.edits

    def _check_callers(self) -> None:
        functions = self._outer_functions()
        for function in functions:
            for call in self.script.analysis(CallGraph).sites(function):
                if (
                    not (function_of(call) is self.home and within(call, self.loop))
                    and function_of(call) not in functions
                ):
                    raise Refusal(
                        f"{getattr(function, 'name', 'a function')}() is also called on {at(call)}, outside of the loop"
                    )

    def _outer_functions(self) -> list[Def | ast.Lambda]:
        return list(
            {c.func.node: c.func.node for e in self.iteration.events for c in e.calls}.values()
        )

    # ------------------------------------------------------------------------------- what must hold
    def _check_exits(self, units: list[Unit]) -> None:
        """Nothing ends the iteration of a batch, or a function on the way, before one of its
        units.
        """
        calls = [c.node for e in self.iteration.events for c in e.calls]
        for node in [
            *(u.statement for u in units),
            *(e.node for e in self.iteration.of("backward")),
            *calls,
        ]:
            if (
                leaving := cut_short(
                    self.script, node, self.loop if within(node, self.loop) else None
                )
            ) is not None:
                raise Refusal("may end the turn of a batch before its update", leaving)

    def _check_names(self, units: list[Unit]) -> None:
        """What is only known after an update is asked for nowhere else."""
        inside, graph = (
            nodes_of([u.statement for u in units]),
            graph_of(self.script, self.loop),
        )
        for unit in units:
            scope = function_of(unit.statement)
            for name in stored_in(unit.statement):
                for node in mentions(scope, name):
                    if not is_read(node) or node in inside:
                        continue
                    if (
                        scope is self.home
                        and not within(node, self.loop)
                        and not self.window.drop
                        and graph.may_follow(node, self.loop)
                    ):
                        continue
                    raise Refusal(
                        f"`{name}` is asked for on {at(node)}, and known only after an update"
                    )
            for target in (n for n in nodes_in(unit.statement, ast.Attribute) if is_stored(n)):
                if not any(e.kind == "average" for e in unit.events):
                    raise Refusal(
                        f"`{ast.unparse(target)}` is set on {at(target)}, and would be known only after an update"
                    )


# ------------------------------------------------------------------------------------- small things
def whole(backward: Backward) -> ast.expr:
    """What the backward is of, without the scaler."""
    receiver = receiver_of(backward.node)
    assert receiver is not None
    match receiver:
        case ast.Call(args=[inner, *_]) if backward.scaled:
            return inner
    return receiver


def _all_of(statement: ast.If | ast.With, places: Nodes) -> bool:
    inner = [*statement.body, *getattr(statement, "orelse", [])]
    return all(isinstance(s, ast.Pass) or nodes_of([s]) & places for s in inner)
