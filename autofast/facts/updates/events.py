"""What one training loop does to gradients, parameters and learning rates in the iteration of a
batch, and in which statements.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from autofast.facts.gradient_accesses import gradient_hooks
from autofast.facts.updates.averages import average_in_variable, keeps_average
from autofast.facts.used_parameters import parameters_of
from autofast.flow.frequency import is_rare
from autofast.flow.scopes import stored_in
from autofast.model.calls import is_method, is_name, stands_alone
from autofast.model.contents import with_contents, without_wrappers
from autofast.model.events import (
    BranchFrame,
    CallFrame,
    GuardFrame,
    LoopFrame,
    Occurrence,
    Site,
    Stack,
    TryFrame,
    WithFrame,
    below,
    inside,
)
from autofast.model.kinds import is_module, is_optimizer, is_scaler, is_scheduler
from autofast.model.roles import Backward, Step, Update
from autofast.model.script import Script
from autofast.model.several import all_known, any_in, of_kind, surely, wordset
from autofast.model.source import at, function_of, is_same_function, parent_of, source_of, within
from autofast.model.syntax import DEFS, is_attribute
from autofast.model.values import Const, Ext, Tensor, Thing, Values, are_parameters
from autofast.rule import Refusal

FINE = {
    "optimizer": wordset("zero_grad step state_dict"),
    "scheduler": wordset("step get_last_lr get_lr state_dict"),
    "scaler": wordset("scale step update unscale_ get_scale is_enabled state_dict"),
}

READERS = tuple(
    "torch. builtins. logging. copy. time. numpy. tqdm. wandb. os. math. json. pickle. itertools.".split()
)
SHOWS = wordset(
    "add_histogram add_graph append print info debug log watch save write update_on_kvstore"
)
NONE = Const(None)


@dataclass(eq=False)
class Event:
    """Attributes:
    kind: ``zero``, ``backward``, ``clip``, ``unscale``, ``step``, ``scaler``, ``schedule`` or
    ``average`` (of parameters, or any change to them).
    order: when it first happens. calls: the calls on the way to it, from the loop on.
    things: the optimizers (or models) that it concerns.
    """

    kind: str
    node: ast.AST
    order: int
    calls: tuple[CallFrame, ...]
    rest: Stack
    things: list[Thing]
    backward: Backward | None = None
    update: Update | None = None

    @property
    def at_end(self) -> bool:
        """It belongs to the update, and happens once for each window."""
        return self.kind not in ("backward", "zero")


@dataclass(eq=False)
class Iteration:
    """The iteration of a batch."""

    step: Step
    loop: ast.For
    events: list[Event] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Event]:
        return [e for e in self.events if e.kind in kinds]

    @property
    def last_update(self) -> int:
        return max(e.order for e in self.of("step"))


def iteration_of(script: Script, step: Step) -> Iteration:
    """All that matters in one iteration; raises :class:`Refusal` where something is done that has
    no place in a window of several batches.
    """
    assert isinstance(step.loop, ast.For)
    iteration = Iteration(step, step.loop)
    check_hooks(script)
    for backward in step.backwards:
        _check_backward(script, backward)
        iteration.events += _events("backward", iteration, backward.site, [], backward=backward)
    for update in step.updates:
        _check_update(update)
        iteration.events += _events("step", iteration, update.site, update.things, update=update)
    if not iteration.of("step"):
        raise Refusal("no optimizer is stepped in it")
    for kind, sites in (
        ("zero", step.zeros),
        ("clip", step.clips),
        ("unscale", step.unscales),
        ("scaler", step.scaler_updates),
    ):
        for site in sites:
            iteration.events += _events(kind, iteration, site, site.owners)
    for site in step.schedules:
        iteration.events += _events("schedule", iteration, site, site.owners)
    _others(script, iteration)
    iteration.events.sort(key=lambda e: e.order)
    return iteration


def _events(
    kind: str,
    iteration: Iteration,
    site: Site,
    things: list[Thing],
    *,
    backward: Backward | None = None,
    update: Update | None = None,
) -> Iterator[Event]:
    paths: dict[tuple[ast.AST, ...], list[Occurrence]] = {}
    for occurrence in site:
        if inside(occurrence.stack, iteration.loop):
            rest = below(occurrence.stack, iteration.loop)
            paths.setdefault(tuple(f.node for f in rest if isinstance(f, CallFrame)), []).append(
                occurrence
            )
    for occurrences in paths.values():
        rest = below(occurrences[0].stack, iteration.loop)
        _check_path(kind, rest, site.node, iteration.loop)
        calls = tuple(of_kind(rest, CallFrame))
        order = min(o.order for o in occurrences)
        yield Event(
            kind,
            site.node,
            order,
            calls,
            rest,
            list({id(t): t for t in things}.values()),
            backward,
            update,
        )
    if len(paths) > 1:
        raise Refusal("is come to in several ways in one turn of the loop", site)


def _check_path(kind: str, rest: Stack, node: ast.AST, loop: ast.For) -> None:
    """All conditions have to be the same in every iteration."""
    words = {
        "zero": "the clearing of gradients",
        "backward": "the backward",
        "step": "the update",
    }.get(kind, "what belongs to the update")
    for frame in rest:
        if isinstance(frame, BranchFrame):
            if not frame.known and not _is_steady(frame.node, loop):
                raise Refusal(f"{words} on {at(node)} depends on a condition ({at(frame)})")
        elif isinstance(frame, TryFrame):
            raise Refusal(f"{words} on {at(node)} may be cut off ({at(frame)})")
        elif isinstance(frame, LoopFrame):
            if kind != "average" and not (
                frame.unrolled and kind in ("step", "clip", "schedule", "zero", "unscale")
            ):
                raise Refusal(f"{words} on {at(node)} is repeated for one batch ({at(frame)})")
        elif not isinstance(frame, (CallFrame, WithFrame, GuardFrame)):
            raise Refusal(f"when {words} on {at(node)} happens is not known")


def _is_steady(node: ast.AST, loop: ast.For) -> bool:
    """A condition on the configuration: the same in every iteration."""
    if not isinstance(node, ast.If):
        return False
    changed = stored_in(loop) | (
        stored_in(function_of(node)) if not is_same_function(node, loop) else set()
    )
    for part in ast.walk(node.test):
        if isinstance(part, ast.Name) and part.id in changed:
            return False
        if isinstance(part, ast.Call) and not (
            is_name(part.func, "isinstance", "hasattr", "callable", "len", "bool")
        ):
            return False
        if isinstance(part, ast.Attribute) and _is_set(part, loop):
            return False
    return True


def _is_set(attribute: ast.Attribute, loop: ast.For) -> bool:
    """An attribute of this name is set somewhere but where objects are made."""
    for node in source_of(loop).nodes:
        if is_attribute(node, attribute.attr) and isinstance(node.ctx, (ast.Store, ast.Del)):
            function = function_of(node)
            if getattr(function, "name", "") != "__init__" and within(node, loop):
                return True
            if isinstance(function, DEFS) and function.name != "__init__":
                return True
    return False


def _check_backward(script: Script, backward: Backward) -> None:
    call, where = backward.node, at(backward)
    if "apex" in script.frameworks:
        raise Refusal(
            f"apex.amp scales the loss of the backward on {where}: put torch.amp in its place first"
        )
    if backward.framework or not is_method(call, "backward"):
        raise Refusal(f"the backward on {where} is not the plain `loss.backward()`")
    if call.args or any(k.arg not in ("retain_graph",) for k in call.keywords):
        raise Refusal(f"the backward on {where} has arguments of its own")
    if not stands_alone(call):
        raise Refusal(f"the backward on {where} is part of an expression")


def _check_update(update: Update) -> None:
    where = at(update)
    if update.closure or (not update.scaled and (update.node.args or update.node.keywords)):
        raise Refusal(f"the step on {where} takes a closure, which computes the gradients itself")
    if not surely(is_optimizer(t) for t in update.things):
        raise Refusal(f"what is stepped on {where} is not known")
    if not isinstance(parent_of(update.node), (ast.Expr, ast.Assign)):
        raise Refusal(f"the step on {where} is part of an expression")


def check_hooks(script: Script) -> None:
    for hook in gradient_hooks(script):
        raise Refusal(f"{hook.attr}() on {at(hook)} sees the gradients of every batch")


# ---------------------------------------------------------------------------------- everything else
def _others(script: Script, iteration: Iteration) -> None:
    """What else is done to models and optimizers: it belongs to the update, or is no matter, or is
    a reason to refuse.
    """
    known = {e.node for e in iteration.events}
    trained = {x for m in iteration.step.models for x in without_wrappers(m)} | set(
        iteration.step.models
    )
    if kept := average_in_variable(script, iteration.loop):
        raise Refusal("keeps an average of parameters, which would be one of batches", kept)
    for (kind, _), site in script.log.each():
        here = [o for o in site if inside(o.stack, iteration.loop)]
        if not here or site.node in known:
            continue
        rarely = all(
            any(is_rare(f) for f in of_kind(below(o.stack, iteration.loop), BranchFrame))
            for o in here
        )
        evaluates = all(_evaluates(o, iteration) for o in here)
        if kind in ("grad_read", "grad_write"):
            raise Refusal("reads or sets gradients, which are those of several batches then", site)
        if kind in ("torch.autograd.grad", "torch.autograd.backward"):
            raise Refusal(f"{kind}() is called on {at(site)}")
        if kind in ("inplace", "tensor_write"):
            if any(isinstance(o.this, Tensor) and o.this.param for o in here) or (
                _follows(iteration, here) and keeps_average(script, site)
            ):
                _average(iteration, site)
        elif kind in ("set_item", "set_attribute"):
            if _follows(iteration, here) and keeps_average(script, site):
                _average(iteration, site)
        elif kind == ".update_parameters":
            _average(iteration, site)
        elif kind == ".load_state_dict" and any(o.this in trained for o in here):
            raise Refusal(f"a state is loaded in every turn ({at(site)})")
        elif kind == ".requires_grad_" and not evaluates:
            raise Refusal(f"which parameters are trained is changed in the loop ({at(site)})")
        elif kind.startswith("."):
            _check_method(kind[1:], site, here)
            if any(_keeps_up(kind[1:], o) for o in here):
                _average(iteration, site)
            elif kind[1:] not in SHOWS and not rarely and not evaluates:
                _check_given(site, [o for o in here if not is_module(o.this or NONE)])
        elif kind.startswith("torch._foreach_") and kind.endswith("_"):
            _average(iteration, site)
        elif kind in ("call_unknown", "call_object"):
            if not rarely and not evaluates:
                _check_given(site, here)
            func = getattr(site.node, "func", None)
            if (
                isinstance(func, ast.Attribute)
                and func.attr.startswith("update")
                and not getattr(site.node, "args", ())
            ):
                raise Refusal(
                    f"what is updated on {at(site)} is not known: an average of the weights would be one of updates"
                )
        elif "." in kind and not kind.startswith(READERS) and not rarely and not evaluates:
            _check_given(site, here)


def _follows(iteration: Iteration, here: list[Occurrence]) -> bool:
    """After the update: before it, parameters are read by the forward pass."""
    return all(o.order > iteration.last_update for o in here)


def _keeps_up(name: str, occurrence: Occurrence) -> bool:
    """A library's object that follows the parameters: ``ema.update(model)``."""
    this = occurrence.this
    if (
        not isinstance(this, Ext)
        or is_module(this)
        or is_optimizer(this)
        or is_scheduler(this)
        or is_scaler(this)
    ):
        return False
    if not name.startswith("update") and name != "step":
        return False
    return any(_holds(v) for args in (this.args, occurrence.args) for v in args.all())


