"""The protocol of a GradScaler: what it holds of the gradients of an optimizer, and the ways
through a training that it does not survive.

Gradients are multiplied by the scale from a scaled backward until they are unscaled, which happens
once: by ``unscale_`` or by ``scaler.step``. A state says whether the gradients of one optimizer (or
of several that are stepped in the same places) are gone, scaled, unscaled or a sum of both, and
whether the scaler has unscaled or stepped it since its last ``update()``;
:mod:`autofast.flow.typestate` goes all ways through the script with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from autofast.flow.graph import Function
from autofast.flow.typestate import Events, Protocol, follow
from autofast.model.events import CallFrame
from autofast.model.script import Script
from autofast.model.several import all_of, of_kind
from autofast.model.source import parent_of
from autofast.model.syntax import IDENTITY

OVERFLOWS = "{} may end the script for gradients that overflow, which a scaler skips"
Problems = dict[
    tuple[str, ast.AST], tuple[str, ast.AST]
]  # kind and id of the node -> words, and the node


@dataclass(frozen=True, eq=False)
class Event:
    """What happens at a node, or before or after a statement.

    Attributes:
        kind: ``make``, ``backward``, ``plain`` (a backward without scaler), ``step``, ``plain
            step``, ``unscale``, ``update``, ``zero``, ``read`` (of gradients, or any change but to
            zero), ``write`` (of gradients from elsewhere) or ``exit`` (of the script).
        things: ids of the optimizers that it concerns. None: all, or which ones is not known.
        sure: it certainly concerns them.
    """

    kind: str
    node: ast.AST
    things: frozenset[int] | None = None
    sure: bool = True


class State(NamedTuple):
    """What is true of one optimizer."""

    made: bool
    gradients: str = "gone"  # gone | scaled | old (by an earlier scale) | unscaled | mixed
    stage: str = (
        "ready"  # ready | unscaled | stepped: what the scaler has done since its last update()
    )
    checked: bool = False  # whether it has done so for any optimizer


def scaler_problems(
    script: Script, events: Events[Event], things: frozenset[int], *, is_new: bool
) -> Problems:
    """What goes wrong for some optimizers (ids) on some way through the script.

    Args:
        is_new: whether the scaler is to be added: then its making has to come first on every way,
            and no step without a backward.
    """
    scaler = _Scaler(things, is_new)
    followed = follow(script, scaler, events, _roots(script))
    if is_new and any(s.stage == "unscaled" for s in followed.ends):
        scaler.wrong(
            "end",
            next((e.node for e in events.before), script.entry.tree),
            "the script may end after {}, before the update, for gradients that overflow",
        )
    for event in events.at:
        if event.kind != "exit" and event.node not in followed.visited:
            scaler.wrong("unseen", event.node, "when {} happens is not known")
    return scaler.problems


def _roots(script: Script) -> Iterator[Function]:
    """Functions that the reader has entered although nothing calls them."""
    done: set[object] = set()
    for site in script.log.of(".backward", ".step", ".manual_backward"):
        for occurrence in site:
            calls = of_kind(reversed(occurrence.stack), CallFrame)
            first = next((f for f in calls if f.node is f.func.node), None)
            if first is not None and first.func.node not in done:
                done.add(first.func.node)
                yield first.func.node


class _Scaler(Protocol[State, Event]):
    def __init__(self, things: frozenset[int], is_new: bool):
        super().__init__(State(made=not is_new))
        self.things, self.is_new = things, is_new

    def happen(self, event: Event, state: State) -> list[State]:
        if event.things is not None and not event.things & self.things:
            touched = event.kind in ("step", "unscale")
            return [state._replace(checked=True) if touched else state]
        new = self.enter(event, state)
        sure = event.sure and (event.things is not None or event.kind != "zero")
        return [new] if sure else [new, state]

    def leave(self, node: ast.Raise | ast.Assert, state: State) -> None:
        if self.is_new and state.stage == "unscaled":
            self.wrong("end", node, OVERFLOWS)

    def enter(self, event: Event, s: State) -> State:
        if event.kind in ("backward", "step", "unscale", "update") and not s.made:
            self.wrong("unmade", event.node, "{} comes before the scaler can be made")
        if words := self._fault(event.kind, s):
            self.wrong("end" if event.kind == "exit" else event.kind, event.node, words)
        new = _after(event.kind, s)
        waits = self.is_new and event.kind == "update" and s.gradients == "scaled"
        return new._replace(gradients="old") if waits else new

    def _fault(self, kind: str, s: State) -> str:
        """What is wrong with an event in a state, in words; empty where nothing is."""
        match kind, s.stage, s.gradients:
            case ("make", _, "scaled") | ("make", "unscaled", _) if (
                s.made or s.gradients == "scaled"
            ):
                return "{} is done again while gradients are scaled"
            case "step" | "unscale", _, "old":
                return "{} would unscale gradients by another scale than theirs: an update() for other optimizers comes between"
            case "read", _, "scaled" | "mixed" | "old":
                return "{} needs gradients that are still scaled on some way there"
            case ("write", _, "scaled") | ("write", "ready" | "stepped", "gone"):
                return "{} sets gradients that the scaler would take for scaled ones"
            case "unscale" | "step", "stepped", _:
                again = "unscale" if kind == "unscale" else "come"
                return f"{{}} would {again} a second time on some way there, without an update() between"
            case "unscale", "unscaled", _:
                return (
                    "{} would unscale a second time on some way there, without an update() between"
                )
            case "unscale", _, "unscaled" | "mixed":
                return "{} would unscale gradients that are not scaled any more on some way there"
            case ("step", _, "mixed") | ("step", "ready", "unscaled"):
                return "{} would unscale gradients that are not scaled any more, or not all of them"
            case "step", "unscaled", "scaled":
                return "{} would use gradients that are still scaled"
            case "step", _, "gone" if self.is_new:
                return "{} may come without a backward before it, which GradScaler.step() does not allow"
            case "exit", "unscaled", _:
                return OVERFLOWS
            case "update", _, _ if not s.checked:
                return (
                    "{} may come without a step before it, which GradScaler.update() does not allow"
                )
        return ""


def _after(kind: str, s: State) -> State:
    """What is true after an event."""
    match kind:
        case "make":
            return s._replace(made=True, stage="ready", checked=False)
        case "backward" if s.gradients == "gone" and s.stage == "unscaled":
            return s._replace(gradients="mixed")  # the scaler takes them for unscaled
        case "backward" if s.gradients == "old":
            return s
        case "backward" | "plain":
            fresh = "scaled" if kind == "backward" else "unscaled"
            return s._replace(gradients=fresh if s.gradients in ("gone", fresh) else "mixed")
        case "zero":
            return s._replace(gradients="gone")
        case "write" if s.gradients == "gone":
            return s._replace(gradients="unscaled")
        case "unscale":
            left = "gone" if s.gradients == "gone" else "unscaled"
            return s._replace(gradients=left, stage="unscaled", checked=True)
        case "step":
            return s._replace(gradients="unscaled", stage="stepped", checked=True)
        case "update":
            return s._replace(stage="ready", checked=False)
    return s


def is_none_test(node: ast.AST) -> bool:
    """``node`` is only asked whether it is None."""
    parent = parent_of(node)
    return isinstance(parent, ast.Compare) and all_of(parent.ops, IDENTITY)
