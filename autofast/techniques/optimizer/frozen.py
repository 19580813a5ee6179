"""Models whose gradients a backward computes and nothing uses: the discriminator while the
generator learns from it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.facts.certain_gradients import CertainGradients
from autofast.facts.freezing import may_freeze
from autofast.facts.gradient_accesses import gradient_accesses, named_in_text
from autofast.facts.gradient_events import clips, zero_grads
from autofast.facts.optimizers import where_it_grows
from autofast.facts.parts import handed_parameter, parts_of
from autofast.facts.scaler import Event
from autofast.facts.untrained import NEEDING
from autofast.flow.callgraph import CallGraph
from autofast.flow.loops import loop_exits
from autofast.flow.positions import happens_in, index_in_block, nodes_of, statements_beside
from autofast.flow.scopes import own_nodes, stored_in
from autofast.flow.typestate import Events, Protocol, follow
from autofast.flow.valueflow import first_reason
from autofast.model.calls import arguments_of, call_of, is_path, keyword_of, receiver_of
from autofast.model.contents import without_wrappers
from autofast.model.events import CallFrame, Occurrence, Site
from autofast.model.kinds import is_module
from autofast.model.names import DDP
from autofast.model.roles import Backward, Optimizer, Step
from autofast.model.script import Script
from autofast.model.several import any_in, first_such, of_kind, wordset
from autofast.model.source import at, nodes_in, parent_of, statement_of, within_any
from autofast.model.syntax import TARGETS, is_attribute, is_stored
from autofast.model.tensors import tensors_in
from autofast.model.values import Const, Inst, Tensor, Thing, all_of
from autofast.read.recover.trained import BACKWARDS, Training, handed_out
from autofast.rule import Refusal

QUIET = wordset("train eval zero_grad requires_grad_")  # methods that compute nothing


@dataclass(frozen=True)
class Dropped:
    """``backward`` computes gradients of the model that ``name`` is, which are dropped; ``first``
    to ``last`` are statements of one block around it, with the calls of the model that it goes
    through. ``zero`` is the ``zero_grad()`` right above ``first``, if there is one.
    """

    backward: Backward
    name: str
    first: ast.stmt
    last: ast.stmt
    calls: frozenset[ast.AST]
    zero: ast.stmt | None


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
    for step, backward, dropped, why in script.analysis(_Dropping).found:
        models = _models_of(backward).values()
        for model in dropped if len(step.backwards) > 1 else ():
            if (found := _place(script, step, backward, model)) is not None:
                yield found, why or against(script, model, [m for m in models if m is not model])


UNCERTAIN = "in some steps the loss may need no other model's gradient, and its backward would fail"
# What asks a tensor for its graph, or makes one that has a gradient of its own.
ASKING = NEEDING | wordset("grad_fn is_leaf grad retains_grad")
CHECKPOINTS = tuple(f"torch.utils.checkpoint.checkpoint{more}" for more in ("", "_sequential"))


def ended_backwards(script: Script) -> Iterator[tuple[ast.Call, str]]:
    """The calls of a model that make of data what another model learns from: a backward that goes
    through the other one computes the gradients of the first, too, which are dropped. Each with why
    its result is not detached; empty where it is.
    """
    if _says_what_trains(script):
        return
    if Training(script).blind or script.calls(*CHECKPOINTS):
        return  # it may train by other code; what is checkpointed needs inputs with a gradient
    for step, backward, unused, why in script.analysis(_Dropping).found:
        through = {p for t in backward.tensors for p in t.passes}
        models, dropped = _models_of(backward), {id(m) for m in unused}
        for site in step.forwards:
            mine = {id(m): m for o in site for m in without_wrappers(o.this)}
            others = [m for k, m in models.items() if k not in mine]
            if site.node in through and mine and mine.keys() <= dropped:
                if site.call is not None and _is_of_data(script, site, site.call, backward):
                    whys = (against(script, m, others) for m in mine.values())
                    yield site.call, why or first_reason(whys)


def _models_of(backward: Backward) -> dict[int, Thing]:
    """The models that a backward goes through, by id."""
    return {id(m): m for t in backward.tensors for x in t.models for m in without_wrappers(x)}


def _says_what_trains(script: Script) -> bool:
    """Whether parameters are frozen at times, or anything but parameters needs a gradient."""
    given = (k.value for k in script.each(ast.keyword) if k.arg == "requires_grad")
    return (
        any(n.attr == "requires_grad_" for n in script.each(ast.Attribute))
        or any(n.attr == "requires_grad" and is_stored(n) for n in script.each(ast.Attribute))
        or any(script.values(value) != {Const(False)} for value in given)
        or named_in_text(script, "requires_grad") is not None
    )


def _is_of_data(script: Script, site: Site, call: ast.Call, backward: Backward) -> bool:
    """Whether a model is given nothing with a gradient, and nothing but one backward asks what it
    gives for its graph.
    """
    if not (script.must_be(call, Tensor) and script.called(call) <= _as_called([site])):
        return False
    given = [t for o in site for t in o.data["inputs"]]
    if not all_of(given, Tensor) or any(t.grad or t.param for t in of_kind(given, Tensor)):
        return False
    others = [
        tensors_in(script.values(n.value)) for n in script.each(ast.Attribute) if n.attr in ASKING
    ]
    for (kind, _), other in script.log.each():
        for o in other if other.node is not backward.node else ():
            if kind in BACKWARDS:
                others.append(tensors_in(frozenset(filter(None, [o.this])), *o.args.each))
            elif not _is_of_layer(kind, o):
                others.append(tensors_in(handed_out(kind, o)))
    own = tensors_in(script.values(call))
    return all(t.passes <= {call} for t in own) and not any(
        call in t.passes for ts in others for t in ts
    )


def _is_of_layer(kind: str, occurrence: Occurrence) -> bool:
    """Whether the forward of a layer gives its result to the layer behind it."""
    frame = first_such(reversed(occurrence.stack), CallFrame)
    owner = frame.func.owner if kind == "return" and frame is not None else None
    return owner is not None and is_module(Inst(owner, None))


def _owners(script: Script, model: Thing) -> list[Optimizer]:
    parts = parts_of(model)
    return [o for o in script.optimizers if any(id(m) in parts for p in o.params for m in without_wrappers(p))]  # fmt: skip


class _Dropping:
    """``script.analysis(_Dropping)``: the backwards of several models with those whose gradients
    nothing uses while others may learn by it, and what is not certain about that.
    """

    def __init__(self, script: Script):
        self.found: list[tuple[Step, Backward, list[Thing], str]] = []
        backwards = [(step, b) for step in script.steps for b in step.backwards]
        for step, backward in backwards if len(backwards) > 1 < len(script.optimizers) else ():
            models = _models_of(backward).values()
            several = models if len(models) > 1 else ()
            dropped = [m for m in several if _is_unused(script, step, backward, m)]
            others = _models_of(backward).keys() - {id(m) for m in dropped}
            if dropped and others:
                why = "" if _others_learn(script, backward, others) else UNCERTAIN
                self.found.append((step, backward, dropped, why))


def _others_learn(script: Script, backward: Backward, others: set[int]) -> bool:
    """Whether the loss certainly needs a gradient of these models."""
    certain = CertainGradients(script, others)
    call = backward.node
    given = [*arguments_of(call), receiver_of(call)] if isinstance(call, ast.Call) else []
    return any(certain.needs(e) for e in given)


def _is_unused(script: Script, step: Step, backward: Backward, model: Thing) -> bool:
    """Whether its gradients are dropped on every way before an update, a clip, another backward or
    anything else uses them.
    """
    owners = _owners(script, model)
    if not owners or not all(o.params for o in script.optimizers):
        return False
    if any(u.closure for other in script.steps for u in other.updates):
        return False  # which backwards an update runs, and when, is its own affair
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
    end = index_in_block(around, last) + 1
    names = {ast.unparse(getattr(call, "func", call)) for call in calls}
    if len(names) > 1 or not all(is_path(getattr(c, "func", c)) for c in calls):
        return None
    (name,) = names
    if script.values(getattr(calls[0], "func", calls[0])) - _as_called(mine):
        return None

    def is_alone(start: int) -> bool:
        """Whether nothing from there on goes another way, through the model, or backwards."""
        span = around[start:end]
        inside = [b for s in script.steps for b in s.backwards if within_any(b.node, span)]
        leaves = any(True for statement in span for _ in loop_exits(statement))
        alone = not leaves and [b.node for b in inside] == [backward.node]
        return alone and not _computes_otherwise(script, model, span, calls)

    start = index_in_block(around, first)
    if start >= end or not is_alone(start):
        return None
    rest = [b for s in script.steps for b in s.backwards if b.node is not backward.node]
    again = {p for b in rest for t in b.tensors for p in t.passes}
    if any_in(calls, again):
        return None  # another backward goes through the same results, and may need the gradients
    zeroed = [statement_of(s.node) for s in script.methods("zero_grad")]
    above = (i for i in range(start - 1, -1, -1) if around[i] in zeroed)
    zero = next(above, None)
    top = zero + 1 if zero is not None else 0 if isinstance(parent_of(last), ast.If) else start
    if any(_rebinds(s, name) for s in around[top:start]) or not is_alone(top):
        top, zero = start, None
    behind = around[zero] if zero is not None else None
    return Dropped(backward, name, around[top], last, frozenset(calls), behind)


def _computes_otherwise(
    script: Script, model: Thing, span: list[ast.stmt], calls: list[ast.AST]
) -> bool:
    """Whether what runs in statements computes with a model by other ways than these calls of it:
    by a layer of it, a function that is handed it, or its parameters.
    """
    parts, inside = parts_of(model), nodes_of(span)
    for node, o in script.analysis(_Passes).of(model):
        if node not in calls and happens_in(o, node, inside):
            if not any(f.node in calls for f in o.stack):
                return True
    graph = script.analysis(CallGraph)
    entered = {g for n in inside for f in graph.entered(n) for g in graph.runs(f)}
    networks = {c for m in script.models for c in m.classes}  # their passes are those above
    code = [f for f in entered if parent_of(f) not in networks]
    return any(
        any(id(t) in parts for t in script.values(n))
        for n in (*inside, *(n for f in code for n in own_nodes(f)))
        if isinstance(n, TARGETS) and not _is_harmless(n, calls)
    )


class _Passes:
    """``script.analysis(_Passes)``: what runs a model, or some of its layers."""

    def __init__(self, script: Script):
        passes = ((s.node, o) for s in script.log.of("forward") for o in s)
        self.each = [(parts_of(t).keys(), n, o) for n, o in passes if (t := o.this) is not None]
        self.found: dict[int, list[tuple[ast.AST, Occurrence]]] = {}

    def of(self, model: Thing) -> list[tuple[ast.AST, Occurrence]]:
        if id(model) not in self.found:
            parts = parts_of(model).keys()
            own = [(node, o) for keys, node, o in self.each if not keys.isdisjoint(parts)]
            self.found[id(model)] = own
        return self.found[id(model)]


def _is_harmless(node: ast.expr, calls: list[ast.AST]) -> bool:
    """Whether it is one of the calls, or nothing is computed with it: ``critic.eval()``."""
    outer = parent_of(node)
    return call_of(node) in calls or (is_attribute(outer, *QUIET) and call_of(outer) is not None)


def _rebinds(statement: ast.stmt, path: str) -> bool:
    """Whether a path may be another object behind a statement."""
    parts = set(path.split("."))
    attributes = nodes_in(statement, ast.Attribute)
    return not parts.isdisjoint(stored_in(statement)) or any(
        n.attr in parts and is_stored(n) for n in attributes
    )


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
    if place := handed_parameter(script):
        return f"{place} gives one layer the parameter of another, which may be of both models"
    for site in script.calls("torch.autograd.grad"):
        if any(t.param for o in site for t in tensors_in(o.args.get(1, "inputs"))):
            return f"{at(site)} asks for gradients of parameters, which may be of this model"
    return ""
