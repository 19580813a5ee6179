"""What is known at a point of the training that is followed, and what is noted for the rewrite."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from autofast.facts.batch.samples import Activation
from autofast.model.source import at
from autofast.model.values import Thing
from autofast.rule import Refusal
from autofast.techniques.ddp.uniformity.kinds import Kind, join

Key = tuple[str, object, str]
State = dict[Key, Kind]


@dataclass
class Control:
    """A condition that what follows depends on."""

    test: ast.expr | ast.stmt | ast.ExceptHandler
    kind: Kind


@dataclass
class Frame:
    """A function that is followed; ``things`` are what its parameters are in this call,
    ``left`` conditions under which it may have ended already."""

    run: Activation
    things: dict[str, list[Thing]] = field(default_factory=dict)
    returns: list[Kind] = field(default_factory=list)
    left: list[Control] = field(default_factory=list)
    exits: list[State] = field(default_factory=list)  # what holds where it returns
    # ... and where its loops are left or go on, innermost last.
    passes: list[list[State]] = field(default_factory=list)
    loops: list[list[Control]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Note:
    """What becomes of an expression: ``mean`` or ``sum`` (over processes), ``size`` (times their
    number), ``first`` (that of the first process) or ``none``."""

    expr: ast.expr
    how: str


def merged(a: State, b: State) -> State:
    found = dict(a)
    for key, kind in b.items():
        found[key] = join(found[key], kind) if key in found else kind
    return found


def in_words(kind: Kind) -> str:
    if kind.whole.name == "near":
        return "a number that may differ between processes"
    return kind.whole.why or "made of this process's part of the batches"


def differs_by_rank(expr: ast.expr, kind: Kind) -> Refusal:
    """Why a value must not be read: it is another one in each process."""
    return Refusal(f"`{short(expr)}` on {at(expr)} differs between processes: {in_words(kind)}")


def short(expr: ast.expr) -> str:
    text = ast.unparse(expr)
    return text if len(text) < 50 else text[:47] + "..."
