"""Where the set-up of a model ends: it is made, moved and filled with weights, and no optimizer,
wrapper or training has it yet.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from autofast.facts.model_objects import tracing_calls
from autofast.flow.positions import index_in_block, statements_beside
from autofast.flow.program import graph_of
from autofast.model.calls import is_method, is_path, items_of, pairs_of, targets_of
from autofast.model.contents import without_wrappers
from autofast.model.events import CallFrame, LoopFrame, Stack
from autofast.model.kinds import is_module, is_optimizer, is_wrapper
from autofast.model.names import DDP
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import (
    ancestors,
    at,
    function_of,
    nodes_in,
    parent_of,
    statement_of,
    within,
)
from autofast.model.syntax import ASSIGNMENTS, CALL_ENDS, LOOPS, VARIABLES, is_read
from autofast.model.values import NOTHING, Ext, Thing, Values, is_named

EXITS = wordset("exit sys.exit quit parser.error")

SETS_UP = wordset("to cuda cpu float apply load_state_dict requires_grad_ to_empty train eval")


@dataclass(eq=False)
class Place:
    """Where models are compiled: after ``statement``, by ``name``, an expression that is nothing
    but ``things`` there.
    """

    statement: ast.stmt
    name: str
    node: ast.expr
    things: frozenset[Thing]
    models: list[Model] = field(default_factory=list)


def place_of(script: Script, model: Model) -> Place | str:
    """The end of the model's set-up: behind the last move to a device, and what follows it there,
    before optimizer and training.
    """
    moves = [(s.node, o.stack) for s in model.moves for o in s if not _in_loop(o.stack)]
    made: list[tuple[ast.AST, Stack]] = (
        [(model.node, model.thing.made)] if model.node is not None else []
    )
    search = _Search(script, model)
    for wrappers in ((DDP,), (DDP, "torch.nn.DataParallel")):
        for node, stack in [*reversed(moves), *made]:
            # Its makers return it to their callers.
            for call in (node, *(f.node for f in reversed(stack) if isinstance(f, CallFrame))):
                if not isinstance(call, ast.expr):
                    break
                if (place := search.place(call, wrappers)) is not None:
                    return place
    if search.traced:
        return f"{at(search.traced[0])} traces the model, perhaps after it is set up, and a compiled one cannot be traced"
    return f"{model.name} is not kept in a variable or attribute of its own where it is made: put it into one"


def _in_loop(stack: Stack) -> bool:
    return any(isinstance(f.node, LOOPS) for f in of_kind(stack, LoopFrame))


class _Search:
    """For one model; ``running`` are the ids of the calls that run it, or lead there."""

    def __init__(self, script: Script, model: Model):
        self.script, self.model = script, model
        self.traced = tracing_calls(script, {id(model.thing)})
        self.running = script.analysis(_running).get(id(model.thing), set())

    def place(self, call: ast.expr, wrappers: tuple[str, ...]) -> Place | None:
        """The place for a model that ``call`` makes, moves or returns; None where that has no name,
        or the name means other things.
        """
        name, things = self._name(call, wrappers)
        if not name or (lifted := self._lifted(statement_of(call), name, things)) is None:
            return None
        first, things = lifted
        last = self._end(first, name, things)
        done = set(
            map(id, statements_beside(last)[: index_in_block(statements_beside(last), last) + 1])
        )
        traced = all(any(id(a) in done for a in (n, *ancestors(n))) for n in self.traced)
        return Place(last, name, call, things) if traced else None

    # ---------------------------------------------------------------------------------------- names
    def _name(self, call: ast.expr, wrappers: tuple[str, ...]) -> tuple[str, frozenset[Thing]]:
        """The variable or attribute that is nothing but models after the statement, this one among
        them, and all of them.

        Where it is one of ``wrappers``, the model inside.
        """
        for target, value in _stores(statement_of(call)):
            if is_path(target) and call in ast.walk(statement_of(call)):
                found = self.script.values(value)
                if surely(is_module(t) for t in found) and self._is_mine(found):
                    things = frozenset(inner for t in found for inner in without_wrappers(t))
                    if not any(is_wrapper(t) for t in found):
                        return ast.unparse(target), things
                    if all(is_named(t, Ext, wrappers) for t in found):
                        return f"{ast.unparse(target)}.module", things
        return "", NOTHING

    def _is_mine(self, values: Values) -> bool:
        return any(self.model.thing in without_wrappers(t) for t in values)

    # ----------------------------------------------------------------------------------- conditions
    def _lifted(
        self, statement: ast.stmt, name: str, things: frozenset[Thing]
    ) -> tuple[ast.stmt, frozenset[Thing]] | None:
        """The statement out of the conditions around it, where the name is bound whatever they are,
        and what it may be then.

        None where it may be something other than a model then. The model inside of a wrapper stays
        where it is wrapped.
        """
        if name not in {ast.unparse(target) for target, _ in _stores(statement)}:
            return statement, things
        while isinstance(outer := parent_of(statement), ast.If) and (
            _assigns(outer, name) or _is_bound(outer, name)
        ):
            if any(id(n) in self.running for n in ast.walk(outer)):
                break
            for values in self._meanings(outer, name):
                if not all(is_module(t) and not is_wrapper(t) for t in values):
                    return None
                things |= values
            statement = outer
        return statement, things

    def _meanings(self, last: ast.stmt, name: str) -> Iterator[Values]:
        """What the name may be, wherever it is read or set in the function before the end of
        ``last``.
        """
        order = graph_of(self.script, last)
        for node in ast.walk(function_of(last)):
            if (
                isinstance(node, VARIABLES)
                and ast.unparse(node) == name
                and (within(node, last) or order.may_follow(last, node))
            ):
                if is_read(node):
                    yield self.script.values(node)
                else:
                    yield self._set_to(node)

    def _set_to(self, target: ast.expr) -> Values:
        value = next((v for t, v in _stores(statement_of(target)) if t is target), None)
        return self.script.values(value) if value is not None else NOTHING

    # --------------------------------------------------------------------------------- what follows
    def _end(self, first: ast.stmt, name: str, things: frozenset[Thing]) -> ast.stmt:
        """The last of the statements behind ``first`` that still sets the model up: before an
        optimizer or a wrapper is made of it, but behind what traces it, and before it is run or the
        name is something else."""
        around = statements_beside(first)
        last, is_set_up = first, True
        for other in around[index_in_block(around, first) + 1 :]:
            calls = list(nodes_in(other, ast.Call))
            if any(id(c) in self.running for c in calls) or isinstance(
                other, (ast.Return, ast.FunctionDef, ast.ClassDef)
            ):
                break
            if any(is_wrapper(t) for c in calls for t in self.script.values(c)) or not self._keeps(
                other, name, things
            ):
                break
            is_set_up = is_set_up and not any(
                is_optimizer(t) for c in calls for t in self.script.values(c)
            )
            if any(c in self.traced or (is_set_up and self._sets_up(c)) for c in calls):
                last = other
        return last

    def _keeps(self, statement: ast.stmt, name: str, things: frozenset[Thing]) -> bool:
        """The name is still one of these models after the statement."""
        for node in ast.walk(statement):
            if isinstance(node, VARIABLES) and not is_read(node):
                target = ast.unparse(node)
                if name.startswith(f"{target}."):  # the wrapper, or what holds the model
                    return False
                if target == name and (not (found := self._set_to(node)) or not found <= things):
                    return False
        return True

    def _sets_up(self, call: ast.Call) -> bool:
        func = call.func
        return (
            isinstance(func, ast.Attribute)
            and func.attr in SETS_UP
            and self._is_mine(self.script.values(func.value))
        )


def _running(script: Script) -> dict[int, set[int]]:
    """The ids of the calls that run each model, or lead there, by that of the model."""
    found: dict[int, set[int]] = defaultdict(set)
    for site in script.log.of("forward"):
        for o in site:
            calls = {id(site.node), *(id(f.node) for f in o.stack if isinstance(f, CallFrame))}
            for inner in without_wrappers(o.this):
                found[id(inner)] |= calls
    return found


# --------------------------------------------------------------------------------------- statements
def _stores(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a statement sets, and to what; for a chain of calls that set a model up
    (``model.to(device)``), the model itself.
    """
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from pairs_of(target, statement.value)
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield statement.target, statement.value
    elif isinstance(statement, ast.Expr):
        value: ast.expr = statement.value
        while is_method(value) and value.func.attr in SETS_UP:
            value = value.func.value
        yield value, value


