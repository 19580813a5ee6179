"""Follows a training through its statements, in order, and notes where the numbers of one process
must become those of all.

Every variable, attribute and container has a kind (:mod:`.kinds`) at every point; loops are
followed until nothing changes, functions wherever they are called. Numbers are read where a tensor
becomes one of the host: there a mean or a sum over processes is taken, which all processes must
come to equally often. So whatever decides about that must be the same in all: a condition on
numbers that may differ in their last bits (an evaluation) is decided by the first process for all,
one on anything else is refused.

The walk through a training in which all that the processes decide together, and do together, is
known from the start.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from autofast.facts.host_io import host_effects
from autofast.flow.callgraph import Callee
from autofast.flow.scopes import Variable, variables_of
from autofast.model.script import Script
from autofast.model.source import ByNode, at, nodes_in
from autofast.model.syntax import CALL_ENDS, SILENT, TURN_ENDS, has_star, positional_parameters
from autofast.model.values import Thing, all_of, names_of
from autofast.rule import Refusal
from autofast.techniques.ddp.guards import Host
from autofast.techniques.ddp.names import Training
from autofast.techniques.ddp.uniformity.kinds import (
    EQUAL,
    NEAR,
    NONE,
    Given,
    Kind,
    join,
    joined,
    of,
    other,
)
from autofast.techniques.ddp.uniformity.notes import Notes, exhausted, interrupt
from autofast.techniques.ddp.uniformity.state import Control, Frame, merged

STEPS = 100_000  # fifty times what any script needed that was tried and followed to its end
DEPTH = 24


class Walk(Notes):
    """One pass through the script: functions and statements."""

    def run(self) -> None:
        self.frames.append(Frame(self.script.entry.tree))
        for source in reversed(self.script.sources):
            if source is not self.script.entry:
                self.block(source.tree.body)
        self.block(self.script.entry.tree.body)

    def step(self) -> None:
        self._steps += 1
        if self._steps > STEPS:
            raise Refusal("the training is too large to follow")

    # ------------------------------------------------------------------------------------ functions
    def call_function(self, callee: Callee, node: ast.Call | None, given: Given) -> Kind:
        scope = callee.function
        if len(self.frames) > DEPTH or sum(f.scope is scope for f in self.frames) > 1:
            fine = all(k.same for k in given.values())
            return NEAR if fine else other("a function that calls itself")
        frame = Frame(scope, self._bind(callee, node, given))
        self.frames.append(frame)
        self.seen.add(scope)
        try:
            if isinstance(scope, ast.Lambda):
                return self.ev(scope.body)
            self.block(scope.body)
        finally:
            self.frames.pop()
            for state in frame.exits:
                self.state = merged(self.state, state)
        if frame.yields:
            return Kind("iter", items=(joined(*frame.yields),))
        return joined(*frame.returns) if frame.returns else NONE

    def _bind(self, callee: Callee, node: ast.Call | None, given: Given) -> dict[str, list[Thing]]:
        """Gives the parameters of a function their kinds; the objects that a call hands over, where
        the parameter stays what it is.
        """
        scope, table = callee.function, variables_of(callee.function)
        for name in table.bound(scope):
            self.state.pop(("v", scope, name), None)
        spec = scope.args
        positional = positional_parameters(spec)
        things: dict[str, list[Thing]] = {}
        if callee.is_bound and positional:
            things[positional.pop(0).arg] = [callee.this] if callee.this is not None else []
        kinds: dict[str, Kind] = {}
        rest = dict(given)
        for parameter in (*positional, *spec.kwonlyargs) if node is not None else ():
            expr = self.calls.argument(node, callee, parameter.arg) if node is not None else None
            if expr is not None and expr in rest:
                kinds[parameter.arg] = rest.pop(expr)
                things[parameter.arg] = self.things(expr)
        kinds.update(
            self._spread(
                callee,
                node,
                rest,
                [p.arg for p in (*positional, *spec.kwonlyargs) if p.arg not in kinds],
            )
        )
        for name, kind in kinds.items():
            self.state["v", scope, name] = self._raised(kind) if kind.items is None else kind
        return {
            n: t
            for n, t in things.items()
            if t and all_of(table.stores(Variable(n, scope)), ast.arg)
        }

    def _spread(
        self, callee: Callee, node: ast.Call | None, rest: Given, missing: list[str]
    ) -> dict[str, Kind]:
        """What parameters get through ``*`` and ``**``, of the call or of the function; ``rest``
        are the arguments that name none.
        """
        if node is None or not rest:
            return {}
        spec = callee.function.args
        spread = has_star(node.args)
        extra = [rest[a] for a in node.args if a in rest]
        named = [
            rest[k.value].whole for k in node.keywords if k.value in rest and k.arg is not None
        ]
        loose = [
            *(extra if spread else ()),
            *(rest[k.value] for k in node.keywords if k.arg is None),
        ]
        found: dict[str, Kind] = {}
        if spec.vararg is not None and extra and not spread:
            found[spec.vararg.arg] = of(*extra)
        if spec.kwarg is not None and named:
            found[spec.kwarg.arg] = joined(*named)
        if loose:
            any_of = joined(*(join(k.whole, EQUAL) if k.items is None else k.whole for k in loose))
            found.update(dict.fromkeys(missing, any_of))
        return found

    # ----------------------------------------------------------------------------------- statements
    def block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            if statement is self.training.setup:
                self.place = "in"
            self.statement(statement)
            if statement is self.training.end:
                self.place = "after"

    def statement(self, node: ast.stmt) -> None:
        self.step()
        self.seen.add(node)
        if node in self.host.guards:
            self.guarded.append(node)
            try:
                self._statement(node)
            finally:
                self.guarded.pop()
        else:
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=value):
                if isinstance(value, (ast.Yield, ast.YieldFrom)):
                    kind = self.ev(value.value) if value.value is not None else NONE
                    self.frames[-1].yields.append(
                        kind if isinstance(value, ast.Yield) else self.element(value.value, kind)
                    )
                    return
                self.ev(value)
                self._mattering(value)
            case ast.Assign(targets=targets, value=value):
                kind = self.ev(value)
                self._mattering(value)
                for target in targets:
                    self.store(target, kind)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.store(target, self.ev(value))
            case ast.AugAssign():
                self._augmented(node)
            case ast.Return(value=value):
                self.frames[-1].returns.append(
                    self._raised(self.ev(value)) if value is not None else NONE
                )
                self._jump(self.frames[-1].left)
                self.frames[-1].exits.append(dict(self.state))
            case ast.Break() | ast.Continue():
                self._jump(
                    self.frames[-1].loops[-1] if self.frames[-1].loops else self.frames[-1].left
                )
                if self.frames[-1].passes:
                    self.frames[-1].passes[-1].append(dict(self.state))
            case ast.If():
                self._branches(node)
            case ast.For() | ast.AsyncFor():
                self._for(node)
            case ast.While():
                self._while(node)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    kind = self.ev(item.context_expr)
                    if item.optional_vars is not None:
                        self.store(item.optional_vars, kind)
                self.block(node.body)
            case ast.Try():
                self._try(node)
            case ast.Assert(test=test):
                self.ev(test)
            case ast.Raise(exc=exc):
                self.ev(exc)
            case ast.Delete():
                pass
            case ast.Match():
                raise Refusal(f"`match` on {at(node)} is not followed")

    def _mattering(self, value: ast.expr) -> None:
        for call in ast.walk(value):
            if call in self._matters:
                self.trained = True
                self.happens(call)

    def _augmented(self, node: ast.AugAssign) -> None:
        as_load = self.ev(node.target)
        value = self.ev(node.value)
        if (
            value.sized
            and value.items is None
            and as_load.whole.same
            and self._counted_here(node.value)
        ):
            self.settle(node.value)
            value = EQUAL
        value = self.kept(node.value, value) if as_load.whole.same else value
        found = self._binary(node, as_load, value, node.op)
        if (
            found.name == "other"
            and isinstance(node.op, (ast.Add, ast.Sub))
            and as_load.items is None
            and as_load.same
            and value.whole.name == "sum"
        ):
            # a number that has a value already grows by a number of samples: by those of all
            self.settle(node.value)
            found = as_load
        if as_load.items is not None and isinstance(node.op, ast.Add):
            self.hold(node.target, self.element(node.value, value).whole)
            return
        self.store(node.target, found)

    def _counted_here(self, expr: ast.expr) -> bool:
        """``total += labels.size(0)``: the number of samples is asked for here, not handed on."""
        return any(self.kinds.get(n, EQUAL).sized for n in nodes_in(expr, ast.Call, ast.Subscript))

    def _jump(self, pending: list[Control]) -> None:
        pending += [
            c for c in self.control if c.kind.name != "equal" and c.test not in self.decided
        ]

    def _branches(self, node: ast.If) -> None:
        test = self.condition(node.test)
        known = self.script.constant(node.test)
        if (
            isinstance(known, bool)
            or not self._any_reached(node.body)
            or (node.orelse and not self._any_reached(node.orelse))
        ):
            arms = [a for a in (node.body, node.orelse) if self._any_reached(a)]
            for arm in arms[:1] if isinstance(known, bool) else arms:
                self._arm(node.test, test, arm)
            return
        before = dict(self.state)
        self._arm(node.test, test, node.body)
        after = self.state
        self.state = before
        self._arm(node.test, test, node.orelse)
        if _goes(node.body):
            return
        if node.orelse and _goes(node.orelse):
            self.state = after
            return
        self.state = merged(after, self.state)

    def _any_reached(self, body: list[ast.stmt]) -> bool:
        return any(isinstance(s, (*SILENT, ast.Return)) or self.script.reached(s) for s in body)

    def _arm(self, test: ast.expr, kind: Kind, body: list[ast.stmt]) -> None:
        self.under(test, kind)
        self.block(body)
        self.leave()

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        over = self.ev(node.iter)
        control = (
            over.whole
            if over.name not in ("iter", "loader")
            and over.items is None
            and over.whole.name in ("near", "other")
            else EQUAL
        )
        if _is_loader(self.script, node.iter):
            control = EQUAL  # the same data in each

        def once() -> None:
            self.store(node.target, self.element(node.iter, over))
            self._pass(node, control)

        self._loop(once)
        self.block(node.orelse)

    def _pass(self, node: ast.For | ast.AsyncFor | ast.While, control: Kind) -> None:
        self.control.append(Control(node, control))
        self.block(node.body)
        self.control.pop()

    def _while(self, node: ast.While) -> None:
        def once() -> None:
            kind = self.condition(node.test)
            self.under(node.test, kind)
            self.block(node.body)
            self.leave()

        self._loop(once)
        self.block(node.orelse)

    def _loop(self, once: Callable[[], None]) -> None:
        frame = self.frames[-1]
        frame.loops.append([])

        def iteration() -> None:
            before = dict(self.state)
            frame.passes.append([])
            once()
            for state in (*frame.passes.pop(), before):
                self.state = merged(self.state, state)

        for _ in range(8):
            before = dict(self.state)
            with self._quietly():
                iteration()
            if self.state == before:
                break
        iteration()
        frame.loops.pop()

    def _try(self, node: ast.Try) -> None:
        before = dict(self.state)
        if node.handlers:
            self.trying.append(node)
        self.block(node.body)
        if node.handlers:
            self.trying.pop()
        self.block(node.orelse)
        normal = self.state
        for handler in node.handlers:
            self.state = merged(dict(before), normal)
            self.control.append(
                Control(
                    handler,
                    EQUAL
                    if interrupt(handler) or exhausted(handler)
                    else other("an error in one of the processes"),
                )
            )
            self.block(handler.body)
            self.control.pop()
            normal = merged(normal, self.state)
        self.state = normal
        self.block(node.finalbody)


def _goes(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (*CALL_ENDS, *TURN_ENDS))


def _is_loader(script: Script, expr: ast.expr) -> bool:
    names = names_of(script.values(expr))
    return bool(names) and all(
        n.startswith(("torch.utils.data.", "builtins.enumerate", "tqdm", "builtins.zip"))
        for n in names
        if n
    )


def followed(script: Script, training: Training) -> tuple[Host, Walk]:
    """The effects of a script, and the walk that knows what becomes of them; raises
    :class:`Refusal`.
    """
    decided: ByNode[ast.expr] = {}
    hoists: ByNode[ast.Call] = {}
    splits: frozenset[ast.AST] = frozenset()
    every = list(host_effects(script))
    for _ in range(16):
        before = set(decided), set(hoists), splits
        host = Host(script, every, splits)
        walk = Walk(script, training, host, decided, hoists)
        try:
            walk.run()
        except Refusal:
            if (set(decided), set(hoists), splits | walk.splits) == before:
                raise
        splits |= walk.splits
        if (set(decided), set(hoists), splits) == before:
            return host, walk
    raise Refusal("what the processes must decide together is not known")
