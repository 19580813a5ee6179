"""Models whose gradients a backward computes and nothing uses: the discriminator while the
generator learns from it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.facts.freezing import may_freeze
from autofast.facts.gradient_accesses import gradient_accesses
from autofast.facts.gradient_events import clips, zero_grads
from autofast.facts.optimizers import where_it_grows
from autofast.facts.parts import parts_of
from autofast.facts.scaler import Event
from autofast.flow.loops import loop_exits
from autofast.flow.positions import index_in_block, statements_beside
from autofast.flow.typestate import Events, Protocol, follow
from autofast.model.calls import is_path, keyword_of
from autofast.model.contents import without_wrappers
from autofast.model.names import DDP
from autofast.model.roles import Backward, Optimizer, Step
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.model.source import at, parent_of, statement_of, within_any
from autofast.model.values import Thing
from autofast.rule import Refusal


@dataclass(frozen=True)
class Dropped:
    """``backward`` computes gradients of the model that ``name`` is, which are dropped; ``first``
    to ``last`` are statements of one block around it.
    """

    backward: Backward
    name: str
    first: ast.stmt
    last: ast.stmt


class _Stale(Protocol[bool, Event]):
    """Whether gradients of a model are those that its own training has no use for."""

    def __init__(self, mine: frozenset[int]):
        super().__init__(False)
        self.mine = mine

    def happen(self, event: Event, state: bool) -> list[bool]:
        if event.kind == "stale":
            return [True]
        if event.things is not None and not event.things & self.mine:
            return [state]
        if event.kind == "zero":
            whole = event.sure and event.things is not None and self.mine <= event.things
            return [False] if whole else [False, state]
        if state:
            self.wrong("use", event.node, "{} uses them")
        return [state]


def dropped_backwards(script: Script) -> Iterator[tuple[Dropped, str]]:
    """Each such backward with why it is left as it is; empty where the model can be frozen for
    it.
    """
    if may_freeze(script):
        return
    for step in script.steps:
        if len(step.backwards) < 2 or len(script.optimizers) < 2:
            continue
        for backward in step.backwards:
            models = {
                id(m): m for t in backward.tensors for x in t.models for m in without_wrappers(x)
            }
            for model in models.values():
                others = [m for m in models.values() if m is not model]
                found = _place(script, step, backward, model)
                if not others or found is None or not _is_unused(script, step, backward, model):
                    continue
                yield found, against(script, model, others)


def _owners(script: Script, model: Thing) -> list[Optimizer]:
    parts = parts_of(model)
    return [o for o in script.optimizers if any(id(m) in parts for p in o.params for m in without_wrappers(p))]  # fmt: skip


def _is_unused(script: Script, step: Step, backward: Backward, model: Thing) -> bool:
    """Whether its gradients are dropped on every way before an update, a clip, another backward or
    anything else uses them.
    """
    owners = _owners(script, model)
    if not owners or not all(o.params for o in script.optimizers):
        return False
    mine = frozenset(id(t) for o in owners for t in o.things)
    try:
        read, after = gradient_accesses(script)
    except Refusal:
        return False
    events = [Event("stale", backward.node), *clips(script, strict=False), *read]
    for zero in zero_grads(script):
        to_none = keyword_of(zero.node, "set_to_none")  # type: ignore[arg-type]
        if to_none is None or script.constant(to_none) is True:
            events.append(zero)
    for site in script.methods("step"):  # also of `go = optimizer.step`
        events.append(Event("step", site.node, frozenset(id(o.this) for o in site)))
    for other in script.steps:
        for update in other.updates:
            events.append(Event("step", update.node, frozenset(map(id, update.things)) or None))
        for more in other.backwards:
            reached = {m for t in more.tensors for x in t.models for m in without_wrappers(x)}
            if more.node is not backward.node and (model in reached or not reached):
                events.append(Event("backward", more.node, mine))
    for site in script.methods("unscale_"):
        events.append(Event("unscale", site.node))
    stale = _Stale(mine)
    followed = follow(script, stale, Events(events, (), after))
    return not stale.problems and backward.node in followed.visited


# -------------------------------------------------------------------------------------------- where
def _place(script: Script, step: Step, backward: Backward, model: Thing) -> Dropped | None:
    """Around the calls of the model that this backward goes through, and no others."""
    mine = [site for site in step.forwards if any(model in without_wrappers(o.this) for o in site)]
    through = {p for t in backward.tensors for p in t.passes}
    calls = [s.node for s in mine if s.node in through]
    last = statement_of(backward.node)
    around = statements_beside(last)
    starts = [_lifted(call, around) for call in calls]
    if not calls or None in starts:
        return None
    first = min((s for s in starts if s is not None), key=lambda s: index_in_block(around, s))
    span = around[index_in_block(around, first) : index_in_block(around, last) + 1]
    names = {ast.unparse(getattr(call, "func", call)) for call in calls}
    if not span or len(names) > 1 or not all(is_path(getattr(c, "func", c)) for c in calls):
        return None
    (name,) = names
    if script.values(getattr(calls[0], "func", calls[0])) - _as_called(mine):
        return None
    inside = [b for s in script.steps for b in s.backwards if within_any(b.node, span)]
    others = [s.node for s in mine if s.node not in calls and within_any(s.node, span)]
    leaves = any(True for statement in span for _ in loop_exits(statement))
    if others or leaves or [b.node for b in inside] != [backward.node]:
        return None
    rest = [b for s in script.steps for b in s.backwards if b.node is not backward.node]
    again = {p for b in rest for t in b.tensors for p in t.passes}
    if any_in(calls, again):
        return None  # another backward goes through the same results, and may need the gradients
    return Dropped(backward, name, first, last)


def _as_called(sites: list) -> frozenset[Thing]:  # type: ignore[type-arg]
    return frozenset(t for s in sites for t in s.owners)


def _lifted(node: ast.AST, around: list[ast.stmt]) -> ast.stmt | None:
    """The statement of a block that a call stands in, itself or below ``with``."""
    here: ast.AST | None = statement_of(node)
    while here is not None and here not in around:
        here = parent_of(here)
        if not hasattr(here, "items"):
            return None
    return here


# --------------------------------------------------------------------------- what speaks against it
def against(script: Script, model: Thing, others: list[Thing]) -> str:
    """Why a model whose gradients are dropped is not frozen."""
    if script.unread:
        return f"not all of the script is followed: {script.unread}"
    for site in script.calls(DDP):
        return f"{at(site)} makes a DistributedDataParallel, which waits for the gradients of all parameters"
    for node in script.each(ast.Attribute):
        if node.attr == "compile" and getattr(node.value, "id", "") != "re":
            return f"{at(node)} compiles, and does so again where parameters are frozen"
        if node.attr.startswith("register_") and node.attr.endswith("hook"):
            return f"{at(node)} registers a hook, which may wait for these gradients"
    if more := where_it_grows(script):
        return f"{more} gives an optimizer more parameters, which may be of this model"
    if parts_of(model).keys() & parts_of(*others).keys():
        return "it shares layers with a model that is trained by this backward"
    return ""
