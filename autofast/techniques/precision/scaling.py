"""A GradScaler for the whole script: made beside the optimizers, around every backward, every step
and every update.

Either all of it can be done, or none: a gradient that is scaled in one place and not unscaled in
another is a wrong gradient.

apex behind an option that is off by default: what runs without it gets autocast, and what runs
with it stays as it is.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from functools import partial

from autofast.edit.edits import After, Edit, Rewrite, Wrap, Written
from autofast.edit.order import Rank
from autofast.facts.by_default import Off, behind_option, by_default
from autofast.facts.forwards import Region
from autofast.facts.gradient_accesses import against_scaler, gradient_accesses
from autofast.facts.gradient_events import clips, stepped_together, zero_grads
from autofast.facts.optimizers import left_on_host
from autofast.facts.scaler import Event, scaler_problems
from autofast.flow.definition_sites import Home, after_all, home_of
from autofast.flow.loops import loop_exits
from autofast.flow.positions import (
    common_frames,
    index_in_block,
    is_sure,
    nodes_of,
    statement_at,
    statements_beside,
)
from autofast.flow.typestate import Events
from autofast.model.calls import is_method, may_give, receiver_of, stands_alone
from autofast.model.events import BranchFrame, LoopFrame, Occurrence, inside
from autofast.model.kinds import is_optimizer, ways_made
from autofast.model.roles import Backward, Step, Update
from autofast.model.script import Script
from autofast.model.source import ByNode, Nodes, Source, ancestors, at, function_of, statement_of
from autofast.model.syntax import ASSIGNMENTS, DEFINITIONS, DEFS
from autofast.model.values import Thing
from autofast.rule import Refusal
from autofast.techniques.precision.scaler_state import Place, places
from autofast.techniques.precision.unscale_places import Unscale, unscales
from autofast.write.plumbing import Way
from autofast.write.spelling import torch_in

DEFINES = DEFINITIONS


def makes(
    script: Script, home: Home, backwards: list[Backward], updates: list[Update]
) -> tuple[list[ast.stmt], bool]:
    """The statements after which the scaler is made; before which, if the second is True."""
    busy: Nodes = set()
    for site in [b.site for b in backwards] + [u.site for u in updates]:
        busy.add(site.node)
        busy.update(f.node for o in site for f in o.stack)
    places = after_all(home.stores, busy)
    early = False
    if home.scope is not None:
        if len(places) > 1:
            raise Refusal(f"the optimizer is set in several blocks, the last on {at(places[-1])}")
        here = statements_beside(places[0])
        first = next(
            (n for n, s in enumerate(here) if nodes_of([s]) & busy and not isinstance(s, DEFINES)),
            len(here),
        )
        if first < index_in_block(
            here, places[0]
        ):  # something is trained before the last optimizer is made
            stores = {n for n, s in enumerate(here[:first]) if nodes_of([s]) & set(home.stores)}
            early = not stores
            places = [here[max(stores, default=first)]]
    made_in = {
        f.node for u in updates for t in u.things for f in ways_made(t) if isinstance(f, LoopFrame)
    }
    for place in places:
        for outer in ancestors(place):
            if isinstance(outer, DEFS):
                break
            if isinstance(outer, (ast.For, ast.While)) and outer not in made_in:
                raise Refusal(
                    f"the optimizer is put into its place again and again, in the loop on {at(outer)}"
                )
    return places if early else [_below_schedulers(script, p, busy) for p in places], early


def _below_schedulers(script: Script, place: ast.stmt, busy: Nodes) -> ast.stmt:
    """The last of the statements directly below that make schedulers, which belong to their
    optimizers; the place itself where there is none.
    """
    made = {statement_of(s.node) for s in script.schedulers}
    here = statements_beside(place)
    for below in here[index_in_block(here, place) + 1 :]:
        simple = isinstance(below, (ast.Assign, ast.AnnAssign))
        if nodes_of([below]) & busy:
            break
        if simple and below in made:
            place = below
        elif not _does_little(script, below):
            break
    return place


def _does_little(script: Script, statement: ast.stmt) -> bool:
    """A simple statement that has nothing to do with an optimizer, or a condition that never
    holds.
    """
    if isinstance(statement, ast.If):
        return not any(script.reached(s) for s in (*statement.body, *statement.orelse))
    optimizers = {t for optimizer in script.optimizers for t in optimizer.things}
    return isinstance(statement, (*ASSIGNMENTS, ast.Expr)) and not any(
        optimizers & script.values(n) for n in ast.walk(statement)
    )


def ends(script: Script) -> list[ast.stmt]:
    """The statements after which an iteration has made all of its updates."""
    found: ByNode[ast.stmt] = {}
    for step in script.steps:
        inner = {
            u.node for s in script.steps if s is not step and _is_inside(s, step) for u in s.updates
        }
        mine = [u for u in step.updates if u.node not in inner]
        for statement in _last(
            [(u.node, o) for u in mine for o in u.site if inside(o.stack, step.loop) or not o.stack]
        ):
            found[statement] = statement
    return list(found.values())


def _last(places: list[tuple[ast.Call, Occurrence]]) -> list[ast.stmt]:
    nodes = {n: n for n, _ in places}
    if len(nodes) <= 1:
        return [statement_of(n) for n in nodes.values()]
    depth = min(common_frames(a.stack, b.stack) for m, a in places for n, b in places if m is not n)
    statements = [statement_at(o.stack, n, depth) for n, o in places]
    if all(s is statements[0] for s in statements):
        arms: dict[bool, list[tuple[ast.Call, Occurrence]]] = {}
        for node, occurrence in places:
            frame = occurrence.stack[depth] if depth < len(occurrence.stack) else None
            if not isinstance(frame, BranchFrame):
                raise Refusal(f"which update comes last on {at(statements[0])} is not clear")
            arms.setdefault(frame.arm, []).append((node, occurrence))
        return [s for arm in arms.values() for s in _last(arm)]
    here = statements_beside(statements[0])
    order = [index_in_block(here, s) for s in statements]
    if min(order) < 0:
        raise Refusal(
            f"which update comes last in an iteration is not clear ({at(statements[-1])})"
        )
    if not any(is_sure(o, depth) for _, o in places):
        raise Refusal(f"all updates of an iteration depend on conditions ({at(statements[0])})")
    last = here[max(order)]
    for statement in here[min(order) : max(order) + 1]:
        for jump in (s for s in loop_exits(statement) if not isinstance(s, ast.Raise)):
            raise Refusal("may leave the iteration between two updates", jump)
    return [last]


def _is_inside(step: Step, other: Step) -> bool:
    return step.loop is not other.loop and any(
        inside(o.stack, other.loop)
        for b in step.backwards
        for o in b.site
        if inside(o.stack, step.loop)
    )


SINCE, EVER_SINCE = (2, 3), (1, 6)  # torch.amp.GradScaler; torch.cuda.amp.GradScaler
NAMES = ("scaler", "grad_scaler", "amp_scaler")


@dataclass(eq=False)
class Scaling:
    """All that it takes. ``makes`` are the statements after which the scaler is made, ``edits``
    everything but its making.

    With ``early`` it is made before that statement, in which something may be trained already.
    """

    name: str
    home: Home
    makes: list[ast.stmt]
    early: bool = False
    edits: list[Edit] = field(default_factory=list)
    unscales: list[Unscale] = field(default_factory=list)
    states: list[Place] = field(default_factory=list)
    backwards: list[ast.Call] = field(default_factory=list)

    @property
    def target(self) -> str:
        """What the new scaler is assigned to."""
        if self.home.scope is not None:
            return self.name
        function = function_of(self.makes[0])
        assert isinstance(function, ast.FunctionDef)
        return f"{function.args.args[0].arg}.{self.name}"


def scaling(script: Script) -> Scaling | str:
    """How a scaler is put into the script; or why it cannot be."""
    try:
        return _Builder(script).build()
    except Refusal as why:
        return str(why)


def of_cuda_amp(script: Script) -> bool:
    """Whether GradScaler is spelled as before torch 2.3, which the project may have."""
    return bool(script.torch.rules_out(SINCE))


def _disabled(script: Script, source: Source) -> Written:
    """A scaler that leaves everything as it is, for those who call a function without one."""
    torch, edits = torch_in(source)
    amp = f"{torch}.cuda.amp" if of_cuda_amp(script) else f"{torch}.amp"
    return f"{amp}.GradScaler(enabled=False)", edits


class _Builder:
    def __init__(self, script: Script):
        self.script = script
        self.backwards: list[Backward] = _unique([b for s in script.steps for b in s.backwards])
        self.updates: list[Update] = _unique([u for s in script.steps for u in s.updates])

    def build(self) -> Scaling:
        self._check()
        if why := against_scaler(self.script):
            raise Refusal(why)
        self.accesses, self.zeroed = gradient_accesses(self.script)
        objects = [t for u in self.updates for t in u.things]
        home = home_of(self.script, [u.optimizer for u in self.updates], objects)
        if isinstance(home, str):
            raise Refusal(home)
        if home.scope is not None and any(function_of(s) is not home.scope for s in home.stores):
            raise Refusal(f"the optimizer is set through `global` ({at(home.stores[0])})")
        after, early = makes(self.script, home, self.backwards, self.updates)
        made = Scaling(_free_name(self.script), home, after, early)
        self.way = Way(
            self.script,
            home.beside(made.name),
            plain=partial(_disabled, self.script),
            made=home.stores,
            alone=True,
        )
        for backward in self.backwards:
            loss = receiver_of(backward.node)
            assert loss is not None
            made.edits.append(
                Wrap(loss, f"{self._name(backward.node)}.scale({{}})", rank=Rank.LOSS_SCALE)
            )
            made.backwards.append(backward.node)
        for update in self.updates:
            template = f"{self._name(update.node)}.step({{optimizer}})"
            made.edits.append(
                Rewrite(update.node, template, {"optimizer": update.optimizer}, rank=Rank.STEP)
            )
        last = ends(self.script)
        for statement in last:
            made.edits.append(
                After(statement, f"{self._name(statement)}.update()", rank=Rank.SCALER_UPDATE)
            )
        made.unscales = list(unscales(self.script, self._name))
        for unscale in made.unscales:
            made.edits += unscale.edits
        self._follow(made, last)
        made.states = self._states(objects)
        made.edits += [place.edit for place in made.states]
        made.edits += self.way.edits
        return made

    def _states(self, optimizers: list[Thing]) -> list[Place]:
        try:
            return places(self.script, optimizers, self._name)
        except Refusal:
            return []  # a training that goes on from a checkpoint finds its scale anew

    def _name(self, node: ast.AST) -> str:
        name = self.way.to(function_of(node))
        if name is None:
            raise Refusal(f"the scaler cannot be brought to {at(node)}: {self.way.refusal}")
        return name

    def _follow(self, made: Scaling, last: list[ast.stmt]) -> None:
        """Go every way through the training, with what the scaler would hold on it."""
        events = [*self.accesses]
        events += [Event("backward", b.node) for b in self.backwards]
        events += [Event("step", u.node, frozenset(map(id, u.things))) for u in self.updates]
        events += zero_grads(self.script)
        events += clips(self.script)
        events += [
            Event("exit", e.node)
            for e in self.script.calls("sys.exit", "builtins.exit", "builtins.quit", "os._exit")
        ]
        starts = [Event("make", place) for place in made.makes]
        before = [e for u in made.unscales for e in u.events]
        after = [*self.zeroed, *(Event("update", e) for e in last)]
        if made.early:
            every = Events(events, [*starts, *before], after)
        else:
            every = Events(events, before, [*starts, *after])
        for things in stepped_together(self.updates):
            for why, _ in scaler_problems(self.script, every, things, is_new=True).values():
                raise Refusal(why)

    def _check(self) -> None:
        if not self.backwards or not self.updates:
            raise Refusal(
                "no optimizer is stepped after the backward: there is nothing to unscale the gradients with"
            )
        for step in self.script.steps:
            if not step.updates:
                raise Refusal(
                    f"no optimizer is stepped after the backward on {at(step.backwards[0])}"
                )
        for backward in self.backwards:
            call = backward.node
            if not is_method(call, "backward") or call.args or backward.framework:
                raise Refusal(f"the backward on {at(call)} is not the plain `loss.backward()`")
            if may_give(call, "gradient", "inputs"):
                raise Refusal(f"the backward on {at(call)} has its own gradient or inputs")
            if not stands_alone(call):
                raise Refusal(f"the backward on {at(call)} is part of an expression")
        for update in self.updates:
            self._check_update(update)
        for optimizer in self.script.optimizers:
            if host := left_on_host(self.script, optimizer):
                raise Refusal(
                    f"the module of {host} stays on the host: a GradScaler does not wait for the copies of what it tells an update there"
                )
        if sites := self.script.calls("torch.autograd.backward"):
            raise Refusal(f"torch.autograd.backward() is called on {at(sites[0])}")

    def _check_update(self, update: Update) -> None:
        where = at(update)
        if update.closure or update.node.args or update.node.keywords:
            raise Refusal(f"the step on {where} takes a closure, which GradScaler.step() does not")
        for thing in update.things:
            if not is_optimizer(thing):
                raise Refusal(f"what is stepped on {where} is not known")
        if not stands_alone(update.node):
            raise Refusal(f"the step on {where} is part of an expression")
        if receiver_of(update.node) not in (None, update.optimizer):
            raise Refusal(f"the step on {where} is written in an unusual way")


def _unique(found: list) -> list:  # type: ignore[type-arg]
    return list({id(x.node): x for x in found}.values())


def _free_name(script: Script) -> str:
    taken: set[str] = set()
    for source in script.sources:
        taken |= source.names | {n.attr for n in source.each(ast.Attribute)}
    return next((n for n in NAMES if n not in taken), None) or next(
        f"{NAMES[0]}_{i}" for i in range(2, 99) if f"{NAMES[0]}_{i}" not in taken
    )


def apex_option(script: Script) -> Off | None:
    """The option, off by default, without which the script has nothing to do with apex; None where
    there is none.
    """
    if "apex" not in script.frameworks:
        return None
    sites = [
        site
        for (kind, _), site in script.log.each()
        if kind.startswith("apex.amp.")
        or (
            kind == "new" and any(getattr(o.this, "name", "").startswith("apex.amp.") for o in site)
        )
    ]
    return behind_option(script, sites)


def script_without(script: Script, off: Off) -> Script:
    """The script as it runs while the option, and apex, are off."""
    frameworks = {name: node for name, node in script.frameworks.items() if name != "apex"}
    return replace(by_default(script, off), frameworks=frameworks)


def cannot_ask(script: Script, off: Off, regions: list[Region], scaling: Scaling | None) -> str:
    """A place that has to know whether the option is given and cannot, in words."""
    places = [*(r.first for r in regions), *(scaling.makes if scaling is not None else ())]
    return next((cannot(off, p) for p in places if not off.is_off_at(script, p)), "")


def cannot(off: Off, place: ast.stmt) -> str:
    """Why the way without the option cannot be told from the other one at a place."""
    return f"it stays as it is where `--{off.option.name}` is given, which cannot be asked on {at(place)}"
