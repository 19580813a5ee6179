"""The script as it runs while an option of the command line has its default: the other way stays in the text, and is not looked at."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from autofast.flow.program import Flow
from autofast.flow.scopes import is_parameter, scope_of, variables_of
from autofast.model.events import BranchFrame, Frame, Log, Site, Stack
from autofast.model.script import Script, Step
from autofast.model.source import function_of, source_of, statement_of
from autofast.model.values import Arg, Const, const, one


@dataclass(frozen=True, eq=False)
class Off:
    """An option that is off unless it is given, and the tests that ask for it.

    Attributes:
        option: the option; ``asks`` are the expressions in the tests (``args.fp16``).
        tests: by the id of an ``if``'s test, the test and what it is by default.
    """

    option: Arg
    asks: list[ast.expr]
    tests: dict[int, tuple[ast.expr, bool]]

    def is_needed(self, stack: Stack) -> bool:
        """Whether the script comes this way only where the option is given."""
        return any(
            isinstance(f, BranchFrame)
            and (known := self._default(f)) is not None
            and known != f.arm
            for f in stack
        )

    def _default(self, frame: BranchFrame) -> bool | None:
        return self.tests.get(id(getattr(frame.node, "test", None)), (None, None))[1]

    def settled(self, frame: Frame) -> Frame:
        """The frame, known where it is an arm that the default decides."""
        if isinstance(frame, BranchFrame) and not frame.known and self._default(frame) is not None:
            return replace(frame, known=True)
        return frame

    def asked_at(self, script: Script, place: ast.stmt) -> str:
        """An expression that says at ``place`` whether the option is given; empty where none certainly does."""
        asks = [e for e in self.asks if source_of(e) is source_of(place)]
        return next((ast.unparse(e) for e in asks if _means_the_same(script, e, place)), "")


def behind_option(script: Script, places: Iterable[Site]) -> Off | None:
    """The one option, off by default, without which the script comes to none of ``places``; None where there is none."""
    stacks = [o.stack for site in places for o in site]
    first = next((list(_asked(script, s)) for s in stacks), [])
    for option in first:
        tests, asks = {}, []
        for frame in (f for s in stacks for f in s if isinstance(f, BranchFrame)):
            test = getattr(frame.node, "test", None)
            if isinstance(test, ast.expr) and (found := _option(script, test)) is not None:
                asked, ask, default = found
                if asked == option:
                    tests[id(test)] = test, default
                    asks.append(ask)
        off = Off(option, asks, tests)
        if all(off.is_needed(s) for s in stacks):
            return off
    return None


def _asked(script: Script, stack: Stack) -> Iterator[Arg]:
    for frame in stack:
        test = getattr(frame.node, "test", None) if isinstance(frame, BranchFrame) else None
        if isinstance(test, ast.expr) and (found := _option(script, test)) is not None:
            yield found[0]


def _option(script: Script, test: ast.expr) -> tuple[Arg, ast.expr, bool] | None:
    """The option that a test asks for, the expression of it, and what the test is by default; the option is off by default."""
    is_not = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    ask = test.operand if isinstance(test, ast.UnaryOp) and is_not else test
    option = one(script.values(ask))
    if not isinstance(option, Arg) or not isinstance(ask, (ast.Name, ast.Attribute)):
        return None
    if const(option.default) not in (False, None):
        return None
    return option, ask, is_not


# ------------------------------------------------------------------------------------------------ the script without it
def by_default(script: Script, off: Off) -> Script:
    """The script as it runs without the option: what needs that does not happen, and what the tests are is known."""
    sites: list[Site] = []
    frames: dict[int, Frame] = {}

    def settled(frame: Frame) -> Frame:
        return frames.setdefault(id(frame), off.settled(frame))

    for _, site in script.log.each():
        left = [
            replace(o, stack=tuple(map(settled, o.stack)))
            for o in site
            if not off.is_needed(o.stack)
        ]
        if left:
            sites.append(Site(site.kind, site.node, left))
    log = Log.holding(sites)
    known = {key: frozenset({Const(default)}) for key, (_, default) in off.tests.items()}

    def seen(found: list[Site]) -> list[Site]:
        return [s for f in found if (s := log.at(f.kind, f.node)) is not None]

    steps = [_step(s, seen, settled) for s in script.steps]
    return replace(
        script,
        log=log,
        at={**script.at, **known},
        steps=[s for s in steps if s.backwards],
        evaluations=[replace(e, forwards=f) for e in script.evaluations if (f := seen(e.forwards))],
        models=[replace(m, forwards=seen(m.forwards), moves=seen(m.moves)) for m in script.models],
        optimizers=[
            replace(o, updates=[u for u in o.updates if seen([u.site])]) for o in script.optimizers
        ],
        _analyses={},
    )


def _step(
    step: Step, seen: Callable[[list[Site]], list[Site]], settled: Callable[[Frame], Frame]
) -> Step:
    def one_of(site: Site) -> Site:
        return seen([site])[0]

    return replace(
        step,
        forwards=seen(step.forwards),
        losses=seen(step.losses),
        backwards=[replace(b, site=one_of(b.site)) for b in step.backwards if seen([b.site])],
        updates=[replace(u, site=one_of(u.site)) for u in step.updates if seen([u.site])],
        zeros=seen(step.zeros),
        clips=seen(step.clips),
        unscales=seen(step.unscales),
        scaler_updates=seen(step.scaler_updates),
        grad_reads=seen(step.grad_reads),
        schedules=seen(step.schedules),
        stack=tuple(map(settled, step.stack)),
    )


# ------------------------------------------------------------------------------------------------ where it can be asked for
def _means_the_same(script: Script, ask: ast.expr, place: ast.stmt) -> bool:
    """Whether an expression of a test is the option at ``place``, too: its variable has one definition, which runs before."""
    root = ask.value if isinstance(ask, ast.Attribute) else ask
    variables = variables_of(place)
    variable = variables.of(root) if isinstance(root, ast.Name) else None
    if variable is None or variables.find(variable.name, scope_of(place)) != variable:
        return False
    stores = variables.stores(variable)
    if is_parameter(variable.scope, variable.name):
        return not any(isinstance(s, ast.Name) for s in stores)
    if len(stores) != 1:
        return False
    made = statement_of(stores[0])
    if function_of(made) is not function_of(place):
        return isinstance(function_of(made), ast.Module)
    return made is not place and script.analysis(Flow).graph(place).dominates(made, place)
