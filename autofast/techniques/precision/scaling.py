"""A GradScaler for the whole script: made beside the optimizers, around every backward, every step and every update.

Either all of it can be done, or none: a gradient that is scaled in one place and not unscaled in another is a wrong gradient.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from autofast.edit.edits import After, Before, DictItem, Edit, Rewrite, Wrap
from autofast.edit.order import Rank
from autofast.facts.gradient_accesses import accesses, against_scaler, free_parameters, use_of
from autofast.facts.parts import parts_of
from autofast.facts.scaler import Event, Ledger
from autofast.flow.cfg import leaving
from autofast.flow.definition_sites import Home, after_all, home_of
from autofast.flow.positions import block, index, is_sure, nodes_of, shared, statement_at
from autofast.model.events import BranchFrame, LoopFrame, Occurrence, Site, inside
from autofast.model.kinds import is_optimizer
from autofast.model.script import Backward, Script, Step, Update
from autofast.model.source import (
    Source,
    ancestors,
    function_of,
    parent_of,
    source_of,
    statement_of,
)
from autofast.model.tensors import tensors_in
from autofast.model.values import Ext, Inst, Thing, const
from autofast.read.recover.build import unwrapped
from autofast.read.recover.steps import CLIPS
from autofast.rule import Refusal, at
from autofast.write.plumbing import Way
from autofast.write.spelling import torch_in

NAMES = ("scaler", "grad_scaler", "amp_scaler")


@dataclass(eq=False)
class Unscale:
    """A place that clips or reads gradients before the update: they are unscaled just before ``statement``."""

    node: ast.AST
    edits: tuple[Edit, ...]
    events: tuple[Event, ...] = ()


@dataclass(eq=False)
class Scaling:
    """All that it takes. ``makes`` are the statements after which the scaler is made, ``edits`` everything but its making.

    It is made before the statement where that is in ``early``: something may be trained in it.
    """

    name: str
    home: Home
    makes: list[ast.stmt]
    early: bool = False
    edits: list[Edit] = field(default_factory=list)
    unscales: list[Unscale] = field(default_factory=list)
    backwards: list[ast.Call] = field(default_factory=list)

    @property
    def target(self) -> str:
        """What the new scaler is assigned to."""
        if self.home.scope is not None:
            return self.name
        function = function_of(self.makes[0])
        assert isinstance(function, ast.FunctionDef)
        return f"{function.args.args[0].arg}.{self.name}"


def scaling(script: Script, leaves: str = "") -> Scaling | str:
    """How a scaler is put into the script; or why it cannot be. ``leaves`` is a framework that scaled the loss and goes."""
    try:
        return _Builder(script, leaves).build()
    except Refusal as why:
        return str(why)


def _disabled(source: Source) -> tuple[str, tuple[Edit, ...]]:
    """A scaler that leaves everything as it is, for those who call a function without one."""
    torch, edits = torch_in(source)
    return f"{torch}.amp.GradScaler(enabled=False)", edits


class _Builder:
    def __init__(self, script: Script, leaves: str = ""):
        self.script, self.leaves = script, leaves
        self.backwards: list[Backward] = _unique([b for s in script.steps for b in s.backwards])
        self.updates: list[Update] = _unique([u for s in script.steps for u in s.updates])

    def build(self) -> Scaling:
        self._check()
        if why := against_scaler(self.script):
            raise Refusal(why)
        self.accesses, self.zeroed = accesses(self.script)
        objects = [t for u in self.updates for t in u.things]
        home = home_of(self.script, [u.optimizer for u in self.updates], objects)
        if isinstance(home, str):
            raise Refusal(home)
        if home.scope is not None and any(function_of(s) is not home.scope for s in home.stores):
            raise Refusal(f"the optimizer is set through `global` ({at(home.stores[0])})")
        places, early = self._makes(home)
        made = Scaling(_free_name(self.script), home, places, early)
        self.way = Way(self.script, home.beside(made.name), plain=_disabled, made=home.stores)
        for backward in self.backwards:
            receiver = backward.node.func
            assert isinstance(receiver, ast.Attribute)
            made.edits.append(
                Wrap(
                    receiver.value, f"{self._name(backward.node)}.scale({{}})", rank=Rank.LOSS_SCALE
                )
            )
            made.backwards.append(backward.node)
        for update in self.updates:
            template = f"{self._name(update.node)}.step({{optimizer}})"
            made.edits.append(
                Rewrite(update.node, template, {"optimizer": update.optimizer}, rank=Rank.STEP)
            )
        ends = self._ends()
        for statement in ends:
            made.edits.append(
                After(statement, f"{self._name(statement)}.update()", rank=Rank.SCALER_UPDATE)
            )
        made.unscales = list(self._unscales())
        for unscale in made.unscales:
            made.edits += unscale.edits
        self._follow(made, ends)
        made.edits += self._state()
        made.edits += self.way.edits
        return made

    def _name(self, node: ast.AST) -> str:
        name = self.way.to(function_of(node))
        if name is None:
            raise Refusal(f"the scaler cannot be brought to {at(node)}: {self.way.refusal}")
        return name

    def _follow(self, made: Scaling, ends: list[ast.stmt]) -> None:
        """Go every way through the training, with what the scaler would hold on it."""
        events = [*self.accesses]
        events += [Event("backward", b.node) for b in self.backwards]
        events += [Event("step", u.node, frozenset(map(id, u.things))) for u in self.updates]
        events += zeros(self.script)
        events += clips(self.script)
        events += [
            Event("exit", e.node)
            for e in self.script.calls("sys.exit", "builtins.exit", "builtins.quit", "os._exit")
        ]
        makes = [Event("make", place) for place in made.makes]
        before = [e for u in made.unscales for e in u.events]
        after = [*self.zeroed, *(Event("update", e) for e in ends)]
        if made.early:
            ledger = Ledger(self.script, events, [*makes, *before], after)
        else:
            ledger = Ledger(self.script, events, before, [*makes, *after])
        for things in alike(self.updates):
            for why, _ in ledger.problems(things).values():
                raise Refusal(why)

    # ------------------------------------------------------------------------------------------------ what must hold
    def _check(self) -> None:
        if not self.backwards or not self.updates:
            raise Refusal(
                "no optimizer is stepped after the backward: there is nothing to unscale the gradients with"
            )
        for step in self.script.steps:
            if not step.updates:
                raise Refusal(
                    f"no optimizer is stepped after the backward on {at(step.backwards[0].node)}"
                )
        for backward in self.backwards:
            call = backward.node
            if (
                not isinstance(call.func, ast.Attribute)
                or call.func.attr != "backward"
                or call.args
                or (backward.framework and not self.leaves)
            ):
                raise Refusal(f"the backward on {at(call)} is not the plain `loss.backward()`")
            if any(k.arg in ("gradient", "inputs", None) for k in call.keywords):
                raise Refusal(f"the backward on {at(call)} has its own gradient or inputs")
            if not isinstance(parent_of(call), ast.Expr):
                raise Refusal(f"the backward on {at(call)} is part of an expression")
        for update in self.updates:
            self._check_update(update)
        if sites := self.script.calls("torch.autograd.backward"):
            raise Refusal(f"torch.autograd.backward() is called on {at(sites[0].node)}")

    def _check_update(self, update: Update) -> None:
        where = at(update.node)
        if update.closure or update.node.args or update.node.keywords:
            raise Refusal(f"the step on {where} takes a closure, which GradScaler.step() does not")
        for thing in update.things:
            if not is_optimizer(thing):
                raise Refusal(f"what is stepped on {where} is not known")
        if not isinstance(parent_of(update.node), ast.Expr):
            raise Refusal(f"the step on {where} is part of an expression")
        if (
            isinstance(update.node.func, ast.Attribute)
            and update.node.func.value is not update.optimizer
        ):
            raise Refusal(f"the step on {where} is written in an unusual way")

    def _makes(self, home: Home) -> tuple[list[ast.stmt], bool]:
        """The statements after which the scaler is made; before which, if the second is True."""
        busy: set[int] = set()
        for site in [b.site for b in self.backwards] + [u.site for u in self.updates]:
            busy.add(id(site.node))
            busy.update(id(f.node) for o in site for f in o.stack)
        places = after_all(home.stores, busy)
        early = False
        if home.scope is not None:
            if len(places) > 1:
                raise Refusal(
                    f"the optimizer is set in several blocks, the last on {at(places[-1])}"
                )
            here = block(places[0])
            first = next(
                (
                    n
                    for n, s in enumerate(here)
                    if nodes_of([s]) & busy and not isinstance(s, DEFINES)
                ),
                len(here),
            )
            if first < index(
                here, places[0]
            ):  # something is trained before the last optimizer is made
                stores = {
                    n
                    for n, s in enumerate(here[:first])
                    if nodes_of([s]) & {id(t) for t in home.stores}
                }
                early = not stores
                places = [here[max(stores, default=first)]]
        made_in = {
            id(f.node)
            for u in self.updates
            for t in u.things
            for f in getattr(t, "made", ())
            if isinstance(f, LoopFrame)
        }
        for place in places:
            for outer in ancestors(place):
                if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    break
                if isinstance(outer, (ast.For, ast.While)) and id(outer) not in made_in:
                    raise Refusal(
                        f"the optimizer is put into its place again and again, in the loop on {at(outer)}"
                    )
        return places, early

    # ------------------------------------------------------------------------------------------------ scaler.update()
    def _ends(self) -> list[ast.stmt]:
        """The statements after which an iteration has made all of its updates."""
        ends: dict[int, ast.stmt] = {}
        for step in self.script.steps:
            inner = {
                id(u.node)
                for s in self.script.steps
                if s is not step and _is_inside(s, step)
                for u in s.updates
            }
            mine = [u for u in step.updates if id(u.node) not in inner]
            for statement in self._last(
                [
                    (u.node, o)
                    for u in mine
                    for o in u.site
                    if inside(o.stack, step.loop) or not o.stack
                ]
            ):
                ends[id(statement)] = statement
        return list(ends.values())

    def _last(self, places: list[tuple[ast.Call, Occurrence]]) -> list[ast.stmt]:
        nodes = {id(n): n for n, _ in places}
        if len(nodes) <= 1:
            return [statement_of(n) for n in nodes.values()]
        depth = min(shared(a.stack, b.stack) for m, a in places for n, b in places if m is not n)
        statements = [statement_at(o.stack, n, depth) for n, o in places]
        if all(s is statements[0] for s in statements):
            arms: dict[bool, list[tuple[ast.Call, Occurrence]]] = {}
            for node, occurrence in places:
                frame = occurrence.stack[depth] if depth < len(occurrence.stack) else None
                if not isinstance(frame, BranchFrame):
                    raise Refusal(f"which update comes last on {at(statements[0])} is not clear")
                arms.setdefault(frame.arm, []).append((node, occurrence))
            return [s for arm in arms.values() for s in self._last(arm)]
        here = block(statements[0])
        order = [index(here, s) for s in statements]
        if min(order) < 0:
            raise Refusal(
                f"which update comes last in an iteration is not clear ({at(statements[-1])})"
            )
        if not any(is_sure(o, depth) for _, o in places):
            raise Refusal(f"all updates of an iteration depend on conditions ({at(statements[0])})")
        last = here[max(order)]
        for statement in here[min(order) : max(order) + 1]:
            for jump in (s for s in leaving(statement) if not isinstance(s, ast.Raise)):
                raise Refusal(f"{at(jump)} may leave the iteration between two updates")
        return [last]

    # ------------------------------------------------------------------------------------------------ scaler.unscale_()
    def _unscales(self) -> Iterator[Unscale]:
        """The places that clip or read gradients between a backward and its update."""
        done: dict[
            int, ast.stmt
        ] = {}  # update -> the statement before which its gradients are unscaled
        for step in self.script.steps:
            sites = [
                *step.clips,
                *step.grad_reads,
                *(
                    s
                    for s in self.script.log.of("grad_write")
                    if any(inside(o.stack, step.loop) for o in s)
                ),
            ]
            for site in sorted(sites, key=lambda s: (source_of(s.node).rel, s.node.lineno)):  # type: ignore[attr-defined]
                if isinstance(site.node, ast.Attribute) and use_of(site.node) in ("", "zero"):
                    continue
                before: dict[int, Edit] = {}
                events: list[Event] = []
                for occurrence in site:
                    if not inside(occurrence.stack, step.loop):
                        continue
                    for statement, update in self._updates_after(step, site, occurrence):
                        if id(update.node) not in done:
                            events.append(
                                Event("unscale", statement, frozenset(map(id, update.things)))
                            )
                        first = done.setdefault(id(update.node), statement)
                        if function_of(first) is not function_of(update.node):
                            raise Refusal(
                                f"the gradients are read on {at(site.node)}, away from the optimizer"
                            )
                        text = f"{self._name(first)}.unscale_({source_of(first).segment(update.optimizer)})"
                        before[id(update.node)] = Before(first, text, rank=Rank.UNSCALE)
                if before:
                    yield Unscale(site.node, tuple(before.values()), tuple(events))

    def _updates_after(
        self, step: Step, site: Site, occurrence: Occurrence
    ) -> list[tuple[ast.stmt, Update]]:
        """The updates that use the gradients which ``site`` reads, each with the statement before which they must be unscaled."""
        scaled, found, related = False, [], False
        for backward in step.backwards:
            scaled |= any(
                self._follows(o, backward.node, occurrence, site.node)
                for o in backward.site
                if inside(o.stack, step.loop)
            )
        if not scaled:
            return []  # before any backward of the iteration: they are gone or unscaled by then
        for update in step.updates:
            for other in update.site:
                if not inside(other.stack, step.loop):
                    continue
                depth = shared(occurrence.stack, other.stack)
                mine, theirs = (
                    statement_at(occurrence.stack, site.node, depth),
                    statement_at(other.stack, update.node, depth),
                )
                here = block(theirs)
                distance = index(here, theirs) - index(here, mine)
                if mine is theirs or index(here, mine) < 0 or not self._reads_of(site, update):
                    continue
                if not is_sure(other, depth):
                    raise Refusal(
                        f"{at(site.node)} reads gradients in iterations that end without an update"
                    )
                related = True
                if distance > 0:
                    found.append((distance, mine, update))
        if not related:
            raise Refusal(f"{at(site.node)} reads gradients that no optimizer updates with")
        between = [f for f in found if not self._backward_between(step, f[1], f[0])]
        return [(_in_arm(occurrence, site.node, mine), update) for _, mine, update in between]

    def _backward_between(self, step: Step, mine: ast.stmt, distance: int) -> bool:
        """Another backward stands between a clip and an update: the update is not that of the clipped gradients alone."""
        here = block(mine)
        start = index(here, mine)
        nodes = nodes_of(here[start + 1 : start + distance])
        return any(id(b.node) in nodes for b in step.backwards)

    def _follows(
        self, first: Occurrence, first_node: ast.AST, second: Occurrence, second_node: ast.AST
    ) -> bool:
        depth = shared(first.stack, second.stack)
        a, b = (
            statement_at(first.stack, first_node, depth),
            statement_at(second.stack, second_node, depth),
        )
        here = block(a)
        return 0 <= index(here, a) < index(here, b)

    def _reads_of(self, site: Site, update: Update) -> bool:
        """Whether the gradients of a clip may be those of an update; True where the parameters of either are not known."""
        call = site.node
        if not isinstance(call, ast.Call) or not call.args:
            return True
        owners = _parameter_owners(self.script, call.args[0])
        theirs = [
            p
            for o in self.script.optimizers
            if any(t is u for t in o.things for u in update.things)
            for p in o.params
        ]
        return not owners or not theirs or any(a is b for a in owners for b in theirs)

    # ------------------------------------------------------------------------------------------------ checkpoints
    def _state(self) -> list[Edit]:
        """The scaler's state, saved and loaded beside that of the optimizer."""
        things = {id(t) for u in self.updates for t in u.things}
        edits: list[Edit] = []
        loads: list[Edit] = []
        done: set[int] = set()
        for site in self.script.methods("load_state_dict"):
            checkpoint = _loaded_from(site, things)
            if (
                checkpoint is None
                or not isinstance(parent_of(site.node), ast.Expr)
                or id(block(statement_of(site.node))) in done
            ):
                continue
            done.add(id(block(statement_of(site.node))))
            if self._is_spread(checkpoint) or (name := self.way.to(function_of(site.node))) is None:
                return []
            text = ast.unparse(checkpoint)
            loads.append(
                After(
                    statement_of(site.node),
                    f'if {text}.get("{KEY}"):\n    {name}.load_state_dict({text}["{KEY}"])',
                )
            )
        for site in self.script.methods("state_dict"):
            display = _display_of(site, things)
            if display is None or id(display) in done:
                continue
            done.add(id(display))
            if _has_key(display) or (name := self.way.to(function_of(site.node))) is None:
                return []
            edits.append(DictItem(display, KEY, f"{name}.state_dict()"))
        return edits + loads if edits else []

    def _is_spread(self, checkpoint: ast.expr) -> bool:
        """``Snapshot(**checkpoint)``: a new key would be one argument too many."""
        wanted = ast.dump(checkpoint)
        for node in ast.walk(function_of(checkpoint)):
            if (
                isinstance(node, ast.keyword)
                and node.arg is None
                and ast.dump(node.value) == wanted
            ):
                return True
            if isinstance(node, ast.For) and ast.dump(node.iter).startswith(wanted[:-1]):
                return True
        return False