def _check_given(site: Site, here: Iterable[Occurrence]) -> None:
    for occurrence in here:
        if any(_holds(v) for v in occurrence.args.all()):
            raise Refusal(
                f"what {at(site)} does with the model or the optimizer after each batch is not known"
            )


def _evaluates(occurrence: Occurrence, iteration: Iteration) -> bool:
    """In the forward pass, where autograd looks on, or in an evaluation."""
    return occurrence.grad in ("off", "inference") and not any(
        f.node is iteration.loop for f in of_kind(occurrence.stack[-1:], LoopFrame)
    )


def _average(iteration: Iteration, site: Site) -> None:
    for event in _events("average", iteration, site, []):
        if event.order < iteration.last_update:
            raise Refusal(f"parameters are changed on {at(site)}, before the update")
        iteration.events.append(event)


def _check_method(name: str, site: Site, here: Iterable[Occurrence]) -> None:
    for occurrence in here:
        this = occurrence.this
        if this is None:
            continue
        if is_optimizer(this):
            kind = "optimizer"
        elif is_scheduler(this):
            kind = "scheduler"
        elif is_scaler(this):
            kind = "scaler"
        else:
            kind = ""
        if kind and name not in FINE[kind]:
            raise Refusal(
                f"what `.{name}()` of the {kind} on {at(site)} means for several batches is not known"
            )


