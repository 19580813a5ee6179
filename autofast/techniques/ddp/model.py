"""The models that train get a second name, by which they are called in training:
DistributedDataParallel, where there are several processes.

All else - saving, loading, evaluation, modes, parameters - stays with the module itself, so
checkpoints keep their keys and an evaluation starts no hidden communication. The wrapper is made
last, directly before the training starts: whatever was loaded, moved, frozen or initialised by then
is what it sends from the first process to the others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from autofast.facts.batch.kinds import words
from autofast.facts.gradient_accesses import gradient_hooks
from autofast.facts.gradients import left_out
from autofast.facts.hooks import only_scales
from autofast.facts.parts import parts_of
from autofast.facts.used_parameters import parameters_of, used_parameters
from autofast.flow.loops import loops_around
from autofast.flow.positions import position
from autofast.model.calls import call_of, keyword_of, names_in
from autofast.model.contents import without_wrappers
from autofast.model.events import LoopFrame, Stack
from autofast.model.kinds import is_module
from autofast.model.names import DDP, last_part
from autofast.model.roles import Model, Step
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import ByNode, at, nodes_in
from autofast.model.syntax import is_stored
from autofast.model.values import Const, Ext, Num, Tensor, Thing, begins
from autofast.rule import Refusal

BUFFERS = wordset("BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm InstanceNorm2d", "torch.nn.")
UNSAFE_MOVES = wordset("cpu half bfloat16 double float type")


@dataclass(eq=False)
class Trained:
    """A model that trains.

    Attributes:
        thing: the module itself.
        calls: where training calls it.
        steps: the loops these are in.
        unproven: why some parameters may take no part in a step, empty where all do.
        name: that of the wrapper; ``anchor`` is the statement before (``after``: after) which it is
            made, ``raw`` the module's name there.
    """

    model: Model
    thing: Thing
    calls: list[ast.Call]
    steps: list[Step]
    name: str = ""
    raw: str = ""
    anchor: ast.stmt | None = None
    after: bool = False
    options: list[str] = field(default_factory=list)
    unproven: str = ""

    def trains_on(self, stack: Stack) -> bool:
        """Whether this way leads into a loop in which the model is trained."""
        loops = {s.loop for s in self.steps}
        loops |= {f.node for s in self.steps for f in s.stack if isinstance(f, LoopFrame)}
        return any(f.node in loops for f in of_kind(stack, LoopFrame))


# -------------------------------------------------------------------------------------------- which
def passes_of(script: Script) -> ByNode[ast.Call]:
    """The calls of models that a backward reaches."""
    found: ByNode[ast.Call] = {}
    for step in script.steps:
        for backward in step.backwards:
            made = {p for t in backward.tensors for p in t.passes}
            if not made or any(not isinstance(o.this, (Tensor, Const, Num)) for o in backward.site):
                raise Refusal(
                    f"what `{ast.unparse(backward.expr)}` on {at(backward)} is made of is not known"
                )
            found.update((p, p) for p in made)
    return found


def trained(script: Script) -> list[Trained]:
    """The models whose parameters the optimizers change, each called by itself; raises
    :class:`Refusal`.
    """
    calls = passes_of(script)
    by_thing: dict[int, Trained] = {}
    for site in script.log.of("forward"):
        if site.node not in calls:
            continue
        for occurrence in site:
            if occurrence.this is None or not occurrence.data["outer"]:
                continue
            _check_call(script, site.node)
            for thing in without_wrappers(occurrence.this):
                model = next((m for m in script.models if m.thing is thing), None)
                if model is None:
                    raise Refusal(f"the model that {at(site)} calls is not known")
                mine = by_thing.setdefault(id(thing), Trained(model, thing, [], []))
                if calls[site.node] not in mine.calls:
                    mine.calls.append(calls[site.node])
    missing = [c for c in calls.values() if not any(c in t.calls for t in by_thing.values())]
    if missing:
        raise Refusal(f"the model that {at(missing[0])} calls is not known")
    found = [t for t in by_thing.values() if _learns(script, t)]
    for mine in found:
        these = set(mine.calls)
        mine.steps = [
            s
            for s in script.steps
            if any(p in these for b in s.backwards for t in b.tensors for p in t.passes)
        ]
    _check_owners(script, found)
    return found


def _check_call(script: Script, node: ast.AST) -> None:
    if not isinstance(node, ast.Call):
        raise Refusal(f"the model is called by {at(node)} in a way that is not understood")
    for thing in script.called(node):
        if not is_module(thing):
            name = ast.unparse(node.func)
            raise Refusal(
                f"`{name}(...)` on {at(node)} is not a plain call of a model: DistributedDataParallel sees forward only"
            )


def _learns(script: Script, mine: Trained) -> bool:
    """Some optimizer has parameters of it."""
    parts = parts_of(mine.thing)
    known = True
    for optimizer in script.optimizers:
        if any(id(t) in parts or id(mine.thing) in parts_of(t) for t in optimizer.params):
            return True
        known &= bool(optimizer.params)
    return not known


def _check_owners(script: Script, found: list[Trained]) -> None:
    every = {key for mine in found for key in parts_of(mine.thing)}
    for optimizer in script.optimizers:
        if not optimizer.updates:
            continue
        if not optimizer.params and len(found) != 1:
            raise Refusal(f"which parameters {optimizer.name} of {at(optimizer)} gets is not known")
        for thing in optimizer.params:
            if id(thing) not in every:
                name = getattr(getattr(thing, "cls", None), "node", None)
                called = getattr(name, "name", last_part(getattr(thing, "name", "a model")))
                raise Refusal(
                    f"{called} is trained by {optimizer.name} ({at(optimizer)}), but not by calling it: "
                    "DistributedDataParallel only sees forward, so move what it computes into forward()"
                )
    if not script.optimizers or not found:
        raise Refusal("which optimizer trains the model is not known")
    for a in found:
        for b in found:
            if a is not b and id(b.thing) in parts_of(a.thing):
                raise Refusal(
                    f"{b.model.name} is a part of {a.model.name}, and both are called in training: call only the whole"
                )


# ------------------------------------------------------------------------------------------ whether
def check(script: Script, mine: Trained, parallel: bool = False) -> None:
    """DistributedDataParallel can stand in for the model (``parallel``: or for DataParallel around
    it); decides on its options.
    """
    name = mine.model.name
    if mine.model.unknown:
        raise Refusal(f"what {name} is made of is not known: {mine.model.unknown}")
    taken = ("torch.jit.script",) if parallel else ("torch.nn.DataParallel", "torch.jit.script")
    if any(w.name in taken for w in mine.model.wraps):
        raise Refusal(
            f"the model ({name}) is wrapped by {last_part(mine.model.wraps[0].name)} already"
        )
    if any(w.name == DDP for w in mine.model.wraps):
        raise Refusal("it is distributed already")
    for step in mine.steps:
        if step.double_backward:
            raise Refusal(
                f"gradients of gradients are taken on {at(step.double_backward[0])}, which DistributedDataParallel does not support"
            )
    for site in script.calls("torch.autograd.grad"):
        raise Refusal(
            f"torch.autograd.grad on {at(site)} goes past DistributedDataParallel, which only sees backward()"
        )
    for hook in gradient_hooks(script):
        call = call_of(hook)
        given = call.args[0] if call is not None and call.args else hook
        if hook.attr != "register_hook" or not only_scales(script, given):
            raise Refusal(
                f"{hook.attr}() on {at(hook)} sees the gradients of one process, before they are averaged"
            )
    for part in parts_of(mine.thing).values():
        if begins(part, Ext, "torch.nn.Embedding") and any(
            True in {getattr(t, "value", None) for t in part.arg("sparse")} for _ in (0,)
        ):
            raise Refusal(
                f"sparse gradients ({last_part(part.name)} on {at(part.node or mine.calls[0])}) are not averaged by every backend"
            )
    if lazy := next((n for n in sorted(mine.model.layers) if n.startswith("Lazy")), ""):
        raise Refusal(
            f"{lazy} has no parameters before its first batch, and DistributedDataParallel needs all of them when it is made"
        )
    several = _several_at_once(mine)
    unproven = next(
        (why for step in mine.steps if (why := left_out(script, step, [mine.thing]))), ""
    )
    if unproven and _whole(script, mine):
        unproven = ""
    if several and unproven:
        raise Refusal(
            f"{name} is called several times before a backward ({at(several)}), and {unproven}"
        )
    if (twice := _reentrant_twice(script, bool(several or unproven))) is not None:
        raise Refusal(
            f"{at(twice)} checkpoints by a backward within the backward, and some parameters may have several of them: give it use_reentrant=False"
        )
    if unproven:
        mine.options.append("find_unused_parameters=True")
        mine.unproven = unproven
    elif several and mine.model.layers & {last_part(b) for b in BUFFERS}:
        mine.options.append("broadcast_buffers=False")
    for change in ("requires_grad", "requires_grad_"):
        _check_freezing(script, mine, change)


def _reentrant_twice(script: Script, anyhow: bool) -> ast.Call | None:
    """A call of ``checkpoint()`` whose part may run again before the gradients are averaged, which
    is an error where the recomputation has a backward of its own; ``anyhow``: all of them count.
    """
    seen: set[str] = set()
    sites = script.calls("torch.utils.checkpoint.checkpoint")
    for call in (c for c in of_kind((s.node for s in sites), ast.Call) if c.args):
        told = keyword_of(call, "use_reentrant")
        if told is not None and script.constant(told) is False:
            continue
        part = ast.unparse(call.args[0])
        names = names_in(call.args[0])
        turns = (loop for loop in loops_around(call) if script.reached(call))
        repeated = any(
            not names & {n.id for n in nodes_in(loop, ast.Name) if is_stored(n)} for loop in turns
        )
        if anyhow or repeated or part in seen:
            return call
        seen.add(part)
    return None


def check_weights(models: Iterable[Trained], weights: Iterable[ast.expr]) -> None:
    """Parameters that forward leaves out are ready before the backward begins: one that a loss uses
    by itself would be ready twice, which is an error.
    """
    for weight in weights:
        for mine in models:
            if mine.unproven:
                raise Refusal(
                    f"the loss uses `{words(weight)}` on {at(weight)} past forward, where DistributedDataParallel does not see it, "
                    f"and {mine.unproven}"
                )


def _whole(script: Script, mine: Trained) -> bool:
    """Every call gives one tensor, which all the parameters take part in."""
    try:
        used = used_parameters(mine.thing, ())
        whole = all(key in used for key, _ in parameters_of(mine.thing))
    except Refusal:
        return False
    return whole and all(
        isinstance(t, Tensor) and t.rank != "?" for c in mine.calls for t in script.values(c)
    )


def _several_at_once(mine: Trained) -> ast.AST | None:
    """A call of the model that the backward of another call follows only later."""
    for step in mine.steps:
        for backward in step.backwards:
            here = {p for t in backward.tensors for p in t.passes if p in mine.calls}
            if len(here) > 1:
                return min(here, key=position, default=None)
    return None


def _check_freezing(script: Script, mine: Trained, attribute: str) -> None:
    """Parameters that are frozen or freed while the training runs: the wrapper was told at its
    beginning.
    """
    stores = [
        s
        for s in script.log.of("set_attribute", "set_elsewhere", "tensor_write")
        if s.occurrences[0].data.get("name") == attribute
    ]
    places = [
        s.node
        for s in (*script.log.of(f".{attribute}"), *stores)
        for o in s
        if mine.trains_on(o.stack)
    ]
    if places:
        raise Refusal(
            f"parameters are frozen or freed while it trains ({at(places[0])}): DistributedDataParallel must know them before"
        )