KEY = "scaler"


def _loaded_from(site: Site, things: set[int]) -> ast.expr | None:
    """``checkpoint`` in ``optimizer.load_state_dict(checkpoint["optimizer"])``."""
    call = site.node
    if (
        not any(id(o.this) in things for o in site)
        or not isinstance(call, ast.Call)
        or not call.args
    ):
        return None
    given = call.args[0]
    if isinstance(given, ast.Subscript) and isinstance(given.value, (ast.Name, ast.Attribute)):
        return given.value
    return None


def _display_of(site: Site, things: set[int]) -> ast.Dict | ast.Call | None:
    """The dict in ``{"model": ..., "optimizer": optimizer.state_dict()}``."""
    if not any(id(o.this) in things for o in site):
        return None
    parent = parent_of(site.node)
    if isinstance(parent, ast.Dict):
        return parent if _is_saved(parent) else None
    if isinstance(parent, ast.keyword):
        call = parent_of(parent)
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "dict"
        ):
            return call
    return None


def _is_saved(display: ast.Dict) -> bool:
    return any(isinstance(k, ast.Constant) and isinstance(k.value, str) for k in display.keys)


def _has_key(display: ast.Dict | ast.Call) -> bool:
    keys = (
        display.keys
        if isinstance(display, ast.Dict)
        else [ast.Constant(k.arg) for k in display.keywords]
    )
    return any(isinstance(k, ast.Constant) and k.value == KEY for k in keys)