def _holds(found: Values) -> bool:
    """Something that is trained, or trains, is among these values."""
    return any(map(_trains, with_contents(found)))


def _trains(thing: Thing) -> bool:
    if is_module(thing) or is_optimizer(thing) or is_scaler(thing) or is_scheduler(thing):
        return True
    return bool(isinstance(thing, Tensor) and thing.param or are_parameters(thing))


# -------------------------------------------------------------------------------------------- order
def check_order(script: Script, iteration: Iteration) -> None:
    """Between two updates of an optimizer, its gradients come from the same backwards as before,
    once for each batch.
    """
    backwards, zeros = iteration.of("backward"), iteration.of("zero")
    for step in iteration.of("step"):
        mine = [z for z in zeros if clears(script, z, step)]
        theirs = [b for b in backwards if _reaches(script, b, step)]
        if not mine:
            raise Refusal(
                f"the gradients that {at(step)} uses are not cleared in the turn of a batch"
            )
        first = max((z.order for z in mine if z.order < step.order), default=0)
        theirs = [b for b in theirs if not _exclude(b, step)]
        for backward in theirs:
            if not first < backward.order < step.order:
                raise Refusal(_leak(backward, step))
        if not theirs:
            raise Refusal(f"no backward comes before the step on {at(step)}")
    for zero in zeros:
        if not any(clears(script, zero, s) for s in iteration.of("step")):
            raise Refusal(f"whose gradients {at(zero)} clears is not known")


