"""Gradient accumulation for the training loops of a script: what becomes of each, or why not.

DistributedDataParallel: the ranks exchange their gradients once for each window, not once for
each batch.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from autofast.edit.edits import Around, Edit, Edits, Import, plain_code
from autofast.edit.order import Rank
from autofast.facts.batch.kinds import Kind
from autofast.facts.batch.losses import Losses
from autofast.facts.batch.samples import Activation, Shape
from autofast.facts.kept_by_forward import carried_by_forward, changed_around_forward
from autofast.facts.updates.cadence import FRAMEWORKS
from autofast.facts.updates.events import Iteration, check_order, iteration_of
from autofast.flow.positions import index_in_block, place_in, statements_beside
from autofast.flow.scopes import stored_in
from autofast.model.calls import arguments_of, names_in
from autofast.model.names import DDP
from autofast.model.roles import Step
from autofast.model.script import Script
from autofast.model.several import any_in, of_kind
from autofast.model.source import (
    at,
    function_of,
    is_same_function,
    nodes_in,
    source_of,
    statement_of,
    within,
)
from autofast.model.syntax import VARIABLES
from autofast.model.values import Ext, Num, Tensor, Values, is_named
from autofast.read.recover.compiled import records_graphs
from autofast.rule import Options, Refusal
from autofast.techniques.accumulation.batch_size import drops_last, smaller_batches
from autofast.techniques.accumulation.body import Body, whole
from autofast.techniques.accumulation.existing import existing_window
from autofast.techniques.accumulation.window import Window, loader_of, window_of

OTHERS = {
    "accelerate": "give Accelerator(gradient_accumulation_steps=...) and use accelerator.accumulate(model)",
    "lightning": "give Trainer(accumulate_grad_batches=...)",
    "hf-trainer": "give TrainingArguments(gradient_accumulation_steps=...)",
    "deepspeed": "give gradient_accumulation_steps in the configuration of DeepSpeed",
}


@dataclass(frozen=True, eq=False)
class Accumulated:
    """What becomes of one training loop. ``window`` and ``iteration`` are None where it gathers
    gradients already, or where it cannot (``refusal``).
    """

    step: Step
    node: ast.AST
    message: str
    edits: Edits = ()
    refusal: str = ""
    window: Window | None = None
    iteration: Iteration | None = None


class _All:
    """What becomes of the training loops of a script, for each number of batches and whether the
    batches stay as large, found once.
    """

    def __init__(self, script: Script):
        self.script = script
        self._known: dict[tuple[int, bool], list[Accumulated]] = {}

    def of(self, steps: int, keep: bool) -> list[Accumulated]:
        if (steps, keep) not in self._known:
            found = [_of(self.script, step, steps, keep) for step in self.script.steps]
            self._known[steps, keep] = _together(self.script, found) if keep else found
        return self._known[steps, keep]


def accumulated(script: Script, options: Options) -> list[Accumulated]:
    """One for each training loop."""
    return script.analysis(_All).of(options.accumulate, options.keep_batch)


def planned(script: Script, options: Options, loop: ast.AST) -> Accumulated | None:
    """What becomes of a loop in the same plan, for rules that count updates; None where it does
    nothing there.
    """
    if not options.decides(Accumulated) or options.accumulate < 2:
        return None
    return next((a for a in accumulated(script, options) if a.step.loop is loop and a.edits), None)


def _of(script: Script, step: Step, steps: int, keep: bool) -> Accumulated:
    node = step.backwards[0].node
    try:
        if framework := script.framework(FRAMEWORKS):
            raise Refusal(
                f"{framework} has windows of its own: {OTHERS.get(framework, 'see its documentation')}"
            )
        if script.unread:
            raise Refusal(f"not all of the script is followed: {script.unread}")
        if (graphs := records_graphs(script)) is not None:
            raise Refusal(
                "has torch record CUDA graphs, whose gradients overwrite those of the batch before",
                graphs,
            )
        present = existing_window(script, step)
        if present is not None:
            count = present.count or f"`{ast.unparse(present.every)}`"
            raise Refusal(
                f"it gathers the gradients of {count} batches already ({at(present.every)}): change that number"
            )
        return _made(script, step, node, steps, keep)
    except Refusal as why:
        return Accumulated(step, node, _message(steps, keep), refusal=str(why))


def _together(script: Script, found: list[Accumulated]) -> list[Accumulated]:
    """Where one of the loops that train on a loader stays as it is, so do the others: it would get
    smaller batches.
    """
    while True:
        left = [a.step for a in found if not a.edits]
        now = [
            replace(
                a,
                edits=(),
                window=None,
                refusal=f"{at(other.loop)} trains on the same loader, makes an update of every batch, and would get smaller ones",
            )
            if a.edits and (other := next((s for s in left if _shares(script, s, a.step)), None))
            else a
            for a in found
        ]
        if now == found:
            return found
        found = now


def _shares(script: Script, one: Step, other: Step) -> bool:
    if any_in(one.loaders, other.loaders):
        return True
    over = one.loop.iter if isinstance(one.loop, ast.For) else one.loop
    return any(any_in(script.values(n), other.loaders) for n in nodes_in(over, *VARIABLES))


def _message(steps: int, keep: bool) -> str:
    if keep:
        return f"makes an update of every batch; of {steps} batches of a part of the size, an update needs less memory"
    return f"makes an update of every batch; one of {steps} batches is as one of a batch {steps} times as large, in the memory of a small one"


def _made(script: Script, step: Step, node: ast.AST, steps: int, keep: bool) -> Accumulated:
    if not isinstance(step.loop, ast.For):
        raise Refusal(
            "it is no loop over the batches of a DataLoader, so that its last window is not known"
        )
    if step.double_backward:
        raise Refusal(f"gradients of gradients are computed on {at(step.double_backward[0])}")
    loader_of(script, step, step.loop)
    drop = keep and drops_last(script, step.loaders)
    iteration = iteration_of(script, step)
    window = window_of(script, step, steps, drop)
    check_order(script, iteration)
    _check_schedules(script, iteration)
    kinds = _kinds(script, iteration, window, keep)
    body = Body(script, iteration, window, kinds)
    edits: list[Edit] = [*body.build(), *window.made, window.constant]
    if Kind.MEAN in kinds.values():
        edits.append(window.helper)
    if keep:
        _check_kept(script, step, step.loop)
        edits += smaller_batches(script, iteration, window)
    message = _message(steps, keep)
    if _has_batch_norm(script, step):
        message += "; BatchNorm takes its statistics from the single batches"
    if note := communicates(script, iteration, window, edits):
        message += f"; {note}"
    return Accumulated(step, node, message, tuple(edits), window=window, iteration=iteration)


def _check_schedules(script: Script, iteration: Iteration) -> None:
    """A scheduler that is stepped after every update has its lengths in batches, which would become
    others.
    """
    for event in iteration.of("schedule"):
        if isinstance(event.node, ast.Call) and not arguments_of(event.node):
            raise Refusal(
                f"the scheduler that {at(event)} steps after every update counts batches: its lengths would be in updates"
            )
        given = of_kind([event.node], ast.Call)
        if any(
            _is_of_step(script.values(a), iteration.step)
            for call in given
            for a in arguments_of(call)
        ):
            raise Refusal(
                f"the scheduler that {at(event)} steps is told the loss of one batch, which would be the last of several"
            )


def _is_of_step(found: Values, step: Step) -> bool:
    """Whether it is made of one of the step's batches, or a number that was read from such."""
    read = [t.synced for t in of_kind(found, Num) if t.synced is not None]
    tensors = of_kind([*found, *read], Tensor)
    return any(t.grad or not t.batch.isdisjoint(step.loaders) for t in tensors)