# ------------------------------------------------------------------------------------------------ what else happens to gradients
def zeros(script: Script) -> list[Event]:
    """``optimizer.zero_grad()`` and ``model.zero_grad()``."""
    sites = script.methods("zero_grad")
    zeroed = parts_of(*(o.this for s in sites for o in s if o.this is not None))
    trained = [m for step in script.steps for t in step.models for m in unwrapped(t)]
    found = []
    for site in sites:
        ids: set[int] = set()
        sure = True
        for thing in (o.this for o in site if o.this is not None):
            models = parts_of(thing)
            for optimizer in script.optimizers:
                mine = [m for p in optimizer.params for m in unwrapped(p)]
                if any(t is thing for t in optimizer.things):
                    ids |= {id(t) for t in optimizer.things if t is thing}
                elif not is_optimizer(thing) and (not mine or any(id(m) in models for m in mine)):
                    ids |= {id(t) for t in optimizer.things}
                    sure &= all(id(m) in zeroed for m in mine or trained) and (
                        bool(mine) or not free_parameters(script)
                    )
        found.append(Event("zero", site.node, frozenset(ids), sure))
    return found


def clips(script: Script, *, strict: bool = True) -> list[Event]:
    """The clips, with the optimizers whose gradients they read; only those of parameters may be, where this is ``strict``."""
    found = []
    for site in (*script.calls(*CLIPS), *script.methods("clip_grad_norm_", "clip_grad_value_")):
        call = site.node
        things: frozenset[int] | None = None
        if isinstance(call, ast.Call) and call.args:
            models = {id(m) for m in _parameter_owners(script, call.args[0])}
            mine = [
                o
                for o in script.optimizers
                if any(id(m) in models for p in o.params for m in unwrapped(p))
            ]
            things = frozenset(id(t) for o in mine for t in o.things) or None
            if strict and any(
                k.arg == "error_if_nonfinite" and const(script.values(k.value)) is not False
                for k in call.keywords
            ):
                raise Refusal(f"{at(call)} raises where gradients overflow, which a scaler skips")
            given = tensors_in(script.values(call.args[0]))
            if strict and any(t.param != "param" for t in given):
                raise Refusal(
                    f"{at(call)} clips the gradient of something that is not known to be a parameter"
                )
        found.append(Event("read", call, things))
    return found


