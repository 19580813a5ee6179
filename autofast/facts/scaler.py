"""Keeps book of what a GradScaler holds on every way through the training, and finds the ways that it does not survive.

Gradients are multiplied by the scale from a scaled backward until they are unscaled, which happens once: by ``unscale_`` or by
``scaler.step``. :class:`Ledger` goes along all statements, through the calls, both ways at each condition, out of each loop and function
by every ``continue``, ``break``, ``return`` and into each ``except``, with what is true of one optimizer: whether its gradients are gone,
scaled, unscaled or a sum of both, and whether the scaler has unscaled or stepped it since its last ``update()``. Two conditions with the
same words come out alike as long as nothing in them is set again.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from autofast.flow.callgraph import CallGraph
from autofast.flow.program import Flow
from autofast.flow.scopes import own_nodes
from autofast.model.events import CallFrame
from autofast.model.script import Script
from autofast.model.source import ancestors, at, function_of, parent_of, walk
from autofast.model.values import const

MOST = 400  # states before one statement: more than any script needed that was tried
LEAVES = (ast.Continue, ast.Break, ast.Return, ast.Raise, ast.Assert)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module


@dataclass(frozen=True, eq=False)
class Event:
    """What happens at a node, or before or after a statement.

    Attributes:
        kind: ``make``, ``backward``, ``plain`` (a backward without scaler), ``step``, ``plain step``, ``unscale``, ``update``, ``zero``,
            ``read`` (of gradients, or any change but to zero), ``write`` (of gradients from elsewhere) or ``exit`` (of the script).
        things: ids of the optimizers that it concerns. None: all, or which ones is not known.
        sure: it certainly concerns them.
    """

    kind: str
    node: ast.AST
    things: frozenset[int] | None = None
    sure: bool = True


class State(NamedTuple):
    """What is true of one optimizer. ``said``: conditions that were met on the way, and how they came out."""

    made: bool
    gradients: str  # gone | scaled | unscaled | mixed
    stage: str  # ready | unscaled | stepped: what the scaler has done since its last update()
    checked: bool  # whether it has done so for any optimizer
    said: frozenset[tuple[int, str, bool]] = frozenset()


States = frozenset[State]
NONE: States = frozenset()


@dataclass
class Ends:
    """How a block is left."""

    normal: States = NONE
    breaks: States = NONE
    continues: States = NONE
    returns: States = NONE


@dataclass
class Ledger:
    """Attributes:
    events: by the node they happen at. before, after: by the statement.
    is_new: whether the scaler is to be added: then its making has to come first on every way, and no step without a backward.
    """

    script: Script
    events: list[Event]
    before: list[Event] = field(default_factory=list)  # just before the statement ``node``
    after: list[Event] = field(default_factory=list)
    is_new: bool = True

    def problems(self, things: Iterable[int]) -> dict[tuple[str, int], tuple[str, ast.AST]]:
        """What goes wrong on some way, by kind and place, each with words and the node."""
        return _Book(self, frozenset(things)).problems()


class _Book:
    def __init__(self, ledger: Ledger, things: frozenset[int]):
        self.script, self.is_new, self.things = ledger.script, ledger.is_new, things
        self.at = _by_node(ledger.events)
        self.before, self.after = _by_node(ledger.before), _by_node(ledger.after)
        self.calls = self.script.analysis(CallGraph)
        self.swallows = self.script.analysis(Flow).swallows
        self.volatile = self.script.analysis(_Volatile)
        self.found: dict[tuple[str, int], tuple[str, ast.AST]] = {}
        self.visited: set[int] = set()
        self.active: list[int] = []
        self.traces: list[set[State]] = []
        self._known: dict[tuple[int, States], States] = {}
        self._hot()

    def problems(self) -> dict[tuple[str, int], tuple[str, ast.AST]]:
        states: States = frozenset({State(not self.is_new, "gone", "ready", False)})
        entry = self.script.entry.tree
        states = self.function(entry, states)
        for tree in (
            s.tree
            for s in self.script.sources
            if s.tree is not entry and id(s.tree) in self.functions
        ):
            states = self.function(tree, states) or states
        ends = [states, *(self.function(func, states) for func in self._roots())]
        if self.is_new and any(s.stage == "unscaled" for end in ends for s in end):
            node = next((e.node for events in self.before.values() for e in events), entry)
            self.wrong(
                "end",
                node,
                "the script may end after {}, before the update, for gradients that overflow",
            )
        for node in (e.node for events in self.at.values() for e in events if e.kind != "exit"):
            if id(node) not in self.visited:
                self.wrong("unseen", node, "when {} happens is not known")
        return self.found

    def wrong(self, kind: str, node: ast.AST, words: str) -> None:
        where = f"what {at(node)} does"
        self.found.setdefault((kind, id(node)), (words.format(where), node))

    # ------------------------------------------------------------------------------------------------ what matters
    def _hot(self) -> None:
        """The functions in which something happens, and all nodes on the way down to it."""
        places = [
            e.node
            for found in (self.at, self.before, self.after)
            for events in found.values()
            for e in events
        ]
        self.functions: set[int] = set()
        nodes: list[ast.AST] = []
        todo = list(places)
        while todo:
            node = todo.pop()
            nodes.append(node)
            function = function_of(node)
            if id(function) not in self.functions:
                self.functions.add(id(function))
                nodes += [n for n in own_nodes(function) if isinstance(n, LEAVES)]
                todo += self.calls.entries(function)
        self.hot: set[int] = set()
        for node in nodes:
            for outer in (node, *ancestors(node)):
                if id(outer) in self.hot or isinstance(outer, ast.Module):
                    break
                self.hot.add(id(outer))
                if outer is not node and isinstance(
                    outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
                ):
                    self.hot.discard(id(outer))
                    break

    def _roots(self) -> Iterator[Function]:
        """Functions that the reader has entered although nothing calls them."""
        done: set[int] = set()
        for site in self.script.log.of(".backward", ".step", ".manual_backward"):
            for occurrence in site:
                first = next(
                    (
                        f
                        for f in reversed(occurrence.stack)
                        if isinstance(f, CallFrame) and f.node is f.func.node
                    ),
                    None,
                )
                if first is not None and id(first.func.node) not in done:
                    done.add(id(first.func.node))
                    yield first.func.node

    # ------------------------------------------------------------------------------------------------ functions
    def function(self, function: Function, states: States) -> States:
        if not states or id(function) not in self.functions:
            return states
        if id(function) in self.active:
            self.wrong("recursion", function, "{} calls itself")
            return states
        key = id(function), states
        if key in self._known and not self.traces:
            return self._known[key]
        self.active.append(id(function))
        states = _forget_scope(states, function)
        if isinstance(function, ast.Lambda):
            ends = Ends(self.expr(function.body, states))
        else:
            if not isinstance(function, ast.Module) and _is_generator(function):
                self.wrong("generator", function, "{} happens in a generator, bit by bit")
            ends = self.block(function.body, states)
        self.active.pop()
        out = _forget_scope(ends.normal | ends.returns, function)
        self._known[key] = out
        return out

    # ------------------------------------------------------------------------------------------------ statements
    def block(self, body: list[ast.stmt], states: States) -> Ends:
        ends = Ends(states)
        for stmt in body:
            if not ends.normal:
                break
            if len(ends.normal) > MOST:
                self.wrong("many", stmt, "there are too many ways to {}")
                ends.normal = NONE
                break
            for event in self.before.get(id(stmt), ()):
                ends.normal = self.happen(event, ends.normal)
                for trace in self.traces:
                    trace |= ends.normal
            more = self.stmt(stmt, ends.normal) if id(stmt) in self.hot else Ends(ends.normal)
            ends.normal = _forget(more.normal, stmt)
            for event in self.after.get(id(stmt), ()):
                ends.normal = self.happen(event, ends.normal)
            for trace in self.traces:
                trace |= ends.normal
            ends.breaks |= more.breaks
            ends.continues |= more.continues
            ends.returns |= more.returns
        return ends

    def stmt(self, node: ast.stmt, states: States) -> Ends:
        match node:
            case ast.Continue():
                return Ends(continues=states)
            case ast.Break():
                return Ends(breaks=states)
            case ast.Return():
                return Ends(
                    returns=self.expr(node.value, states) if node.value is not None else states
                )
            case ast.Raise() | ast.Assert():
                if self.is_new and any(s.stage == "unscaled" for s in states):
                    self.wrong(
                        "end",
                        node,
                        "{} may end the script for gradients that overflow, which a scaler skips",
                    )
                if isinstance(node, ast.Assert):
                    return Ends(self.expr(node, states))
                for trace in self.traces:
                    trace |= states
                return Ends()
            case ast.If():
                return self.branch(node, states)
            case ast.For() | ast.AsyncFor():
                return self.loop(node, self.expr(node.iter, states))
            case ast.While():
                return self.loop(node, states)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    states = self.expr(item.context_expr, states)
                if id(node) not in self.swallows:
                    return self.block(node.body, states)
                self.traces.append(set(states))  # `with suppress(...)`: what is raised ends here
                ends = self.block(node.body, states)
                ends.normal |= self.traces.pop()
                return ends
            case ast.Try():
                return self.attempt(node, states)
            case ast.Match():
                states = self.expr(node.subject, states)
                all_ends = Ends(states)
                for case in node.cases:
                    _join(all_ends, self.block(case.body, states))
                return all_ends
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for decorator in node.decorator_list:
                    states = self.expr(decorator, states)
                return Ends(states)
            case ast.ClassDef():
                return Ends(self.block(node.body, states).normal)
        if type(node).__name__ == "TryStar":
            self.wrong("group", node, "whether {} is finished is not known")
        return Ends(self.expr(node, states))

    def branch(self, node: ast.If, states: States) -> Ends:
        states = self.expr(node.test, states)
        ends = Ends()
        known = const(self.script.values(node.test))
        for arm, body in ((True, node.body), (False, node.orelse)):
            if known is not ... and bool(known) is not arm:
                continue
            mine = self._suppose(node, arm, states)
            _join(ends, self.block(body, mine))
        return ends

    def _suppose(self, node: ast.If, arm: bool, states: States) -> States:
        """The ways on which the condition comes out like this."""
        test: ast.expr = node.test
        while True:
            if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                test, arm = test.operand, not arm
            elif (
                isinstance(test, ast.Compare)
                and len(test.ops) == 1
                and isinstance(test.ops[0], (ast.IsNot, ast.NotEq))
            ):
                op = ast.Is() if isinstance(test.ops[0], ast.IsNot) else ast.Eq()
                test, arm = ast.Compare(test.left, [op], test.comparators), not arm
            else:
                break
        if not self._is_steady(test):
            return states
        scope, words = id(function_of(node)), ast.dump(test)
        return frozenset(
            s._replace(said=s.said | {(scope, words, arm)})
            for s in states
            if (scope, words, not arm) not in s.said
        )

    def _is_steady(self, test: ast.expr) -> bool:
        """It asks for variables and attributes of which the second is set nowhere but where objects are made."""
        for node in walk(test):
            if isinstance(node, (ast.Call, ast.NamedExpr, ast.Subscript, ast.Await)):
                return False
            if isinstance(node, ast.Attribute) and node.attr in self.volatile.attributes:
                return False
            if isinstance(node, ast.Name) and node.id in self.volatile.variables:
                return False
        return True

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, states: States) -> Ends:
        """The body runs at least once; with none at all there is nothing to unscale."""
        ends = Ends()
        left: States = NONE
        seen: set[State] = set()
        todo = states
        while todo:
            seen |= todo
            if isinstance(node, ast.While):
                todo = self.expr(node.test, todo)
            inner = self.block(
                node.body, _forget(todo, node.target) if not isinstance(node, ast.While) else todo
            )
            around = inner.normal | inner.continues
            left |= inner.breaks
            ends.returns |= inner.returns
            ends.normal |= around
            todo = around - seen
            if len(seen) > MOST:
                self.wrong("many", node, "there are too many ways to {}")
                break
        if node.orelse:
            _join(after := Ends(returns=ends.returns), self.block(node.orelse, ends.normal))
            ends = after
        ends.normal |= left
        return ends

    def attempt(self, node: ast.Try, states: States) -> Ends:
        """What is raised may be raised after each statement."""
        self.traces.append(set(states))
        ends = self.block(node.body, states)
        raised: States = frozenset(self.traces.pop())
        after = self.block(node.orelse, ends.normal)
        ends.normal = NONE
        _join(ends, after)
        for handler in node.handlers:
            _join(ends, self.block(handler.body, raised))
        if node.finalbody:
            for name in ("normal", "breaks", "continues", "returns"):
                last = self.block(node.finalbody, getattr(ends, name))
                setattr(ends, name, last.normal)
                ends.returns |= last.returns
        return ends

    # ------------------------------------------------------------------------------------------------ expressions
    def expr(self, node: ast.AST, states: States) -> States:
        """What happens in an expression (or a simple statement), in order."""
        if id(node) not in self.hot:
            return states
        if isinstance(node, ast.Lambda):
            pass  # when it is called
        elif isinstance(node, ast.BoolOp):
            states = self.expr(node.values[0], states)
            for value in node.values[1:]:
                states |= self.expr(value, states)
        elif isinstance(node, ast.IfExp):
            states = self.expr(node.test, states)
            states = self.expr(node.body, states) | self.expr(node.orelse, states)
        else:
            children = list(ast.iter_child_nodes(node))
            if (
                isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign))
                and node.value is not None
            ):
                children = [node.value, *(c for c in children if c is not node.value)]
            elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
                children = [
                    *node.generators,
                    *(c for c in children if not isinstance(c, ast.comprehension)),
                ]
            for child in children:
                states = self.expr(child, states)
        events = self.at.get(id(node), ())
        for event in events:
            self.visited.add(id(node))
            states = self.happen(event, states)
        functions = self.calls.entered(node)
        if functions and states:
            if any(id(f) in self.functions for f in functions):
                states = NONE.union(*(self.function(f, states) for f in functions))
        return states

    # ------------------------------------------------------------------------------------------------ the book
    def happen(self, event: Event, states: States) -> States:
        mine = event.things is None or bool(event.things & self.things)
        out = {self.enter(event, s) if mine else self._other(event, s) for s in states}
        if mine and not (event.sure and (event.things is not None or event.kind != "zero")):
            out |= states
        return frozenset(out)

    def _other(self, event: Event, state: State) -> State:
        return state._replace(checked=True) if event.kind in ("step", "unscale") else state

    def enter(self, event: Event, s: State) -> State:
        node, kind = event.node, event.kind
        if kind == "make":
            if s.gradients == "scaled" or (s.made and s.stage == "unscaled"):
                self.wrong(kind, node, "{} is done again while gradients are scaled")
            return s._replace(made=True, stage="ready", checked=False)
        if kind in ("backward", "step", "unscale", "update") and not s.made:
            self.wrong("unmade", node, "{} comes before the scaler can be made")
        if kind in ("backward", "plain"):
            fresh = "scaled" if kind == "backward" else "unscaled"
            if s.gradients == "gone" and s.stage == "unscaled" and kind == "backward":
                return s._replace(gradients="mixed")  # the scaler takes them for unscaled
            return s._replace(gradients=fresh if s.gradients in ("gone", fresh) else "mixed")
        if kind == "zero":
            return s._replace(gradients="gone")
        if kind == "read":
            if s.gradients in ("scaled", "mixed"):
                self.wrong(kind, node, "{} needs gradients that are still scaled on some way there")
            return s
        if kind == "write":
            if s.gradients == "scaled" or (s.gradients == "gone" and s.stage != "unscaled"):
                self.wrong(
                    kind, node, "{} sets gradients that the scaler would take for scaled ones"
                )
            return s if s.gradients != "gone" else s._replace(gradients="unscaled")
        if kind == "unscale":
            if s.stage != "ready":
                self.wrong(
                    kind,
                    node,
                    "{} would unscale a second time on some way there, without an update() between",
                )
            elif s.gradients in ("unscaled", "mixed"):
                self.wrong(
                    kind,
                    node,
                    "{} would unscale gradients that are not scaled any more on some way there",
                )
            return s._replace(
                gradients="gone" if s.gradients == "gone" else "unscaled",
                stage="unscaled",
                checked=True,
            )
        if kind == "step":
            if s.stage == "stepped":
                self.wrong(
                    kind,
                    node,
                    "{} would come a second time on some way there, without an update() between",
                )
            elif s.gradients == "mixed" or (s.gradients == "unscaled" and s.stage == "ready"):
                self.wrong(
                    kind,
                    node,
                    "{} would unscale gradients that are not scaled any more, or not all of them",
                )
            elif s.gradients == "scaled" and s.stage == "unscaled":
                self.wrong(kind, node, "{} would use gradients that are still scaled")
            elif s.gradients == "gone" and self.is_new:
                self.wrong(
                    kind,
                    node,
                    "{} may come without a backward before it, which GradScaler.step() does not allow",
                )
            return s._replace(gradients="unscaled", stage="stepped", checked=True)
        if kind == "plain step":
            return s
        if kind == "exit":
            if s.stage == "unscaled":
                self.wrong(
                    "end",
                    node,
                    "{} may end the script for gradients that overflow, which a scaler skips",
                )
            return s
        assert kind == "update", kind
        if not s.checked:
            self.wrong(
                kind,
                node,
                "{} may come without a step before it, which GradScaler.update() does not allow",
            )
        return s._replace(stage="ready", checked=False)


# ------------------------------------------------------------------------------------------------ helpers
def _by_node(events: Iterable[Event]) -> dict[int, list[Event]]:
    found: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        found[id(event.node)].append(event)
    return dict(found)


def _join(ends: Ends, more: Ends) -> None:
    ends.normal |= more.normal
    ends.breaks |= more.breaks
    ends.continues |= more.continues
    ends.returns |= more.returns


def _forget(states: States, node: ast.AST) -> States:
    """What was said of variables that ``node`` sets is said no longer."""
    if not any(s.said for s in states) or isinstance(
        node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    ):
        return states
    names = {
        n.id for n in walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
    }
    if not names:
        return states
    scope = id(function_of(node))
    marks = [f"Name(id='{n}'" for n in names]
    return frozenset(
        s._replace(
            said=frozenset(t for t in s.said if t[0] != scope or not any(m in t[1] for m in marks))
        )
        if s.said
        else s
        for s in states
    )


def _forget_scope(states: States, function: Function) -> States:
    return frozenset(
        s._replace(said=frozenset(t for t in s.said if t[0] != id(function))) if s.said else s
        for s in states
    )


def _is_generator(function: ast.AST) -> bool:
    return any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_nodes(function))


class _Volatile:
    """What a condition may ask for in vain: attributes that are set outside of ``__init__``, and variables that other functions set."""

    def __init__(self, script: Script):
        self.attributes: set[str] = set()
        self.variables: set[str] = set()
        for node in script.nodes:
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                if getattr(function_of(node), "name", "") != "__init__":
                    self.attributes.add(node.attr)
            elif isinstance(node, (ast.Global, ast.Nonlocal)):
                self.variables.update(node.names)
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("setattr", "delattr")
            ):
                self.attributes.update(
                    n.value
                    for n in node.args
                    if isinstance(n, ast.Constant) and isinstance(n.value, str)
                )


def is_none_test(node: ast.AST) -> bool:
    """``node`` is only asked whether it is None."""
    parent = parent_of(node)
    return isinstance(parent, ast.Compare) and all(
        isinstance(op, (ast.Is, ast.IsNot)) for op in parent.ops
    )