def _assigns(statement: ast.stmt, name: str) -> bool:
    """Whether a statement certainly binds the name, or leaves the function."""
    if isinstance(statement, ASSIGNMENTS):
        targets = targets_of(statement)
        parts = [e for t in targets for e in (items_of(t))]
        return any(ast.unparse(part) == name for part in parts)
    if isinstance(statement, ast.If):
        return bool(statement.orelse) and all(
            any(_assigns(s, name) for s in arm) for arm in (statement.body, statement.orelse)
        )
    return isinstance(statement, CALL_ENDS) or (
        isinstance(statement, ast.Expr) and _exits(statement.value)
    )


def _exits(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Call) and ast.unparse(expr.func) in EXITS


def _is_bound(statement: ast.stmt, name: str) -> bool:
    """Whether the name is bound before ``statement``, there or as a parameter."""
    scope = function_of(statement)
    spec = getattr(scope, "args", None)
    if isinstance(spec, ast.arguments) and any(
        a.arg == name for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)
    ):
        return True
    here: ast.AST | None = statement
    while isinstance(here, ast.stmt) and here is not scope:
        around = statements_beside(here)
        if any(
            _assigns(s, name) and not isinstance(s, (*CALL_ENDS, ast.Expr))
            for s in around[: max(index_in_block(around, here), 0)]
        ):
            return True
        here = parent_of(here)
    return False
