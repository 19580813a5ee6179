"""How often what runs, beside the steps of a training."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Sequence
from functools import cached_property
from itertools import takewhile
from math import prod

from autofast.facts.by_default import not_by_default
from autofast.facts.cost.bounds import largest, range_turns, whole_number
from autofast.facts.cost.inputs import batch_count, batch_size, item_shape
from autofast.facts.loaders import lightning_passes
from autofast.facts.switches import batch_hooks
from autofast.flow.frequency import is_first_time, is_rare
from autofast.flow.loops import ends_in_first_turn
from autofast.flow.program import definitions_at
from autofast.model.calls import arguments_of, names_in
from autofast.model.contents import elements, with_contents
from autofast.model.events import (
    BranchFrame,
    CallFrame,
    Frame,
    LoopFrame,
    Stack,
    below,
    inside,
    loops,
    way_of,
)
from autofast.model.kinds import ways_made
from autofast.model.roles import Loader, Optimizer, Step, Use
from autofast.model.script import Script
from autofast.model.several import all_known, any_in, not_none, of_kind, surely
from autofast.model.source import Nodes, ancestors, nodes_in, parent_of, statement_of, walk, within
from autofast.model.syntax import DEFS
from autofast.model.values import NOTHING, STATE_DICT, Ext, Seq, Tensor, Thing, Values

BATCHES = re.compile(r"(train_?|mini_?)?batch_?size|bs|n_?batch")
LISTS = ("list", "tuple", "zipped")  # "zipped": by `zip`, of other things than loaders
EARLY = 10  # turns of a loop over a few batches, to look at them
CUT = ("limit_train_batches", "train_subset_num_batches")
SHORT = 16  # turns of a loop in a step, at the least, where their number is not known
ROWS = 128  # turns of such a loop over rows, at the most
NAMES: tuple[type[ast.expr], ...] = (ast.Name, ast.Attribute, ast.Subscript)
SELDOM = 50  # steps of which one comes to a place


class Often:
    """Places, loaders and ways of a script beside its training steps."""

    def __init__(self, script: Script):
        self.script = script

    @cached_property
    def training(self) -> list[Step]:
        """The steps that update something themselves, if any does; others ask for gradients only,
        as an attack on the images of an evaluation does.
        """
        return [s for s in self.script.steps if self._updates(s)] or self.script.steps

    def _updates(self, step: Step) -> bool:
        """Whether it updates anything, and not only another step in its loop does."""
        over = {s.loop for s in self.script.steps}
        around = ([f.node for f in o.stack if f.node in over] for u in step.updates for o in u.site)
        return any(not nodes or nodes[-1] is step.loop for nodes in around)

    def trains_with(self, use: Use) -> bool:
        """Whether a loader is gone through there for the sake of updates."""
        around = {use.node, *(f.node for f in use.stack)}
        return use.trains and any(
            step.loop in around or inside(step.stack, use.node) for step in self.training
        )

    def purposes(self, loader: Loader) -> set[str]:
        """What a loader is gone through for: ``training``, ``validation``, ``test`` or ``predict``
        by Lightning, ``training`` or ``evaluation`` by the script.
        """
        own = {"training" if self.trains_with(u) else "evaluation" for u in loader.uses}
        return own | lightning_passes(self.script, loader)

    @cached_property
    def epochs(self) -> int | None:
        """How often the training goes over its data; None where that is not known."""
        for step in self.training:
            around = [f.node for f in loops(step.stack) if f.node is not step.loop]
            return range_turns(self.script, around[-1]) if around else 1
        return None

    @cached_property
    def steps(self) -> int | None:
        """Batches in an epoch; None where that is not known."""
        trained = (x for x in self.script.loaders if "training" in self.purposes(x))
        return next((n for x in trained if (n := batch_count(self.script, x))), None)

    @cached_property
    def updates(self) -> int | None:
        """Steps of the whole training, at the most; None where that is not known."""
        return self._turns(self.training)

    def updates_with(self, optimizer: Optimizer) -> int | None:
        """The same of the steps that update by one optimizer."""
        mine = {u.node for u in optimizer.updates}
        return self._turns(
            [s for s in self.training if not mine.isdisjoint(u.node for u in s.updates)]
        )

    def _turns(self, steps: list[Step]) -> int | None:
        known = all_known({step.loop: self._turns_of(step) for step in steps}.values())
        return sum(known) if known else None

    def _turns_of(self, step: Step) -> int | None:
        """How often the script comes to a step, by all loops around it. Only of batches of loaders,
        and of all data at once: tensors that a loop takes by numbers may stand in for data.
        """
        total = 1
        for loop in {n: n for n in (*(f.node for f in loops(step.stack)), step.loop)}.values():
            over = [x for x in self.script.loaders if any(u.node is loop for u in x.uses)]
            found = [batch_count(self.script, x) for x in over]
            if loop is not step.loop or self._takes_all(step):
                found = found or [range_turns(self.script, loop)]
            known = all_known(found)
            if not known:
                return None
            total *= max(known)
        return total

    def _takes_all(self, step: Step) -> bool:
        """Whether each turn is given the same: tensors of variables that are bound above."""
        given = [
            a for f in step.forwards if isinstance(f.node, ast.Call) for a in arguments_of(f.node)
        ]
        if not surely(isinstance(a, ast.Name) for a in given):
            return False
        return not any(
            within(d.node, step.loop)
            for a in of_kind(given, ast.Name)
            for d in definitions_at(self.script, a)
        )

    def batch_bytes(self, node: ast.AST) -> int | None:
        """What is copied to the device of a batch of the loader at ``node``, or of those moved
        there; None where that is not known.
        """
        return max(all_known(map(self._bytes, self.moved_at(node))), default=None)

    def copies_at(self, node: ast.AST) -> list[ast.AST]:
        """Where batches of the loader at ``node`` are moved to the device; else ``node`` itself."""
        moved = [t.node for x in self.script.loaders if x.node is node for t in x.moved]
        return list(moved) or [statement_of(node)]

    def trains(self, node: ast.AST) -> bool:
        """Whether the loader at ``node``, or one whose batches are moved there, is trained with."""
        return any("training" in self.purposes(x) for x in self.moved_at(node))

    def moves_batches(self, node: ast.AST) -> bool:
        """Whether a place moves batches of a loader to the device, or makes the loader."""
        return bool(self.moved_at(node))

    def decodes(self, node: ast.AST) -> bool:
        """Whether images or sound are among what is moved there."""
        return any("decode" in d.reads for x in self.moved_at(node) for d in x.datasets)

    def channels(self, node: ast.AST) -> set[int | None]:
        """How many channels the images have that are moved there; None among them: not known."""
        shapes = [item_shape(self.script, d) for x in self.moved_at(node) for d in x.datasets]
        return {s.channels if s is not None else None for s in shapes}

    def moved_at(self, node: ast.AST) -> list[Loader]:
        """The loaders made at ``node``, and those of which its statement moves batches."""
        here = set(walk(statement_of(node)))
        moved = {t for x in self.script.transfers if x.node in here for t in x.loaders}
        loaders = self.script.loaders
        return [x for x in loaders if x.node is node or any_in(x.things, moved)]

    def _bytes(self, loader: Loader) -> int | None:
        batch = batch_size(loader)
        shapes = [item_shape(self.script, d) for d in loader.datasets]
        elements = all_known(None if s is None else s.elements for s in shapes)
        return batch * max(elements) * 4 if batch and elements else None

    def runs_by_batch(self, node: ast.AST) -> bool:
        """Whether the script comes to a place in a loop over batches, in one whose turns are not
        passes over data, or in what a framework calls for each batch.
        """
        hooks = self.script.analysis(batch_hooks)
        if any(f.func.node in hooks for w in self.ways(node) for f in of_kind(w, CallFrame)):
            return True
        uses = [u for x in self.script.loaders for u in x.uses]
        around = [step.stack for step in self.training] + [u.stack for u in uses]
        over = {step.loop for step in self.training} | {u.node for u in uses}
        passes = {f.node for stack in around for f in loops(stack)} - over
        return any(f.node not in passes for stack in self.ways(node) for f in loops(stack))

    def times(self, node: ast.AST, loop: ast.AST, besides: Container[ast.AST]) -> int:
        """How often each turn of a loop comes to a place, by the loops in between ``besides``
        some.
        """
        found = {
            tuple(f.turn for f in rest if f.unrolled): prod(self.turns_of(f) for f in rest)
            for way in self.ways(node)
            if self.is_each_turn(way, loop)
            for rest in [[f for f in loops(below(way, loop)) if f.node not in besides]]
        }
        return sum(found.values())

    @cached_property
    def named(self) -> int:
        """The largest number that the script calls the size of a batch (``args.batch_size``); 0
        where it has none.
        """
        found = [n for kind in NAMES for n in self.script.each(kind) if _is_size(n)]
        return max((largest(self.script.values(n)) or 0 for n in found), default=0)

    def turns_of(self, loop: LoopFrame) -> int:
        """How often a loop turns each time, at the least: few times where that is not known."""
        counted = self.counted(loop)
        if counted is not None or over_layers(loop.node):
            return counted or 1
        few = loop.loaders or isinstance(loop.node, ast.While) or _is_over_state(loop)
        return SHORT if few else max(SHORT, min(self.named, ROWS))

    def counted(self, loop: LoopFrame) -> int | None:
        """How often a loop turns each time, where that is known."""
        counted = 1 if loop.unrolled else range_turns(self.script, loop.node)
        if counted is not None:
            return counted
        held = (t.args.get(0, "modules") for t in of_kind(loop.over, Ext))
        lists = of_kind(loop.over.union(*held), Seq)
        if surely(t.exact is not None for t in lists):
            return max(len(t.exact or ()) for t in lists)
        made = [f.node for t in lists for held in t.elem for f in loops(ways_made(held))]
        turns = [range_turns(self.script, n) for n in made if over_layers(loop.node)]
        return max(not_none(turns), default=None)

    def updates_of(self, loader: Loader) -> int:
        """Updates for each batch of a loader, where its turns have a loop of these."""
        made = {u.node for step in self.training for u in step.updates}
        return max((sum(self.times(n, u.node, ()) for n in made) for u in loader.uses), default=0)

    def is_in_training(self, node: ast.AST) -> bool:
        """Whether the script comes to a place in a training step."""
        steps = [step.loop for step in self.training]
        return any(inside(stack, loop) for stack in self.ways(node) for loop in steps)

    def is_beside_training(self, node: ast.AST) -> bool:
        """Whether a place is in no step, or in an evaluation there; not where a policy acts for its
        training, which goes through no loader.
        """
        ways, steps = self.ways(node), [step.loop for step in self.training]
        trained = any(self.trains_with(use) for x in self.script.loaders for use in x.uses)
        trained = trained or all(any(inside(w, loop) for loop in steps) for w in ways)
        each = any(self.is_each_turn(w, loop) for w in ways for loop in steps)
        return bool(ways) and trained and not each

    def is_each_turn(self, stack: Stack, loop: ast.AST) -> bool:
        """In the loop, in no evaluation of its own there."""
        return inside(stack, loop) and not any(
            (isinstance(f, LoopFrame) and f.loaders and f.node not in self._trained_over)
            or (isinstance(f, BranchFrame) and is_rare(f))
            for f in below(stack, loop)
        )

    @cached_property
    def _trained_over(self) -> Nodes:
        """The loops over batches that are trained with, also several for one update."""
        return {u.node for x in self.script.loaders for u in x.uses if u.trains}

    def ways(self, node: ast.AST) -> list[Stack]:
        """The ways of the script to a place; of a decorator, to the code of its function."""
        function = parent_of(node)
        if isinstance(function, DEFS) and node in function.decorator_list:
            body = [way for stmt in function.body for way in self.ways(stmt)]
            if body:
                return body
        ways = [o.stack for site in self.script.log.within(node) for o in site]
        return ways or self._ways_into(node) or self._ways_beside(node)

    def _ways_beside(self, node: ast.AST) -> list[Stack]:
        """The ways to what stands around a place where nothing happens, or beside it, as far as
        they are those of the place: what a loop goes over is worked out before it."""
        stmt = statement_of(node) if isinstance(node, ast.expr) else node
        around = stmt if stmt is not node else parent_of(node)
        while isinstance(around, ast.stmt) and not isinstance(around, DEFS):
            if self.script.log.within(around):
                break
            around = parent_of(around)
        if not isinstance(around, ast.stmt):
            return []
        outer = {*ancestors(stmt)}

        def is_shared(frame: Frame) -> bool:
            return frame.node in outer or not within(frame.node, around)

        inside = [o.stack for site in self.script.log.within(around) for o in site]
        return list(dict.fromkeys(tuple(takewhile(is_shared, way)) for way in inside))

    def _ways_into(self, node: ast.AST) -> list[Stack]:
        """The ways to the calls at a place where nothing else happens."""
        calls = {n for n in walk(node) if isinstance(n, ast.Call)}
        cut = [
            (s, next((i for i, f in enumerate(s) if f.node in calls), None))
            for s in self.script.stacks
            if calls
        ]
        ways = [s[:i] for s, i in cut if i is not None]
        return [*{way_of(s): s for s in ways}.values()]

    def ways_of(self, use: Use) -> list[Stack]:
        """The ways of the script to the place where a loader is gone through, or another one."""
        return [o.stack for o in self.script.log.ways("iterate", use.node)] or [use.stack]

    def leads_past(self, way: Stack) -> bool:
        """Whether a way goes into the other arm of a condition than all training, ``if args.test:``
        and ``else:``, in one turn of the whole script.
        """
        return surely(_parts(way, stack) for stack in self._trained)

    @cached_property
    def _trained(self) -> list[Stack]:
        """The ways to the updates as far as they are outside of all loops, each once."""
        updates = [o.stack for step in self.training for u in step.updates for o in u.site]
        outside = [tuple(takewhile(lambda f: not isinstance(f, LoopFrame), s)) for s in updates]
        return list({way_of(stack): stack for stack in outside}.values())

    def past_by_default(self, ways: Sequence[Stack]) -> str:
        """The test by which options at their defaults lead past all ``ways``, while they lead to
        training on the device; empty where they do not.
        """
        return not_by_default(self.script, ways) if self._trains_by_default else ""

    @cached_property
    def _trains_by_default(self) -> bool:
        moved = [o.stack for site in self.script.log.of("move_model") for o in site]
        updates = [o.stack for s in self.training for u in s.updates for o in u.site]
        return not any(not_by_default(self.script, ways) for ways in (moved, updates))

    def is_alone(self, way: Stack) -> bool:
        """Outside of all loops, beside a training that turns: set-up, a look at the end."""
        return bool(self.training) and not loops(way) and not _is_called_back(way)

    def is_seldom(self, stack: Stack) -> bool:
        """Below a condition that is seldom true, in no loop there but over what a list holds:
        samples that are saved now and then, not an evaluation.
        """
        steps = {step.loop for step in self.training}
        if any(f.node not in steps and self.ends_early(f.node) for f in loops(stack)):
            return True
        within = False
        for n, frame in enumerate(stack):
            within = within or frame.node in steps
            if isinstance(frame, BranchFrame) and is_rare(frame):
                first = is_first_time(frame)
                if not within or first or self._every(frame.node) >= SELDOM:
                    inner = of_kind(stack[n:], LoopFrame)
                    return all(f.unrolled or _is_over_list(f) for f in inner)
        return False

    def ends_early(self, loop: ast.AST) -> bool:
        """Whether a loop is left in its first turns: ``if i >= 3: break``, or at the end of the
        first one.
        """
        if ends_in_first_turn(loop):
            return True
        counted = names_in(loop.target) if isinstance(loop, ast.For) else ()
        for stmt in getattr(loop, "body", ()):
            match stmt:
                case ast.If(
                    test=ast.Compare(ast.Name(name), [ast.Eq() | ast.Gt() | ast.GtE()], [most]),
                    body=[*_, ast.Break()],
                ) if name in counted:
                    last = whole_number(self.script.values(most))
                    return last is not None and 0 <= last <= EARLY
        return False

    @cached_property
    def is_cut(self) -> bool:
        """Whether a library is told to take a few batches of each pass."""
        told = (k.value for k in self.script.each(ast.keyword) if k.arg in CUT)
        return any(0 < (whole_number(self.script.values(e)) or 0) <= EARLY for e in told)

    def _every(self, gate: ast.AST) -> int:
        """The turns of a loop of which one passes a condition: 100 of ``if step % 100 == 0``; of
        one that is not known, as many as are seldom; 0 of other conditions.
        """
        test = gate.test if isinstance(gate, ast.If) else gate
        parts = [
            n for n in ast.walk(test) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)
        ]
        return min((whole_number(self.script.values(n.right)) or SELDOM for n in parts), default=0)

    def is_outside(self, way: Stack) -> bool:
        """Outside of all loops around the training steps, and these turn more than once."""
        around = {f.node for s in self.training for f in loops(s.stack) if f.node is not s.loop}
        inner = {step.loop for step in self.training}
        return bool(around) and (around | inner).isdisjoint(f.node for f in way)


def _is_size(node: ast.AST) -> bool:
    """``batch_size``, ``args.batch_size``, ``config["batch_size"]``"""
    match node:
        case (
            ast.Name(id=name)
            | ast.Attribute(attr=name)
            | ast.Subscript(slice=ast.Constant(value=str(name)))
        ):
            return bool(BATCHES.fullmatch(name.lower()))
    return False


def over_layers(loop: ast.AST) -> bool:
    """Whether a loop calls what it goes over, ``layer(x)``, ``self.layers[n](x)``: layers, each of
    which takes what the last one gave.
    """
    known: bool | None = getattr(loop, "_af_over_layers", None)  # asked for each event within
    if known is None:
        heads = getattr(loop, "generators", [loop])
        targets = {n for head in heads if hasattr(head, "target") for n in names_in(head.target)}
        called = (call.func for call in nodes_in(loop, ast.Call))
        known = any(names_in(f) & targets for f in called if not isinstance(f, ast.Attribute))
        loop._af_over_layers = known  # type: ignore[attr-defined]
    return known


def _is_over_state(loop: LoopFrame) -> bool:
    """Over the parameters of a network, or its state."""
    found = with_contents(loop.over, elements)
    return any(t is STATE_DICT or (isinstance(t, Tensor) and t.param) for t in found)


def _parts(one: Stack, other: Stack) -> bool:
    """Whether two ways, which are the same so far, part at a condition."""
    for mine, theirs in zip(one, other, strict=False):
        if mine.node is not theirs.node:
            return False
        if isinstance(mine, BranchFrame) and isinstance(theirs, BranchFrame):
            if mine.arm is not theirs.arm:
                return True
    return False


def _is_called_back(stack: Stack) -> bool:
    """Whether a library calls a function around: an item, made as often as a loader asks."""
    return any(isinstance(f, CallFrame) and f.node is f.func.node for f in stack)


def _is_over_list(loop: LoopFrame) -> bool:
    """Over lists and tuples, also by ``enumerate`` and ``zip``; of loaders, that is an ``Ext``."""
    found = list(with_contents(loop.over, _gone_over))
    ends = [t for t in found if not _gone_over(t)]
    return surely(isinstance(t, Seq) and t.kind in LISTS for t in ends)


def _gone_over(thing: Thing) -> Values:
    if not isinstance(thing, Ext) or thing.name == "builtins.zip":
        return NOTHING
    return thing.attrs.get("over", NOTHING)