def _check_kept(script: Script, step: Step, loop: ast.For) -> None:
    """What forward changes for the next batch, or the loop for it: it would change for each of the
    smaller ones.
    """
    for model in step.models:
        for node in carried_by_forward(script, model):
            raise Refusal(
                f"forward keeps `{ast.unparse(node)}` from batch to batch ({at(node)}), and smaller batches would change it more often"
            )
        for changed in changed_around_forward(script, model, loop, step.loaders):
            raise Refusal(
                f"forward goes by `{ast.unparse(changed)}`, which {at(changed)} changes, more often with smaller batches"
            )


def _kinds(script: Script, iteration: Iteration, window: Window, keep: bool) -> dict[int, Kind]:
    losses = Losses(script, keep)
    counters = {window.counter} if not window.made else set()
    batch = frozenset(n.id for n in nodes_in(iteration.loop.target, ast.Name)) - counters
    kinds: dict[int, Kind] = {}
    for event in iteration.of("backward"):
        run = Activation(function_of(iteration.loop), {}, iteration.loop, batch)
        for call in event.calls:
            run = Activation(
                call.func.node,
                {
                    n: _given(losses, g.expr, run)
                    for n, g in call.given.items()
                    if g.expr is not None
                },
            )
        assert event.backward is not None
        kinds[id(event)] = losses.of(whole(event.backward), run)
    return kinds


