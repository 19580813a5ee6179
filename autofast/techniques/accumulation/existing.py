"""Training that gathers the gradients of several batches already: how many, and where that number
stands.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.facts.updates.counter import Counter
from autofast.flow.program import Flow
from autofast.model.calls import alternatives, literal_of
from autofast.model.events import BranchFrame, CallFrame, LoopFrame, Stack, below, inside
from autofast.model.roles import Step
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import ByNode, at, function_of
from autofast.model.syntax import is_operation
from autofast.model.values import Arg, const, one
from autofast.rule import Refusal


@dataclass(frozen=True, eq=False)
class Existing:
    """``every`` is the expression of the number of batches in a window, and ``count`` that number
    where it is known.
    """

    every: ast.expr
    count: int | None


def existing_window(script: Script, step: Step) -> Existing | None:
    """The window of a training loop; None where there is none. Conditions of another kind raise
    :class:`Refusal`.
    """
    found: ByNode[Existing] = {}
    plain = False
    for update in step.updates:
        for occurrence in update.site:
            if not inside(occurrence.stack, step.loop):
                continue
            rest = below(occurrence.stack, step.loop)
            windows = [
                w
                for f in of_kind(rest, BranchFrame)
                if (w := _window(script, step, f, rest)) is not None
            ]
            if len(windows) > 1:
                raise Refusal(f"the optimizer is stepped under several conditions ({at(update)})")
            plain |= not windows
            found.update((w.every, w) for w in windows)
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
        f.node
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
                    and frame.node not in updated
                ):
                    if not surely(inside(o.stack, frame.node) for o in forwards):
                        continue  # the same loss again
                    match frame.node.iter:
                        case ast.Call(func=ast.Name(id="range"), args=[every], keywords=[]):
                            return Existing(every, _number(script, every))
    return None


def _number(script: Script, every: ast.expr) -> int | None:
    found = literal_of(every) or script.constant(every)
    if found is ... and isinstance(option := one(script.values(every)), Arg):
        found = const(option.default)
    return found if type(found) is int else None


def _window(script: Script, step: Step, frame: BranchFrame, rest: Stack) -> Existing | None:
    if not isinstance(frame.node, ast.If) or not isinstance(step.loop, ast.For):
        return None
    test = _resolved(script, frame.node.test, rest)
    reader = Counter(script, step.loop)
    for part in alternatives(test) if frame.arm else [test]:
        if (every := reader.every(part, frame.arm)) is not None:
            return Existing(every, _number(script, every))
    if not frame.known and any(is_operation(n, ast.Mod) for n in ast.walk(test)):
        raise Refusal(
            f"the optimizer is stepped under a condition that is not understood ({at(frame)})"
        )
    return None


def _resolved(script: Script, test: ast.expr, rest: Stack) -> ast.expr:
    """The condition behind a variable or a parameter."""
    for _ in range(6):
        definition = script.analysis(Flow).definition(test)
        if definition is None:
            return test
        frame = next(
            (f for f in of_kind(reversed(rest), CallFrame) if f.func.node is function_of(test)),
            None,
        )
        if frame is not None and definition.is_parameter:
            given = frame.given.get(definition.name)
        else:
            given = None
        value = given.expr if given is not None else definition.value
        if value is None:
            return test
        test = value
    return test