def _exclude(one: Event, other: Event) -> bool:
    """Where one of these happens, the other does not: they stand in the arms of one condition."""
    arms = {f.node: f.arm for f in one.rest if isinstance(f, BranchFrame)}
    return any(arms.get(f.node, f.arm) != f.arm for f in of_kind(other.rest, BranchFrame))


def _leak(backward: Event, step: Event) -> str:
    return (
        f"the backward on {at(backward)} may leave gradients in the parameters of the optimizer on {at(step)}: they are cleared "
        "before its next update now, and would be added to it in a window"
    )


def clears(script: Script, zero: Event, step: Event) -> bool:
    """Whether the gradients that a step uses are those that ``zero`` clears."""
    if any(is_optimizer(t) for t in zero.things):
        return any_in(zero.things, step.things)
    cleared = {x for t in zero.things if is_module(t) for x in (t, *without_wrappers(t))}
    return surely(any_in((p, *without_wrappers(p)), cleared) for p in _owners(script, step))


def _owners(script: Script, step: Event) -> list[Thing]:
    return [p for o in script.optimizers if any_in(o.things, step.things) for p in o.params]


def _reaches(script: Script, backward: Event, step: Event) -> bool:
    """Whether a backward may leave gradients in the parameters of an optimizer."""
    owners = _owners(script, step)
    assert backward.backward is not None
    tensors = backward.backward.tensors
    if not owners or not tensors or any(not t.passes for t in tensors):
        return True
    forwards = all_known(script.log.at("forward", node) for t in tensors for node in t.passes)
    if not forwards:
        return True
    makers = [o.this for site in forwards for o in site if o.this is not None]
    mine = {x for p in owners for x in (p, *without_wrappers(p))}
    if any(x in mine for m in makers for x in (m, *without_wrappers(m))):
        return True
    try:
        keys = {key for p in owners for x in without_wrappers(p) for key, _ in parameters_of(x)}
        reached = {key for m in makers for x in without_wrappers(m) for key, _ in parameters_of(x)}
    except Refusal:
        return True
    return not keys or bool(keys & reached)
