"""Training that gathers the gradients of several batches already: how many, and where that number stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.edit.edits import Edit, Keyword, Rewrite
from autofast.facts.updates.cadence import Counter
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow
from autofast.model.calls import arguments_of, short_name, targets_of
from autofast.model.events import BranchFrame, CallFrame, LoopFrame, Stack, below, inside
from autofast.model.script import Script, Step
from autofast.model.source import at, function_of, nodes_in, parent_of, within
from autofast.model.values import Arg, const, one
from autofast.rule import Refusal


@dataclass(frozen=True, eq=False)
class Existing:
    """``every`` is the expression of the number of batches in a window, and ``count`` that number where it is known."""

    every: ast.expr
    test: ast.expr
    count: int | None
    step: Step


def existing(script: Script, step: Step) -> Existing | None:
    """The window of a training loop; None where there is none. Conditions of another kind raise :class:`Refusal`."""
    found: dict[int, Existing] = {}
    plain = False
    for update in step.updates:
        for occurrence in update.site:
            if not inside(occurrence.stack, step.loop):
                continue
            rest = below(occurrence.stack, step.loop)
            windows = [
                w
                for f in rest
                if isinstance(f, BranchFrame) and (w := _window(script, step, f, rest)) is not None
            ]
            if len(windows) > 1:
                raise Refusal(
                    f"the optimizer is stepped under several conditions ({at(update.node)})"
                )
            plain |= not windows
            found.update((id(w.every), w) for w in windows)
    if not found:
        return _inner(script, step)
    if plain or len({ast.dump(w.every) for w in found.values()}) > 1:
        raise Refusal(
            "the optimizer is stepped for each batch in one place and for several in another"
        )
    return next(iter(found.values()))


def _inner(script: Script, step: Step) -> Existing | None:
    """``for micro_step in range(K)`` around forward and backward, with the update after it."""
    forwards = [o for site in step.forwards for o in site if inside(o.stack, step.loop)]
    updated = {
        id(f.node)
        for u in step.updates
        for o in u.site
        for f in below(o.stack, step.loop)
        if isinstance(f, LoopFrame)
    }
    for backward in step.backwards:
        for occurrence in backward.site:
            for frame in (
                below(occurrence.stack, step.loop) if inside(occurrence.stack, step.loop) else ()
            ):
                if (
                    isinstance(frame, LoopFrame)
                    and isinstance(frame.node, ast.For)
                    and id(frame.node) not in updated
                ):
                    if not forwards or not all(inside(o.stack, frame.node) for o in forwards):
                        continue  # the same loss again
                    match frame.node.iter:
                        case ast.Call(func=ast.Name(id="range"), args=[every], keywords=[]):
                            return Existing(every, frame.node.iter, _number(script, every), step)
    return None


def _number(script: Script, every: ast.expr) -> int | None:
    found = const(script.values(every)) if not isinstance(every, ast.Constant) else every.value
    if found is ... and isinstance(option := one(script.values(every)), Arg):
        found = const(option.default)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _window(script: Script, step: Step, frame: BranchFrame, rest: Stack) -> Existing | None:
    if not isinstance(frame.node, ast.If) or not isinstance(step.loop, ast.For):
        return None
    test = _resolved(script, frame.node.test, rest)
    reader = Counter(script, step.loop, step.loaders)
    parts = (
        test.values
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) and frame.arm
        else [test]
    )
    for part in parts:
        if (every := reader.every(part, frame.arm)) is not None:
            return Existing(every[0], test, _number(script, every[0]), step)
    if not frame.known and any(
        isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(test)
    ):
        raise Refusal(
            f"the optimizer is stepped under a condition that is not understood ({at(frame.node)})"
        )
    return None


def _resolved(script: Script, test: ast.expr, rest: Stack) -> ast.expr:
    """The condition behind a variable or a parameter."""
    for _ in range(6):
        found = script.analysis(Flow).reaching(test) if isinstance(test, ast.Name) else ()
        definition = next(iter(found)) if len(found) == 1 else None
        if definition is None:
            return test
        frame = next(
            (
                f
                for f in reversed(rest)
                if isinstance(f, CallFrame) and f.func.node is function_of(test)
            ),
            None,
        )
        given = (
            frame.given.get(definition.name)
            if frame is not None and definition.is_parameter
            else None
        )
        value = given.expr if given is not None else definition.value
        if value is None:
            return test
        test = value
    return test


# ------------------------------------------------------------------------------------------------ another number
def other_number(script: Script, window: Existing, steps: int) -> list[Edit]:
    """The edits that make it ``steps`` batches; raises :class:`Refusal`."""
    every = window.every
    _check_divided(script, window)
    if isinstance(every, ast.Constant):
        literals = [n for n in _literals(window) if n.value == every.value]
        known = {id(n) for n in literals}
        for node in nodes_in(window.step.loop, ast.Constant):
            if node.value == every.value and id(node) not in known and _is_factor(node):
                raise Refusal(f"{every.value!r} on {at(node)} may mean the window, too")
        return [Rewrite(n, str(steps)) for n in literals]
    thing = one(script.values(every))
    if isinstance(thing, Arg):
        if not any(k.arg == "default" for k in thing.node.keywords):
            raise Refusal(
                f"how many batches make an update is said on the command line (`{ast.unparse(every)}`), without a default"
            )
        return [Keyword(thing.node, "default", str(steps))]
    if isinstance(every, (ast.Name, ast.Attribute)) and window.count is not None:
        return [Rewrite(_definition(script, every), str(steps))]
    raise Refusal(f"where `{ast.unparse(every)}` on {at(every)} is set is not known")


def _is_factor(node: ast.Constant) -> bool:
    parent = parent_of(node)
    return isinstance(parent, (ast.BinOp, ast.AugAssign)) and isinstance(
        parent.op, (ast.Mult, ast.Div, ast.Mod, ast.FloorDiv)
    )


def _definition(script: Script, every: ast.expr) -> ast.expr:
    """The number in the one statement that sets it."""
    name = short_name(every)
    found = []
    for node in script.nodes:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Constant):
            targets = targets_of(node)
            if any(short_name(t) == name for t in targets):
                found.append(node.value)
        elif isinstance(node, ast.arg) and node.arg == name:
            raise Refusal(f"`{name}` on {at(every)} is a parameter: change it where it is given")
    if len(found) != 1 or const(script.values(every)) != found[0].value:
        raise Refusal(f"where `{ast.unparse(every)}` on {at(every)} is set is not known")
    return found[0]


def _literals(window: Existing) -> Iterator[ast.Constant]:
    """The places that write the number: the condition, and what divides the loss."""
    for node in nodes_in(window.test, ast.BinOp):
        if isinstance(node.op, ast.Mod) and isinstance(node.right, ast.Constant):
            yield node.right
    if isinstance(window.test, ast.Call) and isinstance(window.every, ast.Constant):
        yield window.every
    for divisor in _divisors(window):
        if isinstance(divisor, ast.Constant):
            yield divisor


def _divisors(window: Existing) -> list[ast.expr]:
    """What the losses are divided by, in their backward or in a statement of the loop."""
    found: list[ast.expr] = []
    scopes = {id(function_of(b.node)): function_of(b.node) for b in window.step.backwards}
    for scope in scopes.values():
        for node in ast.walk(scope):
            if not isinstance(node, (ast.BinOp, ast.AugAssign)) or function_of(node) is not scope:
                continue
            if scope is function_of(window.step.loop) and not within(node, window.step.loop):
                continue
            if (
                isinstance(node, ast.BinOp)
                and isinstance(node.op, ast.Div)
                and _alike(node.right, window.every)
            ):
                found.append(node.right)
            elif (
                isinstance(node, ast.AugAssign)
                and isinstance(node.op, ast.Div)
                and _alike(node.value, window.every)
            ):
                found.append(node.value)
    return found


def _alike(expr: ast.expr, every: ast.expr) -> bool:
    return ast.dump(expr) == ast.dump(every)


def _check_divided(script: Script, window: Existing) -> None:
    if not _divisors(window) and not _shares(script, window):
        raise Refusal(
            f"its losses are not divided by `{ast.unparse(window.every)}`: what another number would mean is not known"
        )
    for scheduler in (
        s for s in script.schedulers if any(t.unit == "update" for t in s.ticks) and not s.outer
    ):
        if any(t is u for t in scheduler.optimizers for x in window.step.updates for u in x.things):
            if not _follows(script, scheduler.node, window):
                raise Refusal(
                    f"{scheduler.name} on {at(scheduler.node)} counts updates, of which there would be another number"
                )


def _shares(script: Script, window: Existing) -> bool:
    """The number goes into what weighs the loss (``loss * share(loader, i, N)``)."""
    if isinstance(window.every, ast.Constant):
        return False
    for backward in window.step.backwards:
        for node in nodes_in(backward.node, ast.Call):
            if node is not backward.node and any(_alike(a, window.every) for a in node.args):
                return True
    name = getattr(window.every, "id", "")
    return bool(name) and any(
        isinstance(n, ast.Call)
        and getattr(n.func, "id", "").startswith("share_of_window")
        and any(_alike(a, window.every) for a in n.args)
        for n in ast.walk(window.step.loop)
    )


def _follows(script: Script, call: ast.Call, window: Existing) -> bool:
    """The length of a schedule is worked out from the number."""
    if isinstance(window.every, ast.Constant):
        return False
    todo: list[ast.AST] = [n for e in arguments_of(call) for n in ast.walk(e)]
    seen: set[Definition] = set()
    while todo:
        node = todo.pop()
        if isinstance(node, ast.expr) and _alike(node, window.every):
            return True
        if isinstance(node, ast.Name):
            new = script.analysis(Flow).reaching(node) - seen
            seen |= new
            todo += [n for d in new if d.value is not None for n in ast.walk(d.value)]
    return False