def alike(updates: list[Update]) -> list[frozenset[int]]:
    """The ids of all optimizers that are stepped, those together that are stepped in the same places."""
    places: dict[int, set[int]] = {}
    for update in updates:
        for thing in update.things:
            places.setdefault(id(thing), set()).add(id(update.node))
    groups: dict[frozenset[int], set[int]] = {}
    for thing_id, nodes in places.items():
        groups.setdefault(frozenset(nodes), set()).add(thing_id)
    return [frozenset(g) for g in groups.values()]


# ------------------------------------------------------------------------------------------------ helpers
DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _unique(found: list) -> list:  # type: ignore[type-arg]
    return list({id(x.node): x for x in found}.values())


def _free_name(script: Script) -> str:
    taken: set[str] = set()
    for source in script.sources:
        taken |= source.names | {
            n.attr for n in ast.walk(source.tree) if isinstance(n, ast.Attribute)
        }
    return next((n for n in NAMES if n not in taken), None) or next(
        f"{NAMES[0]}_{i}" for i in range(2, 99) if f"{NAMES[0]}_{i}" not in taken
    )


def _in_arm(occurrence: Occurrence, node: ast.AST, statement: ast.stmt) -> ast.stmt:
    """The statement of a place in the arm of ``statement`` (an ``if``) that certainly runs; ``statement`` where there is none."""
    stack = occurrence.stack
    first = next((n for n, f in enumerate(stack) if f.node is statement), len(stack))
    depth = first
    while depth < len(stack) and isinstance(f := stack[depth], BranchFrame) and f.known:
        depth += 1
    return statement_at(stack, node, depth) if depth > first else statement


def _is_inside(step: Step, other: Step) -> bool:
    return step.loop is not other.loop and any(
        inside(o.stack, other.loop)
        for b in step.backwards
        for o in b.site
        if inside(o.stack, step.loop)
    )


def _parameter_owners(script: Script, expr: ast.expr) -> list[Thing]:
    """The models in ``model.parameters()``."""
    found: list[Thing] = []
    for node in ast.walk(expr):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("parameters", "named_parameters")
        ):
            found += [
                inner
                for t in script.values(node.func.value)
                if isinstance(t, (Inst, Ext))
                for inner in unwrapped(t)
            ]
    return found