def _given(losses: Losses, expr: ast.expr, run: Activation) -> Callable[[], Shape]:
    return lambda: losses.shape(expr, run)


def _has_batch_norm(script: Script, step: Step) -> bool:
    return any(
        "BatchNorm" in layer for m in script.models if m.thing in step.models for layer in m.layers
    )


SLOW = "the ranks exchange gradients after every batch: put model.no_sync() around forward and backward of all but the last"


def communicates(script: Script, iteration: Iteration, window: Window, edits: list[Edit]) -> str:
    """Adds ``no_sync()`` to ``edits`` where the model is certainly a DistributedDataParallel; a
    note where it may be one.
    """
    calls = [
        s.call
        for s in iteration.step.forwards
        if s.call and any(is_named(o.this, Ext, DDP) for o in s)
    ]
    if not calls:
        return ""
    model = calls[0].func
    same = len({ast.unparse(c.func) for c in calls}) == 1 and isinstance(model, VARIABLES)
    if not same or names_in(model) & stored_in(iteration.loop):
        return SLOW
    condition = plain_code(window.is_last)
    backwards = [e.node for e in iteration.of("backward")]
    quiet = no_sync(
        iteration.loop,
        backwards,
        condition,
        edits,
        calls,
        ast.unparse(model),
        all(is_named(t, Ext, DDP) for t in script.values(model)),
    )
    edits += quiet
    return "" if quiet else SLOW


def no_sync(
    loop: ast.For,
    backwards: Iterable[ast.AST],
    condition: str,
    edits: Iterable[Edit],
    calls: list[ast.Call],
    name: str,
    always: bool,
) -> list[Edit]:
    """``no_sync()`` around forward and backward of all batches but the last of a window; none where
    ``edits`` put something between them.

    ``condition`` is a template for "the last batch of a window". ``calls`` run the model, which is
    called ``name`` there and is ``always`` a DistributedDataParallel, or only in some runs.
    """
    ends = [statement_of(b) for b in backwards]
    here = statements_beside(ends[0])
    first = min(place_in(here, c) for c in calls)
    last = [index_in_block(here, b) for b in ends]
    if min(first, *last) < 0 or not all(
        is_same_function(b, loop) and within(b, loop) for b in ends
    ):
        return []
    if any(_crosses(e, here, first, max(last)) for e in of_kind(edits, Around)):
        return []
    if not always:
        condition += f' or not hasattr({name}, "no_sync")'
    header = f"with nullcontext() if {condition} else {name}.no_sync():"
    return [
        Around(here[first], here[max(last)], header, rank=Rank.GRAD_MODE),
        Import(source_of(loop), "from contextlib import nullcontext"),
    ]


def _crosses(edit: Around, here: list[ast.stmt], first: int, last: int) -> bool:
    """Something of the update stands between forward and backward."""
    return any(first <= index_in_block(here, s) <= last for s in (edit.first, edit.last))
