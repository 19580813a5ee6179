"""Follows a training through its statements, in order, and notes where the numbers of one process
must become those of all.

Every variable, attribute and container has a kind (:mod:`.kinds`) at every point; loops are
followed until nothing changes, functions wherever they are called. Numbers are read where a tensor
becomes one of the host: there a mean or a sum over processes is taken, which all processes must
come to equally often. So whatever decides about that must be the same in all: a condition on
numbers that may differ in their last bits (an evaluation) is decided by the first process for all,
one on anything else is refused. What is kept beyond the variables of a function is the same in all
processes from there on.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from autofast.facts.batch.samples import Activation
from autofast.facts.host_io import host_effects
from autofast.flow.callgraph import Callee
from autofast.flow.scopes import Variable, own_nodes, variables_of
from autofast.model.script import Script
from autofast.model.source import ByNode, at, function_of
from autofast.model.syntax import CALL_ENDS, SILENT, TURN_ENDS, positional_parameters
from autofast.model.values import Tensor, Thing, all_of, names_of, of_kind
from autofast.rule import Refusal
from autofast.techniques.ddp.guards import Host
from autofast.techniques.ddp.names import Training
from autofast.techniques.ddp.uniformity.calls import Calls
from autofast.techniques.ddp.uniformity.kinds import EQUAL, SIZE, Kind, joined, share
from autofast.techniques.ddp.uniformity.notes import interrupt
from autofast.techniques.ddp.uniformity.state import Control, Frame, merged

STEPS = 100_000  # fifty times what any script needed that was tried and followed to its end
DEPTH = 24


class Walk(Calls):
    """One pass through the script: functions and statements."""

    _steps = 0

    def run(self) -> None:
        tree = self.script.entry.tree
        self.frames.append(Frame(Activation(tree)))
        for source in reversed(self.script.sources):
            if source is not self.script.entry:
                self.block(source.tree.body)
        self.block(tree.body)

    def step(self) -> None:
        self._steps += 1
        if self._steps > STEPS:
            raise Refusal("the training is too large to follow")

    def under(self, test: ast.expr, kind: Kind) -> None:
        self.control.append(Control(test, kind))

    # ------------------------------------------------------------------------------------ functions
    def call_function(self, callee: Callee, node: ast.Call | None) -> Kind:
        scope = callee.function
        if len(self.frames) > DEPTH or sum(f.run.function is scope for f in self.frames) > 1:
            raise Refusal(f"the function on {at(scope)} calls itself")
        if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_nodes(scope)):
            raise Refusal(f"what the function on {at(scope)} yields is not followed")
        kinds = self._given(callee, node)
        run = Activation(scope)
        if node is not None:
            run = self.numbers.entered(callee, node, self.frames[-1].run)
        things = self._things_given(callee, node)
        for name in variables_of(scope).bound(scope):
            self.state.pop(("v", scope, name), None)
        self.state.update({("v", scope, name): self.raised(kind) for name, kind in kinds.items()})
        frame = Frame(run, things)
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
        return joined(*frame.returns)

    def _given(self, callee: Callee, node: ast.Call | None) -> dict[str, Kind]:
        """What the parameters of a function are; a method of an object, which keeps what it is
        given, gets the number of samples of all.
        """
        if node is None:
            return {}
        found: dict[str, Kind] = {}
        given = [*node.args, *(k.value for k in node.keywords)]
        spec = callee.function.args
        for parameter in _parameters(callee):
            expr = self.calls.argument(node, callee, parameter)
            if expr is not None and expr in given:
                given.remove(expr)
                kind = self.kinds.get(expr, EQUAL)
                keeps = callee.is_bound and kind == SIZE
                found[parameter] = self.read(expr) if keeps else kind
        rest = joined(*(self.kinds.get(e, EQUAL).whole for e in given))
        if given:
            more = [a.arg for a in (spec.vararg, spec.kwarg) if a is not None]
            names = [p for p in _parameters(callee) if p not in found]
            found.update(dict.fromkeys([*names, *more], rest))
        return found

    def _things_given(self, callee: Callee, node: ast.Call | None) -> dict[str, list[Thing]]:
        """The objects that a call hands over, where the parameter stays what it is."""
        scope, table = callee.function, variables_of(callee.function)
        things: dict[str, list[Thing]] = {}
        positional = positional_parameters(scope.args)
        if callee.is_bound and positional and callee.this is not None:
            things[positional[0].arg] = [callee.this]
        for name in _parameters(callee):
            expr = None if node is None else self.calls.argument(node, callee, name)
            if expr is not None:
                things[name] = self.things(expr)
        return {
            n: t
            for n, t in things.items()
            if t and all_of(table.stores(Variable(n, scope)), ast.arg)
        }

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
                self.ev(value)
                self._mattering(value)
            case ast.Assign(targets=targets, value=value):
                kind = self.ev(value)
                self._mattering(value)
                for target in targets:
                    self.store(target, kind, value)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.store(target, self.ev(value), value)
            case ast.AugAssign():
                self._augmented(node)
            case ast.Return(value=value):
                self.frames[-1].returns.append(self.raised(self.ev(value)))
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
                        self.store(item.optional_vars, kind, item.context_expr)
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
            if call in self.matters:
                self.trained = True
                self.happens(call)

    def _augmented(self, node: ast.AugAssign) -> None:
        old, value = self.ev(node.target).whole, self.ev(node.value).whole
        if value == SIZE and old.same:
            value = self.read(node.value)
        elif value.name == "share" and old.same and isinstance(node.target, ast.Name):
            value = self._added(node.value, value)
        match node.target:
            case ast.Subscript():
                pass  # as it is stored
            case ast.Attribute(attr="data" | "grad", value=changed) | changed:
                if self._lasts(changed):
                    self.changed_alike(node, [node.value])
        if not isinstance(node.target, ast.Name):
            value = self.kept(node.value, value)
        found = self._operation(node.op, (node.target, old), (node.value, value))
        self.store(node.target, found, node.target)

    def _added(self, expr: ast.expr, kind: Kind) -> Kind:
        """``total += loss.detach()``: a number without gradients is that of all, from here on."""
        tensors = of_kind(self.script.values(expr), Tensor)
        if not tensors or any(t.grad for t in tensors) or not self._in_batches():
            return kind
        found = self.read(expr)
        return found if found.same else kind

    def _in_batches(self) -> bool:
        """This function goes over the batches that are shared out."""
        return any(
            c.test in self.training.loops and function_of(c.test) is self.frames[-1].run.function
            for c in self.control
        )

    def _jump(self, pending: list[Control]) -> None:
        pending += [c for c in self.control if c.kind.name != "equal"]

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
        self.control.pop()

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        over = self.ev(node.iter)
        item = self.element(node.iter, over)
        control = over if over.name == "near" else Kind("share", why=item.whole.why)
        if _is_loader(self.script, node.iter) or not (control.name == "near" or control.why):
            control = EQUAL  # as often in each

        def once() -> None:
            self.store(node.target, item, node.iter if item.same else None)
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
            self.control.pop()

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
            self.recording, recording = False, self.recording
            iteration()
            self.recording = recording
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
                    EQUAL if interrupt(handler) else share("an error in one of the processes"),
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
    host = Host(script, list(host_effects(script)))
    for _ in range(16):
        before = set(decided)
        walk = Walk(script, training, host, decided)
        try:
            walk.run()
        except Refusal:
            if set(decided) == before:
                raise
        if set(decided) == before:
            return host, walk
    raise Refusal("what the processes must decide together is not known")


def _parameters(callee: Callee) -> list[str]:
    """The names of the parameters that a call gives something."""
    spec = callee.function.args
    positional = positional_parameters(spec)
    return [p.arg for p in (*positional[callee.is_bound :], *spec.kwonlyargs)]
