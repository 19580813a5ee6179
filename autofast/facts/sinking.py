"""Code sinking: which statements may as well run below a condition further down, in the turns alone
in which it holds.

That needs four things. What they compute is used nowhere else, and in the same turn. They only
compute, so that nobody sees that they do not run. What they compute with is the same there: no
variable gets another value on the way, and what happens there changes nothing, or nothing of
theirs. And they stay in the same block, but for conditions: no gradient mode, handler or loop comes
between.

What is put into a dict or a list that this turn makes is computed for whoever uses that: the
statements that make and fill it move together, or not at all. Those of a branch that stays move
below its condition, where that still gives the same (``under``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from autofast.facts.aliases import array_writes, tensor_writes
from autofast.facts.computes import DISPLAYS, Computes
from autofast.facts.freshness import is_fresh
from autofast.facts.invariants import Invariants, own_constructor
from autofast.facts.shows import Shows
from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.defuse import bound_to
from autofast.flow.effects import Effects
from autofast.flow.positions import index_in_block, statements_beside
from autofast.flow.program import Flow
from autofast.flow.reflection import namespace_calls
from autofast.flow.scopes import (
    binds,
    declared,
    loaded_in,
    mentions,
    own_nodes,
    owner,
    stored_in,
    variables_of,
)
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import (
    ByNode,
    any_within,
    contains_kind,
    function_of,
    live_nodes,
    nodes_in,
    parent_of,
    statement_of,
    walk,
    within_any,
)
from autofast.model.syntax import ASSIGNMENTS, CALL_ENDS, TURN_ENDS, is_attribute, is_read
from autofast.model.tensors import is_one_number
from autofast.model.values import (
    Arg,
    Cls,
    Const,
    Func,
    Num,
    Ref,
    Setting,
    Tensor,
    Values,
    any_of,
    certainly,
    surely_named,
)

MOVABLE = (*ASSIGNMENTS, ast.For, ast.With, ast.If)
MAKERS = wordset("builtins.dict builtins.list collections.OrderedDict")


class Sinking:
    """What may move into ``gate``, a condition that stands, or would, at ``place``."""

    def __init__(self, script: Script, gate: ast.If, place: ast.stmt):
        self.script, self.gate = script, gate
        self.flow, self.computes = script.analysis(Flow), script.analysis(Computes)
        self.staying: set[ast.stmt] = set()  # that fill what is not made anew, or stays itself
        self._look(place)
        while stays := {s for s in self.uses if not self._is_complete(s)}:
            self.staying |= stays
            self._look(place)

    def _look(self, place: ast.stmt) -> None:
        self.uses: dict[ast.stmt, list[ast.Name]] = {}  # of what each statement found computes
        self.under: dict[ast.stmt, ast.If] = {}  # a condition of its own that it still needs
        self.unlike: list[ast.If] = []  # of these, what does not give the same there
        self.passed: list[ast.AST] = []
        self.quiet = True  # whether nothing that is passed changes anything but variables
        self.arrays = False  # whether it may write to an array of NumPy's
        if place is self.gate:
            self._pass(self.gate.test)
        here: ast.AST = place
        while isinstance(here, ast.stmt):
            block = statements_beside(here)
            for statement in reversed(block[: max(0, index_in_block(block, here))]):
                self._take(statement)
            outer = parent_of(here)
            if not isinstance(outer, ast.If):
                break
            self._pass(outer.test)
            here = outer

    def _take(self, statement: ast.stmt, branch: ast.If | None = None) -> None:
        if statement not in self.staying and self._may_sink(statement):
            self.uses[statement] = self._uses_of(statement)
            self.under |= {statement: branch} if branch is not None else {}
        elif isinstance(statement, ast.If) and not statement.orelse and branch is None:
            for inner in reversed(statement.body):
                self._take(inner, statement)
            if not self._gives_the_same(statement.test):
                self.unlike.append(statement)
            self._pass(statement.test)
        else:
            self._pass(statement)

    def _is_complete(self, statement: ast.stmt) -> bool:
        """Whether what it needs below the condition is there, or moves along."""
        there = all(map(self._is_made, filled(statement)))
        return there and self.under.get(statement) not in self.unlike

    def groups(self) -> Iterator[list[ast.stmt]]:
        """The statements that only move together, in order: that use what others of them compute,
        or give another value to what these compute or compute with.
        """
        found: list[list[ast.stmt]] = []
        for statement in reversed(self.uses):
            stored = stored_in(statement) | {n.id for n in filled(statement)}
            mine = [
                group
                for group in found
                if any(
                    any_within(self.uses[s], statement) or stored & (loaded_in(s) | stored_in(s))
                    for s in group
                )
            ]
            found = [group for group in found if group not in mine]
            found.append([*(s for group in mine for s in group), statement])
        body = self.gate.body
        return (
            sorted(group, key=lambda s: s.lineno)
            for group in found
            if any(within_any(use, body) for s in group for use in self.uses[s])
        )

    def _pass(self, code: ast.AST) -> None:
        """Take note of what stays, between what is found and the condition."""
        self.passed.append(code)
        left = {n for end in nodes_in(code, ast.Raise) for n in walk(end)}  # nothing is used then
        shows = self.script.analysis(_Quiet)
        self.quiet = self.quiet and all(n in left or shows.is_harmless(n) for n in live_nodes(code))
        self.arrays = self.arrays or self._may_write_to_arrays(code)

    def _may_write_to_arrays(self, code: ast.AST) -> bool:
        """Whether code, or what it calls, may write to an array, which looks like a number."""
        calls, effects = self.script.analysis(CallGraph), self.script.analysis(Effects)
        shared, _ = self.script.analysis(tensor_writes)
        written = self.script.analysis(_array_writes)
        nodes = [*walk(code)]
        called = {f for n in nodes for f in calls.entered(n)}
        nodes += [n for f in called for g in calls.runs(f) for n in own_nodes(g)]
        bases = (w.base for n in nodes for w in effects.of(n))
        return any(
            shared or not certainly(target, Tensor) for n in nodes for target in written.get(n, ())
        ) or any(any_of(self.script.values(base), Num) for base in bases if base is not None)

    def _uses_of(self, statement: ast.stmt) -> list[ast.Name]:
        flow = self.flow.definitions(statement)
        return [u for name in _bound(statement) for u in flow.uses_of(name)]

    def _may_sink(self, statement: ast.stmt) -> bool:
        fills = filled(statement)
        names = {n.id for n in (*_bound(statement), *fills)}
        scope = function_of(statement)
        return (
            bool(names)
            and (isinstance(statement, MOVABLE) or bool(fills))
            and not any(names & stored_in(code) for code in self.passed)
            and not contains_kind(statement, *TURN_ENDS, *CALL_ENDS)
            and names.isdisjoint(declared(scope))
            and not namespace_calls(scope)
            and not self.flow.is_exported(scope)
            and all(function_of(m) is scope for n in names for m in mentions(scope, n))
            and self._is_used_there(statement)
            and self._gives_the_same(statement, fills)
        )

    def _gives_the_same(self, code: ast.AST, fills: Sequence[ast.Name] = ()) -> bool:
        """Whether code only computes, but for what it ``fills``, and of the same things there."""
        return (
            not any(loaded_in(code) & stored_in(other) for other in self.passed)
            and all(self.computes.is_harmless(n) or filled_by(n) in fills for n in live_nodes(code))
            and (self.quiet or self._is_steady(code))
        )

    def _is_used_there(self, statement: ast.stmt) -> bool:
        """Whether all that is made of what it computes stands below the condition, or moves with
        it, and gets that of its own turn.
        """
        flow = self.flow.definitions(statement)
        here = [*self.uses, statement, *self.gate.body]
        uses = self._uses_of(statement)
        for use in uses:
            made = [d.node for d in flow.reaching(use)]
            if not within_any(use, here) or not all(within_any(n, here) for n in made):
                return False
            if flow.may_be_unbound(use):  # in the first turn, so that it is left of one before
                return False
        return bool(uses) or bool(filled(statement))

    def _is_made(self, container: ast.Name) -> bool:
        """Whether what is filled there is made by what moves along."""
        made = self.flow.reaching(container)
        return bool(made) and all(
            statement_of(d.node) in self.uses and self._is_new(*bound_to(d.node)) for d in made
        )

    def _is_new(self, value: ast.expr | None, whole: bool) -> bool:
        """Whether it is a dict or a list that nobody else has."""
        made = isinstance(value, DISPLAYS) or (
            isinstance(value, ast.Call) and surely_named(self.script.called(value), Ref, MAKERS)
        )
        return made and whole

    def _is_steady(self, statement: ast.AST) -> bool:
        """Whether what code computes with stays as it is, whatever happens."""
        calls = self.script.analysis(CallGraph)
        called = (f for n in nodes_in(statement, ast.Call) for f in calls.entered(n))
        bound = stored_in(statement) | {n.id for n in filled(statement)}
        kind = {*walk(statement.annotation)} if isinstance(statement, ast.AnnAssign) else set()
        return (
            not any(is_attribute(n, "grad") for n in ast.walk(statement))
            and all(map(self._keeps_to_itself, called))
            and all(
                n.id in bound or self._is_fixed(n) or self._is_kept(n)
                for n in nodes_in(statement, ast.Name)
                if is_read(n) and n not in kind
            )
        )

    def _keeps_to_itself(self, function: Function) -> bool:
        """Whether a function looks at nothing but its arguments and what is imported."""
        loads = (n for n in nodes_in(function, ast.Name) if is_read(n))
        outside = (n for n in loads if not binds(function_of(n), n.id))
        return all(certainly(self.script.values(n), Ref, Func, Cls, Const) for n in outside)

    def _is_fixed(self, name: ast.Name) -> bool:
        """Whether a variable holds a number, a text, a function, or a tensor that nothing changes
        in place in this turn.
        """
        found = self.script.values(name)
        if self.arrays and not all(map(is_one_number, of_kind(found, Num))):
            return False
        tensors = certainly(found, Tensor, Num, Const) and is_fresh(self.script, name)
        return self._is_own(name) and (tensors or certainly(found, Num, Const, Ref, Func))

    def _is_kept(self, name: ast.Name) -> bool:
        """Whether it stands for a number that an object was made with: ``self.n`` of ``self``."""
        kept, invariants = parent_of(name), self.script.analysis(Invariants)
        function = function_of(name)
        init = own_constructor(function)
        return (
            isinstance(kept, ast.Attribute)
            and not invariants.open
            and certainly(self.script.values(kept), Num, Const, Arg, Setting)
            and self._is_own(name)
            and (init is None or function not in self.script.analysis(CallGraph).runs(init))
            and invariants.is_kept(kept, init)
        )

    def _is_own(self, name: ast.Name) -> bool:
        """Whether nothing that is called may set a variable."""
        table = variables_of(name)
        variable = table.of(name)
        stores = of_kind(table.stores(variable), ast.Name) if variable is not None else ()
        return all(function_of(n) is variable.scope for n in stores)  # type: ignore[union-attr]


def _array_writes(script: Script) -> ByNode[list[Values]]:
    """What each place of the project writes to, if it is a tensor or an array."""
    found: ByNode[list[Values]] = {}
    for node, target, _ in script.analysis(array_writes):
        found.setdefault(node, []).append(target)
    return found


class _Quiet(Shows):
    """Code that may show something, and sets nothing that is not its own."""

    def may_set(self, function: Function, name: str) -> bool:
        return False


def filled(statement: ast.AST) -> list[ast.Name]:
    """The variables whose dicts or lists a statement puts something into."""
    return of_kind(map(filled_by, walk(statement)), ast.Name)


def filled_by(node: ast.AST) -> ast.Name | None:
    """The same of one node: ``losses`` of ``losses["d"] = ...``, ``losses.append(...)`` and
    ``losses.update(d=...)``.
    """
    match node:
        case ast.Subscript(value=ast.Name() as held, ctx=ast.Store()):
            return held
        case ast.Call(func=ast.Attribute(value=ast.Name() as held, attr="append"), args=[_]):
            return held
        case ast.Call(
            func=ast.Attribute(value=ast.Name() as held, attr="update"), args=[] | [ast.Dict()]
        ):
            return held
    return None


def _bound(statement: ast.stmt) -> list[ast.Name]:
    """The variables of its function that a statement gives a value."""
    scope = function_of(statement)
    stored = (n for n in nodes_in(statement, ast.Name) if not is_read(n))
    return [n for n in stored if owner(n) in (None, scope)]
