"""Follows a training through its statements, in order, and notes where the numbers of one process must become those of all.

Every variable, attribute and container has a kind (:mod:`_ddp_kinds`) at every point; loops are followed until nothing changes, functions
wherever they are called. Numbers are read where a tensor becomes one of the host: there a mean or a sum over processes is taken, which all
processes must come to equally often. So whatever decides about that must be the same in all: a condition on numbers that may differ
in their last bits (an evaluation) is decided by the first process for all, one on anything else is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from autofast.model.script import Script
from autofast.model.values import Func, Thing, const
from autofast.rule import Refusal, at
from autofast.techniques.ddp.uniformity.kinds import EQUAL, NEAR, NONE, Kind, join, of, other
from autofast.techniques.ddp.uniformity.notes import Notes, exhausted, interrupt
from autofast.techniques.ddp.uniformity.state import Control, Frame, merged
from autofast.techniques.ddp.uniformity.stores import own_nodes

STEPS = 1_000_000
DEPTH = 24
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


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

    # -------------------------------------------------------------------------------------------- functions
    def call_function(self, func: Func, this: Thing | None, node: ast.Call | None, kinds: list[Kind], named: dict[str, Kind]) -> Kind:
        scope = func.node
        if len(self.frames) > DEPTH or sum(f.scope is scope for f in self.frames) > 1:
            fine = all(k.same for k in (*kinds, *named.values()))
            return NEAR if fine else other("a function that calls itself")
        frame = Frame(scope, self._given(func, this, node))
        self._bind(func, this, node, kinds, named)
        self.frames.append(frame)
        self.seen.add(id(scope))
        try:
            if isinstance(scope, ast.Lambda):
                return self.ev(scope.body)
            self.block(scope.body)
        finally:
            self.frames.pop()
            for state in frame.exits:
                self.state = merged(self.state, state)
        if frame.yields:
            found = frame.yields[0]
            for kind in frame.yields[1:]:
                found = join(found, kind)
            return Kind("iter", items=(found,))
        if not frame.returns:
            return NONE
        found = frame.returns[0]
        for kind in frame.returns[1:]:
            found = join(found, kind)
        return found

    def _given(self, func: Func, this: Thing | None, node: ast.Call | None) -> dict[str, list[Thing]]:
        """The objects that a call hands over, where the parameter stays what it is."""
        spec = func.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        stored = {n.id for n in own_nodes(func.node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        found: dict[str, list[Thing]] = {}
        if this is not None and names:
            found[names.pop(0)] = [this]
        for name, expr in zip(names, node.args if node is not None else (), strict=False):
            if isinstance(expr, ast.Starred):
                break
            found[name] = self.things(expr)
        for keyword in node.keywords if node is not None else ():
            if keyword.arg in {*names, *(a.arg for a in spec.kwonlyargs)}:
                found[keyword.arg] = self.things(keyword.value)
        return {name: things for name, things in found.items() if name not in stored and things}

    def _bind(self, func: Func, this: Thing | None, node: ast.Call | None, kinds: list[Kind], named: dict[str, Kind]) -> None:
        spec = func.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        for name in self._locals_of(func.node):
            self.state.pop(("v", id(func.node), name), None)
        if this is not None and names:
            names = names[1:]
        spread = [n for n, a in enumerate(node.args) if isinstance(a, ast.Starred)] if node is not None else []
        loose = [k for n, k in named.items() if n.startswith("**")]
        given: dict[str, Kind] = {}
        for n, kind in enumerate(kinds):
            if spread and n >= spread[0]:
                loose.append(kind)
            elif n < len(names):
                given[names[n]] = kind
            elif spec.vararg is not None:
                old = given.get(spec.vararg.arg)
                given[spec.vararg.arg] = of(*(old.items if old is not None and old.items else ()), kind)
        every = {*names, *(a.arg for a in spec.kwonlyargs)}
        for name, kind in named.items():
            if name in every:
                given[name] = kind
            elif not name.startswith("**") and spec.kwarg is not None:
                given[spec.kwarg.arg] = join(given[spec.kwarg.arg], kind.whole) if spec.kwarg.arg in given else kind.whole
        for kind in loose:
            for name in every - set(given):
                given[name] = join(kind.whole, EQUAL) if kind.items is None else kind.whole
        for name, kind in given.items():
            self.state["v", id(func.node), name] = self._raised(kind) if kind.items is None else kind

    # -------------------------------------------------------------------------------------------- statements
    def block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            if statement is self.training.setup:
                self.place = "in"
            self.statement(statement)
            if statement is self.training.end:
                self.place = "after"

    def statement(self, node: ast.stmt) -> None:
        self.step()
        self.seen.add(id(node))
        if id(node) in self.host.guards:
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
                    self.frames[-1].yields.append(kind if isinstance(value, ast.Yield) else self.element(value.value, kind))
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
                self.frames[-1].returns.append(self._raised(self.ev(value)) if value is not None else NONE)
                self._jump(self.frames[-1].left)
                self.frames[-1].exits.append(dict(self.state))
            case ast.Break() | ast.Continue():
                self._jump(self.frames[-1].loops[-1] if self.frames[-1].loops else self.frames[-1].left)
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
            if id(call) in self._matters:
                self.trained = True
                self.happens(call)

    def _augmented(self, node: ast.AugAssign) -> None:
        as_load = self.ev(node.target)
        value = self.ev(node.value)
        if value.sized and value.items is None and as_load.whole.same and self._counted_here(node.value):
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
        return any(isinstance(n, (ast.Call, ast.Subscript)) and self.kinds.get(id(n), EQUAL).sized for n in ast.walk(expr))

    def _jump(self, pending: list[Control]) -> None:
        pending += [c for c in self.control if c.kind.name != "equal" and id(c.test) not in self.decided]

    def _branches(self, node: ast.If) -> None:
        test = self.condition(node.test)
        known = const(self.script.values(node.test))
        if isinstance(known, bool) or not self._any_reached(node.body) or (node.orelse and not self._any_reached(node.orelse)):
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
        return any(isinstance(s, (ast.Pass, ast.Break, ast.Continue, ast.Return, ast.Global)) or self.script.reached(s) for s in body)

    def _arm(self, test: ast.expr, kind: Kind, body: list[ast.stmt]) -> None:
        self.under(test, kind)
        self.block(body)
        self.leave()

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        over = self.ev(node.iter)
        each = self._each(node)
        if each is not None:
            self.frames[-1].passes.append([])
            for value in each:
                self.store(node.target, value)
                self._pass(node, EQUAL)
                for state in self.frames[-1].passes[-1]:
                    self.state = merged(self.state, state)
            self.frames[-1].passes.pop()
            self.block(node.orelse)
            return
        control = (
            over.whole if over.name not in ("iter", "loader") and over.items is None and over.whole.name in ("near", "other") else EQUAL
        )
        if _is_loader(self.script, node.iter):
            control = EQUAL  # the same data in each

        def once() -> None:
            self.store(node.target, self.element(node.iter, over))
            self._pass(node, control)

        self._loop(once)
        self.block(node.orelse)

    def _each(self, node: ast.For | ast.AsyncFor) -> list[Kind] | None:
        """The values of a loop over a few parts, each of its own kind."""
        kind = self.kinds.get(id(node.iter), EQUAL)
        if kind.name == "equal" and kind.items and len({*kind.items}) > 1 and not any(isinstance(n, ast.Break) for n in ast.walk(node)):
            return list(kind.items)
        return None

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

        def turn() -> None:
            before = dict(self.state)
            frame.passes.append([])
            once()
            for state in (*frame.passes.pop(), before):
                self.state = merged(self.state, state)

        for _ in range(8):
            before = dict(self.state)
            with self._quietly():
                turn()
            if self.state == before:
                break
        turn()
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
                Control(handler, EQUAL if interrupt(handler) or exhausted(handler) else other("an error in one of the processes"))
            )
            self.block(handler.body)
            self.control.pop()
            normal = merged(normal, self.state)
        self.state = normal
        self.block(node.finalbody)


def _goes(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))


def _is_loader(script: Script, expr: ast.expr) -> bool:
    names = {getattr(t, "name", "") for t in script.values(expr)}
    return bool(names) and all(n.startswith(("torch.utils.data.", "builtins.enumerate", "tqdm", "builtins.zip")) for n in names if n)
